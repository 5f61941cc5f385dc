"""The numbers that the paper prints, in per cent."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from paper.cells import HIGGS_DEPTH, LEARNING_RATES, Cell

PAPER_STEPS = 40 * (7_700_000 // 256)
"""On Higgs: 40 epochs of 7.7 million rows in batches of 256."""
SUMMARIES = {"dense": "all_dense", "low_rank": "all_lowrank", "hadamard": "all_hadamard"}


@cache
def tables() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("published.json").read_text())
    return loaded


def published(cell: Cell) -> float | None:
    """What the paper reports for the cell at its best learning rate; None where it reports nothing."""
    if _plain(cell) != cell or cell.depth not in (None, HIGGS_DEPTH):
        return None
    if cell.structure in SUMMARIES:
        found = tables()[SUMMARIES[cell.structure]][_word(cell.activation)].get(cell.dataset)
    elif cell.dataset == "fashion_mnist":
        found = tables()["phd_circulant_fashion_mnist"][_word(cell.activation)].get(cell.structure)
    else:
        found = None
    return None if found is None else float(found)


def published_again(cell: Cell) -> float | None:
    """What another table of the paper reports for the same cell, in its digits; None where there is no other."""
    if published(cell) is None:
        return None
    if (cell.dataset, cell.structure) == ("fashion_mnist", "hadamard"):
        return float(tables()["phd_circulant_fashion_mnist"][_word(cell.activation)]["hadamard"])
    by_rate = published_by_rate(cell)
    return max(by_rate.values()) if by_rate else None


def published_rounds(activation: str) -> int | None:
    """The online rounds of an activation in the paper's Table 1; its algorithm for cosine is there as cos_paper too."""
    found = tables()["online_rounds"].get(_word(activation.removesuffix("_paper")))
    return None if found is None else int(found)


def published_by_rate(cell: Cell) -> dict[float, float]:
    """What the paper reports for the cell at every learning rate; empty where it reports nothing."""
    if cell.dataset == "mnist" and cell.structure == "dense":
        found = tables()["mnist_optimizers_lenet5"][cell.optimizer].get(_word(cell.activation), {})
    elif cell.dataset == "higgs" and cell.structure == "hadamard" and cell.blocks == 1:
        depths = tables()["higgs_depth_hadamard"][cell.optimizer]
        none = depths["cos"] if cell.depth == 0 else {}  # without hidden layers there is no activation to choose
        found = depths.get(_word(cell.activation), none).get(str(cell.depth), {})
    else:
        found = {}
    by_rate = {float(rate): 100 * value for rate, value in found.items()}
    return {rate: by_rate[rate] for rate in LEARNING_RATES if rate in by_rate}


def _plain(cell: Cell) -> Cell:
    """The cell as the paper trains it."""
    return Cell(cell.dataset, cell.activation, cell.structure, depth=cell.depth)


def _word(activation: str) -> str:
    return "exp" if activation == "expm1" else activation
