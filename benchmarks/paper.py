"""The paper, reproduced: what the committed results show, and that the report is theirs.

The training itself is not repeated here: it took a data-centre GPU. `python -m paper run NAME` trains what
results/paper.jsonl lacks, and every line below is computed from that file, or from results/speed.json where it says so.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.record import Line, at_least, at_most, exactly
from paper import results
from paper.cells import Cell
from paper.experiments import ACTIVATIONS, EXPERIMENTS, STRUCTURES
from paper.report.build import stale, write
from paper.report.differences import unexplained
from paper.report.scores import Scores
from paper.report.tables import NAMES, cell_of_table

RESULTS = Path("results")
LEAST_EPOCHS, LEAST_TRIALS = 40, 3


def prove(seed: int) -> Iterator[Line]:
    rows = results.read(RESULTS / "paper.jsonl")
    scores = Scores(rows)
    yield from coverage(scores)
    yield from goals(scores)
    yield from private(rows)
    yield from speed()
    yield from report(rows)


def coverage(scores: Scores) -> Iterator[Line]:
    groups = {
        "MNIST and Fashion-MNIST, 6 activations x dense, low rank, Hadamard": [
            cell_of_table(d, a, s) for d in ("mnist", "fashion_mnist") for a in ACTIVATIONS for s in STRUCTURES
        ],
        "Fashion-MNIST, Hadamard, PHD and circulant": EXPERIMENTS["phd-circulant"],
        "MNIST, SGD and Adam": EXPERIMENTS["mnist-optimizers"],
        "Higgs sample, 6 activations x dense, low rank, Hadamard": [
            cell_of_table("higgs", a, s) for a in ACTIVATIONS for s in STRUCTURES
        ],
        "Higgs sample, depths 0 to 4, SGD and Adam, three structures": EXPERIMENTS["higgs-depth-all"],
    }
    for name, cells in groups.items():
        line = f"{name}: cells with all learning rates, {LEAST_EPOCHS} epochs and {LEAST_TRIALS} trials or more"
        yield exactly(line, sum(_is_full(scores, cell) for cell in cells), len(cells))


def _is_full(scores: Scores, cell: Cell) -> bool:
    found = (scores.score(cell, epochs) for epochs in scores.lengths(cell) if epochs >= LEAST_EPOCHS)
    return any(score is not None and score.trials >= LEAST_TRIALS for score in found)


def goals(scores: Scores) -> Iterator[Line]:
    epochs, (cosine, relu) = _best(scores, [cell_of_table("mnist", a, "dense") for a in ("cos", "relu")])
    line = f"MNIST, dense, {epochs} epochs: cosine {cosine:.1f} %, ReLU {relu:.1f} %, difference in points"
    yield at_least(line, round(cosine - relu, 2), -0.5)
    epochs, found = _best(scores, [cell_of_table("fashion_mnist", "cos", s) for s in STRUCTURES])
    values = dict(zip(STRUCTURES, found, strict=True))
    said = ", ".join(f"{name} {value:.1f} %" for name, value in values.items())
    line = f"Fashion-MNIST, cosine, {epochs} epochs: {said}; Hadamard less the best in points"
    yield at_least(line, round(values["hadamard"] - max(values.values()), 2), -1)
    bare = f"cells more than 1.5 points from the paper without an explanation, of {len(cells_of_tables())}"
    yield exactly(bare, len(unexplained(scores)), 0)


def cells_of_tables() -> list[Cell]:
    return list(dict.fromkeys([*EXPERIMENTS["tables"], *EXPERIMENTS["phd-circulant"]]))


def _best(scores: Scores, cells: Sequence[Cell]) -> tuple[int | None, list[float]]:
    """The longest training that most of the cells had, and their accuracies after it."""
    epochs = scores.epochs(cells)
    found = [scores.score(cell, epochs) for cell in cells]
    return epochs, [score.best.mean if score else float("nan") for score in found]


def private(rows: list[results.Row]) -> Iterator[Line]:
    for row in rows:
        if row["experiment"] == "secure":
            both = f"{100 * row['value']:.2f} % on shares, {100 * row['plain_value']:.2f} % in plaintext"
            line = f"{NAMES[row['dataset']]}, {row['test_rows']:,} test rows: {both}, difference in points"
            yield at_most(line, round(100 * abs(row["value"] - row["plain_value"]), 3), 0.05)


def speed() -> Iterator[Line]:
    timed = json.loads((RESULTS / "speed.json").read_text())
    one = next(run for run in timed if (run["cells_together"], run["models_per_cell"]) == (1, 30))
    yield at_most(
        f"ms per step of the 30 models of a LeNet-5 cell, batch {one['batch_size']}, on {one['device']} (speed.json)",
        one["ms_per_step_of_all"],
        3,
    )


def report(rows: list[results.Row]) -> Iterator[Line]:
    yield exactly("files of the report that differ from what the results render to", len(_stale()), 0)
    cell = cell_of_table("fashion_mnist", "cos", "hadamard")
    lost = next(
        row for row in rows if results.is_training(row) and results.cell_of(row) == cell and row["epochs"] >= 40
    )
    before, after = (_not_run([row for row in rows if row is not gone]) for gone in (None, lost))
    yield at_least("fields that become `not run` when one row of a table's cell is deleted", after - before, 1)


def _stale() -> list[str]:
    return stale(RESULTS / "paper.jsonl", RESULTS)


def _not_run(rows: list[results.Row]) -> int:
    with tempfile.TemporaryDirectory() as scratch:
        source = Path(scratch) / "paper.jsonl"
        results.append(source, rows)
        write(source, Path(scratch))
        return (Path(scratch) / "paper.md").read_text().count("not run")
