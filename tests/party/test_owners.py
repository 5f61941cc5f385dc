"""Several owners at one cluster: each uploads its own, one of them trains, and nothing is left behind."""

from __future__ import annotations

import json
import secrets
import socket
import sqlite3
import time
from contextlib import closing

import numpy as np
import pytest

import hdcos
from hdcos import nn
from hdcos.errors import InputError
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.targets import one_hot
from hdcos.tables import Preparation
from party.conftest import command, running_all

GENERATOR = np.random.default_rng(5)
X = GENERATOR.uniform(-1, 1, (120, 4))
Y = (X[:, 0] + X[:, 2] > 0).astype(int)
CLIENTS = ("acme", "beta", "lab")
LEDGERS = {"audit", "ledger", "queries", "tokens"}
"""Tables that may remember a run: who did what, what must not be used twice, what was answered; and clients."""
OPTIONS = {"epochs": 1, "batch_size": 20, "lr": 0.5, "seed": 1, "progress": False}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cluster") / "home"
    clients = [word for name in CLIENTS for word in ("--client", name)]
    code, output = command("init", "--single-machine", folder, *clients)
    assert code == 0, output
    for role in ("party0", "party1"):
        path = folder / role / "node.toml"
        text = path.read_text().replace("megabytes = 256 ", "megabytes = 4 ")
        text = text.replace("keep_days = 0 ", "keep_days = 90 ").replace("dataset_gb = 64 ", "dataset_gb = 0.001 ")
        path.write_text(text)
    with running_all(folder):
        yield folder


def ask(home, client, *arguments, cluster="cluster.toml"):
    place = ("--cluster", home / cluster, "--token-file", home / f"{client}.token")
    return command(*arguments, *place)


def connected(home, client):
    return hdcos.connect(home / "cluster.toml", token=(home / f"{client}.token").read_text(), timeout_s=20)


def write(path, x, y=None, names="abcd"):
    table = x if y is None else np.column_stack([x, y])
    header = ",".join([*names[: x.shape[1]], *([] if y is None else ["y"])])
    np.savetxt(path, table, delimiter=",", header=header, comments="", fmt="%.6g")
    return path


def config(path, data, output='name = "both"', sizes="[4, 8, 1]"):
    path.write_text(
        f"[data]\n{data}\n[model]\nsizes = {sizes}\n[training]\nepochs = 2\nbatch_size = 20\nlr = 0.5\nseed = 1\n"
        f"[output]\n{output}\n"
    )
    return path


def held(home, *names) -> set[str]:
    """What the parties have on disk that is named so, or belongs to a job: files, and rows of tables but ledgers."""
    found = set[str]()
    for rank in (0, 1):
        state = home / f"party{rank}" / "state"
        files = [path for path in state.rglob("*") if path.is_file() and path.name not in ("ledger.jsonl", "reserve")]
        found |= {path.relative_to(state).as_posix() for path in files if not path.name.startswith("hdcos.sqlite")}
        found |= {path.relative_to(state).as_posix() for path in state.glob("*/*") if path.name in names}
        with closing(sqlite3.connect(state / "hdcos.sqlite")) as database:
            tables = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            for table in sorted(set(tables) - LEDGERS):
                found |= {f"{table}: {row}" for row in database.execute(f"SELECT * FROM {table}")}
    return found


def settled(home, before, *names) -> bool:
    """Whether they hold what they held before; one of them may be a moment later."""
    deadline = time.monotonic() + 5
    while (now := held(home, *names)) != before and time.monotonic() < deadline:
        time.sleep(0.1)
    assert now == before
    return True


