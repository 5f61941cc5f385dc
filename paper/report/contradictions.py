"""Where the paper contradicts itself: cells that it prints twice, and sentences that do not agree."""

from __future__ import annotations

from paper.cells import HIGGS_DEPTH, Cell
from paper.experiments import ACTIVATIONS, DEPTH_ACTIVATIONS
from paper.report.document import Heading, Part, Table, Text, signed
from paper.report.published import published, published_again, published_by_rate

SENTENCES = (
    "Which activations of LeNet-5 are replaced: the main text says those of the last two hidden layers, the appendix "
    "that every convolution and dense layer has one, and that two dense layers follow the convolutions, where LeNet-5 "
    "has three. The tables here replace all of them; the experiment last-two replaces the last two.",
    "H is called normalised, but the recursion printed for it divides by 2^(k/2) at every level, which shrinks it more "
    "at every level. Here H is orthonormal.",
    "The standard deviation is said to be of the order of 0.1 for all results. The means of square on MNIST look "
    "like means over trials of which some diverge: {means}.",
    "Without hidden layers there is no activation, so the four rows of depth 0 are one network; with Adam they differ: "
    "{depths}.",
    "The polynomial is not printed, only cited.",
)


def contradictions() -> list[Part]:
    cells = [Cell("mnist", a, "dense") for a in ACTIVATIONS]
    cells += [Cell("fashion_mnist", a, "hadamard") for a in ACTIVATIONS]
    cells += [Cell("higgs", a, "hadamard", depth=HIGGS_DEPTH) for a in ("cos", "relu")]
    where = {
        "mnist": "MNIST, dense: optimisers, SGD",
        "fashion_mnist": "Fashion-MNIST, Hadamard: PHD and circulant",
        "higgs": "Higgs, Hadamard: depth 4, SGD",
    }
    rows = []
    for cell in cells:
        first, second = published(cell) or 0.0, published_again(cell) or 0.0
        other = f"{second:.1f}" if cell.dataset == "fashion_mnist" else f"{second:.0f}"
        rows.append([f"{where[cell.dataset]}, {cell.activation}", f"{first:.1f}", other, signed(second - first)])
    head = ["cell, and its other table", "table of all data sets", "other table", "difference"]
    said = [text.format(means=_means(), depths=_depths()) for text in SENTENCES]
    return [Heading("Where the paper contradicts itself"), Table(head, rows), *map(Text, said)]


def _means() -> str:
    """How many of five trials at the accuracy that other activations have, the rest at chance, give square's mean."""
    parts = []
    for structure in ("dense", "low_rank", "hadamard"):
        mean, usual = (published(Cell("mnist", name, structure)) or 0.0 for name in ("square", "cos"))
        count = round(5 * (mean - 10) / (usual - 10))
        each = (5 * mean - 10 * (5 - count)) / count
        parts.append(f"{structure} {mean:.1f} is that of {count} trials at {each:.1f} and {5 - count} at chance")
    return ", ".join(parts)


def _depths() -> str:
    at = {name: published_by_rate(Cell("higgs", name, "hadamard", "adam", 0))[1e-5] for name in DEPTH_ACTIVATIONS}
    return ", ".join(f"{name} {value:.0f}" for name, value in at.items()) + " at the rate 1e-05"
