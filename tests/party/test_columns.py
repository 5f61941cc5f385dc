"""Columns by name, from tables to predictions, on this machine and over HTTPS."""

from __future__ import annotations

import json
import secrets

import numpy as np
import pandas as pd
import pytest

import hdcos
from hdcos import nn
from hdcos.errors import InputError, ModelError
from party.conftest import command, connected, secret

NAMES = ["age", "income", "pulse", "steps"]
SHUFFLED = ["pulse", "steps", "age", "income"]
GENERATOR = np.random.default_rng(3)
TABLE = pd.DataFrame(GENERATOR.uniform(-1, 1, (60, 4)), columns=NAMES)
LABELS = (TABLE["age"] > TABLE["pulse"]).astype(int)
OPTIONS = {"epochs": 1, "batch_size": 20, "lr": 0.5, "seed": 4, "progress": False}


def network():
    return nn.models.mlp([4, 8, 1])


@pytest.fixture(scope="module", params=["local", "https"])
def cluster(request):
    if request.param == "local":
        with hdcos.local() as here:
            yield here
    else:
        with connected(request.getfixturevalue("home")) as there:
            yield there


@pytest.fixture
def name():
    return f"name-{secrets.token_hex(4)}"


def test_a_shared_model_finds_columns_by_name(cluster, name) -> None:
    model = network().with_feature_names(NAMES)
    cluster.share(model, name)
    found = cluster.model(name)
    assert found.feature_names == tuple(NAMES)
    assert np.abs(found.predict(TABLE[SHUFFLED]) - model(TABLE)).max() < 1e-2
    with pytest.raises(InputError, match=r"lacks \['age'\].*'age', 'income', 'pulse', 'steps'.*\['income'"):
        found.predict(TABLE.drop(columns="age"))


def test_a_trained_model_remembers_the_names_of_a_table(cluster, name) -> None:
    trained = cluster.fit(network(), TABLE, LABELS, name=name, validation=(TABLE[SHUFFLED], LABELS), **OPTIONS)
    assert trained.feature_names == tuple(NAMES)
    found = cluster.model(name)
    assert np.abs(found.predict(TABLE[SHUFFLED]) - found.predict(TABLE.to_numpy())).max() < 1e-2


def test_rows_of_owners_with_other_orders_are_joined_by_name(cluster, name) -> None:
    north, south = f"north-{name}", f"south-{name}"
    cluster.upload(TABLE[:30], LABELS[:30], name=north)
    cluster.upload(TABLE[30:][SHUFFLED], LABELS[30:], name=south)
    trained = cluster.fit(network(), [north, south], name=name, **OPTIONS)
    pooled = cluster.fit(network(), TABLE.to_numpy(), LABELS, **OPTIONS)
    assert trained.feature_names == tuple(NAMES)
    assert cluster.model(name).feature_names == tuple(NAMES)
    assert np.abs(trained.predict(TABLE[SHUFFLED]) - pooled.predict(TABLE.to_numpy())).max() < 2e-2


def test_columns_of_several_owners_come_as_the_network_wants_them(cluster, name) -> None:
    left, right = f"left-{name}", f"right-{name}"
    cluster.upload(TABLE[["steps", "pulse"]], name=left)
    cluster.upload(TABLE[["income", "age"]], LABELS, name=right)
    trained = cluster.fit(network().with_feature_names(NAMES), (left, right), **OPTIONS)
    pooled = cluster.fit(network(), TABLE.to_numpy(), LABELS, **OPTIONS)
    assert np.abs(trained.predict(TABLE) - pooled.predict(TABLE.to_numpy())).max() < 2e-2


def test_owners_whose_columns_differ_are_told_both_sides(cluster, name) -> None:
    north, south = f"north-{name}", f"south-{name}"
    cluster.upload(TABLE[:30], LABELS[:30], name=north)
    cluster.upload(TABLE[30:].rename(columns={"age": "height"}), LABELS[30:], name=south)
    with pytest.raises(hdcos.errors.HdcosError, match=r"lacks \['age'\] and has unknown \['height'\].*'age'.*'height'"):
        cluster.fit(network(), [north, south], **OPTIONS)


