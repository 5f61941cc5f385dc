"""One run of training three ways: on shares, in floating point, and in plaintext with the fixed point of shares."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch

import hdcos
from hdcos import nn
from hdcos.ring import encode
from hdcos.secure.training import Rule, sgd_step, training_plan
from hdcos.secure.training.plan import INPUT_SCALE
from hdcos.secure.training.rates import epoch_rates
from hdcos.secure.training.shuffle import batches
from hdcos.secure.training.targets import one_hot
from hdcos.sharing import Share
from hdcos.testing.plaintext import Counter, run_plaintext


@dataclass(frozen=True)
class Run:
    """What is trained, on what, and how."""

    name: str
    model: nn.Sequential = field(repr=False)
    x: np.ndarray = field(repr=False)
    y: np.ndarray = field(repr=False)
    test_x: np.ndarray = field(repr=False)
    test_y: np.ndarray = field(repr=False)
    epochs: int
    batch: int
    rate: float
    momentum: float = 0.0
    warm_up: int = 0
    """Epochs until the rate has its full size, from which it then falls along a half cosine; 0: it stays as it is."""
    seed: int = 0
    tolerance: float = 0.5
    least: float | None = None
    loss: str = "logistic"
    scale_diagonals: bool = True

    @property
    def rates(self) -> list[float]:
        """The rate of each epoch, as on shares."""
        return epoch_rates(
            *(self.model, self.loss, self.batch, self.rate, self.schedule, self.epochs, self.momentum, 0.0),
            *(self.scale_diagonals, self.warm_up),
        )

    @property
    def schedule(self) -> str:
        return "cosine" if self.warm_up else "constant"

    def nudged(self) -> Run:
        """The same run from initial weights that differ by a hundred-thousandth: what chance alone makes of it."""
        generator = np.random.default_rng(self.seed)
        state = {name: w * (1 + 1e-5 * generator.normal(size=w.shape)) for name, w in self.model.state().items()}
        return replace(self, model=self.model.with_state(state))

    def batches(self, epoch: int) -> list[np.ndarray]:
        return batches(self.seed, epoch, len(self.x), self.batch)

    def outcome(self, scores: np.ndarray, seconds: float = 0.0, counter: Counter | None = None) -> Outcome:
        guesses = scores.argmax(1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        accuracy = 100 * float((guesses == self.test_y).mean())
        counted = (counter.openings, counter.out_of_range, counter.largest) if counter else (0, 0, 0.0)
        return Outcome(scores, accuracy, seconds, *counted)


@dataclass(frozen=True)
class Outcome:
    scores: np.ndarray = field(repr=False)
    accuracy: float
    seconds: float
    openings: int
    out_of_range: int
    largest: float


def private(run: Run, device: str = "cpu") -> Outcome:
    """On shares, with real processes."""
    started = time.perf_counter()
    with hdcos.local(device=device) as cluster:
        trained = cluster.fit(
            run.model,
            run.x,
            run.y,
            epochs=run.epochs,
            batch_size=run.batch,
            lr=run.rate,
            loss=run.loss,
            momentum=run.momentum,
            schedule=run.schedule,
            warm_up=run.warm_up,
            scale_diagonals=run.scale_diagonals,
            seed=run.seed,
        )
        seconds = time.perf_counter() - started
        return run.outcome(trained.predict(run.test_x), seconds)


def floating(run: Run) -> Outcome:
    """In floating point."""
    torch.set_num_threads(1)
    module = run.model.to_torch(torch.float32)
    optimizer = torch.optim.SGD(nn.parameter_groups(module, 1.0, run.scale_diagonals), momentum=run.momentum)
    factors = [group["lr"] for group in optimizer.param_groups]
    rows, targets = torch.from_numpy(run.x.astype(np.float32)), one_hot(run.y, run.model.output_shape[0])
    wanted = torch.from_numpy(targets.astype(np.float32))
    for epoch, rate in enumerate(run.rates):
        for group, factor in zip(optimizer.param_groups, factors, strict=True):
            group["lr"] = rate * factor
        for chosen in run.batches(epoch):
            optimizer.zero_grad()
            (_loss(module(rows[chosen]), wanted[chosen], run.loss) / len(chosen)).backward()
            optimizer.step()
    return run.outcome(nn.from_torch(module)(run.test_x))


def _loss(logits: torch.Tensor, wanted: torch.Tensor, name: str) -> torch.Tensor:
    """Summed over rows; softmax is its one-against-each bound, as on shares."""
    if name == "logistic":
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
    label = (logits * wanted).sum(1, keepdim=True)
    return (torch.nn.functional.softplus(logits - label) * (1 - wanted)).sum()


def fixed_point(run: Run) -> Outcome:
    """In plaintext, with the words, roundings and ranges of the shares."""
    training, counter = training_plan(run.model, run.loss), Counter(run.seed)
    held = training.shares(training.words(run.model))
    x = encode(run.x.reshape(len(run.x), -1), INPUT_SCALE)
    targets = encode(one_hot(run.y, training.outputs), training.target_scale)
    number, last = 0, None
    for epoch, rate in enumerate(run.rates):
        for chosen in run.batches(epoch):
            rule = Rule(rate, run.momentum, 0.0, last, number, run.scale_diagonals)
            rows, wanted = Share(x[chosen], INPUT_SCALE), Share(targets[chosen], training.target_scale)
            held = run_plaintext(sgd_step, training, held, rows, wanted, rule, counter=counter)
            number, last = number + 1, rate
    trained = training.decode(run.model, {name: share.words for name, share in held.items()})
    return run.outcome(trained(run.test_x), counter=counter)
