"""The tables and figures of the paper as lists of cells. A cell that several of them share is trained once."""

from __future__ import annotations

from collections.abc import Iterable

from paper.cells import HIGGS_DEPTH, IMAGES, Cell

ACTIVATIONS = ("cos", "expm1", "none", "polyfit3", "square", "relu")
STRUCTURES = ("dense", "low_rank", "hadamard")
DEPTHS = (0, 1, 2, 3, 4)
DEPTH_ACTIVATIONS = ("cos", "relu", "square", "expm1")
PROJECTIONS = (256, 128, 64)
"""Of the 400 features that the convolutions of LeNet-5 make."""


def _table(
    structures: Iterable[str], activations: Iterable[str] = ACTIVATIONS, datasets: Iterable[str] = (*IMAGES, "higgs")
) -> list[Cell]:
    structures = tuple(structures)
    return [
        Cell(dataset, activation, structure, depth=HIGGS_DEPTH if dataset == "higgs" else None)
        for dataset in datasets
        for activation in activations
        for structure in structures
    ]


def _depths(structures: Iterable[str]) -> list[Cell]:
    """Without hidden layers there is no activation: one cell stands for all of them."""
    cells = [
        Cell("higgs", activation if depth else "none", structure, optimizer, depth)
        for structure in structures
        for optimizer in ("sgd", "adam")
        for activation in DEPTH_ACTIVATIONS
        for depth in DEPTHS
    ]
    return list(dict.fromkeys(cells))


EXPERIMENTS: dict[str, list[Cell]] = {
    "dense": _table(["dense"]),
    "structured": _table(STRUCTURES, ["cos"]),
    "combined": _table(STRUCTURES, datasets=["fashion_mnist"]),
    "hadamard": _table(["hadamard"]),
    "lowrank": _table(["low_rank"]),
    "phd-circulant": _table(["hadamard", "phd", "circulant"], datasets=["fashion_mnist"]),
    "mnist-optimizers": [
        Cell("mnist", activation, "dense", optimizer) for optimizer in ("sgd", "adam") for activation in ACTIVATIONS
    ],
    "higgs-depth": _depths(["hadamard"]),
    "higgs-depth-all": _depths(STRUCTURES),
    "blocks": [
        Cell(dataset, "cos", "hadamard", depth=HIGGS_DEPTH if dataset == "higgs" else None, blocks=blocks)
        for dataset in (*IMAGES, "higgs")
        for blocks in (1, 3)
    ],
    "inputs": [
        Cell("fashion_mnist", activation, structure, inputs=inputs)
        for inputs in ("unit", "standardised")
        for activation in ACTIVATIONS
        for structure in ("dense", "hadamard")
    ],
    "inputs-structures": [
        Cell("fashion_mnist", activation, structure, inputs="standardised")
        for activation, structure in (("expm1", "phd"), ("cos", "circulant"))
    ],
    "inputs-higgs": [Cell("higgs", "square", "hadamard", depth=HIGGS_DEPTH, inputs="standardised")],
    "starts": [
        Cell("fashion_mnist", "cos", "hadamard", initial="signs"),
        Cell("fashion_mnist", "cos", "hadamard", initial="phases"),
        Cell("fashion_mnist", "cos", "hadamard", reduction="sum"),
        Cell("fashion_mnist", "cos", "dense", initial="phases"),
        Cell("fashion_mnist", "cos", "dense", reduction="sum"),
    ],
    "rates": [
        Cell(dataset, "cos", "hadamard", inputs=inputs, diagonals=diagonals)
        for dataset in IMAGES
        for inputs in ("unit", "standardised")
        for diagonals in ("plain", "scaled")
    ],
    "last-two": [
        Cell(dataset, activation, structure, convolutions="relu")
        for dataset, structures in (("mnist", STRUCTURES), ("fashion_mnist", (*STRUCTURES, "phd", "circulant")))
        for activation in ("cos", "expm1", "polyfit3")
        for structure in structures
    ],
    "circulant-start": [Cell("fashion_mnist", "cos", "circulant", initial="normal")],
    "low-rank-start": [Cell(dataset, "expm1", "low_rank", initial="factors") for dataset in IMAGES],
    "higgs-start": [Cell("higgs", "square", "hadamard", depth=HIGGS_DEPTH, initial="signs")],
    "higgs-rows": [
        Cell("higgs", activation, "dense", depth=HIGGS_DEPTH, part=part)
        for part in (0.25, 0.5)
        for activation in ("cos", "relu")
    ],
    "projection": [
        Cell(dataset, "cos", "hadamard", projection=features) for dataset in IMAGES for features in PROJECTIONS
    ],
    "tables": _table(STRUCTURES),
}
"""By name. `tables` is all of dense, hadamard and lowrank; `inputs` varies the scale of the inputs, `starts` the
initial values and the reduction of the loss, `rates` the learning rate of diagonals. The others test a reason for a
difference from the paper: `last-two` replaces only the activations of the last two hidden layers, `circulant-start`,
`low-rank-start` and `higgs-start` have other initial weights, `inputs-structures` and `inputs-higgs` another scale of
the inputs, and `higgs-rows` has fewer rows."""

UNTRAINED = {
    "rounds": "rounds",
    "activations": "activations",
    "kernel": "kernel",
    "frozen-features": "frozen",
    "kernel-machine": "kernel_machine",
    "secure": "secure",
}
"""Experiments that are no list of cells: the module whose `run` appends what the file lacks and counts the rows."""
CRITEO = "criteo"
NAMES = (*EXPERIMENTS, CRITEO, *UNTRAINED)
"""All of them."""
