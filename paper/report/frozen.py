"""Frozen random features beside the kernel that they estimate."""

from __future__ import annotations

from statistics import fmean

from paper.cells import IMAGES
from paper.frozen import DIMENSIONS, LAYERS
from paper.report.document import Heading, Part, Table, Text
from paper.report.tables import NAMES
from paper.results import Row


def frozen(rows: list[Row]) -> list[Part]:
    """Mean accuracies over the seeds, in per cent."""
    found = [row for row in rows if row["experiment"] == "frozen-features"]
    lines = []
    for dataset in IMAGES:
        for structure in LAYERS:
            values = [_mean(found, dataset, structure, dimension) for dimension in DIMENSIONS]
            lines.append([f"{NAMES[dataset]}, {structure}", *values, _mean(found, dataset, "exact", None)])
    sizes = sorted({row["train_rows"] for row in found})
    note = (
        "Ridge regression onto the classes, no training of the features. "
        + f"Training rows: {', '.join(f'{size:,}' for size in sizes) or 'none'}, the first of each data set."
    )
    head = ["random features", *(f"{dimension}" for dimension in DIMENSIONS), "exact kernel"]
    return [Heading("Frozen random features"), Table(head, lines), Text(note)]


def _mean(rows: list[Row], dataset: str, structure: str, dimension: int | None) -> str:
    key = (dataset, structure, dimension)
    values = [100 * row["value"] for row in rows if (row["dataset"], row["structure"], row["dimension"]) == key]
    return f"{fmean(values):.1f}" if values else "not run"
