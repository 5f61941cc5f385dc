"""The report says what the results file says: the same bytes every time, and nothing of a run that is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hdcos.errors import InputError
from paper.__main__ import main
from paper.cells import LEARNING_RATES, Cell
from paper.report.build import files, stale, write
from paper.report.document import Heading, Table, Text, html, markdown, signed
from paper.report.published import published, published_by_rate
from paper.report.scores import Scores
from paper.report.tables import cell_of_table
from paper.results import read

Row = dict[str, Any]


def rows_of(cell: Cell, value: float, epochs: int = 4, trials: int = 2) -> list[Row]:
    """Runs whose accuracy is `value` at the rate 0.1 and half of it elsewhere."""
    common = {
        **vars(cell),
        "metric": "accuracy",
        "epochs": epochs,
        "train_rows": 100,
        "test_rows": 50,
        "parameter_count": 7,
    }
    return [
        {
            **common,
            "experiment": "tables",
            "lr": rate,
            "seed": seed,
            "value": value + 0.01 * seed if rate == 0.1 else value / 2,
            "diverged_at": None,
            "curve": {"1": value / 2},
        }
        for rate in LEARNING_RATES
        for seed in range(trials)
    ]


@pytest.fixture
def rows() -> list[Row]:
    cells = [cell_of_table("fashion_mnist", a, s) for a in ("cos", "relu") for s in ("dense", "hadamard")]
    return [row for cell in cells for row in rows_of(cell, 0.8)]


def test_a_score_is_the_best_mean_over_trials_with_its_deviation(rows: list[Row]) -> None:
    score = Scores(rows).score(cell_of_table("fashion_mnist", "cos", "dense"), 4)
    assert score is not None
    assert (score.rate, score.trials) == (0.1, 2)
    assert score.best.mean == pytest.approx(80.5)
    assert score.best.deviation == pytest.approx(0.5**0.5)
    assert score.best.surviving == pytest.approx(80.5)
    assert score.best.diverged == 0


@pytest.mark.parametrize("lost", [0, 5, 11])
def test_a_cell_that_lost_a_row_is_not_run(rows: list[Row], lost: int) -> None:
    cell = cell_of_table("fashion_mnist", "cos", "dense")
    assert Scores(rows).score(cell, 4) is not None
    before = files(rows)["paper.md"]
    del rows[lost]
    assert Scores(rows).score(cell, 4) is None
    after = files(rows)["paper.md"]
    assert after.count("not run") > before.count("not run")


def test_a_table_compares_cells_of_the_same_number_of_epochs(rows: list[Row]) -> None:
    cells = [cell_of_table("fashion_mnist", a, "dense") for a in ("cos", "relu")]
    scores = Scores([*rows, *rows_of(cells[0], 0.9, epochs=8)])
    assert scores.epochs(cells) == 4
    assert scores.lengths(cells[0]) == [4, 8]
    found = [scores.longest(cell) for cell in cells]
    assert [score.epochs for score in found if score] == [8, 4]


def test_the_same_results_give_the_same_bytes_and_a_change_is_seen(
    rows: list[Row], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "paper.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    write(source, tmp_path)
    assert stale(source, tmp_path) == []
    command = ["report", "--check", "--results", str(source), "--out", str(tmp_path)]
    assert main(command) == 0
    source.write_text("".join(json.dumps(row) + "\n" for row in rows[1:]))
    assert main(command) == 1
    assert "paper.md is not what" in capsys.readouterr().out


def test_no_results_are_an_error_that_says_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="python -m paper run"):
        write(tmp_path / "none.jsonl", tmp_path)


def test_the_committed_report_is_that_of_the_committed_results() -> None:
    folder = Path(__file__).parents[2] / "results"
    assert stale(folder / "paper.jsonl", folder) == []


def test_every_committed_row_has_the_keys_of_the_interface() -> None:
    keys = {
        *("experiment", "dataset", "activation", "structure", "optimizer", "lr", "depth", "seed", "epochs"),
        *("train_rows", "test_rows", "metric", "value", "versions", "device"),
    }
    rows = read(Path(__file__).parents[2] / "results" / "paper.jsonl")
    assert all(keys <= set(row) for row in rows)


def test_the_papers_numbers_are_found_by_cell() -> None:
    assert published(Cell("mnist", "expm1", "dense")) == 98.0
    assert published(Cell("higgs", "cos", "hadamard", depth=4)) == 70.3
    assert published(Cell("higgs", "cos", "hadamard", depth=3)) is None
    assert published(Cell("fashion_mnist", "square", "circulant")) == 87.6
    assert published_by_rate(Cell("mnist", "cos", "dense", "adam"))[1e-4] == pytest.approx(99)
    assert published_by_rate(Cell("higgs", "none", "hadamard", depth=0))[0.5] == pytest.approx(64)
    assert published_by_rate(Cell("higgs", "square", "hadamard", depth=4)) == {}


def test_the_page_escapes_what_it_shows_and_needs_no_other_file() -> None:
    parts = [Heading("a < b"), Text("x & y"), Table(["n", "m"], [["1", "<2>"]])]
    page = html("t", parts)
    assert "a &lt; b" in page
    assert "&lt;2&gt;" in page
    assert "src=" not in page
    assert "| 1 | <2> |" in markdown(parts, "figures")


def test_nothing_is_minus_zero() -> None:
    assert [signed(x) for x in (-0.01, 0.06, -1.25)] == ["+0.0", "+0.1", "-1.2"]
