"""A picture of how a model does: confusion matrix, ROC curve and calibration; of numbers, what was guessed and what was
true. matplotlib (`hdcos[plot]`) is imported when a picture is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hdcos.errors import InputError
from hdcos.evaluation.metrics import ClassScores, NumberScores

FORMATS = (".png", ".svg", ".pdf")
MOST_WRITTEN = 12
"""Classes whose counts are written into the matrix."""
MOST_CURVES = 6
BLUE, GREY = "#1f5fa8", "#9a9a9a"


def check_plot(path: Path) -> None:
    """Before anything is computed: a picture can be drawn, of this format."""
    if path.suffix.lower() not in FORMATS:
        raise InputError(f"{path} is no {', '.join(FORMATS[:-1])} or {FORMATS[-1]} file: a picture is one of these")
    _figure()


def _figure() -> Any:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("pictures need matplotlib: pip install 'hdcos[plot]'") from None
    return Figure


def draw(scores: ClassScores | NumberScores, path: Path, title: str, names: Sequence[str]) -> None:
    """Write the picture; `names` are those of the classes."""
    classes = isinstance(scores, ClassScores)
    figure = _figure()(figsize=(13, 4.4) if classes else (5, 4.6), layout="constrained")
    figure.suptitle(title)
    if isinstance(scores, ClassScores):
        matrix, curve, calibration = figure.subplots(1, 3)
        _matrix(matrix, scores, names)
        _curves(curve, scores, names)
        _calibration(calibration, scores)
    else:
        _numbers(figure.subplots(), scores)
    figure.savefig(path, dpi=140)


def _matrix(axes: Any, scores: ClassScores, names: Sequence[str]) -> None:
    counts = scores.confusion
    parts = counts / np.maximum(1, counts.sum(1, keepdims=True))
    axes.imshow(parts, cmap="Blues", vmin=0, vmax=1)
    axes.set(title=f"accuracy {scores.accuracy:.2%}", xlabel="guessed", ylabel="true")
    few = len(counts) <= MOST_WRITTEN
    ticks = range(len(counts)) if few else range(0, len(counts), -(-len(counts) // MOST_WRITTEN))
    axes.set_xticks(ticks, [names[tick] for tick in ticks], rotation=45 if max(map(len, names)) > 3 else 0)
    axes.set_yticks(ticks, [names[tick] for tick in ticks])
    for (row, column), count in np.ndenumerate(counts if few else counts[:0]):
        color = "white" if parts[row, column] > 0.5 else "black"
        axes.text(column, row, f"{count:,}", ha="center", va="center", color=color, fontsize=9)


def _curves(axes: Any, scores: ClassScores, names: Sequence[str]) -> None:
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
    drawn = range(min(MOST_CURVES, scores.outputs))
    for number in drawn:
        others, own = scores.curve(number)
        one = scores.outputs == 1
        axes.plot(others, own, color=BLUE if one else None, label=None if one else names[number])
    area = "no AUC: all rows are of one class" if scores.auc is None else f"AUC {scores.auc:.4f}"
    axes.set(title=area, xlabel="part of the other rows above", ylabel="part of the class above", aspect="equal")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    if scores.outputs > 1:
        axes.legend(title="class", fontsize=8, loc="lower right")


def _calibration(axes: Any, scores: ClassScores) -> None:
    count, certain, right = scores.calibration()
    axes.plot([0, 1], [0, 1], color=GREY, linestyle=":", linewidth=1)
    axes.plot(certain, right, color=BLUE, linewidth=1)
    axes.scatter(certain, right, s=20 + 180 * count / count.max(), color=BLUE, alpha=0.7, zorder=3)
    title = f"calibration error {scores.calibration_error:.4f}, log loss {scores.log_loss:.4f}"
    axes.set(title=title, xlabel="probability, by the model", ylabel="how often it came true", aspect="equal")
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))


def _numbers(axes: Any, scores: NumberScores) -> None:
    truth, guessed = scores.shown.T
    ends = [min(truth.min(), guessed.min()), max(truth.max(), guessed.max())]
    axes.plot(ends, ends, color=GREY, linestyle=":", linewidth=1)
    axes.scatter(truth, guessed, s=8, color=BLUE, alpha=0.5)
    r2 = "" if scores.r2 is None else f", R² {scores.r2:.4f}"
    axes.set(title=f"RMSE {scores.rmse:.4g}{r2}", xlabel="true", ylabel="guessed")
