"""Trained networks on whole test sets, on shares and in plaintext."""

from __future__ import annotations

from paper.cells import IMAGES
from paper.report.document import Heading, Part, Table, Text
from paper.report.tables import NAMES, NOT_RUN
from paper.results import Row

NOTE = (
    "HD-cos networks evaluated by two parties and a dealer on one machine, over TLS, on every row of the test sets. "
    "MNIST and Fashion-MNIST: the trained networks that come with hdcos; Higgs: trained on the sample's training rows. "
    "Bytes per row: online each way between the parties, offline from the dealer to party 1. Rounds are for a batch."
)


def secure(rows: list[Row]) -> list[Part]:
    found = {row["dataset"]: row for row in rows if row["experiment"] == "secure"}
    lines = [_line(dataset, found.get(dataset)) for dataset in (*IMAGES, "higgs")]
    head = ["test set", "rows", "accuracy on shares", "in plaintext", "labels that agree, %", "parameters"]
    head += ["online rounds per batch", "rows per batch", "online bytes per row", "offline bytes per row"]
    return [Heading("Under two-party computation"), Table(head, lines), Text(NOTE)]


def _line(dataset: str, row: Row | None) -> list[str]:
    if row is None:
        return [NAMES[dataset], *[NOT_RUN] * 9]
    count, batches = row["test_rows"], -(-row["test_rows"] // row["rows_per_batch"])
    return [
        NAMES[dataset],
        f"{count:,}",
        f"{100 * row['value']:.2f}",
        f"{100 * row['plain_value']:.2f}",
        f"{100 * row['agreement']:.3f}",
        f"{row['parameter_count']:,}",
        f"{row['online']['rounds'] / batches:g}",
        f"{row['rows_per_batch']:,}",
        f"{row['online']['bytes_sent'][0] / count:,.0f}",
        f"{row['offline']['bytes_sent'][1] / count:,.0f}",
    ]
