"""`hdcos evaluate` of a model of one's own, in plaintext: classes, numbers, pictures, and what it refuses."""

from __future__ import annotations

import json

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.metrics import log_loss, mean_squared_error

from hdcos import nn
from hdcos.cli import main

GENERATOR = np.random.default_rng(0)
X = GENERATOR.normal(size=(300, 4))


def run(*arguments):
    return CliRunner().invoke(main, ["evaluate", *map(str, arguments)])


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr("hdcos.data.records.PIECE_ROWS", 128)
    for outputs in (1, 3):
        nn.models.mlp([4, 8, outputs], "cos", "dense", seed=1).save(tmp_path / f"{outputs}.safetensors")
    labels = np.stack([GENERATOR.integers(0, 2, 300), GENERATOR.integers(0, 3, 300), 3.5 * X[:, 0]], axis=1)
    np.savetxt(
        tmp_path / "rows.csv",
        np.c_[X, labels],
        delimiter=",",
        header="a,b,c,d,two,three,number",
        comments="",
        fmt="%.17g",
    )
    return tmp_path


def columns(folder):
    return np.loadtxt(folder / "rows.csv", delimiter=",", skiprows=1)


def test_classes_are_reported_for_people_and_programs(folder) -> None:
    given = (
        folder / "3.safetensors",
        folder / "rows.csv",
        "--label",
        "three",
        "--leave-out",
        "two",
        "--leave-out",
        "number",
    )
    result = run(*given, "--json")
    assert result.exit_code == 0, result.output
    report, logits = json.loads(result.output), nn.load(folder / "3.safetensors")(X)
    truth = columns(folder)[:, 5].astype(int)
    assert report["accuracy"] == pytest.approx((logits.argmax(1) == truth).mean())
    powers = np.exp(logits - logits.max(1, keepdims=True))
    assert report["log_loss"] == pytest.approx(log_loss(truth, powers / powers.sum(1, keepdims=True)))
    assert np.sum(report["confusion"]) == 300
    shown = run(*given, "--class-names", "red,green,blue")
    assert shown.exit_code == 1, "the labels are numbers, not these names"
    assert "none of the classes ['red', 'green', 'blue']" in shown.output.replace("\n", " ")
    shown = run(*given)
    assert f"{report['accuracy']:.2%}" in shown.output
    assert "true \\ guessed" in shown.output


def test_numbers_are_reported(folder) -> None:
    given = (
        folder / "1.safetensors",
        folder / "rows.csv",
        "--label",
        "number",
        "--leave-out",
        "two",
        "--leave-out",
        "three",
    )
    result = run(*given, "--regression", "--json")
    assert result.exit_code == 0, result.output
    guessed = nn.load(folder / "1.safetensors")(X)[:, 0]
    assert json.loads(result.output)["rmse"] == pytest.approx(np.sqrt(mean_squared_error(3.5 * X[:, 0], guessed)))
    assert "RMSE" in run(*given, "--regression").output
    refused = run(*given)
    assert refused.exit_code == 1
    assert "for a regression say --regression" in refused.output.replace("\n", " ")


@pytest.mark.parametrize(("label", "kind"), [("two", "png"), ("three", "svg"), ("number", "svg")])
def test_a_picture_is_drawn(folder, label, kind) -> None:
    others = [name for name in ("two", "three", "number") if name != label]
    options = [option for name in others for option in ("--leave-out", name)]
    options += ["--regression"] if label == "number" else []
    model = folder / ("3.safetensors" if label == "three" else "1.safetensors")
    result = run(model, folder / "rows.csv", "--label", label, *options, "--plot", folder / f"picture.{kind}")
    assert result.exit_code == 0, result.output
    content = (folder / f"picture.{kind}").read_bytes()
    assert content.startswith(b"\x89PNG" if kind == "png" else b"<?xml")
    assert len(content) > 5000


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--label", "state"), "has no column 'state'"),
        (("--label", "two", "--plot", "picture.txt"), "a picture is one of these"),
        (("--label", "two"), "1.safetensors takes|network takes"),
        (("--label", "two", "--class-names", "a,b,c", "--leave-out", "three", "--leave-out", "number"), "one for each"),
    ],
)
def test_mistakes_are_named(folder, options, words) -> None:
    import re

    result = run(folder / "1.safetensors", folder / "rows.csv", *options)
    assert result.exit_code == 1
    assert re.search(words, result.output.replace("\n", " ")), result.output
    assert "Traceback" not in result.output
