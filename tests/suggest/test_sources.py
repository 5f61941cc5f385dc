"""Suggestions for tables of any columns, and for data sets of several owners: what is written, `hdcos train` takes."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner

from hdcos import nn
from hdcos.cli import main
from hdcos.cli.train import build_model, named_data, read_config
from hdcos.cluster.listing import find_set
from hdcos.errors import InputError
from hdcos.suggest import candidates as space
from hdcos.suggest import find_settings
from hdcos.suggest.candidates import Candidate, candidates
from hdcos.suggest.sources import count_features, count_rows
from hdcos.tables import Preparation

GENERATOR = np.random.default_rng(1)
COLUMNS = {
    "age": {"kind": "numeric", "missing": "indicator"},
    "city": {"kind": "category", "values": ["Basel", "Bern"]},
    "sick": {"kind": "label", "classes": ["no", "yes", "unknown"]},
}


@pytest.fixture(autouse=True)
def few(monkeypatch):
    """Few settings, so that a test does not take long, and no cluster but the one that a test names."""
    monkeypatch.setattr(space, "RATES", (0.1,))
    monkeypatch.setattr(space, "DECAYS", (0.003,))
    monkeypatch.setattr("hdcos.suggest.search.FIRST_STEPS", 20)
    monkeypatch.setattr("hdcos.suggest.search.LAST_STEPS", 60)
    monkeypatch.setattr("hdcos.suggest.search.KEPT", 1)
    monkeypatch.delenv("HDCOS_CLUSTER", raising=False)


@pytest.fixture
def table(tmp_path):
    """A file whose rows are of two of three classes, and what prepared it."""
    ages = [None if GENERATOR.random() < 0.1 else int(age) for age in GENERATOR.normal(50, 20, 100)]
    rows = {
        "age": ages,
        "city": GENERATOR.choice(["Basel", "Bern"], 100).tolist(),
        "sick": ["yes" if (age or 50) > 55 else "no" for age in ages],
    }
    lines = [",".join("" if cell is None else str(cell) for cell in row) for row in zip(*rows.values(), strict=True)]
    (tmp_path / "north.csv").write_text("\n".join([",".join(rows), *lines]) + "\n")
    Preparation.fit(tmp_path / "north.csv", COLUMNS).save(tmp_path / "north.json")
    return tmp_path / "north.csv", tmp_path / "north.json"


def suggest(file, *arguments):
    file.with_name("run.toml").unlink(missing_ok=True)
    given = ["suggest", file, *arguments, "--output", file.with_name("run.toml")]
    return CliRunner().invoke(main, [str(each) for each in given])


def listed(owner, name, rows, features, own=False, number=1, preparation=None, complete=True):
    known = {"rows": rows, "features": features, "preparation": preparation, "complete": complete}
    return {"owner": owner, "name": name, "own": own, "number": number, **known}


class FakeCluster:
    """A cluster that lists data sets."""

    def __init__(self, *listing):
        self.listing = listing

    def __call__(self, *arguments, **options):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        return None

    def datasets(self):
        return list(self.listing)


def test_a_table_of_any_columns_becomes_a_configuration_that_declares_them(table) -> None:
    file, prepared = table
    result = suggest(file, "--preparation", prepared, "--json")
    assert result.exit_code == 0, result.output
    settings = read_config(file.with_name("run.toml"))
    assert settings["data"] == {"train": "north.csv"}, "features are scaled by what is declared"
    assert settings["columns"]["columns"] == COLUMNS
    assert settings["model"]["sizes"][0] == 4
    assert settings["model"]["sizes"][-1] == 3, "classes that these rows lack are declared"
    assert json.loads(result.output)["chosen"]["score"] > 0.7


def test_rows_of_several_owners_are_counted_and_take_as_many_steps(table, monkeypatch) -> None:
    file, prepared = table
    sets = [listed("me", "north", 100, 4, own=True), listed("acme", "south", 300, 4)]
    monkeypatch.setattr("hdcos.cli.suggest.connect", FakeCluster(*sets))
    options = ("--preparation", prepared, "--rows", "north", "--rows", "acme/south", "--cluster", "there", "--json")
    result = suggest(file, *options)
    assert result.exit_code == 0, result.output
    settings, report = read_config(file.with_name("run.toml")), json.loads(result.output)
    assert named_data(settings["data"]) == ["north", "acme/south"]
    assert settings["output"] == {"name": "run"}
    tried, training = report["chosen"]["settings"], settings["training"]
    assert (training["epochs"], training["batch_size"]) == (tried["epochs"], 4 * tried["batch_size"])
    assert training.get("average", 0) == training["epochs"] // 2
    assert "training on 400 rows" in file.with_name("run.toml").read_text()
    alone = suggest(file, "--preparation", prepared, "--name", "north", "--rows", "acme/south", "--model", "sickness")
    assert alone.exit_code == 0, alone.output
    assert "hdcos train" in alone.output
    text = file.with_name("run.toml").read_text()
    assert "were not counted" in text
    assert tomllib.loads(text)["data"] == settings["data"]
    assert tomllib.loads(text)["output"] == {"name": "sickness"}


def test_a_network_takes_the_features_of_all_owners_of_columns(table, monkeypatch) -> None:
    file, prepared = table
    sets = [
        listed("me", "north", 90, 4, own=True, preparation=Preparation.load(prepared).digest),
        listed("acme", "stays", 90, 40),
    ]
    monkeypatch.setattr("hdcos.cli.suggest.connect", FakeCluster(*sets))
    options = ("--preparation", prepared, "--name", "north", "--beside", "acme/stays")
    for more in (("--cluster", "there"), ("--features-of-others", "40")):
        result = suggest(file, *options, *more)
        assert result.exit_code == 0, result.output
        settings, text = read_config(file.with_name("run.toml")), file.with_name("run.toml").read_text()
        assert named_data(settings["data"]) == ("north", "acme/stays")
        assert build_model(settings["model"], file.parent).input_shape == (44,)
        assert "Tried on 4 features of one owner, beside which 40 of others stand" in text
    result = suggest(file, *options)
    assert result.exit_code != 0
    assert "--features-of-others" in result.output


def test_rates_fall_with_features_that_were_not_tried() -> None:
    one = Candidate((10, 1), "dense", "logistic", 0.3, 32, others=30)
    assert one.whole.sizes == (40, 1)
    assert one.whole.lr == pytest.approx(4 / 41, rel=0.01), "stable for 40 features of variance 1"
    assert one.room == 2
    steep = Candidate((10, 1), "dense", "squared", 0.3, 32, epochs=10, others=10)
    assert (steep.whole.lr, steep.whole.epochs) == (pytest.approx(1 / 21, rel=0.01), 32), "0.15 would be as fast"
    assert Candidate((10, 1), "dense", "logistic", 0.03, 32, others=30).whole.lr == 0.03, "small ones stay"
    wide = Candidate((10, 16, 16, 1), "hadamard", "logistic", 0.1, 32, others=30)
    assert (wide.whole.sizes, wide.whole.lr, wide.room) == ((40, 64, 64, 1), 0.025, 1)
    assert wide.price == Candidate((40, 64, 64, 1), "hadamard", "logistic", 0.1, 32).price
    hidden = Candidate((10, 32, 1), "dense", "logistic", 0.1, 32, others=30)
    assert (hidden.whole.sizes, hidden.whole.lr) == ((40, 32, 1), 0.025)
    for each in candidates(10, 1, ("logistic",), 500, scaled=True, others=30):
        nn.models.mlp(each.whole.sizes, "cos", each.structure)


def test_a_regression_is_judged_in_the_unit_of_its_label(tmp_path) -> None:
    x = GENERATOR.normal(size=100)
    lines = [f"{a:.4f},{1000 + 300 * a + 90 * b:.4f}" for a, b in zip(x, GENERATOR.normal(size=100), strict=True)]
    (tmp_path / "rent.csv").write_text("\n".join(["size,rent", *lines]) + "\n")
    declared = {"size": "numeric", "rent": {"kind": "label", "regression": True}}
    Preparation.fit(tmp_path / "rent.csv", declared).save(tmp_path / "rent.json")
    result = suggest(tmp_path / "rent.csv", "--preparation", tmp_path / "rent.json", "--json")
    assert result.exit_code == 0, result.output
    assert 60 < json.loads(result.output)["chosen"]["score"] < 150
    assert read_config(tmp_path / "run.toml")["training"]["loss"] == "squared"


def test_many_rows_are_trained_on_for_as_many_steps_as_few() -> None:
    x = GENERATOR.normal(size=(100, 3))
    found = find_settings(x, (x[:, 0] > 0).astype(int), budget_s=5)
    tried = found.chosen.candidate
    assert found.settings(100) == tried
    assert found.settings(1000) == replace(tried, batch_size=100), "larger batches first"
    more = found.settings(10_000)
    assert more.batch_size == space.LARGE
    assert more.epochs == max(1, -(-12.8 * tried.epochs // 100)), "then fewer epochs"


def test_data_sets_are_found_as_the_parties_find_them() -> None:
    listing = [
        listed("me", "north", 10, 4, own=True),
        listed("me", "north", 12, 4, own=True, number=2),
        listed("acme", "north", 20, 4),
        listed("acme", "stays", 12, 7),
        listed("beta", "stays", 12, 5, complete=False),
        listed("acme", "both", 12, 7),
        listed("beta", "both", 12, 5),
    ]
    assert find_set("north", listing)["rows"] == 12, "one's own, the newest"
    assert find_set("acme/north", listing)["rows"] == 20
    assert find_set("stays", listing)["owner"] == "acme", "the only one that is complete"
    assert count_rows(["north", "acme/north"], listing, 4) == 32
    assert count_features("north", ["stays"], listing, 4, None) == (12, 7)
    with pytest.raises(InputError, match="its owner uploads it, with --allow"):
        find_set("west", listing)
    with pytest.raises(InputError, match="say which, as acme/both"):
        find_set("both", listing)
    with pytest.raises(InputError, match="owners of rows prepare them together"):
        count_rows(["north", "stays"], listing, 4)
    with pytest.raises(InputError, match="hdcos join"):
        count_features("north", ["acme/north"], listing, 4, None)
    with pytest.raises(InputError, match="prepared otherwise"):
        count_features("north", ["stays"], listing, 4, "another")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "what is to be learned?"),
        (("--label", "sick", "--preparation", "P"), "what is to be learned?"),
        (("--preparation", "P", "--features", "x"), "knows the columns"),
        (("--preparation", "P", "--rows", "a", "--beside", "b"), "take one of them"),
        (("--preparation", "P", "--beside", "b"), "--name says so"),
        (("--preparation", "P", "--model", "m"), "--model names"),
        (("--preparation", "P", "--rows", "a", "--features-of-others", "3"), "--beside"),
        (("--preparation", "P", "--loss", "squared"), "takes the loss logistic or softmax"),
        (("--preparation", "P", "--rows", "a b"), "OWNER/NAME"),
        (("--preparation", "U", "--rows", "a"), "the owner who has the labels"),
    ],
)
def test_questions_that_have_no_answer_say_what_is_missing(table, arguments, words) -> None:
    file, prepared = table
    unlabelled = file.with_name("unlabelled.json")
    Preparation.fit(file, {**COLUMNS, "sick": "ignored"}).save(unlabelled)
    places = {"P": str(prepared), "U": str(unlabelled)}
    result = suggest(file, *(places.get(each, each) for each in arguments))
    assert result.exit_code != 0
    assert words in " ".join(result.output.split())
