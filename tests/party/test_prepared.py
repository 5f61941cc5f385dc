"""Two owners' tables, prepared together or each alone, trained on and predicted: on this machine and over HTTPS."""

from __future__ import annotations

import json
import secrets

import numpy as np
import pandas as pd
import pytest

import hdcos
from hdcos import nn
from hdcos.api.tokens import fingerprint, new_secret
from hdcos.cluster.contribution import Contribution
from hdcos.errors import DataMissing, HdcosError, InputError, PeerLost, PolicyRefused
from hdcos.link.cluster_file import ClusterFile
from hdcos.sharing.wide import split_wide
from hdcos.tables import Preparation
from hdcos.tables.fitting import measure
from party.conftest import command, connected

GENERATOR = np.random.default_rng(11)
COUNT = 80
TABLE = pd.DataFrame(
    {
        "who": [f"p{number}" for number in range(COUNT)],
        "age": np.where(np.arange(COUNT) % 9, GENERATOR.normal(50, 20, COUNT), np.nan),
        "city": GENERATOR.choice(["Basel", "Bern"], COUNT),
        "sick": GENERATOR.choice(["no", "yes"], COUNT),
    }
)
DECLARED = {
    "who": "id",
    "age": {"kind": "numeric", "missing": "indicator"},
    "city": {"kind": "category", "values": ["Basel", "Bern"]},
    "sick": {"kind": "label", "classes": ["no", "yes"]},
}
TOML = """
[columns]
who = "id"
age = { kind = "numeric", missing = "indicator" }
city = { kind = "category", values = ["Basel", "Bern"] }
sick = { kind = "label", classes = ["no", "yes"] }
"""
NORTH, SOUTH = TABLE[:50], TABLE[50:]
NAMES = ["age", "age missing", "city=Basel", "city=Bern"]
OPTIONS = {"epochs": 1, "batch_size": 20, "lr": 0.5, "seed": 4, "progress": False}


def network():
    return nn.models.mlp([4, 8, 1])


@pytest.fixture(scope="module")
def other(home):
    """A second client, `south`; the first is `me`."""
    secret, cluster_id = new_secret(), ClusterFile.read(home / "cluster.toml").id
    for rank in (0, 1):
        roles = [part for role in ("predict", "upload", "train") for part in ("--role", role)]
        shown = fingerprint(secret, cluster_id, rank)
        assert command("token", "allow", "south", shown, "--node", home / f"party{rank}", *roles)[0] == 0
    (home / "south").write_text(secret)
    with hdcos.connect(home / "cluster.toml", token=secret, timeout_s=20) as connection:
        yield connection


@pytest.fixture(scope="module")
def local():
    with hdcos.local() as here:
        yield here


@pytest.fixture(params=["local", "https"])
def owners(request):
    """For both owners, the cluster as they see it, and how they say who they are."""
    if request.param == "local":
        here = request.getfixturevalue("local")
        return [(here, {"owner": "me"}), (here, {"owner": "south"})]
    return [(request.getfixturevalue("cluster"), {}), (request.getfixturevalue("other"), {})]


@pytest.fixture
def name():
    return f"name-{secrets.token_hex(4)}"


def together(owners, name):
    (first, me), (second, south) = owners
    parts = [
        first.contribute(NORTH, DECLARED, name=name, owners=2, clients=["me", "south"], **me),
        second.contribute(SOUTH, DECLARED, name=name, owners=2, clients=["south", "me"], **south),
    ]
    return [part.preparation(10) for part in parts]


