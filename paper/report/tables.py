"""The paper's tables beside ours: accuracy in per cent, the mean over trials at the best learning rate."""

from __future__ import annotations

from collections.abc import Sequence

from paper.cells import HIGGS_DEPTH, IMAGES, LEARNING_RATES, Cell
from paper.experiments import ACTIVATIONS, DEPTH_ACTIVATIONS, DEPTHS, EXPERIMENTS, STRUCTURES
from paper.report.document import Heading, Part, Table, Text, signed
from paper.report.published import published, published_by_rate
from paper.report.scores import Score, Scores

NAMES = {"mnist": "MNIST", "fashion_mnist": "Fashion-MNIST", "higgs": "Higgs (sample)", "criteo": "Criteo"}
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
        *_crossed(scores, "Hadamard, PHD and circulant on Fashion-MNIST", ("hadamard", "phd", "circulant")),
        *_optimizers(scores),
        *_depths(scores),
        *_blocks(scores),
        *_inputs(scores),
        *_longer(scores),
    ]


def _triple(scores: Scores, cell: Cell, epochs: int | None) -> list[str]:
    """Ours, the paper's and the difference."""
    score, paper = scores.score(cell, epochs), published(cell)
    theirs = "-" if paper is None else f"{paper:.1f}"
    difference = "-" if score is None or paper is None else signed(score.best.mean - paper)
    return [value_of(score), theirs, difference]


def value_of(score: Score | None) -> str:
    """The mean and its deviation over trials; one trial has none."""
    if score is None:
        return NOT_RUN
    return f"{score.best.mean:.1f}" + (f" ± {score.best.deviation:.1f}" if score.trials > 1 else "")


def _head(first: str, groups: Sequence[str]) -> list[str]:
    return [first, *(part for group in groups for part in (group, "paper", "difference"))]


def _sizes(scores: Scores, cells: Sequence[Cell], epochs: int | None) -> str:
    """What stands behind a table's numbers, said of each data set."""
    said = []
    for dataset in dict.fromkeys(cell.dataset for cell in cells):
        found = [score for c in cells if c.dataset == dataset and (score := scores.score(c, epochs))]
        if found:
            trials = sorted({score.trials for score in found})
            some = found[0]
            said.append(
                f"{NAMES[dataset]}: {some.epochs} epochs, {' or '.join(map(str, trials))} trials per learning rate, "
                f"{some.train_rows:,} training and {some.test_rows:,} test rows."
            )
    return " ".join(said) or "None of these cells was run."


def _summary(scores: Scores, title: str, structure: str) -> list[Part]:
    datasets = (*IMAGES, "higgs", "criteo")
    columns = {d: [cell_of_table(d, activation, structure) for activation in ACTIVATIONS] for d in datasets}
    epochs = {d: scores.epochs(cells) for d, cells in columns.items()}
    rows = []
    for index, activation in enumerate(ACTIVATIONS):
        row = [activation]
        for dataset in datasets:
            row += _triple(scores, columns[dataset][index], epochs[dataset])
        rows.append(row)
    notes = " ".join(_sizes(scores, cells, epochs[d]) for d, cells in columns.items() if epochs[d])
    head = _head("activation", [NAMES[d] for d in datasets])
    return [Heading(title), Table(head, rows), Text(notes or "None of these cells was run.")]


def _structured(scores: Scores) -> list[Part]:
    rows = []
    datasets = (*IMAGES, "higgs")
    epochs = {d: scores.epochs([cell_of_table(d, a, s) for a in ACTIVATIONS for s in STRUCTURES]) for d in datasets}
    for structure in STRUCTURES:
        row = [structure]
        for dataset in datasets:
            row += _triple(scores, cell_of_table(dataset, "cos", structure), epochs[dataset])
        rows.append(row)
    return [Heading("Structures with cosine"), Table(_head("structure", [NAMES[d] for d in datasets]), rows)]


def _crossed(scores: Scores, title: str, structures: Sequence[str]) -> list[Part]:
    cells = [cell_of_table("fashion_mnist", a, s) for a in ACTIVATIONS for s in structures]
    epochs = scores.epochs(cells)
    rows = []
    for activation in ACTIVATIONS:
        row = [activation]
        for structure in structures:
            row += _triple(scores, cell_of_table("fashion_mnist", activation, structure), epochs)
        rows.append(row)
    return [Heading(title), Table(_head("activation", structures), rows), Text(_sizes(scores, cells, epochs))]


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
    rows = []
    for dataset in (*IMAGES, "higgs"):
        cells = [cell for cell in EXPERIMENTS["blocks"] if cell.dataset == dataset]
        epochs = scores.epochs(cells)
        found = [scores.score(cell, epochs) for cell in cells]
        rows.append([NAMES[dataset], *(value_of(score) for score in found)])
        rows[-1] += [NOT_RUN if score is None else f"{score.parameter_count:,}" for score in found]
    head = ["HD blocks in every layer, cosine", "1", "3", "parameters with 1", "parameters with 3"]
    return [Heading("One block against three"), Table(head, rows)]


def _inputs(scores: Scores) -> list[Part]:
    rows = []
    for activation in ACTIVATIONS:
        for structure in ("dense", "hadamard"):
            pair = [Cell("fashion_mnist", activation, structure, inputs=name) for name in ("unit", "standardised")]
            for epochs in scores.lengths(pair[1]):
                found = [value_of(scores.score(cell, epochs)) for cell in pair]
                rows.append([f"{activation}, {structure}", str(epochs), *found])
    head = ["Fashion-MNIST", "epochs", "pixels in [0, 1]", "mean 0, variance 1"]
    return [Heading("Scale of the inputs"), Table(head, rows)] if rows else []


def _longer(scores: Scores) -> list[Part]:
    """Cells trained for several numbers of epochs."""
    cells = [cell_of_table(d, a, s) for d in (*IMAGES, "higgs") for a in ACTIVATIONS for s in STRUCTURES]
    rows = [
        [f"{NAMES[cell.dataset]}, {cell.activation}, {cell.structure}", str(epochs), value_of(score), theirs]
        for cell in cells
        if len([e for e in scores.lengths(cell) if e >= 40]) > 1
        for epochs in scores.lengths(cell)
        for score in [scores.score(cell, epochs)]
        for theirs in [f"{published(cell):.1f}"]
    ]
    return [Heading("Longer training"), Table(["cell", "epochs", "accuracy", "paper"], rows)] if rows else []
