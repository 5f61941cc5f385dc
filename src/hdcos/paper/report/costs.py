"""Accuracy read against cost: what private inference with each cell's model takes, from the planner."""

from __future__ import annotations

from hdcos.nn.private.estimate import estimate, total
from hdcos.paper.cells import IMAGES, Cell
from hdcos.paper.experiments import ACTIVATIONS, STRUCTURES
from hdcos.paper.report.document import Heading, Part, Table, Text
from hdcos.paper.report.scores import Scores
from hdcos.paper.report.tables import NAMES, cell_of_table, value_of


def costs(scores: Scores) -> list[Part]:
    rows = []
    for dataset in (*IMAGES, "higgs"):
        structures = (*STRUCTURES, "phd", "circulant") if dataset == "fashion_mnist" else STRUCTURES
        cells = [cell_of_table(dataset, a, s) for a in ACTIVATIONS for s in structures]
        epochs = scores.epochs(cells)
        for cell in cells:
            name = f"{NAMES[dataset]}, {cell.activation}, {cell.structure}"
            model = cell.network(0)
            rows.append([name, value_of(scores.score(cell, epochs)), f"{model.parameter_count:,}", *_planned(cell)])
    head = ["cell", "accuracy", "parameters", "online rounds", "online bytes each way", "offline bytes"]
    note = (
        "For one row, both parties holding shares of the model and of the row; planned, and metered alike. "
        "ReLU takes comparisons, which are not offered. Training is not priced here yet."
    )
    return [Heading("Accuracy against cost"), Table([*head, "secure multiplications"], rows), Text(note)]


def _planned(cell: Cell) -> list[str]:
    if cell.activation == "relu":
        return ["-"] * 4
    whole = total(estimate(cell.network(0), 1))
    numbers = (whole.online.rounds, whole.online.bytes_sent, whole.offline.bytes_sent, whole.multiplications)
    return [f"{number:,}" for number in numbers]
