"""The paper's numbers are those of the paper: its LaTeX tables are read and compared, cell by cell."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from paper import results
from paper.report.differences import differences, unexplained
from paper.report.document import Table
from paper.report.published import tables
from paper.report.scores import Scores

ROOT = Path(__file__).parents[2]
EXCERPT = Path(__file__).with_name("tables.tex")
"""The rows of the paper's tables, each table below its label."""
SOURCES = [EXCERPT, *sorted((ROOT.parent / "shared" / "paper").glob("*.txt"))]
"""The whole text of the paper is read too where it is there; it is not part of the repository."""
WORDS = {
    **{"cosine": "cos", "$e^x-1$": "exp", "none": "none", "relu": "relu", "square": "square", "$x^2$": "square"},
    **{"relupolyfit(3)": "polyfit3", "relupoly(3)": "polyfit3", "relu(nonmpcbaseline)": "relu"},
    **{"relupolyfit$(3)$": "polyfit3", "$e^x$-1": "exp", "cosine[thiswork]": "cos"},
    **{"dense": "dense", "lowrank": "low_rank", "hadamard": "hadamard", "adam": "adam", "sgd": "sgd"},
}
DATASETS = ("mnist", "fashion_mnist", "higgs", "criteo")
RATES = ("1e-5", "1e-4", "1e-3", "0.01", "0.1", "0.5")
UNEXPLAINED: list[str] = []
"""What no experiment shows yet; the report lists what was tried."""


def table(text: str, label: str) -> Iterator[list[str]]:
    """The fields of every row of the tabular next to a label."""
    at = text.index(f"\\label{{{label}}}")
    if text[:at].rfind("\\begin{tabular}") > text[:at].rfind("\\begin{table}"):  # the label stands below its rows
        at = text[:at].rfind("\\begin{tabular}")
    for line in text[at : text.index("\\end{tabular}", at)].splitlines():
        if "&" in line and "multicolumn" not in line:
            line = re.sub(r"\\(citep?|cite)\{[^}]*\}|\\\\.*", "", line)
            line = re.sub(r"\\(textcolor|colorbox)\{[^}]*\}", "", line)
            line = re.sub(r"\\multirow\{\d+\}\{\*\}|\\textbf|[{}]", "", line)
            yield ["".join(field.split()) for field in line.split("&")]


def words(fields: list[str]) -> list[str | None]:
    return [WORDS.get(field.lower()) for field in fields]


def by_activation(text: str, label: str, columns: tuple[str, ...]) -> dict[str, dict[str, float]]:
    rows = {word: row for row in table(text, label) if (word := WORDS.get(row[0].lower()))}
    return {name: dict(zip(columns, map(float, row[-len(columns) :]), strict=True)) for name, row in rows.items()}


@pytest.fixture(params=SOURCES, ids=lambda path: path.suffix)
def text(request: pytest.FixtureRequest) -> str:
    return Path(request.param).read_text()


@pytest.mark.parametrize(
    ("label", "name"),
    [("tab:all_dense", "all_dense"), ("tab:all_hadamard", "all_hadamard"), ("tab:all_lowrank", "all_lowrank")],
)
def test_tables_of_all_data_sets(text: str, label: str, name: str) -> None:
    read = by_activation(text, label, DATASETS)
    assert len(read) == 6
    assert read == tables()[name]


def test_structures_and_their_multiplications(text: str) -> None:
    rows = {WORDS[row[0].lower()]: row[1:] for row in table(text, "tab:structured") if row[0].lower() in WORDS}
    read = {
        name: {"secure_mults": row[0].strip("$"), **dict(zip(DATASETS, map(float, row[1:]), strict=True))}
        for name, row in rows.items()
    }
    assert read == tables()["structured"]


def test_activations_and_structures(text: str) -> None:
    structures = ("dense", "low_rank", "hadamard")
    columns = tuple(f"{d} {s}" for d in ("fashion_mnist", "criteo") for s in structures)
    read = by_activation(text, "tab:combined-fashion", columns)
    assert len(read) == 6
    for name, row in read.items():
        expected = tables()["combined"][name]
        assert row == {f"{d} {s}": expected[d][s] for d in ("fashion_mnist", "criteo") for s in structures}


def test_hadamard_phd_and_circulant(text: str) -> None:
    read = by_activation(text, "tab:hadamard_vs_phd_and_circulant", ("hadamard", "phd", "circulant"))
    assert [read[name]["hadamard"] for name in ("cos", "exp", "none", "polyfit3", "square", "relu")] == [
        *(88.6, 80.2, 83.7, 88.5, 36.0, 89.3)
    ]
    assert read == tables()["phd_circulant_fashion_mnist"]


def test_optimisers_at_every_rate(text: str) -> None:
    read: dict[str, dict[str, dict[str, float]]] = {}
    for row in table(text, "tbl:mnist"):
        optimizer, activation = words(row[:2])
        if activation:
            read[optimizer or list(read)[-1]] = {**read.get(optimizer or list(read)[-1], {}), activation: _rates(row)}
    assert read == tables()["mnist_optimizers_lenet5"]


def test_depths_at_every_rate(text: str) -> None:
    read: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    optimizer = activation = ""
    for row in table(text, "tbl:higgs"):
        if not row[2].isdigit():
            continue
        found = words(row[:2])
        optimizer, activation = found[0] or optimizer, found[1] or activation
        read.setdefault(optimizer, {}).setdefault(activation, {})[row[2]] = _rates(row)
    assert read == tables()["higgs_depth_hadamard"]


def test_rounds(text: str) -> None:
    rows = {WORDS[row[0].lower()]: int(row[1]) for row in table(text, "tab:activations") if row[0].lower() in WORDS}
    assert rows == tables()["online_rounds"]


def _rates(row: list[str]) -> dict[str, float]:
    return dict(zip(RATES, map(float, row[-6:]), strict=True))


def test_differences_without_a_reason_are_the_known_ones() -> None:
    scores = Scores(results.read(ROOT / "results" / "paper.jsonl"))
    assert unexplained(scores) == UNEXPLAINED
    (shown,) = (part for part in differences(scores) if isinstance(part, Table))
    assert all(re.search(r"\d", row[-1]) for row in shown.rows)
