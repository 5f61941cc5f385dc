"""Trains cells side by side, each cell's models as one computation.

All models see the same minibatches: every epoch takes all rows in a new order and leaves out the rest that fills no
batch. On a GPU one step of all cells is captured as a graph whose branches run at the same time; between epochs
nothing travels to or from the device. Losses are means over the batch, or sums where a cell says so: softmax
cross-entropy, or the logistic loss of a single logit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from hdcos.nn.network import Sequential
from paper.batched import Batch
from paper.cells import Cell, rate_row
from paper.optimizers import optimizer
from paper.tasks import Task

ROWS_AT_ONCE = 2000
"""Test rows evaluated at a time."""


@dataclass(frozen=True)
class Run:
    """One model after training. A model with a number that is not finite scores as chance and says so."""

    lr: float
    seed: int
    value: float
    diverged_at: int | None
    """The epoch at whose end a parameter was first not finite."""
    curve: dict[int, float] = field(default_factory=dict)
    """Test accuracy after some of the epochs."""


@torch.no_grad()
def loss_slopes(outputs: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """The gradient of each model's mean loss at its outputs (models, rows, outputs).

    Softmax cross-entropy, or the logistic loss where there is one output. The loss itself is not needed.
    """
    if outputs.shape[2] == 1:
        return (outputs.sigmoid() - y[:, None]) / len(y)
    classes = torch.arange(outputs.shape[2], device=y.device)
    return (outputs.softmax(dim=2) - (y[:, None] == classes).to(outputs.dtype)) / len(y)


class Training:
    """The models of one cell: seeds for every learning rate, learning rate outermost."""

    def __init__(self, cell: Cell, rates: Sequence[float], trials: int, task: Task) -> None:
        networks = [cell.network(seed) for seed in range(trials)]
        self.cell, self.task, self.trials = cell, task, trials
        self.loss_weight = {"mean": 1, "sum": task.batch_size}[cell.reduction]
        self.rates = [rate for rate in rates for _ in range(trials)]
        device = task.train_x.device
        self.batch = Batch(networks * len(rates), str(device))
        parameters = self.batch.parameters
        self.initial = parameters.clone()
        rates_of_all = torch.tensor(self.rates).to(parameters)[:, None]
        if cell.diagonals == "scaled":
            rates_of_all = rates_of_all * torch.from_numpy(rate_row(networks[0])).to(parameters)
        self.optimizer = optimizer(cell.optimizer, parameters, rates_of_all)
        self.finite_epochs = torch.zeros(self.batch.models, dtype=torch.int64, device=device)

    def step(self, x: torch.Tensor, y: torch.Tensor) -> None:
        outputs = self.batch(x)
        with torch.no_grad():
            self.optimizer.step(self.batch.gradient(outputs, loss_slopes(outputs, y) * self.loss_weight))

    def restart(self) -> None:
        self.batch.parameters.data.copy_(self.initial)
        self.optimizer.reset()

    def count_epoch(self) -> None:
        self.finite_epochs += self.batch.parameters.isfinite().all(dim=1)

    @torch.no_grad()
    def accuracy(self) -> torch.Tensor:
        """The share of right test rows per model; rows with an output that is not finite are never right."""
        right = torch.zeros(self.batch.models, device=self.task.test_x.device)
        for start in range(0, len(self.task.test_x), ROWS_AT_ONCE):
            rows = slice(start, start + ROWS_AT_ONCE)
            y = self.task.test_y[rows]
            outputs = self.batch(self.task.test_x[rows])
            label = (outputs[..., 0] > 0).long() if self.task.classes == 2 else outputs.argmax(dim=2)
            right += ((label == y) & outputs.isfinite().all(dim=2)).sum(dim=1)
        return right / len(self.task.test_y)

    def runs(self, curve: dict[int, torch.Tensor], epochs: int) -> list[Run]:
        finite = self.finite_epochs.tolist()
        scores = {epoch: values.tolist() for epoch, values in curve.items()}
        runs = []
        for index, rate in enumerate(self.rates):
            diverged_at = finite[index] + 1 if finite[index] < epochs else None
            known = {e: s[index] for e, s in scores.items() if diverged_at is None or e < diverged_at}
            value = known[epochs] if diverged_at is None else self.task.chance
            runs.append(Run(rate, index % self.trials, value, diverged_at, known))
        return runs


def train(
    cells: Sequence[Cell], task: Task, rates: Sequence[float], trials: int, epochs: int, seed: int = 0
) -> list[list[Run]]:
    """The runs of each cell after `epochs`; the order of the rows follows from `seed`."""
    trainings = [Training(cell, rates, trials, task) for cell in cells]
    device = task.train_x.device
    batch = torch.arange(task.batch_size, device=device)
    order = torch.arange(len(task.train_x), device=device)
    position = torch.zeros((), dtype=torch.int64, device=device)

    def step() -> None:
        rows = order[position + batch]
        position.add_(task.batch_size)
        _together([lambda t=t: t.step(task.train_x[rows], task.train_y[rows]) for t in trainings], device)  # type: ignore[misc]

    def restart() -> None:
        for training in trainings:
            training.restart()
        position.zero_()

    advance = captured(step, restart) if device.type == "cuda" else step
    generator = torch.Generator().manual_seed(seed)
    curves: list[dict[int, torch.Tensor]] = [{} for _ in trainings]
    for epoch in range(1, epochs + 1):
        order.copy_(torch.randperm(len(order), generator=generator))
        position.zero_()
        for _ in range(len(order) // task.batch_size):
            advance()
        for training, curve in zip(trainings, curves, strict=True):
            training.count_epoch()
            if epoch == epochs or epoch in _MILESTONES:
                curve[epoch] = training.accuracy()
    return [training.runs(curve, epochs) for training, curve in zip(trainings, curves, strict=True)]


def fitted(training: Training, epochs: int, seed: int = 0) -> Sequential:
    """The first model of a training after `epochs`, as a network of its own."""
    task, order = training.task, torch.Generator().manual_seed(seed)
    for _ in range(epochs):
        rows = torch.randperm(len(task.train_x), generator=order)
        for batch in rows[: len(rows) // task.batch_size * task.batch_size].view(-1, task.batch_size):
            training.step(task.train_x[batch], task.train_y[batch])
    return training.batch.network(training.cell.network(0))


_MILESTONES = (1, 2, 5, 10, 20, 40, 60, 80, 100, 150)


def _together(branches: Sequence[Callable[[], None]], device: torch.device) -> None:
    """Run branches that do not depend on one another; on a GPU each on its own stream, joined at the end."""
    if device.type != "cuda" or len(branches) == 1:
        for branch in branches:
            branch()
        return
    main = torch.cuda.current_stream(device)
    streams = [torch.cuda.Stream(device) for _ in branches]  # type: ignore[no-untyped-call]
    for branch, stream in zip(branches, streams, strict=True):
        stream.wait_stream(main)
        with torch.cuda.stream(stream):
            branch()
    for stream in streams:
        main.wait_stream(stream)


def captured(step: Callable[[], None], restart: Callable[[], None]) -> Callable[[], None]:
    """The step as a graph, launched without Python between its kernels; `restart` undoes the steps of making it."""
    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):  # libraries set themselves up in their first calls, which a graph cannot hold
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    restart()
    return graph.replay
