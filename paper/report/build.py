"""The whole report: the same results file always gives the same bytes."""

from __future__ import annotations

from pathlib import Path

from hdcos.errors import InputError
from paper import results
from paper.report.claims import claims
from paper.report.costs import costs
from paper.report.differences import differences
from paper.report.document import Figure, Heading, Part, Text, html, markdown
from paper.report.figures import figures
from paper.report.frozen import frozen
from paper.report.kernels import kernels
from paper.report.rounds import rounds
from paper.report.scores import Scores
from paper.report.secure import secure
from paper.report.tables import tables
from paper.report.varied import generated, projections, starts

TITLE = "HD-cos networks: the paper's experiments, made again"
FIGURES = "figures"
INTRODUCTION = (
    "Accuracies are per cent of the test rows, the mean over trials and its standard deviation, at the learning rate "
    "with the best mean: the paper's way, which lets the test rows choose the rate. A trial that diverges counts as "
    "chance. Pixels are divided by 255 and Higgs features taken as they are; losses are means over a batch of 128 "
    "(Higgs 256), without momentum, decay or schedule; dense layers and convolutions start with Glorot's uniform "
    "weights, diagonals as N(0, 1), biases as 0; all activations of LeNet-5 are replaced; every epoch leaves out the "
    "rest that fills no batch. Higgs is a sample of 67,562 of 11,000,000 rows; Criteo's data may not be passed on, so "
    "its column is empty here. A cell of which a run is missing says that it was not run."
)


def build(rows: list[results.Row]) -> list[Part]:
    scores = Scores(rows)
    made = [
        claims(scores),
        rounds(rows),
        tables(scores),
        differences(scores),
        starts(scores),
        figures(scores, rows),
        kernels(rows),
        frozen(rows),
        secure(rows),
        projections(scores),
        generated(scores),
        costs(scores),
    ]
    return [Heading(TITLE, 1), Text(INTRODUCTION), *(part for parts in made for part in parts)]


def files(rows: list[results.Row]) -> dict[str, str]:
    """The report's files by name: the page, the Markdown and its figures."""
    parts = build(rows)
    drawings = {f"{FIGURES}/{part.name}.svg": part.svg + "\n" for part in parts if isinstance(part, Figure)}
    return {"paper.html": html(TITLE, parts), "paper.md": markdown(parts, FIGURES), **drawings}


def write(source: Path, folder: Path) -> list[Path]:
    """Render the results into the folder; the files written."""
    written = []
    for name, text in files(_rows(source)).items():
        target = folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        written.append(target)
    return written


def stale(source: Path, folder: Path) -> list[str]:
    """The names of files that are not what the results render to."""
    made = files(_rows(source))
    return [name for name, text in made.items() if not (folder / name).is_file() or (folder / name).read_text() != text]


def _rows(source: Path) -> list[results.Row]:
    rows = results.read(source)
    if not rows:
        raise InputError(f"{source} has no results.\nMake some: `python -m paper run dense --trials 1 --epochs 1`.")
    return rows