def unwritten(home, word: bytes) -> bool:
    """Whether no file of a party holds a word, nor what is left of one; somebody may be reading there for a moment."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        files = [path for rank in (0, 1) for path in (home / f"party{rank}" / "state").rglob("*") if path.is_file()]
        if not any(word in path.read_bytes() for path in files):
            return True
        time.sleep(0.1)
    return False


def test_from_two_owners_rows_to_a_model_and_back_to_nothing(home, tmp_path) -> None:
    before, named = held(home), [f"{name} of Atlantis" for name in "abcd"]
    write(tmp_path / "north.csv", X[:50], Y[:50], named)
    write(tmp_path / "south.csv", X[50:, ::-1], Y[50:], named[::-1])
    options = ("--name", "rows", "--label", "y", "--allow", "lab")
    code, output = ask(home, "acme", "upload", tmp_path / "north.csv", *options)
    assert (code, output.splitlines()[0]) == (0, "rows: 50 rows with labels"), output
    assert "It is removed on 20" in output, "the operators keep data sets for 90 days"
    options = ("--name", "rows", "--label", "y", "--keep-days", "2")
    assert ask(home, "beta", "upload", tmp_path / "south.csv", *options)[0] == 0
    code, output = ask(home, "beta", "upload", tmp_path / "south.csv", *options)
    assert "This is version 2: jobs that began with version 1 keep it until they end." in output
    assert "may train on" in ask(home, "lab", "datasets", "beta/rows")[1]
    assert ask(home, "beta", "datasets", "rows", "--allow", "lab")[0] == 0
    found = [item for item in json.loads(ask(home, "lab", "datasets", "--json")[1]) if item["complete"]]
    newest = {item["owner"]: item for item in found}
    assert {owner: (item["name"], item["number"], item["rows"]) for owner, item in newest.items()} == {
        "acme": ("rows", 1, 50),
        "beta": ("rows", 2, 70),
    }
    assert newest["beta"]["expires"] == pytest.approx(time.time() + 2 * 86400, abs=60)
    (mine,) = json.loads(ask(home, "acme", "datasets", "--json")[1])
    assert (mine["allowed"], newest["acme"]["allowed"]) == (["lab"], []), "that is between owner and client"
    assert "rows" in ask(home, "lab", "datasets")[1]

    code, output = ask(home, "lab", "train", config(tmp_path / "one.toml", 'rows = ["rows", "beta/rows"]'))
    assert (code, "say which, acme/rows or beta/rows" in output) == (1, True), output
    told = config(tmp_path / "two.toml", 'rows = ["acme/rows", "beta/rows"]\ntest = "north.csv"\nlabel = "y"')
    code, output = ask(home, "lab", "train", told)
    assert code == 0, output
    assert "the parties keep the trained model as both" in output
    pooled = plain_fit(nn.models.mlp([4, 8, 1]), X, one_hot(Y, 1), 2, 20, lambda epoch: 0.5, 1)
    with connected(home, "lab") as lab:
        assert np.abs(lab.model("both").predict(X) - pooled(X)).max() < 0.02

    for client, name in (("lab", "both"), ("acme", "rows"), ("beta", "rows")):
        code, output = ask(home, client, "forget", name)
        assert (code, "is forgotten at both parties" in output) == (0, True), output
        code, output = ask(home, client, "forget", name)
        assert (code, f"no data set of yours, model or job is called {name}" in output) == (1, True), "again is safe"
    for job in json.loads(ask(home, "lab", "jobs", "--json")[1]):  # the one that could not begin
        assert ask(home, "lab", "forget", job["id"])[0] == 0
    assert settled(home, before, "rows", "both")
    assert unwritten(home, b"Atlantis"), "not even where something was"


def test_columns_of_two_owners_and_what_a_run_without_a_name_leaves(home, tmp_path) -> None:
    before = held(home)
    ask(home, "acme", "upload", write(tmp_path / "bank.csv", X[:, :2]), "--name", "bank", "--allow", "lab")
    shop = write(tmp_path / "shop.csv", X[:, 2:], Y, names="cd")
    ask(home, "beta", "upload", shop, "--name", "shop", "--label", "y", "--allow", "lab")
    told = config(tmp_path / "columns.toml", 'columns = ["bank", "shop"]', "")
    code, output = ask(home, "lab", "train", told, "--json")
    assert code == 0, output
    assert "Nobody has checked" in output, "nobody joined them"
    assert [item["state"] for item in json.loads(ask(home, "lab", "jobs", "--json")[1])] == ["done"]
    assert json.loads(ask(home, "lab", "models", "--json")[1]) == [], "a model that nobody named goes with the run"
    job = json.loads(ask(home, "lab", "jobs", "--json")[1])[0]["id"]
    for client, name in (("lab", job), ("acme", "bank"), ("beta", "shop")):
        assert ask(home, client, "forget", name)[0] == 0
    assert settled(home, before, "bank", "shop")


def test_rows_that_came_with_a_call_go_though_the_client_has_gone(home) -> None:
    before = held(home)
    with connected(home, "lab") as lab:
        job = lab.fit(nn.models.mlp([4, 8, 1]), X, Y, name="left", wait=False, watch=0, **{**OPTIONS, "epochs": 20})
        assert any(item["name"].startswith("rows-") for item in lab.datasets())
        job._follower.join(0)  # nobody follows it to its end
        job._own_rows = ""
    deadline = time.monotonic() + 20
    while (rows := [item for item in held(home) if item.startswith("datasets")]) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not rows
    with connected(home, "lab") as lab:
        assert lab.model("left").predict(X[:2]).shape == (2, 1), "what has a name stays"
    assert ask(home, "lab", "forget", "left")[0] == 0
    assert settled(home, before, "left")


def test_a_party_that_is_away_is_named_and_told_later(home, tmp_path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        closed = f"127.0.0.1:{taken.getsockname()[1]}"
    text = (home / "cluster.toml").read_text()
    first, second = text.split("[party1]")
    address = next(line for line in second.splitlines() if line.startswith("http"))
    (home / "broken.toml").write_text(f"{first}[party1]{second.replace(address, f'http = {json.dumps(closed)}')}")
    ask(home, "acme", "upload", write(tmp_path / "rows.csv", X), "--name", "away")
    code, output = ask(home, "acme", "forget", "away", cluster="broken.toml")
    assert code == 1
    assert "party 1" in output
    assert "say `hdcos forget away` again when it answers. Party 0 has forgotten it." in output
    (left,) = json.loads(ask(home, "acme", "datasets", "--json")[1])
    assert not left["complete"], "one share alone is no data set"
    assert "the other had nothing" in ask(home, "acme", "forget", "away")[1]
    assert json.loads(ask(home, "acme", "datasets", "--json")[1]) == []


@pytest.fixture
def uploaded(home):
    with connected(home, "acme") as acme, connected(home, "beta") as beta:
        acme.upload(X[:, :2], name="left")
        beta.upload(X[:, 2:], Y, name="right")
        beta.upload(X[:90, 2:], Y[:90], name="short")
        beta.upload(X[:, 1:], Y, name="wide")
        for owner, name in ((acme, "left"), (beta, "right"), (beta, "short"), (beta, "wide")):
            owner.allow_training(name, "lab")
        acme.upload(X[:, 2:], Y, name="closed")
        yield
        for name in ("left", "closed"):
            acme.forget_data(name)
        for name in ("right", "short", "wide"):
            beta.forget_data(name)


def test_data_that_does_not_fit_says_whose_it_is_and_who_does_what(home, tmp_path, uploaded) -> None:
    cases = [
        ('columns = ["left", "short"]', "acme/left has 120 rows and beta/short has 90 rows"),
        ('rows = ["left", "right"]', "['acme/left'] has none: its owner uploads it again with --label"),
        ('rows = ["right", "wide"]', "beta/right has 2 and 1, beta/wide has 3 and 1"),
        ('columns = ["left", "acme/closed"]', "acme runs `hdcos datasets closed --allow lab`"),
        ('columns = ["left", "nothing"]', "Its owner uploads it and allows you: `hdcos upload FILE --name nothing"),
        ('columns = ["left", "acme/left"]', "acme/left is named twice"),
        ('columns = ["left", "wide"]', "the network takes 4 and gives 1: give it that many (`sizes` in [model])"),
    ]
    for data, words in cases:
        code, output = ask(home, "lab", "train", config(tmp_path / "bad.toml", data))
        assert (code, words in output, "Traceback" in output) == (1, True, False), f"{data}: {output}"
    for job in json.loads(ask(home, "lab", "jobs", "--json")[1]):
        assert job["state"] in ("failed", "cancelled")
        assert ask(home, "lab", "forget", job["id"])[0] == 0


def test_an_upload_that_its_owner_left_is_no_data_set(home, uploaded) -> None:
    """The newest version that both parties hold whole is trained on, whatever became of a later one."""
    with connected(home, "beta") as beta, connected(home, "lab") as lab:
        version = secrets.token_hex(16)
        told = {"name": "right", "version": version, "features": 2, "outputs": 1, "by_rows": True}
        beta.transport.ask("POST", "/v2/datasets", told)
        beta.transport.ask("PUT", f"/v2/datasets/right/{version}?offset=0", raw=[bytes(2400)] * 2)
        states = {item["number"]: item["complete"] for item in lab.datasets() if item["name"] == "right"}
        assert states == {1: True, 2: False}
        beta.transport.ask("POST", "/v2/datasets", {**told, "name": "begun", "version": secrets.token_hex(16)})
        with pytest.raises(InputError, match=r"the upload of beta/begun has not ended: .* beta uploads it again"):
            beta.fit(nn.models.mlp([2, 1]), "begun", **OPTIONS)
        beta.forget_data("begun")
        trained = lab.fit(nn.models.mlp([4, 8, 1]), ("left", "right"), name="whole", **OPTIONS)
        assert trained.predict(X[:2]).shape == (2, 1)
        with pytest.raises(InputError, match=r"no data set is called \['beta/later'\].*'acme/left'"):
            lab.fit(nn.models.mlp([4, 8, 1]), ["beta/later"], **OPTIONS)
    assert ask(home, "lab", "forget", "whole")[0] == 0
    for job in json.loads(ask(home, "lab", "jobs", "--json")[1]):  # not those of the model, which went with it
        assert ask(home, "lab", "forget", job["id"])[0] == 0


def test_an_owner_keeps_no_more_than_the_operator_allows(home, tmp_path) -> None:
    rows = write(tmp_path / "rows.csv", np.zeros((40_000, 4)))
    code, output = ask(home, "acme", "upload", rows, "--name", "large")
    assert (code, "acme may keep 0.001 GB of data here" in output) == (1, True), output
    code, output = ask(home, "acme", "upload", rows, "--name", "large", "--keep-days", "91")
    assert (code, "90 days at most, not 91" in output) == (1, True), output
    assert json.loads(ask(home, "acme", "datasets", "--json")[1]) == []


@pytest.mark.parametrize(
    ("data", "output", "words"),
    [
        ('rows = ["a"]', "", "uploaded to a cluster: say which"),
        ('rows = ["a"]\ntrain = "b.csv"', "", "one of `train`, `rows` and `columns`, not train and rows"),
        ("", "", "[data] lacks `train` (files), or `rows` or `columns`"),
        ("rows = []", "", "is the name of a data set, or a list of names"),
        ('rows = ["a", "a"]', "", "named twice"),
        ('rows = ["../a b"]', "", "a name, or OWNER/NAME"),
        ('rows = ["a"]\nlabel = "y"', "", "`label` in [data] is about files"),
        ('train = "rows.csv"\nlabel = "y"', 'name = "m"', "what the parties of a cluster call the model"),
    ],
)
def test_configurations_that_make_no_sense_are_refused_before_anybody_is_asked(
    tmp_path, monkeypatch, data, output, words
) -> None:
    monkeypatch.delenv("HDCOS_CLUSTER", raising=False)
    write(tmp_path / "rows.csv", X, Y)
    code, said = command("train", config(tmp_path / "bad.toml", data, output))
    assert (code, words in said) == (1, True), said


def test_what_is_suggested_on_ones_own_table_is_trained_on_those_of_two_owners(home, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("hdcos.suggest.candidates.RATES", (0.1,))
    monkeypatch.setattr("hdcos.suggest.candidates.DECAYS", (0.003,))
    monkeypatch.setattr("hdcos.suggest.search.FIRST_STEPS", 20)
    monkeypatch.setattr("hdcos.suggest.search.LAST_STEPS", 40)
    monkeypatch.setattr("hdcos.suggest.search.KEPT", 1)
    north, south = write(tmp_path / "north.csv", X[:, :2] * 50), write(tmp_path / "south.csv", X[:, 2:] * 9, Y, "cd")
    (tmp_path / "north.toml").write_text('[columns]\na = "numeric"\nb = "numeric"\n')
    (tmp_path / "south.toml").write_text('[columns]\nc = "numeric"\nd = "numeric"\ny = "label"\n')
    for client, file, more in (("acme", north, ("--allow", "beta")), ("beta", south, ())):
        options = ("--name", "some", "--columns", file.with_suffix(".toml"), *more)
        code, output = ask(home, client, "upload", file, *options)
        assert code == 0, output
    prepared, told = f"{south}.preparation.json", tmp_path / "guess.toml"
    given = ("--preparation", prepared, "--name", "some", "--beside", "acme/some", "--output", told)
    code, output = ask(home, "beta", "suggest", south, *given)
    assert code == 0, output
    assert f"run `hdcos train {told}" in output
    code, output = ask(home, "beta", "train", told)
    assert code == 0, output
    assert "the parties keep the trained model as guess" in output
    both = [Preparation.load(f"{file}.preparation.json") for file in (south, north)]
    write(tmp_path / "all.csv", np.column_stack([X[:, 2:] * 9, X[:, :2] * 50]), Y, "cdab")
    with connected(home, "beta") as beta:
        guessed = beta.model("guess").predict(tmp_path / "all.csv", preparation=both)[:, 0] > 0
    assert (guessed == Y).mean() > 0.85
    for client, name in (("beta", "guess"), ("acme", "some"), ("beta", "some")):
        assert ask(home, client, "forget", name)[0] == 0
