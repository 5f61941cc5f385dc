"""Parts of the report that are not the paper's tables, each from rows made for the test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hdcos.nn import models
from paper import rounds as rounds_experiment
from paper.cells import LEARNING_RATES, Cell
from paper.kernel import DIMENSIONS
from paper.report.claims import claims
from paper.report.costs import ADAM, adam_extra, costs, rounds, sgd_price
from paper.report.document import Part, Table, Text, markdown
from paper.report.scores import Scores
from paper.report.secure import secure
from paper.report.svg import _round_ticks
from paper.report.varied import SYNTHETIC, generated, projections, starts

Row = dict[str, Any]
PLAIN = Cell("fashion_mnist", "cos", "hadamard")


def run(cell: Cell, values: dict[float, float], epochs: int = 5) -> list[Row]:
    shared = {**vars(cell), "experiment": "test", "metric": "accuracy", "seed": 0, "epochs": epochs}
    sizes = {"train_rows": 80, "test_rows": 10, "parameter_count": 7, "diverged_at": None}
    return [
        {**shared, **sizes, "lr": rate, "value": value, "curve": {str(epochs): value}} for rate, value in values.items()
    ]


def text(parts: list[Part]) -> str:
    return markdown(parts, "figures")


def test_rounds_stand_beside_the_papers() -> None:
    rows = [rounds_experiment._row(name) for name in ("cos", "cos_paper", "sin")]
    table = next(part for part in rounds(rows) if isinstance(part, Table))
    assert [line[:4] for line in table.rows] == [
        ["cos", "1", "2", "-1"],
        ["cos_paper", "2", "2", "+0"],
        ["sin", "1", "-", "-"],
    ]
    assert "Not run" in text(rounds([]))


def test_starts_compare_with_the_usual_start_after_as_many_epochs() -> None:
    usual = run(PLAIN, dict.fromkeys(LEARNING_RATES, 0.80))
    dense = run(replace(PLAIN, structure="dense"), dict.fromkeys(LEARNING_RATES, 0.87))
    tried = run(replace(PLAIN, initial="signs"), {0.1: 0.84, 0.5: 0.82})
    said = text(starts(Scores([*usual, *dense, *tried])))
    assert "| hadamard, diagonals of random signs | 5 | 0.1, 0.5 | 84.0 | 80.0 |" in said
    assert "-3.0 instead of -7.0, still more than a point" in said
    assert "Too few" in text(starts(Scores(tried)))
    assert starts(Scores(usual)) == []


def test_a_projection_is_priced_beside_the_network_without_it() -> None:
    said = text(projections(Scores(run(replace(PLAIN, projection=64), {0.1: 0.8}))))
    assert "| Fashion-MNIST, 400 to 64 | 5 | 0.1 | 80.0 | not run | 3,054 | 357,868 |" in said
    assert "| Fashion-MNIST, none | - | - | - | - | 3,390 | 358,204 |" in said


def test_generated_rows_are_called_synthetic() -> None:
    parts = generated(Scores(run(Cell(SYNTHETIC, "cos", "dense", depth=4), {0.1: 0.3})))
    assert "Synthetic: 80 training and 10 test rows" in text(parts)
    assert generated(Scores([])) == []


def test_secure_accuracies_stand_side_by_side_and_missing_ones_are_not_run() -> None:
    row = {
        **{"experiment": "secure", "dataset": "higgs", "test_rows": 2000, "rows_per_batch": 1024},
        **{"value": 0.6744, "plain_value": 0.6743, "agreement": 0.9999, "parameter_count": 157},
        **{"online": {"rounds": 8, "bytes_sent": [4000, 4000]}, "offline": {"bytes_sent": [0, 8000]}},
    }
    said = text(secure([row]))
    assert "| Higgs (sample) | 2,000 | 67.44 | 67.43 | 99.990 | 157 | 4 | 1,024 | 2 | 4 |" in said
    assert "| MNIST | not run |" in said


def test_training_is_priced_by_the_program_that_trains() -> None:
    step = sgd_price(models.higgs_mlp(), 256)
    assert step.rounds >= 4
    assert step.online_bytes > 0
    few, many = adam_extra(100), adam_extra(200)
    assert few[0] == many[0] == len(ADAM)
    assert many[1] == pytest.approx(2 * few[1], rel=0.05)


def test_costs_name_every_cell_and_leave_relu_out() -> None:
    said = text(costs(Scores([])))
    assert "| Higgs (sample), relu, dense | not run | - | - | - | - | - | - |" in said
    assert said.count("Fashion-MNIST, cos, circulant") == 2


@pytest.mark.parametrize(("low", "high"), [(-0.99, 4), (50, 71.2), (0.3, 6.7), (3, 3), (0.001, 0.0042)])
def test_axes_have_a_few_round_numbers_around_all_values(low: float, high: float) -> None:
    ticks = _round_ticks(low, high)
    assert ticks[0] <= low
    assert high <= ticks[-1]
    assert 2 <= len(ticks) <= 8


def test_numbers_are_set_to_the_right_and_words_to_the_left() -> None:
    table = Table(["a", "b", "c"], [["x", "1.0 ± 0.2", "one"], ["y", "not run", "2"]])
    assert "| --- | ---: | --- |" in text([table])


def test_claims_about_the_kernel_are_tested_on_its_rows() -> None:
    errors = {"gaussian": 2.0, "signs3": 1.0, "hadamard": 3.0, "hadamard3": 1.5, "fastfood": 2.5, "circulant": 4.0}
    rows = [
        {"experiment": "kernel", "metric": "mse", "lr": None, "structure": name, "dimension": d, "value": error / d}
        for name, error in errors.items()
        for d in DIMENSIONS
    ]
    said = text(claims(Scores(rows)))
    assert (
        "random signs are closer to the kernel | holds | error over that of independent features: signs3 0.50" in said
    )
    assert "Gaussian diagonals | does not hold |" in said
    assert "Fastfood and circulant features are not | holds |" in said
    assert "Fastfood and circulant features are not | not testable here |" in text(claims(Scores(rows[1:])))


def test_the_criteo_claim_is_tested_where_its_rows_are() -> None:
    cells = {("cos", "hadamard"): 0.58, ("relu", "dense"): 0.59}
    rows = [
        row
        for (activation, structure), value in cells.items()
        for row in run(Cell("criteo", activation, structure, depth=4), dict.fromkeys(LEARNING_RATES, value))
    ]
    assert "behind dense ReLU | holds | cos, hadamard 58.0; relu, dense 59.0 |" in text(claims(Scores(rows)))
    assert "behind dense ReLU | not testable here | the data may not be passed on |" in text(claims(Scores([])))


def test_notes_end_as_sentences() -> None:
    parts = [*rounds([]), *secure([]), *costs(Scores([]))]
    assert all(part.text.endswith(".") for part in parts if isinstance(part, Text))