def test_two_owners_of_rows_prepare_train_and_predict(owners, name) -> None:
    prepared, same = together(owners, name)
    assert prepared.digest == same.digest
    assert prepared.owners == 2
    pooled = Preparation.fit(TABLE, DECLARED)
    np.testing.assert_array_equal(prepared.apply(TABLE), pooled.apply(TABLE))

    (first, _), (second, _) = owners
    assert first.upload(NORTH, name=f"north-{name}", preparation=prepared) == 50
    assert second.upload(iter([SOUTH[:10], SOUTH[10:]]), name=f"south-{name}", preparation=same) == 30
    if first is not second:
        second.allow_training(f"south-{name}", "me")
    kept = next(item for item in first.datasets() if item["name"] == f"north-{name}")
    assert (kept["preparation"], list(kept["columns"])) == (prepared.digest, NAMES)

    trained = first.fit(network(), [f"north-{name}", f"south-{name}"], name=name, **OPTIONS)
    (known,) = trained.prepared
    assert (list(known.names), known.digest) == (NAMES, prepared.digest)
    assert known.owners == (("caller",) if first is second else ("me", "south"))
    assert first.model(name).prepared == trained.prepared

    by_table = trained.predict(TABLE.drop(columns="sick"), preparation=prepared)
    by_rows = trained.predict(prepared.rows(TABLE))
    by_array = trained.predict(prepared.apply(TABLE))
    assert np.abs(by_table - by_array).max() < 1e-2
    assert np.abs(by_rows - by_array).max() < 1e-2
    with pytest.raises(InputError, match=rf"{name} was trained on rows that were prepared by .*: prepare these"):
        trained.predict(pd.DataFrame(prepared.apply(TABLE), columns=NAMES))
    with pytest.raises(InputError, match=r"the file that was written for the training rows, which for .* is another"):
        trained.predict(TABLE, preparation=pooled)
    with pytest.raises(InputError, match=r"lacks \['city'\]"):
        trained.predict(TABLE.drop(columns="city"), preparation=prepared)


def test_rows_that_were_prepared_differently_are_not_joined(owners, name) -> None:
    (first, _), (second, _) = owners
    first.upload(NORTH, name=f"north-{name}", preparation=Preparation.fit(NORTH, DECLARED))
    second.upload(SOUTH, name=f"south-{name}", preparation=Preparation.fit(SOUTH, DECLARED))
    if first is not second:
        second.allow_training(f"south-{name}", "me")
    with pytest.raises(HdcosError, match=rf"rows of '.*north-{name}' were prepared by .*south-{name}' .*hdcos prepare"):
        first.fit(network(), [f"north-{name}", f"south-{name}"], **OPTIONS)


def test_columns_of_two_owners_keep_a_preparation_each(local, name) -> None:
    left = Preparation.fit(TABLE[["age"]], {"age": DECLARED["age"]})
    right = Preparation.fit(TABLE[["city", "sick"]], {"city": DECLARED["city"], "sick": DECLARED["sick"]})
    local.upload(TABLE[["age"]], name=f"left-{name}", preparation=left)
    local.upload(TABLE[["city", "sick"]], name=f"right-{name}", preparation=right)
    trained = local.fit(network(), (f"left-{name}", f"right-{name}"), name=name, **OPTIONS)
    assert [each.digest for each in trained.prepared] == [left.digest, right.digest]
    table = TABLE[["city", "age"]]
    found = trained.predict(table, preparation=[left, right])
    beside = np.hstack([left.apply(table[["age"]]), right.apply(table[["city"]])])
    assert np.abs(found - trained.predict(beside)).max() < 1e-2
    with pytest.raises(InputError, match="take the file"):
        trained.predict(left.rows(table[["age"]]))
    revealed = trained.reveal()
    assert revealed.prepared == trained.prepared


def test_an_owner_who_waits_in_vain_withdraws(owners, name) -> None:
    (first, me), _ = owners
    part = first.contribute(NORTH, DECLARED, name=name, owners=2, **me)
    assert part.contributed() == ["me"]
    with pytest.raises(PolicyRefused, match=r"me has contributed to .* already"):
        first.contribute(NORTH, DECLARED, name=name, owners=2, **me)
    with pytest.raises(PeerLost, match=r"1 of 2 owners \(me\) contributed .* withdrawn: have the others run `hdcos"):
        part.preparation(0.0)
    with pytest.raises(DataMissing, match="has no part in statistics"):
        part.contributed()


def test_an_owner_who_gives_up_when_totals_were_told_is_not_told_otherwise(owners, name, monkeypatch) -> None:
    """The last owner comes, and is told the totals, between the first one's last look and its withdrawal."""
    (first, me), (second, south) = owners
    part = first.contribute(NORTH, DECLARED, name=name, owners=2, **me)
    gave_up = part._give_up

    def too_late() -> None:
        second.contribute(SOUTH, DECLARED, name=name, owners=2, **south).preparation()
        gave_up()

    monkeypatch.setattr(part, "_give_up", too_late)
    with pytest.raises(PeerLost, match=r"could not be withdrawn: the totals may have been told .* --collect"):
        part.preparation(0.0)
    assert not part.withdrawn


