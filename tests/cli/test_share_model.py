"""`hdcos share-model --calibrate`: columns of the rows are found by name, as wherever a network takes a table."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from click.testing import CliRunner

from hdcos import nn
from hdcos.cli import main, remote

ROWS = np.arange(12.0).reshape(4, 3)


@pytest.fixture
def shared(monkeypatch):
    """What a cluster is given to calibrate with."""
    given = []

    class FakeCluster:
        def __enter__(self):
            return self

        def __exit__(self, *rest):
            return None

        def share(self, model, name, rows, compare=None):
            given.append(rows)
            return SimpleNamespace(calibration=None, rounds={"shares": 2, "masked": 1})

        def models(self):
            return [{"name": "m", "queries": 0, "queries_allowed": 450}]

    monkeypatch.setattr(remote, "connect", lambda *arguments, **options: FakeCluster())
    return given


@pytest.fixture
def model(tmp_path):
    path = tmp_path / "model.safetensors"
    nn.models.mlp([3, 4, 1], "tanh").remembering(("a", "b", "c")).save(path)
    return path


def share(model, names, rows, *more):
    path = model.parent / "rows.csv"
    np.savetxt(path, rows, delimiter=",", header=",".join(names), comments="", fmt="%g")
    return CliRunner().invoke(main, ["share-model", str(model), "--name", "m", "--calibrate", str(path), *more])


def test_columns_in_another_order_are_reordered(shared, model) -> None:
    result = share(model, ("c", "y", "a", "b"), np.insert(ROWS[:, [2, 0, 1]], 1, 7, axis=1), "--label", "y")
    assert result.exit_code == 0, result.output
    assert np.array_equal(shared[0], ROWS)
    assert "m is ready, 2 rounds per prediction (1 for rows masked ahead)" in result.output
    assert "The parties answer 450 rows of it in all, for all clients together;" in result.output


@pytest.mark.parametrize(
    ("names", "columns", "words"),
    [
        (("a", "b"), [0, 1], "lacks ['c']"),
        (("a", "b", "d"), [0, 1, 2], "lacks ['c'] and has unknown ['d']"),
        (("a", "b", "c", "y"), [0, 1, 2, 2], "has unknown ['y']"),
    ],
)
def test_what_is_missing_is_named(shared, model, names, columns, words) -> None:
    result = share(model, names, ROWS[:, columns])
    assert result.exit_code == 1
    assert len(result.output.splitlines()) == 1
    assert "rows.csv: " in result.output
    assert words in result.output
    assert not shared
