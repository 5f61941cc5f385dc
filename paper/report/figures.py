"""The paper's figures, and training stability as a picture."""

from __future__ import annotations

from paper.cells import LEARNING_RATES, Cell
from paper.experiments import DEPTH_ACTIVATIONS, DEPTHS, EXPERIMENTS
from paper.report.document import Figure, Heading, Part
from paper.report.published import PAPER_STEPS, published_by_rate
from paper.report.scores import Scores
from paper.report.svg import grid, lines
from paper.results import Row

HIGHEST = 4
"""Activations that grow beyond this leave their figure."""


def figures(scores: Scores, rows: list[Row]) -> list[Part]:
    epochs = scores.epochs(EXPERIMENTS["higgs-depth"])
    drawn = [_activations(rows), *(_depth(scores, optimizer, epochs) for optimizer in ("sgd", "adam"))]
    drawn += [_stability(scores, activation, epochs) for activation in DEPTH_ACTIVATIONS]
    return [Heading("Figures"), *(figure for figure in drawn if figure is not None)]


def _activations(rows: list[Row]) -> Figure | None:
    found = {row["activation"]: row["points"] for row in rows if row["experiment"] == "activations"}
    series = {name: [(x, y) for x, y in points if y <= HIGHEST] for name, points in found.items()}
    if not series:
        return None
    drawing = lines("Activations", series, "x", "f(x)", range(-3, 4))
    return Figure("activations", drawing, "The activations; those that grow fast leave the picture.")


def _depth(scores: Scores, optimizer: str, epochs: int | None) -> Figure | None:
    series = {}
    for activation in DEPTH_ACTIVATIONS:
        cells = {depth: Cell("higgs", activation, "hadamard", optimizer, depth) for depth in DEPTHS}
        found = {depth: scores.score(cell, epochs) for depth, cell in cells.items()}
        series[activation] = [(float(depth), score.best.mean) for depth, score in found.items() if score]
        paper = {depth: published_by_rate(cell) for depth, cell in cells.items()}
        series[f"({activation})"] = [(float(depth), max(row.values())) for depth, row in paper.items() if row]
    if not all(series[activation] for activation in DEPTH_ACTIVATIONS):
        return None
    drawing = lines(f"Higgs (sample), Hadamard-Diagonal, {optimizer}", series, "hidden layers", "accuracy, %", DEPTHS)
    caption = f"Accuracy by depth, {optimizer}{_steps(scores, epochs)}. Dashed: the paper's, on all of Higgs, "
    return Figure(f"higgs-depth-{optimizer}", drawing, f"{caption}{PAPER_STEPS:,} steps.")


def _steps(scores: Scores, epochs: int | None) -> str:
    some = scores.score(Cell("higgs", "cos", "hadamard", depth=DEPTHS[-1]), epochs)
    return f", {some.steps:,} steps" if some else ""


def _stability(scores: Scores, activation: str, epochs: int | None) -> Figure | None:
    rows = {}
    for optimizer in ("sgd", "adam"):
        for depth in DEPTHS[1:]:
            score = scores.score(Cell("higgs", activation, "hadamard", optimizer, depth), epochs)
            means = [score.by_rate[rate].mean if score else None for rate in LEARNING_RATES]
            rows[f"{optimizer}, {depth}"] = means
    if all(value is None for row in rows.values() for value in row):
        return None
    drawing = grid(f"{activation}: accuracy by depth and rate", [f"{r:g}" for r in LEARNING_RATES], rows, 50, 70)
    caption = (
        f"Training stability of {activation} on Higgs (sample){_steps(scores, epochs)}: optimiser and hidden layers "
        "down, learning rate across."
    )
    return Figure(f"stability-{activation}", drawing, caption)