def test_a_model_that_is_replaced_by_one_of_other_columns_is_not_asked_by_position(home) -> None:
    model = network()
    with connected(home) as cluster:
        cluster.share(model.with_feature_names(NAMES), "replaced")
        held = cluster.model("replaced")
        held.predict(TABLE)
        cluster.share(model.with_feature_names(SHUFFLED), "replaced")
        with pytest.raises(InputError, match="ask again"):
            held.predict(TABLE)
        assert np.abs(held.predict(TABLE) - model(TABLE[SHUFFLED].to_numpy())).max() < 1e-2


def test_what_a_service_keeps_of_names_is_bounded(home, raw) -> None:
    known = {"name": "named", "version": secrets.token_hex(16), "rows": 2, "features": 2, "outputs": 0}
    for columns in (["a"], ["a", "a"], ["a", 7], "ab", ["a", "b" * 201]):
        assert raw(0, "POST", "/v2/datasets", {**known, "columns": columns})[0] == 400
    architecture = {**network().architecture(), "feature_names": ["a", "b", "c", "x" * 201]}
    parameters = {"architecture": architecture, "phase_bits": 16, "version": secrets.token_hex(16)}
    status, said, _ = raw(0, "PUT", "/v2/models/named", {"parameters": parameters}, {})
    assert (status, said["name"]) == (400, "ModelError")


def test_commands_find_columns_by_name(home, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("HDCOS_CLUSTER", str(home / "cluster.toml"))
    monkeypatch.setenv("HDCOS_TOKEN", secret(home))
    table = TABLE.assign(sick=LABELS)
    table[:30].to_csv(tmp_path / "north.csv", index=False)
    table[30:][["sick", *SHUFFLED]].to_csv(tmp_path / "south.csv", index=False)
    table.drop(columns="sick")[SHUFFLED].to_csv(tmp_path / "new.csv", index=False)
    table.drop(columns=["sick", "age"]).to_csv(tmp_path / "short.csv", index=False)
    table.to_csv(tmp_path / "whole.csv", index=False)
    config = (
        '[data]\ntrain = {}\nlabel = "sick"\n[model]\nsizes = [4, 8, 1]\n'
        '[training]\nepochs = 2\nbatch_size = 20\nlr = 1.0\nseed = 1\n[output]\nmodel = "{}"\n'
    )
    models = []
    for train, saved in (('["north.csv", "south.csv"]', "joined"), ('"whole.csv"', "whole")):
        (tmp_path / "config.toml").write_text(config.format(train, saved))
        code, output = command("train", tmp_path / "config.toml", "--json")
        assert code == 0, output
        models.append(nn.load(tmp_path / saved))
    assert models[0].feature_names == tuple(NAMES)
    assert np.abs(models[0](TABLE) - models[1](TABLE)).max() < 2e-2
    (tmp_path / "config.toml").write_text(config.format('["north.csv", "other.csv"]', "never"))
    table.rename(columns={"age": "height"}).to_csv(tmp_path / "other.csv", index=False)
    code, output = command("train", tmp_path / "config.toml")
    assert code == 1
    assert "other.csv" in output
    assert "lacks ['age'] and has unknown ['height']" in output.replace("\n", " ")

    assert command("share-model", tmp_path / "joined", "--name", "sick")[0] == 0
    code, output = command("predict", "sick", tmp_path / "new.csv")
    assert code == 0, output
    assert np.abs(np.array(output.split()[1:], float)[:, None] - models[0](TABLE)).max() < 1e-2
    code, output = command("predict", "sick", tmp_path / "short.csv")
    assert code == 1
    assert "short.csv" in output
    assert "lacks ['age']" in output.replace("\n", " ")
    assert command("predict", "sick", tmp_path / "whole.csv", "--leave-out", "sick")[0] == 0
    assert command("upload", tmp_path / "whole.csv", "--name", "patients", "--label", "sick")[0] == 0
    with connected(home) as cluster:
        kept = next(item for item in cluster.datasets() if item["name"] == "patients")
        assert kept["columns"] == NAMES
        assert json.dumps(cluster.models())


def test_names_that_do_not_fit_are_refused_before_anything_is_sent(cluster) -> None:
    with pytest.raises(ModelError, match="cannot have 3 names"):
        network().with_feature_names(NAMES[:3])
    with pytest.raises(InputError, match="lacks"):
        cluster.fit(network().with_feature_names(SHUFFLED), TABLE.rename(columns={"age": "x"}), LABELS, **OPTIONS)
