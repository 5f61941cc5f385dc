"""The whole report: the same results file always gives the same bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hdcos.errors import InputError
from hdcos.protocol.intervals import relu_cubic
from paper import results
from paper.report.claims import claims
from paper.report.contradictions import contradictions
from paper.report.costs import costs, rounds
from paper.report.differences import differences
from paper.report.document import Figure, Heading, Part, Text, html, markdown
from paper.report.figures import figures
from paper.report.kernels import frozen, kernels, machines
from paper.report.scores import Scores
from paper.report.secure import ready, secure
from paper.report.tables import tables
from paper.report.varied import generated, projections, starts

TITLE = "HD-cos networks: the paper's experiments, made again"
FIGURES = "figures"
INTRODUCTION = (
    "Accuracies are per cent of the test rows, the mean over trials and its standard deviation, at the learning rate "
    "with the best mean: the paper's way, which lets the test rows choose the rate. Each cell is shown after its "
    "longest training; the line below a table says how long that was, and with how many trials. A trial that diverges "
    "counts as chance. Pixels are divided by 255 and Higgs features taken as they are; losses are means over a batch "
    "of 128 (Higgs 256), without momentum, decay or schedule; dense layers and convolutions start with Glorot's "
    "uniform weights, diagonals as N(0, 1), biases as 0; all activations of LeNet-5 are replaced; every epoch leaves "
    "out the rest that fills no batch. Higgs is a sample of 67,562 of 11,000,000 rows; Criteo's data may not be passed "
    "on, so its column is empty here. Cells with missing runs say that they were not run."
)


def build(rows: list[results.Row], trained: Sequence[dict[str, Any]] = ()) -> list[Part]:
    """The parts of the report; `trained` are the rows of the ready network."""
    scores = Scores(rows)
    made = [
        claims(scores),
        contradictions(),
        rounds(rows),
        tables(scores),
        differences(scores),
        starts(scores),
        figures(scores, rows),
        kernels(rows),
        frozen(rows),
        machines(rows),
        secure(rows),
        ready(list(trained), scores),
        projections(scores),
        generated(scores),
        costs(scores),
    ]
    return [Heading(TITLE, 1), Text(INTRODUCTION), Text(_polynomial()), *(part for parts in made for part in parts)]


def _polynomial() -> str:
    c0, c1, c2, c3 = relu_cubic()
    return (
        f"polyfit3 is {c0:.4f} + {c1:.4f} x + {c2:.4f} x^2 - {-c3:.4f} x^3, the cubic closest to ReLU on [-4, 6] in "
        "the least-squares sense. The paper does not print its polynomial."
    )


def files(rows: list[results.Row], trained: Sequence[dict[str, Any]] = ()) -> dict[str, str]:
    """The report's files by name: the page, the Markdown and its figures."""
    parts = build(rows, trained)
    drawings = {f"{FIGURES}/{part.name}.svg": part.svg + "\n" for part in parts if isinstance(part, Figure)}
    return {"paper.html": html(TITLE, parts), "paper.md": markdown(parts, FIGURES), **drawings}


def write(source: Path, folder: Path) -> list[Path]:
    """Render the results into the folder; the files written."""
    written = []
    for name, text in files(_rows(source), _trained(source)).items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        written.append(target)
    return written


def stale(source: Path, folder: Path) -> list[str]:
    """The names of files that are not what the results render to."""
    made = files(_rows(source), _trained(source))
    return [name for name, text in made.items() if not (folder / name).is_file() or (folder / name).read_text() != text]


def _rows(source: Path) -> list[results.Row]:
    rows = results.read(source)
    if not rows:
        raise InputError(f"{source} has no results.\nMake some: `python -m paper run dense --trials 1 --epochs 1`.")
    return rows


def _trained(source: Path) -> list[dict[str, Any]]:
    """The rows of the ready network, in a file beside the results; none where there is no file."""
    beside = source.with_name("ready.jsonl")
    return [json.loads(line) for line in beside.read_text().splitlines()] if beside.exists() else []
