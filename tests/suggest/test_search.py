"""Settings that are tried in plaintext: what is found is good, cheap, and runs as it is."""

from __future__ import annotations

import json
import tomllib

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.datasets import load_diabetes, load_wine

from hdcos import nn
from hdcos.cli import main
from hdcos.errors import InputError
from hdcos.suggest import candidates as space
from hdcos.suggest import find_settings
from hdcos.suggest.candidates import Candidate, candidates
from hdcos.suggest.scaling import Scaling
from hdcos.suggest.trial import Rows, run_trial

GENERATOR = np.random.default_rng(0)


@pytest.fixture
def few(monkeypatch):
    """Few settings, so that a test does not take long."""
    monkeypatch.setattr(space, "RATES", (0.1,))
    monkeypatch.setattr(space, "DECAYS", (0.003,))
    monkeypatch.setattr("hdcos.suggest.search.FIRST_STEPS", 120)
    monkeypatch.setattr("hdcos.suggest.search.LAST_STEPS", 300)
    monkeypatch.setattr("hdcos.suggest.search.KEPT", 4)


@pytest.mark.parametrize("structure", ["dense", "hadamard"])
@pytest.mark.parametrize("hidden", [(), (8,)])
def test_a_network_of_scaled_rows_becomes_one_of_rows_as_they_were(structure, hidden) -> None:
    x, y = GENERATOR.normal(50, 20, (80, 5)), GENERATOR.normal(300, 70, 80)
    scaling = Scaling.of("standard", x, y, regression=True)
    model = nn.models.mlp([5, *hidden, 1], "cos", structure, seed=3)
    expected = model(scaling.rows(x)) * scaling.target_size + scaling.target_mean
    np.testing.assert_allclose(scaling.unscaled(model)(x), expected, rtol=1e-9)
    assert np.abs(scaling.rows(x).mean(0)).max() < 1e-9
    assert scaling.targets(y).std() == pytest.approx(1)


def test_every_candidate_can_be_trained_on_shares() -> None:
    known = list(candidates(20, 1, ("logistic",), 10_000, scaled=False))
    assert {len(each.sizes) for each in known} == {2, 3, 4}
    assert {each.structure for each in known} == {"dense", "hadamard"}
    assert {each.scale for each in known} == {"none", "standard"}
    assert not Candidate((20, 1), "dense", "logistic", 1e-9, 128).possible, "its steps would be lost in rounding"


def test_what_leaves_the_range_of_the_arithmetic_is_no_candidate() -> None:
    x = GENERATOR.normal(size=(200, 4))
    rows = Rows(x, (x[:, 0] > 0).astype(float))
    wild = run_trial(Candidate((4, 1), "dense", "logistic", 300.0, 20), rows, rows, 5, 0)
    calm = run_trial(Candidate((4, 1), "dense", "logistic", 0.3, 20, weight_decay=0.1), rows, rows, 5, 0)
    assert (wild.losses, wild.cut) == ((), True)
    assert (len(calm.losses), calm.cut) == (5, False)
    assert calm.scores[-1] > 0.9
    long = run_trial(Candidate((4, 1), "dense", "logistic", 0.1, 20), rows, rows, 50, 0)
    assert long.cut, "weights of classes that are separate grow and grow"
    assert 0 < len(long.losses) < 50


def test_a_simple_problem_gets_a_simple_network(few) -> None:
    x = GENERATOR.normal(size=(400, 6))
    y = (x @ [1, -1, 0.5, 0, 0, 0] + GENERATOR.normal(size=400) > 0).astype(int)
    found = find_settings(x, y, budget_s=30)
    assert found.chosen.candidate.kind == "logistic regression"
    assert found.chosen.score > 0.75
    assert 0 < found.chosen.error < 0.03
    assert found.chosen.candidate.scale == "none", "the columns are of size 1 as they are"
    assert found.skipped == 0
    assert found == find_settings(x, y, budget_s=30), "the seed decides"