def test_owners_with_other_columns_are_told(owners, name) -> None:
    (first, me), (second, south) = owners
    first.contribute(NORTH, DECLARED, name=name, owners=2, **me)
    with pytest.raises(InputError, match=r"me began .* with another declaration of columns .* that of south"):
        other = {**DECLARED, "age": {"kind": "numeric", "missing": "mean"}}
        second.contribute(SOUTH, other, name=name, owners=2, **south)
    with pytest.raises(InputError, match="9 rows would tell"):
        second.contribute(SOUTH[:9], DECLARED, name=name, owners=2, **south)
    with pytest.raises(InputError, match="owners must be a whole number of at least 2"):
        second.contribute(SOUTH, DECLARED, name=name, owners=1, **south)


def test_who_the_owner_is_the_token_tells(cluster, local, name) -> None:
    with pytest.raises(InputError, match="leave `owner` out"):
        cluster.contribute(NORTH, DECLARED, name=name, owners=2, owner="south")
    with pytest.raises(InputError, match=r"say which one \(owner"):
        local.contribute(NORTH, DECLARED, name=name, owners=2)


def test_rows_with_a_preparation_say_their_labels_themselves(local, name) -> None:
    made = Preparation.fit(NORTH, DECLARED)
    with pytest.raises(InputError, match="leave y and `label` out"):
        local.upload(NORTH, [1] * 50, name=name, preparation=made)
    with pytest.raises(InputError, match=r"row 3 .*column 'city': 'Chur' is none of the values"):
        local.upload(NORTH.assign(city=["Bern"] * 3 + ["Chur"] * 47), name=name, preparation=made)


