"""Every cell that differs from the paper by more than 1.5 points, with what the runs say of the reason."""

from __future__ import annotations

from paper.cells import IMAGES, Cell
from paper.experiments import ACTIVATIONS, STRUCTURES
from paper.report.document import Heading, Part, Table, Text, signed
from paper.report.published import published
from paper.report.scores import Score, Scores
from paper.report.tables import NAMES, cell_of_table

LIMIT = 1.5
PAPER_EPOCHS = {"mnist": 200, "fashion_mnist": 200, "higgs": 40}
PAPER_ROWS = 7_700_000
UNEXPLAINED = "not explained"


def differences(scores: Scores) -> list[Part]:
    rows, compared = _differing(scores)
    note = f"{compared - len(rows)} of {compared} cells are within {LIMIT} points of the paper; these are not."
    return [Heading("Differences"), Text(note), Table(["cell", "here", "paper", "difference", "what is known"], rows)]


def unexplained(scores: Scores) -> list[str]:
    """The cells of which the runs say nothing."""
    return [row[0] for row in _differing(scores)[0] if row[-1] == UNEXPLAINED]


def _differing(scores: Scores) -> tuple[list[list[str]], int]:
    """The lines of the table, and how many cells were compared."""
    rows, compared = [], 0
    for dataset in (*IMAGES, "higgs"):
        structures = (*STRUCTURES, "phd", "circulant") if dataset == "fashion_mnist" else STRUCTURES
        cells = [cell_of_table(dataset, a, s) for a in ACTIVATIONS for s in structures]
        epochs = scores.epochs(cells)
        for cell in cells:
            score, paper = scores.score(cell, epochs), published(cell)
            if score is None or paper is None:
                continue
            compared += 1
            gap = score.best.mean - paper
            if abs(gap) > LIMIT:
                name = f"{NAMES[dataset]}, {cell.activation}, {cell.structure}"
                rows.append([name, f"{score.best.mean:.1f}", f"{paper:.1f}", signed(gap), _reason(cell, score, gap)])
    return rows, compared


def _reason(cell: Cell, score: Score, gap: float) -> str:
    """What the runs alone say: how stable the best learning rate is, then the size and length of the training."""
    best, known = score.best, []
    if best.diverged:
        known.append(
            f"{best.diverged} of {score.trials} trials diverged even at the best learning rate, {score.rate:g}"
        )
    elif best.deviation > LIMIT:
        known.append(f"trials at the best learning rate, {score.rate:g}, have standard deviation {best.deviation:.1f}")
    if gap < 0 and cell.dataset == "higgs" and not best.diverged:
        known.append(f"{score.train_rows:,} training rows, where the paper has {PAPER_ROWS:,}")
    if gap < 0 and best.gain > 0.5 and score.epochs < PAPER_EPOCHS[cell.dataset]:
        longer = f"{score.epochs} epochs, where the paper has {PAPER_EPOCHS[cell.dataset]}"
        known.append(f"{longer}; {signed(best.gain)} since epoch {best.gain_from}")
    if gap < 0 and any(rate > score.rate and at.diverged for rate, at in score.by_rate.items()):
        known.append("larger learning rates diverge")
    if gap > 0 and not known:
        known.append(f"no trial diverged at the best learning rate, {score.rate:g}: deviation {best.deviation:.1f}")
    return "; ".join(known) or UNEXPLAINED