def test_a_problem_that_no_line_solves_gets_hidden_units(few) -> None:
    x = 10 + 5 * GENERATOR.normal(size=(600, 4))
    y = ((x[:, 0] > 10) ^ (x[:, 1] > 10)).astype(int)
    found = find_settings(x, y, budget_s=30)
    assert len(found.chosen.candidate.sizes) > 2
    assert found.chosen.candidate.scale == "standard"
    assert found.chosen.score > 0.85
    simple = [each.score for each in found.results if len(each.candidate.sizes) == 2]
    assert simple, "the baseline is always among those that are compared"
    assert max(simple) < 0.7


def test_time_that_does_not_suffice_is_said(few) -> None:
    x = GENERATOR.normal(size=(200, 4))
    found = find_settings(x, (x[:, 0] > 0).astype(int), budget_s=1e-6)
    assert found.tried == 1
    assert found.skipped > 0


@pytest.mark.parametrize(
    ("x", "y", "options", "words"),
    [
        (np.ones((5, 2)), np.zeros(5), {}, "too few"),
        (np.ones((50, 2)), np.zeros(50), {}, "nothing to learn"),
        (np.ones((50, 2)), np.arange(50) % 3 + 1, {}, "from 0 on without gaps"),
        (np.full((50, 2), np.nan), np.arange(50) % 2, {}, "NaN"),
        (np.ones((50, 2)), np.arange(50) % 2, {"loss": "hinge"}, "no loss is called"),
        (np.ones((50, 2)), np.arange(50) % 2, {"budget_s": 0}, "more than 0 seconds"),
        (np.ones(50), np.arange(50) % 2, {}, "a table and its labels"),
    ],
)
def test_what_cannot_be_tried_is_refused(x, y, options, words) -> None:
    with pytest.raises(InputError, match=words):
        find_settings(x, y, **options)


# ---- the command: what it writes, `hdcos train` runs


def run(*arguments):
    return CliRunner().invoke(main, [str(argument) for argument in arguments])


def test_the_configuration_is_trained_as_it_is_and_does_what_was_expected(few, tmp_path) -> None:
    wine = load_wine()
    table = np.c_[wine.data, wine.target]
    header = ",".join([*(f"c{number}" for number in range(13)), "kind"])
    np.savetxt(tmp_path / "wine.csv", table, delimiter=",", header=header, comments="", fmt="%.10g")
    result = run("suggest", tmp_path / "wine.csv", "--label", "kind", "--output", tmp_path / "run.toml", "--json")
    assert result.exit_code == 0, result.output
    report, text = json.loads(result.output), (tmp_path / "run.toml").read_text()
    assert f"Expected accuracy: {report['chosen']['score']:.2%}, standard error" in text
    assert "MB of material" in text
    assert tomllib.loads(text)["data"] == {"train": "wine.csv", "label": "kind", "scale": "standard"}
    trained = run("train", tmp_path / "run.toml", "--json")
    assert trained.exit_code == 0, trained.output
    model = nn.load(tmp_path / "model.safetensors")
    right = float((model(wine.data).argmax(1) == wine.target).mean())
    assert right > report["chosen"]["score"] - 3 * report["chosen"]["standard_error"], "rows as they are in the file"
    assert json.loads(trained.output)["epochs"][-1]["accuracy"] == pytest.approx(right, abs=0.02)


def test_a_regression_is_scaled_and_put_back(few, tmp_path) -> None:
    x, y = load_diabetes(return_X_y=True)
    np.savez(tmp_path / "rows.npz", rows=x, y=y)
    config = tmp_path / "run.toml"
    given = ("--label", "y", "--features", "rows", "--output", config)
    result = run("suggest", tmp_path / "rows.npz", *given)
    assert result.exit_code == 0, result.output
    assert "(chosen)" in result.output
    settings = tomllib.loads(config.read_text())
    assert settings["training"]["loss"] == "squared"
    trained = run("train", config)
    assert trained.exit_code == 0, trained.output
    model = nn.load(tmp_path / "model.safetensors")
    rmse = float(np.sqrt(((model(x)[:, 0] - y) ** 2).mean()))
    assert rmse < 60, "guessing the mean is off by 77"
