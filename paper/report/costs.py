"""What private computation takes: the rounds of activations, inference and training with each cell's model."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from hdcos.nn.network import Sequential
from hdcos.protocol.catalogue import Call, find
from hdcos.protocol.plan import Planned, blank_share, plan
from hdcos.secure.estimate import estimate, total
from hdcos.secure.training.step import plan_step
from paper.cells import IMAGES, Cell
from paper.experiments import ACTIVATIONS, STRUCTURES
from paper.report.document import Heading, Part, Table, Text
from paper.report.published import published_rounds
from paper.report.scores import BATCH, Scores
from paper.report.tables import cell_of_table, name_of, value_of
from paper.results import Row

NEWTON_STEPS = 3
ADAM = ("square", "expm1", *("square", "multiply", "multiply") * NEWTON_STEPS, "multiply")
"""What Adam adds per parameter, one after the other: the squared gradient; a first guess of one over the root of its
mean by an exponential; Newton steps y (3 - v y^2) / 2; the product with the mean gradient."""

ROUNDS_NOTE = (
    "Rounds and bytes of one evaluation on shares, from the protocols' own plans, which tests hold to the meters of "
    "real links. Online bytes are sent each way per element, offline bytes come from the dealer. cos_paper is the "
    "paper's algorithm as printed; cos opens the angle under a dealt mask, which saves a round."
)
INFERENCE_NOTE = (
    "For one row, both parties holding shares of the model and of the row; planned, and metered alike. ReLU takes "
    "comparisons, which `hdcos cost` prices."
)
TRAINING_NOTE = (
    "For one step of a batch of 128 rows (Higgs 256) with the loss of the tables, planned by the program that trains "
    "on shares. Adam is priced, not offered: the SGD step and, for every parameter, what the protocols at hand would "
    f"take for the squared gradient, one over the root of its running mean ({NEWTON_STEPS} Newton steps from an "
    "exponential) and the last product. Ranges and precision that this would need are not priced, so it is a lower "
    "bound."
)


def rounds(rows: list[Row]) -> list[Part]:
    """Table 1: online rounds of activations beside the paper's."""
    found = [row for row in rows if row["experiment"] == "rounds"]
    lines = []
    for row in found:
        name, paper = row["activation"], published_rounds(row["activation"])
        theirs = ["-", "-"] if paper is None else [str(paper), f"{row['value'] - paper:+d}"]
        sizes = [f"{row['bytes_per_element']:.4g}", f"{row['offline_bytes_per_element']:.4g}"]
        lines.append([name, str(row["value"]), *theirs, *sizes])
    head = ["activation", "online rounds", "paper", "difference", "online bytes", "offline bytes"]
    note = ROUNDS_NOTE if found else "Not run."
    return [Heading("Rounds of activations"), Table(head, lines), Text(note)]


def costs(scores: Scores) -> list[Part]:
    inference, training = [], []
    for dataset in (*IMAGES, "higgs"):
        structures = (*STRUCTURES, "phd", "circulant") if dataset == "fashion_mnist" else STRUCTURES
        cells = [cell_of_table(dataset, a, s) for a in ACTIVATIONS for s in structures]
        for cell in cells:
            name, value = name_of(cell, scores.longest(cell)), value_of(scores.longest(cell))
            same = replace(cell, dataset=IMAGES[0]) if dataset in IMAGES else cell  # LeNet-5 costs what it costs
            inference.append([name, value, *_inference(same)])
            training.append([name, value, *_training(same)])
    head = ["cell", "accuracy", "parameters", "online rounds", "online bytes each way", "offline bytes"]
    steps = ["SGD rounds", "SGD bytes each way", "SGD offline bytes", "Adam rounds", "Adam bytes each way"]
    return [
        Heading("Accuracy against cost"),
        Heading("Inference", 3),
        Table([*head, "secure multiplications"], inference),
        Text(INFERENCE_NOTE),
        Heading("Training, one step", 3),
        Table(["cell", "accuracy", *steps, "Adam offline bytes"], training),
        Text(TRAINING_NOTE),
    ]


@cache
def _inference(cell: Cell) -> tuple[str, ...]:
    model = cell.network(0)
    count = f"{model.parameter_count:,}"
    if cell.activation == "relu":
        return (count, *["-"] * 4)
    whole = total(estimate(model, 1))
    numbers = (whole.online.rounds, whole.online.bytes_sent, whole.offline.bytes_sent, whole.multiplications)
    return (count, *(f"{number:,}" for number in numbers))


@cache
def _training(cell: Cell) -> tuple[str, ...]:
    if cell.activation == "relu":
        return ("-",) * 6
    model = cell.network(0)
    step = sgd_price(model, BATCH[cell.dataset])
    more = adam_extra(model.parameter_count)
    sgd = (step.rounds, step.online_bytes, step.offline_bytes)
    return tuple(f"{number:,}" for number in (*sgd, *(a + b for a, b in zip(sgd, more, strict=True))))


def sgd_price(model: Sequential, batch: int) -> Planned:
    """One step of training on shares, over shapes."""
    return plan_step(model, batch, "logistic" if model.output_shape == (1,) else "softmax")


def adam_extra(parameters: int) -> tuple[int, int, int]:
    """Rounds, online bytes each way and offline bytes that Adam adds to a step, by the number of parameters."""
    parts = [_planned(name, parameters) for name in ADAM]
    return (
        sum(part.rounds for part in parts),
        sum(part.online_bytes for part in parts),
        sum(part.offline_bytes for part in parts),
    )


@cache
def _planned(name: str, elements: int) -> Planned:
    inputs = [blank_share((elements,), find(name).input_scale)] * (2 if name == "multiply" else 1)
    return plan(Call.of(name).program, *inputs)
