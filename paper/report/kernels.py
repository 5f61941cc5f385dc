"""Random Fourier features: the error of the kernel estimate, and classifiers on frozen features, the ready one."""

from __future__ import annotations

from math import log2
from statistics import fmean

from paper import frozen as features
from paper import kernel_machine
from paper.cells import IMAGES, SYNTHETIC_CRITEO
from paper.kernel import DIMENSIONS, STRUCTURES
from paper.report.document import Figure, Heading, Part, Table, Text
from paper.report.svg import lines
from paper.report.tables import NAMES
from paper.results import Row

NOTE = (
    "Mean squared error of the estimate of a Gaussian kernel, times 10,000, on synthetic pairs in 64 dimensions at "
    "distances of 0.5 to 2 bandwidths. hadamard and hadamard3 are the layers of hdcos with Gaussian diagonals, signs3 "
    "has random signs in three blocks. The paper says that Hadamard-Diagonal features are closer than independent "
    "ones, and that fastfood and circulant ones are not."
)


def mean_errors(rows: list[Row]) -> dict[str, dict[int, float]]:
    """By structure and number of features, times 10,000; structures of which a run is missing are left out."""
    errors: dict[str, dict[int, list[float]]] = {name: {d: [] for d in DIMENSIONS} for name in STRUCTURES}
    for row in rows:
        if row["metric"] == "mse":
            errors[row["structure"]][row["dimension"]].append(1e4 * row["value"])
    return {n: {d: fmean(v) for d, v in by.items()} for n, by in errors.items() if all(by.values())}


def kernels(rows: list[Row]) -> list[Part]:
    complete = mean_errors(rows)
    table = [
        [name, *(f"{complete[name][d]:.2f}" if name in complete else "not run" for d in DIMENSIONS)]
        for name in STRUCTURES
    ]
    parts: list[Part] = [Heading("Kernel estimates"), Table(["features", *map(str, DIMENSIONS)], table), Text(NOTE)]
    if len(complete) == len(STRUCTURES):
        closer = [n for n in STRUCTURES if all(complete[n][d] < complete["gaussian"][d] for d in DIMENSIONS)]
        parts.append(Text(f"Closer than independent Gaussian rows at every size: {', '.join(closer) or 'none'}."))
        series = {name: [(log2(d), log2(e)) for d, e in by.items()] for name, by in complete.items()}
        ticks = [log2(d) for d in DIMENSIONS]
        drawing = lines(
            "Error of the kernel estimate", series, "log2 of the number of features", "log2 of 10,000 MSE", ticks
        )
        parts.append(Figure("kernel", drawing, "Error of the kernel estimate by structure and number of features."))
    return parts


def frozen(rows: list[Row]) -> list[Part]:
    """Mean accuracies over the seeds, in per cent."""
    found = [row for row in rows if row["experiment"] == "frozen-features"]
    table = []
    for dataset in IMAGES:
        for structure in features.LAYERS:
            values = [_mean(found, dataset, structure, dimension) for dimension in features.DIMENSIONS]
            table.append([f"{NAMES[dataset]}, {structure}", *values, _mean(found, dataset, "exact", None)])
    sizes = sorted({row["train_rows"] for row in found})
    note = (
        "Ridge regression onto the classes, no training of the features. "
        + f"Training rows: {', '.join(f'{size:,}' for size in sizes) or 'none'}, the first of each data set."
    )
    head = ["random features", *(f"{dimension}" for dimension in features.DIMENSIONS), "exact kernel"]
    return [Heading("Frozen random features"), Table(head, table), Text(note)]


def machines(rows: list[Row]) -> list[Part]:
    """The ready kernel machine, solved in closed form on all training rows."""
    found = [row for row in rows if row["experiment"] == "kernel-machine"]
    names = {"digits": "digits of scikit-learn", **NAMES, SYNTHETIC_CRITEO: "rows generated in Criteo's format"}
    table = []
    for dataset in kernel_machine.DATASETS:
        values = [_mean(found, dataset, "hadamard", dimension) for dimension in kernel_machine.FEATURES]
        own = next((row for row in found if row["dataset"] == dataset), None)
        sizes = [f"{own['train_rows']:,}", f"{own['bandwidth']:.3g}"] if own else ["not run"] * 2
        table.append([names[dataset], *sizes, *values])
    head = ["data set", "training rows", "bandwidth", *(f"{number} features" for number in kernel_machine.FEATURES)]
    note = (
        "`nn.models.kernel_machine`: public random features with the median distance of training rows as bandwidth, "
        "and least squares onto the classes with a ridge, in closed form. Accuracy in per cent of the test rows."
    )
    return [Heading("The kernel machine"), Table(head, table), Text(note)]


def _mean(rows: list[Row], dataset: str, structure: str, dimension: int | None) -> str:
    key = (dataset, structure, dimension)
    values = [100 * row["value"] for row in rows if (row["dataset"], row["structure"], row["dimension"]) == key]
    return f"{fmean(values):.1f}" if values else "not run"
