"""What was varied beyond the paper's tables: starts of training, projections before Hadamard layers, generated rows."""

from __future__ import annotations

from dataclasses import replace

from hdcos.data.criteo import CATEGORIES, INTEGERS, embedding_size
from hdcos.data.synthetic import CARDINALITIES, CLICKS
from hdcos.secure.estimate import estimate, total
from paper.cells import CRITEO_DEPTH, IMAGES, LEARNING_RATES, Cell
from paper.cells import SYNTHETIC_CRITEO as SYNTHETIC
from paper.experiments import ACTIVATIONS, EXPERIMENTS, PROJECTIONS, STRUCTURES
from paper.report.document import Heading, Part, Table, Text, signed
from paper.report.scores import Scores
from paper.report.tables import NAMES, NOT_RUN, rates_of, value_of

STARTS = {
    ("signs", "mean"): "diagonals of random signs",
    ("phases", "mean"): "random phases as biases",
    ("default", "sum"): "loss summed over the batch",
}


def starts(scores: Scores) -> list[Part]:
    """Initial values and loss reduction, for the claim that fails: Hadamard near the best structure, cosine."""
    rows = []
    for cell in EXPERIMENTS["starts"]:
        usual = replace(cell, initial="default", reduction="mean")
        for epochs in scores.lengths(cell):
            found = scores.tried(cell, epochs)
            name = f"{cell.structure}, {STARTS[cell.initial, cell.reduction]}"
            rows.append([name, str(epochs), rates_of(found), value_of(found), _after(scores, usual, epochs)])
    head = ["Fashion-MNIST, cosine", "epochs", "learning rates", "best accuracy", "usual start, as many epochs"]
    return [Heading("Start of training and loss reduction"), Table(head, rows), Text(_said(scores))] if rows else []


def _said(scores: Scores) -> str:
    hadamard, dense = (Cell("fashion_mnist", "cos", structure) for structure in ("hadamard", "dense"))
    longest = max(
        (epochs for c in EXPERIMENTS["starts"] if c.structure == "hadamard" for epochs in scores.lengths(c)), default=0
    )
    usual, plain = (scores.after(cell, longest, LEARNING_RATES) for cell in (hadamard, dense))
    best, others = _tried(scores, "hadamard", longest), _tried(scores, "dense", longest)
    said = (
        "The claim that Hadamard-Diagonal layers come within a point of the best structure on Fashion-MNIST was tried "
        "with inputs of another scale (table above), other initial values and a summed loss; with SGD a sum over 128 "
        "rows is the mean at a learning rate 128 times larger. "
    )
    if not best or usual is None or plain is None:
        return said + "Too few of these runs are there to compare."
    name, top = max(best, key=lambda which: best[which]), max([plain, *others.values()])
    verdict = "within a point" if max(best[name], usual) - top >= -1 else "still more than a point"
    return (
        f"{said}After {longest} epochs the best of them, {name}, has {best[name]:.1f}, the usual start {usual:.1f} and "
        f"the best dense network {top:.1f}: the difference is {signed(best[name] - top)} instead of "
        f"{signed(usual - top)}, {verdict}. The tables keep the usual start."
    )


def _tried(scores: Scores, structure: str, epochs: int) -> dict[str, float]:
    """The accuracies of all starts that were tried for that number of epochs."""
    cells = [cell for cell in EXPERIMENTS["starts"] if cell.structure == structure]
    found = {STARTS[cell.initial, cell.reduction]: scores.tried(cell, epochs) for cell in cells}
    return {name: score.best.mean for name, score in found.items() if score}


def projections(scores: Scores) -> list[Part]:
    """A public random projection in front of the first Hadamard-Diagonal layer: the paper's future work."""
    rows: list[list[str]] = []
    for dataset in IMAGES:
        plain = Cell(dataset, "cos", "hadamard")
        cells = [replace(plain, projection=features) for features in PROJECTIONS]
        runs = [(cell, epochs) for cell in cells for epochs in scores.lengths(cell)]
        for cell, epochs in runs:
            found, before = scores.tried(cell, epochs), _after(scores, plain, epochs)
            name = f"{NAMES[dataset]}, 400 to {cell.projection}"
            rows.append([name, str(epochs), rates_of(found), value_of(found), before, *_prices(cell)])
        if runs:
            rows.append([f"{NAMES[dataset]}, none", "-", "-", "-", "-", *_prices(plain)])
    head = ["random projection before the first Hadamard layer", "epochs", "learning rates", "accuracy"]
    head += ["without it, as many epochs", "parameters", "secure multiplications", "online rounds"]
    head += ["online bytes each way", "offline bytes"]
    note = (
        "LeNet-5, cosine; costs are of inference with one row. The projection is public and local on shares, and the "
        "layer behind it is shorter; but that layer is then not computed in one piece with the cosine before it."
    )
    return [Heading("Random projection"), Table(head, rows), Text(note)] if rows else []


def generated(scores: Scores) -> list[Part]:
    """Criteo's network on generated rows: that it runs from the file to the score, and nothing more."""
    rows, some = [], None
    for activation in ACTIVATIONS:
        for structure in STRUCTURES:
            cell = Cell(SYNTHETIC, activation, structure, depth=CRITEO_DEPTH)
            for epochs in scores.lengths(cell):
                some = scores.tried(cell, epochs) or some
                found = scores.tried(cell, epochs)
                count = NOT_RUN if found is None else f"{found.parameter_count:,}"
                rows.append([f"{activation}, {structure}", str(epochs), rates_of(found), value_of(found), count])
    if some is None:
        return []
    width = INTEGERS + sum(map(embedding_size, CARDINALITIES))
    note = (
        f"Synthetic: {some.train_rows:,} training and {some.test_rows:,} test rows made by a generator in Criteo's "
        f"format, whose {CATEGORIES} categories and {INTEGERS} integers become {width:,} features; "
        f"{100 * CLICKS:.1f} is chance. The numbers "
        "show that reading, embedding, training and scoring work; they say nothing about Criteo's data. With Criteo's "
        "file in the data folder `python -m paper run criteo` trains on it and fills the Criteo columns above."
    )
    head = ["generated rows, AUC-PR in %", "epochs", "learning rates", "best", "parameters, embeddings included"]
    return [Heading("Criteo's network on generated rows (synthetic)"), Table(head, rows), Text(note)]


def _after(scores: Scores, cell: Cell, epochs: int) -> str:
    value = scores.after(cell, epochs, LEARNING_RATES)
    return NOT_RUN if value is None else f"{value:.1f}"


def _prices(cell: Cell) -> list[str]:
    model = cell.network(0)
    whole = total(estimate(model, 1))
    online = (whole.online.rounds, whole.online.bytes_sent)
    return [
        f"{number:,}" for number in (model.parameter_count, whole.multiplications, *online, whole.offline.bytes_sent)
    ]
