"""The paper's tables beside ours: accuracy in per cent, the mean over trials at the best learning rate."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from paper.cells import HIGGS_DEPTH, IMAGES, LEARNING_RATES, Cell
from paper.experiments import ACTIVATIONS, DEPTH_ACTIVATIONS, DEPTHS, EXPERIMENTS, STRUCTURES
from paper.report.document import Heading, Part, Table, Text, signed
from paper.report.published import PAPER_STEPS, published, published_again, published_by_rate
from paper.report.scores import Score, Scores

NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "higgs": "Higgs (sample)", "criteo": "Criteo"}
SMALL_STRUCTURES = ("hadamard", "phd", "circulant")
NOT_RUN = "not run"
RATES = [f"{rate:g}" for rate in LEARNING_RATES]


def cell_of_table(dataset: str, activation: str, structure: str) -> Cell:
    return Cell(dataset, activation, structure, depth=None if dataset in IMAGES else HIGGS_DEPTH)


def tables(scores: Scores) -> list[Part]:
    """Every table of accuracies."""
    return [
        *_summary(scores, "Dense layers", "dense"),
        *_summary(scores, "Hadamard-Diagonal layers", "hadamard"),
        *_summary(scores, "Low-rank layers", "low_rank"),
        *_structured(scores),
        *_crossed(scores, "Activations and structures on Fashion-MNIST", STRUCTURES),
        *_crossed(scores, "Hadamard, PHD and circulant on Fashion-MNIST", SMALL_STRUCTURES, _own_column),
        *_optimizers(scores),
        *_depths(scores),
        *_blocks(scores),
        *_variants(scores),
        *_longer(scores),
    ]


def _triple(scores: Scores, cell: Cell, paper: float | None) -> list[str]:
    """Ours, the paper's and the difference."""
    score = scores.longest(cell)
    theirs = "-" if paper is None else f"{paper:.1f}"
    difference = "-" if score is None or paper is None else signed(score.best.mean - paper)
    return [value_of(score), theirs, difference]


def name_of(cell: Cell, score: Score | None) -> str:
    """A cell of a table in words; of Higgs with the number of steps."""
    steps = f", {score.steps:,} steps" if score is not None and cell.dataset == "higgs" else ""
    return f"{NAMES[cell.dataset]}{steps}, {cell.activation}, {cell.structure}"


def value_of(score: Score | None) -> str:
    """The mean and its deviation over trials; one trial has none."""
    if score is None:
        return NOT_RUN
    return f"{score.best.mean:.1f}" + (f" ± {score.best.deviation:.1f}" if score.trials > 1 else "")


def _head(first: str, groups: Sequence[str]) -> list[str]:
    return [first, *(part for group in groups for part in (group, "paper", "difference"))]


def _sizes(scores: Scores, cells: Sequence[Cell], epochs: int | None = None) -> str:
    """What stands behind a table's numbers, said of each data set; without `epochs`, of the longest training."""
    said = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        found: dict[tuple[int, int], list[str]] = {}
        some = None
        for cell in cells:
            score = scores.score(cell, epochs) if epochs else scores.longest(cell)
            if cell.dataset == dataset and score is not None:
                some = score
                found.setdefault((score.epochs, score.trials), []).append(f"{cell.activation} {cell.structure}")
        if some is not None:
            groups = sorted(found.items(), reverse=True)
            names = [", ".join(dict.fromkeys(group)) + ": " for _, group in groups[:-1]]
            names.append("the others: " if names else "")
            lengths = [f"{length} epochs, {trials} trials per learning rate" for (length, trials), _ in groups]
            parts = [name + length for name, length in zip(names, lengths, strict=True)]
            steps = f" {some.steps:,} steps, where the paper takes {PAPER_STEPS:,}." if dataset == "higgs" else ""
            rows = f"{some.train_rows:,} training and {some.test_rows:,} test rows."
            said.append(f"{NAMES[dataset]}: {'; '.join(parts)}; {rows}{steps}")
    return " ".join(said) or "None of these cells was run."


def _compared(
    scores: Scores, title: str, first: str, columns: dict[str, list[Cell]], paper: Callable[[Cell], float | None]
) -> list[Part]:
    """A table of cells beside the paper's numbers: columns by name, whose cells are the rows."""
    lists = list(columns.values())
    names = [getattr(cell, first) for cell in lists[0]]
    rows = [
        [name, *(text for cells in lists for text in _triple(scores, cells[index], paper(cells[index])))]
        for index, name in enumerate(names)
    ]
    note = _sizes(scores, [cell for cells in lists for cell in cells])
    return [Heading(title), Table(_head(first, list(columns)), rows), Text(note)]


def _summary(scores: Scores, title: str, structure: str) -> list[Part]:
    datasets = (*IMAGES, "higgs", "criteo")
    columns = {NAMES[d]: [cell_of_table(d, activation, structure) for activation in ACTIVATIONS] for d in datasets}
    return _compared(scores, title, "activation", columns, published)


def _structured(scores: Scores) -> list[Part]:
    columns = {NAMES[d]: [cell_of_table(d, "cos", structure) for structure in STRUCTURES] for d in (*IMAGES, "higgs")}
    return _compared(scores, "Structures with cosine", "structure", columns, published)


def _crossed(
    scores: Scores, title: str, structures: Sequence[str], paper: Callable[[Cell], float | None] = published
) -> list[Part]:
    columns = {s: [cell_of_table("fashion_mnist", a, s) for a in ACTIVATIONS] for s in structures}
    return _compared(scores, title, "activation", columns, paper)


