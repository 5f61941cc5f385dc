"""Trained networks: on whole test sets, on shares and in plaintext; the ready network beside LeNet-5."""

from __future__ import annotations

from statistics import fmean, stdev
from typing import Any

from hdcos.nn import models
from hdcos.nn.network import Sequential
from hdcos.secure.estimate import estimate, total
from paper.cells import IMAGES
from paper.report.document import Heading, Part, Table, Text
from paper.report.scores import BATCH, Scores
from paper.report.tables import NAMES, NOT_RUN, cell_of_table, value_of
from paper.results import Row

NOTE = (
    "HD-cos networks evaluated by two parties and a dealer on one machine, over TLS, on every row of the test sets. "
    "MNIST and Fashion-MNIST: the trained networks that come with hdcos; Higgs: trained on the sample's training rows. "
    "Bytes per row: online each way between the parties, offline from the dealer to party 1. Rounds are for a batch."
)


def secure(rows: list[Row]) -> list[Part]:
    found = {row["dataset"]: row for row in rows if row["experiment"] == "secure"}
    lines = [_line(dataset, found.get(dataset)) for dataset in (*IMAGES, "higgs")]
    head = ["test set", "rows", "accuracy on shares", "in plaintext", "labels that agree, %", "parameters"]
    head += ["online rounds per batch", "rows per batch", "online bytes per row", "offline bytes per row"]
    return [Heading("Under two-party computation"), Table(head, lines), Text(NOTE)]


def _line(dataset: str, row: Row | None) -> list[str]:
    if row is None:
        return [NAMES[dataset], *[NOT_RUN] * 9]
    name = NAMES[dataset]
    if dataset == "higgs" and row.get("epochs"):
        name += f", trained for {row['epochs'] * (row['train_rows'] // BATCH[dataset]):,} steps"
    count, batches = row["test_rows"], -(-row["test_rows"] // row["rows_per_batch"])
    return [
        name,
        f"{count:,}",
        f"{100 * row['value']:.2f}",
        f"{100 * row['plain_value']:.2f}",
        f"{100 * row['agreement']:.3f}",
        f"{row['parameter_count']:,}",
        f"{row['online']['rounds'] / batches:g}",
        f"{row['rows_per_batch']:,}",
        f"{row['online']['bytes_sent'][0] / count:,.0f}",
        f"{row['offline']['bytes_sent'][1] / count:,.0f}",
    ]


READY_NOTE = (
    "`nn.models.convnet` with cosine and a Hadamard-Diagonal layer, trained by `python -m paper ready` with momentum, "
    "a cosine decay, shifted and flipped images and a running mean of the parameters; accuracies at every learning "
    "rate that was tried, the mean over seeds. LeNet-5 is trained in the paper's way, at its best rate. ReLU takes "
    "comparisons, which `hdcos cost` prices. Bytes are for one row, each way."
)


def ready(rows: list[dict[str, Any]], scores: Scores) -> list[Part]:
    """The ready network beside LeNet-5 with dense layers and ReLU, and with Hadamard-Diagonal layers and cosine."""
    if not rows:
        return []
    lines = []
    for dataset in IMAGES:
        for activation, structure in (("relu", "dense"), ("cos", "hadamard")):
            score = scores.longest(cell_of_table(dataset, activation, structure))
            sizes = [f"{score.epochs}", f"{score.rate:g}", f"{score.trials}"] if score else [NOT_RUN] * 3
            name = f"{NAMES[dataset]}, LeNet-5, {activation}, {structure}"
            lines.append([name, *sizes, value_of(score), *_price(models.lenet5(activation, structure), activation)])
        for rate in sorted({row["rate"] for row in rows if row["dataset"] == dataset}):
            found = [row for row in rows if (row["dataset"], row["rate"]) == (dataset, rate)]
            values = [100 * row["averaged"] for row in found]
            value = f"{fmean(values):.1f}" + (f" ± {stdev(values):.1f}" if len(values) > 1 else "")
            sizes = [f"{found[0]['epochs']}", f"{rate:g}", f"{len(found)}"]
            lines.append([f"{NAMES[dataset]}, convnet, cos", *sizes, value, *_price(models.convnet(), "cos")])
    head = ["network", "epochs", "learning rate", "trials", "accuracy", "parameters", "online rounds", "online bytes"]
    return [Heading("The ready network"), Table(head, lines), Text(READY_NOTE)]


def _price(model: Sequential, activation: str) -> list[str]:
    if activation == "relu":
        return [f"{model.parameter_count:,}", "-", "-"]
    online = total(estimate(model, 1)).online
    return [f"{number:,}" for number in (model.parameter_count, online.rounds, online.bytes_sent)]
