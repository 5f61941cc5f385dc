"""Table 1: online rounds of activations beside the paper's."""

from __future__ import annotations

from paper.report.document import Heading, Part, Table, Text
from paper.report.published import published_rounds
from paper.results import Row

NOTE = (
    "Rounds and bytes of one evaluation on shares, from the protocols' own plans, which tests hold to the meters of "
    "real links. Online bytes are sent each way per element, offline bytes come from the dealer. cos_paper is the "
    "paper's algorithm as printed; cos opens the angle under a dealt mask, which saves a round. ReLU is not offered."
)


def rounds(rows: list[Row]) -> list[Part]:
    found = [row for row in rows if row["experiment"] == "rounds"]
    lines = []
    for row in found:
        name, paper = row["activation"], published_rounds(row["activation"])
        theirs = ["-", "-"] if paper is None else [str(paper), f"{row['value'] - paper:+d}"]
        sizes = [f"{row['bytes_per_element']:.4g}", f"{row['offline_bytes_per_element']:.4g}"]
        lines.append([name, str(row["value"]), *theirs, *sizes])
    head = ["activation", "online rounds", "paper", "difference", "online bytes", "offline bytes"]
    note = NOTE if found else "Not run."
    return [Heading("Rounds of activations"), Table(head, lines), Text(note)]
