"""Every value that parties round as they open it is known to the number that is stated of a network.

What is rounded is looked for where it happens, whatever stages say of themselves: many networks are planned, and every
opening or comparison that drops bits is caught.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice, product
from unittest import mock

import pytest

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.protocol.party import Party
from hdcos.secure import answers, compile_network, program
from hdcos.secure.answers import stated_queries
from hdcos.secure.compile import OPENED_SCALE, PHASE_BITS, WHOLE_TURN, CompiledNetwork
from hdcos.secure.program import plan_inference
from hdcos.secure.stages import Lift, LiftedDiagonal, Product, Stage

N, MANY = 8, 1000
LINEAR = {
    "Dense": nn.Dense(N, N),
    "HadamardDiagonal": nn.HadamardDiagonal(N, N),
    "three terms": nn.HadamardDiagonal(N, N, terms=3),
    "PHD": nn.PHD(N, N),
    "Circulant": nn.Circulant(N, N),
    "LowRank": nn.LowRank(N, N, 2),
    "Affine": nn.Affine(N),
}
BEHIND = {
    **{
        layer.kind: [layer]
        for layer in (
            nn.Cos(),
            nn.Sin(),
            nn.Square(),
            nn.PolyReLU3(),
            nn.GrowingCos(),
            nn.Sigmoid(),
            nn.Tanh(),
            nn.ExpM1(),
            nn.ReLU(),
            nn.LeakyReLU(0.1),
            nn.ReLU6(),
            nn.HardTanh(),
            nn.GELU(),
            nn.SiLU(),
            nn.Softplus(),
        )
    },
    "nothing": [],
    "a mean": [nn.Tanh(), nn.Reshape((2, 2, 2)), nn.AvgPool2d(2), nn.Flatten(), nn.Dense(2, N)],
    "maxima": [nn.Reshape((2, 2, 2)), nn.MaxPool2d(2), nn.Flatten(), nn.Dense(2, N)],
}


def networks() -> Iterator[tuple[str, nn.Network]]:
    for (front, first), (middle, layers), (end, last) in product(LINEAR.items(), BEHIND.items(), LINEAR.items()):
        yield f"{front}, {middle}, {end}", nn.Sequential([first, *layers, last], input_shape=(N,))
    for (front, first), (middle, layers), join in product(LINEAR.items(), BEHIND.items(), (nn.Add(), nn.Concat())):
        width = N if isinstance(join, nn.Add) else 2 * N
        for behind in (nn.Cos(), nn.Tanh(), nn.ReLU()) if len(layers) == 1 else ():
            inner = [nn.Dense(N, N), *layers, first, nn.Dense(N, N), join, behind, nn.Dense(width, 3)]
            name = f"{front}, {middle}, {join.kind}, {behind.kind}"
            yield name, nn.Graph(inner, [[0], [1], [2], [2], [3, 4], [5], [6]])


@dataclass(frozen=True)
class Rounding:
    stage: Stage
    fraction: int
    """Bits that are left of it."""


def roundings(chosen: CompiledNetwork) -> list[Rounding]:
    """All that a party rounds between a network's input and its output."""
    found: list[Rounding] = []
    running: list[Stage] = []
    real_open, real_round, real_run = Party.open, Party.round, program.run_stage

    def opened(self, x, mask, drop, *more, **options):
        if drop:
            found.append(Rounding(running[-1], x.scale - drop))
        return real_open(self, x, mask, drop, *more, **options)

    def rounded(self, x, drop):
        if drop:
            found.append(Rounding(running[-1], x.scale - drop))
        return real_round(self, x, drop)

    def run(party, stage, *more):
        running.append(stage)
        return (yield from real_run(party, stage, *more))

    with (
        mock.patch.object(Party, "open", opened),
        mock.patch.object(Party, "round", rounded),
        mock.patch.object(program, "run_stage", run),
    ):
        plan_inference(chosen)
    return found


@pytest.mark.parametrize(
    ("dealer", "phase_bits", "every"), [(True, PHASE_BITS, 1), (False, PHASE_BITS, 5), (True, WHOLE_TURN, 5)]
)
def test_no_rounded_opening_is_missing_from_what_is_stated(dealer: bool, phase_bits: int, every: int) -> None:
    kinds = set()
    for name, model in islice(networks(), 0, None, every):
        try:
            chosen = compile_network(model, phase_bits, dealer)
        except ModelError as error:  # a comparison without a dealer, or a graph whose ring is too narrow for one
            if dealer and "room" not in str(error):
                raise
            continue
        whole = stated_queries(chosen)
        for rounding in roundings(chosen):
            stage = rounding.stage
            kinds.add(type(stage).__name__)
            least = answers._state(stage, 1 / MANY)
            assert least < answers.MOST / 10, f"{name}: what {type(stage).__name__} rounds is not counted"
            assert whole <= answers._state(stage, MANY), name
            if isinstance(stage, LiftedDiagonal | Lift | Product):
                law = answers.LIFTED * 4.0 ** (rounding.fraction - OPENED_SCALE)
                assert least == pytest.approx(law / MANY), f"{name}: {rounding.fraction} fraction bits are left"
    assert {"LiftedDiagonal", "Lift", "Bent"} <= kinds


def test_a_stage_that_nobody_has_judged_is_an_error_and_not_the_highest_number() -> None:
    class New(Stage):
        """A stage that somebody adds."""

    chosen = compile_network(nn.models.mlp([N, N, 2], "cos"))
    with pytest.raises(TypeError, match="New"):
        stated_queries(replace(chosen, stages=(*chosen.stages, New(name="2 New"))))
