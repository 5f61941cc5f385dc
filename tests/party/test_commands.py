"""A client's commands against a running cluster."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest

import hdcos
from hdcos import data, nn
from hdcos.errors import HdcosWarning
from hdcos.secure.training.step import plan_step
from party.conftest import command, secret


@pytest.fixture
def ask(home, monkeypatch):
    monkeypatch.setenv("HDCOS_CLUSTER", str(home / "cluster.toml"))
    monkeypatch.setenv("HDCOS_TOKEN", secret(home))
    return command


def test_share_predict_and_look(ask, tmp_path) -> None:
    model = nn.models.mlp([6, 8, 3])
    rows = np.random.default_rng(0).uniform(-6, 6, (4, 6))
    model.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "rows.npy", rows)
    np.savetxt(tmp_path / "rows.csv", rows, delimiter=",")
    np.savez(tmp_path / "rows.npz", x=rows)
    code, output = ask("share-model", tmp_path / "model.safetensors", "--name", "tiny")
    assert code == 0, output
    for name in ("rows.npy", "rows.csv", "rows.npz"):
        code, output = ask("predict", "tiny", tmp_path / name)
        assert code == 0, output
        names, *lines = output.splitlines()
        assert names == "logit_0,logit_1,logit_2"
        shown = np.array([[float(cell) for cell in line.split(",")] for line in lines])
        assert np.abs(shown - model(rows)).max() < 1e-2
    assert ask("predict", "tiny", tmp_path / "rows.npy", "--output", tmp_path / "out.npy", "--mode", "masked")[0] == 0
    assert np.abs(np.load(tmp_path / "out.npy") - model(rows)).max() < 1e-2
    assert ask("predict", "tiny", tmp_path / "rows.npy", "--output", tmp_path / "out.csv")[0] == 0
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 1 + 4
    labels = [str(label) for label in model(rows).argmax(axis=1)]
    for options, names in (((), ["label"]), (("--no-header",), [])):
        code, output = ask("predict", "tiny", tmp_path / "rows.csv", "--label", *options)
        assert (code, output.split()) == (0, names + labels), output
    assert ask("predict", "tiny", tmp_path / "rows.npy", "--label", "--output", tmp_path / "out.npy")[0] == 0
    assert (np.load(tmp_path / "out.npy") == model(rows).argmax(axis=1)).all()
    code, output = ask("predict", "tiny", tmp_path / "rows.csv", "--proba")
    names, *lines = output.splitlines()
    assert names == "label,probability_0,probability_1,probability_2"
    shown = np.array([[float(cell) for cell in line.split(",")] for line in lines])
    assert shown[:, 0].astype(int).astype(str).tolist() == labels
    assert np.abs(shown[:, 1:] - np.exp(model(rows)) / np.exp(model(rows)).sum(axis=1, keepdims=True)).max() < 1e-2
    assert ask("predict", "tiny", tmp_path / "rows.csv", "--label", "--proba")[0] == 2
    for options in ((), ("--label",)):
        assert "material for" in ask("deal", "tiny", "--rows", "5", *options)[1]
    assert [item["name"] for item in json.loads(ask("models", "--json")[1])] == ["tiny"]
    assert "tiny" in ask("models")[1]
    code, output = ask("reveal", "tiny", "--output", tmp_path / "back", "--wait-s", "0.1")
    assert code == 1
    assert "--request" in output
    assert "Traceback" not in output


def test_rows_keep_their_ids_and_are_evaluated_piece_by_piece(ask, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("hdcos.data.records.PIECE_ROWS", 16)
    model, rows = nn.models.mlp([3, 8, 1], seed=2), np.random.default_rng(1).uniform(-3, 3, (40, 3))
    model.save(tmp_path / "model.safetensors")
    assert ask("share-model", tmp_path / "model.safetensors", "--name", "sick")[0] == 0
    truth = ["ill" if logit > 0 else "well" for logit in model(rows)[:, 0] + 0.1 * np.sin(np.arange(40))]
    lines = [f"P-{n:03},{x[0]},{x[1]},{x[2]},{y},North" for n, (x, y) in enumerate(zip(rows, truth, strict=True))]
    (tmp_path / "rows.csv").write_text("\n".join(["patient,a,b,c,state,ward", *lines]) + "\n")
    chosen = ("sick", tmp_path / "rows.csv", "--leave-out", "ward", "--class-names", "well,ill")
    options = ("--id", "patient", "--leave-out", "state", "--proba", "--output", tmp_path / "found.csv")
    code, output = ask("predict", *chosen, *options)
    assert code == 0, output
    names, *found = (line.split(",") for line in (tmp_path / "found.csv").read_text().splitlines())
    assert names == ["patient", "label", "probability"]
    assert [line[0] for line in found] == [f"P-{n:03}" for n in range(40)]
    known = 1 / (1 + np.exp(-model(rows)[:, 0]))
    assert np.abs(np.array([line[2] for line in found], float) - known).max() < 1e-2
    assert all((line[1] == "ill") == (float(line[2]) > 0.5) for line in found)
    scored = (*chosen[1:], "--label", "state", "--leave-out", "patient", "--json")
    for more, refused in (((), True), (("--label",), False)):
        code, output = ask("predict", *chosen, "--leave-out", "state", "--leave-out", "patient", *more)
        assert (code, "ask for --label or --proba" in output) == ((2, True) if refused else (0, False)), output
    code, output = ask("evaluate", "sick", *scored)
    assert code == 0, output
    report = json.loads(output)
    assert (report["rows"], report["classes"]) == (40, ["well", "ill"])
    assert report["accuracy"] == np.mean([line[1] == each for line, each in zip(found, truth, strict=True)])
    plain = json.loads(ask("evaluate", tmp_path / "model.safetensors", *scored)[1])
    assert report["log_loss"] == pytest.approx(plain["log_loss"], abs=0.02)
    (tmp_path / "rows.csv").write_text("\n".join(["patient,a,b,c,state,ward", *lines, "P-040,1,2,many,ill,North"]))
    code, output = ask("predict", *chosen, *options[:-1], tmp_path / "cut.csv")
    assert (code, "line 42, column c" in output.replace("\n", " ")) == (1, True)
    assert not (tmp_path / "cut.csv").exists(), "what is not whole is not there"


def test_intervals_are_chosen_and_their_cost_is_shown(ask, tmp_path) -> None:
    model = nn.Sequential([nn.Dense(6, 8), nn.Tanh(), nn.Dense(8, 3)], seed=1)
    model = model.with_state({**model.state(), "0.weight": 10 * model.state()["0.weight"]})
    rows = np.random.default_rng(0).uniform(-1, 1, (40, 6))
    model.save(tmp_path / "model.safetensors")
    np.savetxt(tmp_path / "rows.csv", np.c_[rows, np.ones(40)], delimiter=",", header="a,b,c,d,e,f,y", comments="")
    np.save(tmp_path / "narrow.npy", rows[:, :5])
    options = ("share-model", tmp_path / "model.safetensors", "--name", "wide", "--calibrate")
    code, output = ask(*options, tmp_path / "narrow.npy")
    said = "narrow.npy: the network takes an array of shape (rows, 6), got (40, 5)"
    assert (code, said in output, "Traceback" in output) == (1, True, False)
    code, output = ask(*options, tmp_path / "rows.csv", "--label", "y")
    assert code == 0, output
    (chosen,) = model.calibrate(rows).intervals
    assert (chosen.interval, chosen.harmonics) == (28, 28)
    assert f"{chosen}; reached from" in output
    assert "wide is ready" in output
    np.save(tmp_path / "rows.npy", rows)
    assert ask("predict", "wide", tmp_path / "rows.npy", "--output", tmp_path / "out.npy")[0] == 0
    assert np.abs(np.load(tmp_path / "out.npy") - model(rows)).max() < 2e-2
    with warnings.catch_warnings():
        warnings.simplefilter("always", HdcosWarning)
        code, output = ask("share-model", tmp_path / "model.safetensors", "--name", "wide")
    assert code == 0, output
    assert "HdcosWarning: assumed |x| <= 4 in layer 1 (Tanh)" in output
    assert "`hdcos share-model --calibrate FILE` measures what your rows need." in output
    assert "calibrate=" not in output


def test_how_a_network_compares_is_said_as_it_is_shared(ask, tmp_path) -> None:
    model = nn.Sequential([nn.Dense(6, 8), nn.ReLU6(), nn.Dense(8, 3)], seed=1)
    rows = np.random.default_rng(0).uniform(-1, 1, (4, 6))
    model.save(tmp_path / "model.safetensors")
    np.save(tmp_path / "rows.npy", rows)
    for more, rounds in (((), 5), (("--compare", "dcf"), 4)):
        code, output = ask("share-model", tmp_path / "model.safetensors", "--name", "relu6", *more)
        first, second = output.splitlines()
        said = f"relu6 is ready, {rounds} rounds per prediction ({rounds - 1} for rows masked ahead)"
        assert (code, first) == (0, said)
        (known,) = (item for item in json.loads(ask("models", "--json")[1]) if item["name"] == "relu6")
        answered = f", {known['queries']} are answered" if known["queries"] else ""
        assert second == (
            f"The parties answer {known['queries_allowed']:,} rows of it in all, for all clients together{answered}; "
            f"operators can change that (`hdcos quota`)"
        )
        assert ask("predict", "relu6", tmp_path / "rows.npy", "--output", tmp_path / "out.npy")[0] == 0
        assert np.abs(np.load(tmp_path / "out.npy") - model(rows)).max() < 1e-2
    assert ask("share-model", tmp_path / "model.safetensors", "--name", "relu6", "--compare", "magic")[0] == 2


def test_upload_train_and_jobs(ask, tmp_path, home) -> None:
    x, y = data.digits("train")
    np.savez(tmp_path / "rows.npz", x=x[:200], y=y[:200])
    code, output = ask("upload", tmp_path / "rows.npz", "--name", "mine", "--label", "y", "--outputs", "10")
    assert code == 0, output
    assert "200 rows with labels" in output
    (tmp_path / "config.toml").write_text(
        '[data]\ntrain = "rows.npz"\nlabel = "y"\ntest = "rows.npz"\n[model]\nsizes = [64, 16, 10]\n'
        "[training]\nepochs = 2\nbatch_size = 50\nlr = 0.1\n"
    )
    planned = plan_step(nn.models.mlp([64, 16, 10]), 50)
    for _ in range(2):  # the second time the nodes have done other work
        code, output = ask("train", tmp_path / "config.toml", "--cluster", home / "cluster.toml", "--json")
        assert code == 0, output
        said = json.loads(output)
        assert [epoch["epoch"] for epoch in said["epochs"]] == [1, 2]
        assert all(epoch["accuracy"] is not None for epoch in said["epochs"])
        assert (said["rounds"], said["bytes_sent"]) == (8 * planned.rounds, 8 * planned.online_bytes)
    code, output = ask("train", tmp_path / "config.toml", "--cluster", home / "cluster.toml")
    assert code == 0, output
    assert f"{8 * planned.rounds:,} rounds" in output
    with hdcos.connect(home / "cluster.toml", secret(home)) as cluster:
        assert [item["name"] for item in cluster.datasets()] == ["mine"], "rows of a command go with it"
    found = json.loads(ask("jobs", "--json")[1])
    assert found[-1]["state"] == "done"
    assert found[-1]["id"] in ask("jobs", found[-1]["id"], "--json")[1]


def test_nothing_but_an_error_is_said_where_nothing_is_answered(ask, tmp_path) -> None:
    nn.models.mlp([3, 8, 1]).save(tmp_path / "model.safetensors")
    assert ask("share-model", tmp_path / "model.safetensors", "--name", "three")[0] == 0
    (tmp_path / "rows.csv").write_text("1,2\n4,5\n")
    code, output = ask("predict", "three", tmp_path / "rows.csv")
    assert (code, len(output.splitlines())) == (1, 1), output
    assert "logit" not in output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("predict", "none", "{}/rows.csv"), "no model is named 'none'"),
        (("forget", "none"), "no data set of yours, model or job is called none"),
        (("forget", "none", "--model"), "no model is called none"),
        (("forget", "0" * 32), "no data set of yours, model or job is called 000"),
        (("models", "--token-file", "{}/token"), "knows no such token: check HDCOS_TOKEN or --token-file"),
        (("predict", "none", "{}/rows.csv", "--output", "x.txt"), "neither a .csv nor a .parquet nor a .npy"),
        (("predict", "../x", "{}/rows.csv"), "model name"),
        (("jobs", "0" * 32), "you have no job"),
        (("upload", "{}/rows.csv", "--name", "a/b"), "made of up to"),
    ],
)
def test_mistakes_are_named(ask, tmp_path, arguments, words) -> None:
    (tmp_path / "rows.csv").write_text("1,2,3\n4,5,6\n")
    (tmp_path / "token").write_text("hdcos-unknown")
    code, output = ask(*(argument.format(tmp_path) for argument in arguments))
    assert code == 1
    assert words in output
    assert "Traceback" not in output