def test_commands_prepare_upload_train_and_name_classes(home, other, name, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HDCOS_CLUSTER", str(home / "cluster.toml"))
    monkeypatch.chdir(tmp_path)
    me, south = ("--token-file", home / "token"), ("--token-file", home / "south")
    NORTH.to_csv("north.csv", index=False)
    SOUTH.to_parquet("south.parquet", index=False)
    (tmp_path / "columns.toml").write_text(TOML)

    code, output = command("columns", "north.csv", "--label", "sick", "--output", "guess.toml")
    assert code == 0, output
    assert 'sick = { kind = "label", classes = ["no", "yes"] }' in (tmp_path / "guess.toml").read_text()

    known = ("--columns", "columns.toml", "--with", name, "--client", "me", "--client", "south")
    with connected(home) as cluster:
        cluster.contribute("north.csv", "columns.toml", name=name, owners=2, clients=["me", "south"])
    code, output = command("prepare", "north.csv", *known, *me)
    assert code == 1
    assert "me has contributed" in output
    code, output = command("prepare", "south.parquet", *known, *south)
    assert code == 0, output
    code, output = command("prepare", "north.csv", *known, *me, "--collect")
    assert code == 0, output
    files = ["north.csv.preparation.json", "south.parquet.preparation.json"]
    assert len({Preparation.load(file).digest for file in files}) == 1

    for file, kept, token in (("north.csv", files[0], me), ("south.parquet", files[1], south)):
        allowed = ("--allow", "me") if token is south else ()
        code, output = command("upload", file, "--name", f"{file[:5]}-{name}", "--preparation", kept, *token, *allowed)
        assert code == 0, output
        assert "rows with labels" in output
    with connected(home) as cluster:
        cluster.fit(network(), [f"north-{name}", f"south-{name}"], name=name, **OPTIONS)
    SOUTH.drop(columns="sick").assign(number=[f"P {row}" for row in range(30)]).to_csv("new.csv", index=False)
    code, output = command("predict", name, "new.csv", "--id", "number", "--label", "--preparation", files[0], *me)
    assert code == 0, output
    rows = [line.split(",") for line in output.splitlines()]
    assert rows[0] == ["number", "label"]
    assert [row[0] for row in rows[1:]] == [f"P {row}" for row in range(30)]
    assert {row[1] for row in rows[1:]} <= {"no", "yes"}
    code, output = command("predict", name, "new.csv", "--id", "nummer", "--preparation", files[0], *me)
    assert code == 1
    assert "new.csv has no column 'nummer'; it has " in output
    code, output = command("evaluate", name, "south.parquet", "--preparation", files[0], "--json", *me)
    assert code == 0, output
    report = json.loads(output)
    assert (report["classes"], report["rows"]) == (["no", "yes"], 30)
    assert report["accuracy"] == np.mean([row[1] for row in rows[1:]] == SOUTH["sick"])
    code, output = command("evaluate", name, "south.parquet", *me)
    assert code == 2
    assert "say where the labels are" in output
    code, output = command("predict", name, "new.csv", "--preparation", "columns.toml", *me)
    assert code == 1
    assert "not a preparation" in output


def test_a_file_is_prepared_alone_once(home, name, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HDCOS_CLUSTER", str(home / "cluster.toml"))
    NORTH.to_csv(tmp_path / "north.csv", index=False)
    (tmp_path / "columns.toml").write_text(TOML)
    known = ("upload", tmp_path / "north.csv", "--name", name, "--columns", tmp_path / "columns.toml")
    token, place = ("--token-file", home / "token"), tmp_path / "north.csv.preparation.json"
    assert command(*known, *token)[0] == 0
    first = Preparation.load(place)
    code, output = command(*known, *token)
    assert code == 0
    assert "is used again" in output
    assert Preparation.load(place).digest == first.digest
    NORTH[:40].to_csv(tmp_path / "north.csv", index=False)
    code, output = command(*known, *token)
    assert code == 1
    assert "holds another preparation, which models may need" in output
    assert command("prepare", tmp_path / "north.csv", *known[-2:], "--output", tmp_path / "p.json")[0] == 0
    assert command(*known[:4], "--preparation", tmp_path / "p.json", *token)[0] == 0
    code, output = command("prepare", tmp_path / "north.csv", *known[-2:], "--with", name, "--output", tmp_path / "q")
    assert code == 2
    assert "how many owners" in output


def test_a_contribution_whose_process_ended_is_withdrawn_by_another(cluster, name) -> None:
    cluster.contribute(NORTH, DECLARED, name=name, owners=2)
    again = Contribution.made_before(cluster.transport, Preparation.fit(NORTH, DECLARED).columns, name)
    again.withdraw()
    with pytest.raises(DataMissing):
        again.contributed()


def test_what_reached_one_party_alone_is_never_added_up(cluster, other, name) -> None:
    """A process died between the two: the next attempt is refused, clears it away, and the one after that counts."""
    columns = Preparation.fit(NORTH, DECLARED).columns
    numbers = measure(columns, NORTH).numbers
    record = {"name": name, "id": "0" * 32, "agreement": columns.digest, "numbers": len(numbers), "owners": 2}
    zero = cluster.transport.both[0]
    zero.ask("POST", "/v2/statistics", {"parameters": record}, {"share": split_wide(numbers)[0]})
    southern = other.contribute(SOUTH, DECLARED, name=name, owners=2)
    assert southern.contributed() == ["south"]
    with pytest.raises(PolicyRefused, match="me has contributed"):
        cluster.contribute(NORTH, DECLARED, name=name, owners=2)
    northern = cluster.contribute(NORTH, DECLARED, name=name, owners=2)
    assert northern.preparation(5).agrees(Preparation.fit(TABLE, DECLARED))
    assert southern.preparation(5).digest == northern.preparation(5).digest


def test_a_configuration_of_training_declares_its_columns(tmp_path) -> None:
    NORTH.to_csv(tmp_path / "north.csv", index=False)
    SOUTH.to_parquet(tmp_path / "south.parquet", index=False)
    config = tmp_path / "config.toml"
    text = (
        '[data]\ntrain = ["north.csv", "south.parquet"]\ntest = "north.csv"\n[model]\nsizes = [4, 8, 1]\n'
        '[training]\nepochs = 1\nbatch_size = 20\nlr = 0.5\nseed = 1\n[output]\nmodel = "m"\n'
    )
    for wrong, said in (
        (text.replace("[model]", 'label = "sick"\n[model]') + TOML, "leave ['label'] out of [data]"),
        (text + TOML.replace('sick = { kind = "label", classes = ["no", "yes"] }', 'sick = "ignored"'), "is the label"),
        (text + TOML.replace("who =", "name ="), "north.csv has unknown ['who']"),
    ):
        config.write_text(wrong)
        code, output = command("train", config)
        assert (code, said in " ".join(output.split())) == (1, True), output
    config.write_text(text + TOML)
    code, output = command("train", config)
    assert code == 0, output
    made = Preparation.load(tmp_path / "config.toml.preparation.json")
    assert made.agrees(Preparation.fit(TABLE, DECLARED))
    model = nn.load(tmp_path / "m")
    assert model.prepared[0].digest == made.digest
    assert list(model.feature_names) == NAMES