def _own_column(cell: Cell) -> float | None:
    """The paper's table of PHD and circulant has Hadamard numbers of its own."""
    return published_again(cell) if cell.structure == "hadamard" else published(cell)


def _by_rate(scores: Scores, cell: Cell, epochs: int | None) -> list[str]:
    """Ours and the paper's at every learning rate; the paper prints two digits."""
    score, paper = scores.score(cell, epochs), published_by_rate(cell)
    row = []
    for rate in LEARNING_RATES:
        ours = NOT_RUN if score is None else f"{score.by_rate[rate].mean:.0f}"
        row.append(f"{ours} ({paper[rate]:.0f})" if rate in paper else ours)
    return row


def _optimizers(scores: Scores) -> list[Part]:
    cells = EXPERIMENTS["mnist-optimizers"]
    epochs = scores.epochs(cells)
    rows = [[f"{cell.optimizer}, {cell.activation}", *_by_rate(scores, cell, epochs)] for cell in cells]
    return [
        Heading("Optimisers on MNIST, LeNet-5 with dense layers"),
        Table(["at learning rate", *RATES], rows),
        Text(f"The paper's in brackets. {_sizes(scores, cells, epochs)}"),
    ]


def _depths(scores: Scores) -> list[Part]:
    cells = EXPERIMENTS["higgs-depth-all"]
    epochs = scores.epochs(cells)
    parts: list[Part] = [Heading("Depth on Higgs")]
    for structure in ("hadamard", "dense", "low_rank"):
        listed = [
            Cell("higgs", activation, structure, optimizer, depth)
            for optimizer in ("sgd", "adam")
            for activation in DEPTH_ACTIVATIONS
            for depth in DEPTHS
        ]
        rows = [[f"{c.optimizer}, {c.activation}, {c.depth}", *_by_rate(scores, c, epochs)] for c in listed]
        parts += [Heading(f"{structure} layers", 3), Table(["hidden layers, at learning rate", *RATES], rows)]
    return [*parts, Text(f"The paper's in brackets, where it has them. {_sizes(scores, cells, epochs)}")]


def _blocks(scores: Scores) -> list[Part]:
    rows, steps = [], ""
    for dataset in (*IMAGES, "higgs"):
        cells = [cell for cell in EXPERIMENTS["blocks"] if cell.dataset == dataset]
        epochs = scores.epochs(cells)
        found = [scores.score(cell, epochs) for cell in cells]
        rows.append([NAMES[dataset], f"{epochs or NOT_RUN}", *(value_of(score) for score in found)])
        rows[-1] += [NOT_RUN if score is None else f"{score.parameter_count:,}" for score in found]
        if dataset == "higgs" and found[0]:
            steps = f"Higgs: {found[0].steps:,} steps."
    head = ["HD blocks in every layer, cosine", "epochs", "1", "3", "parameters with 1", "parameters with 3"]
    return [Heading("One block against three"), Table(head, rows), *([Text(steps)] if steps else [])]


VARIANTS = {
    "pixels in [0, 1]": {},
    "diagonals' rate x sqrt(n)": {"diagonals": "scaled"},
    "standardised pixels": {"inputs": "standardised"},
    "both": {"diagonals": "scaled", "inputs": "standardised"},
}
VARIANTS_NOTE = (
    "Neither is in the paper. With an orthonormal H and one learning rate for all parameters diagonals learn slowly; "
    "their rate times sqrt(n), n the size of H, is public and costs nothing on shares. Standardised pixels have mean 0 "
    "and variance 1. Every column has the best learning rate of those that were tried."
)


def _variants(scores: Scores) -> list[Part]:
    """The paper's cells with other learning rates of diagonals, and with other inputs."""
    rows = []
    for cell in [cell_of_table(d, a, s) for d in IMAGES for a in ACTIVATIONS for s in ("dense", "hadamard")]:
        columns = [replace(cell, **changes) for changes in VARIANTS.values()]  # type: ignore[arg-type]
        for epochs in sorted({e for column in columns[1:] for e in scores.lengths(column)}):
            found = [scores.tried(column, epochs) for column in columns]
            rows.append([name_of(cell, None), str(epochs), *map(value_of, found)])
    table = Table(["cell", "epochs", *VARIANTS], rows)
    return [Heading("Rate of diagonals, scale of inputs"), table, Text(VARIANTS_NOTE)] if rows else []


def _longer(scores: Scores) -> list[Part]:
    """Cells trained for several numbers of epochs."""
    structures = (*STRUCTURES, "phd", "circulant")
    cells = [cell_of_table(d, a, s) for d in (*IMAGES, "higgs") for a in ACTIVATIONS for s in structures]
    rows = []
    for cell in cells:
        lengths = [epochs for epochs in scores.lengths(cell) if epochs >= 40]
        for epochs in lengths if len(lengths) > 1 else []:
            score, paper = scores.tried(cell, epochs), published(cell)
            trials = "-" if score is None else str(score.trials)
            theirs = "-" if paper is None else f"{paper:.1f}"
            rows.append([name_of(cell, score), str(epochs), trials, rates_of(score), value_of(score), theirs])
    head = ["cell", "epochs", "trials", "learning rates", "accuracy", "paper"]
    return [Heading("Longer training"), Table(head, rows)] if rows else []


def rates_of(score: Score | None) -> str:
    """The learning rates that were tried."""
    if score is None:
        return NOT_RUN
    return "all" if set(score.by_rate) == set(LEARNING_RATES) else ", ".join(f"{rate:g}" for rate in score.by_rate)
