"""How many queries of one row tell a party that is also a client about the model: the numbers of docs/security.md.

Every channel is measured at three settings that are coarser than the real one, with the secret noise there, and
extended to the real one by the law that theory gives and the settings confirm: four times as many queries for each bit.
Nothing is extended by more than four bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.leakage import (
    COMPILER,
    Attack,
    OpeningAttack,
    Queries,
    SeriesAttack,
    Setting,
    VarianceAttack,
    network,
)
from benchmarks.record import Line, at_least, at_most, exactly
from hdcos import nn
from hdcos.secure import compile_network
from hdcos.secure.activations import COMPARED_SCALE
from hdcos.secure.compile import DITHERED, OPENED_SCALE, PHASE_BITS, SERIES_SCALE, SQUARE_SCALE
from hdcos.secure.stages import Product
from hdcos.testing.pair import simulate_private

ENOUGH = 1e9
ROW = np.random.default_rng(5).uniform(0, 1, 256)
BITS = ((18, 16, 200_000), (20, 18, 1_000_000), (22, 20, 4_000_000))
"""Phase bits, table bits and queries of each setting."""
COINS = ((4, 100_000), (6, 500_000), (8, 2_000_000))
WAYS = ("regression", "likelihood")
SQUARES, OPENED = f"{COMPILER}.SQUARE_SCALE", f"{COMPILER}.OPENED_SCALE"
COMPARED = "hdcos.secure.activations.COMPARED_SCALE"


def extended(needed: float, bits: int) -> float:
    """Queries at this many bits more."""
    assert 0 <= bits <= 4
    return needed * 4.0**bits


def attacked(model: nn.Sequential, setting: Setting, queries: int) -> Attack:
    attack = Attack(Queries(model, setting, ROW))
    attack.ask(queries)
    return attack


def least(attack: Attack, channel: str) -> float:
    return min(attack.needed(channel, way) for way in WAYS)


def prove(seed: int) -> Iterator[Line]:
    """Every measurement is a process of its own, as many at a time as there are cores."""
    found: list[float] = []
    with ProcessPoolExecutor() as pool:
        for future in [pool.submit(_measured, *task) for task in _tasks()]:
            lines = future.result()
            found += [line.value for line in lines if line.limit == f">= {ENOUGH:g}"]
            yield from lines
    yield at_least("queries for a correlation of one half, the least of all channels and attacks", min(found), ENOUGH)
    yield exactly("bytes per hidden unit each way, online", PHASE_BITS / 8, 3.25)
    yield from _errors()


def _measured(function: Callable[..., Iterator[Line]], *arguments: Any) -> list[Line]:
    return list(function(*arguments))


def _tasks() -> Iterator[tuple[Any, ...]]:
    yield from ((_known, *setting) for setting in BITS)
    yield from ((_dealt, *setting) for setting in COINS)
    yield from (
        (_unrounded,),
        (_variance,),
        (_reported, "256 outputs", {"outputs": 256}),
        (_reported, "depth 3", {"depth": 3}),
        (_broken,),
        *((_opening, "square", nn.Square(), 0, 1, SQUARES, SQUARE_SCALE, outputs) for outputs in (10, 256)),
        *((_opening, "ReLU", nn.ReLU(), 0, 1, COMPARED, COMPARED_SCALE, outputs) for outputs in (10, 256)),
        (_opening, "a Hadamard-Diagonal layer behind a square", nn.Square(), 1, 2, OPENED, OPENED_SCALE),
        *((_opening, layer.kind, layer, 0, 1, "", PHASE_BITS) for layer in (nn.Sigmoid(), nn.Tanh(), nn.ExpM1())),
        *((_series, layer) for layer in (nn.Sigmoid(), nn.Tanh(), nn.ExpM1())),
        (_exception, nn.PolyReLU3(), 1),
        (_exception, nn.GrowingCos(), 2),
        (_without_dealer,),
    )


def _known(phase_bits: int, table: int, queries: int) -> Iterator[Line]:
    """HD(256, 256) - Cos - HD(256, 10): what a party knows of phases and tables."""
    attack = attacked(network(), Setting(phase_bits, table), queries)
    for channel, bits, real in (("carry", phase_bits, PHASE_BITS), ("table", table, DITHERED.table)):
        needed, name = least(attack, channel), f"{channel} channel at {bits} bits, {queries:,} queries"
        if bits == real - 4:
            yield at_least(f"{name}, extended to {real} bits", extended(needed, 4), ENOUGH)
        else:
            yield Line(name, needed, "reported", True)


def _dealt(coin_bits: int, queries: int) -> Iterator[Line]:
    needed = least(attacked(network(), Setting(coin_bits=coin_bits), queries), "dealt")
    name = f"dealt channel with {coin_bits} bits of coins, {queries:,} queries, true phases given"
    if coin_bits == COINS[-1][0]:
        yield at_least(f"{name}, extended to 12 bits (there are 16)", extended(needed, 4), ENOUGH)
    else:
        yield Line(name, needed, "reported", True)


def _unrounded() -> Iterator[Line]:
    rounded = [stage.drop for stage in compile_network(_dense()).stages if isinstance(stage, Product)]
    yield exactly("dense channel: bits dropped as a dense layer after a cosine is opened", rounded, [0])


def _variance() -> Iterator[Line]:
    variance = VarianceAttack(Queries(network(32), Setting(answer_noise=False), ROW[:32]))
    variance.ask(100_000)
    found = abs(variance.correlation())
    yield at_most("variance of dealt cosines, 32 units, 100,000 queries: correlation", found, 4 / np.sqrt(32))


def _reported(name: str, shape: dict[str, int]) -> Iterator[Line]:
    phase_bits, table, _ = BITS[-1]
    attack = attacked(network(**shape), Setting(phase_bits, table), 1_000_000)
    for channel in ("carry", "table"):
        needed = extended(least(attack, channel), 4)
        if np.isfinite(needed):
            yield Line(f"{name}: {channel} channel, extended to the real bits", needed, "reported", True)


def _dense() -> nn.Sequential:
    return nn.Sequential([nn.HadamardDiagonal(256, 256, bandwidth=4.0), nn.Cos(), nn.Dense(256, 10)], seed=1)


def _broken() -> Iterator[Line]:
    """The attacks find what they look for where the protection is taken away."""
    bare = attacked(network(), Setting(16, 16, 20, coins=0, answer_noise=False), 20_000)
    yield at_most("without noise, 16 bits: carry channel", least(bare, "carry"), 2000)
    yield at_most("without noise, 16 bits: table channel", least(bare, "table"), 20_000)
    yield at_most(
        "cosines rounded to the nearest: dealt channel",
        least(attacked(network(), Setting(coins=0), 5000), "dealt"),
        500,
    )
    single = VarianceAttack(Queries(network(32), Setting(coins=1, answer_noise=False), ROW[:32]))
    single.ask(10_000)
    yield at_least("cosines rounded by one coin, 32 units: correlation by variance", single.correlation(), 0.9)
    queries = Queries(_dense(), Setting(), ROW)
    stages = [replace(s, drop=24, bits=s.bits - 24) if isinstance(s, Product) else s for s in queries.network.stages]
    dense = OpeningAttack(Queries(_dense(), Setting(), ROW, replace(queries.network, stages=tuple(stages))), 1, 2)
    dense.ask(20_000)
    yield at_most("a dense layer opened with 10 fraction bits instead of all 34", dense.needed()[0], 20_000)


def _exception(layer: nn.Layer, openings: int) -> Iterator[Line]:
    """An activation whose openings are coarse: the least of them, as it is."""
    model = nn.Sequential([nn.HadamardDiagonal(256, 256), layer, nn.HadamardDiagonal(256, 10)], seed=1)
    needed = []
    for opening in range(openings):
        attack = OpeningAttack(Queries(model, Setting(), ROW), opening, 1)
        attack.ask(20_000)
        needed.append(attack.needed()[0])
    yield Line(f"{layer.kind}, an exception: queries, measured", min(needed), "reported", True)


def _opening(
    name: str, layer: nn.Layer, opening: int, index: int, knob: str, real: int, outputs: int = 10
) -> Iterator[Line]:
    """An opening that rounds, at three coarser settings."""
    model = nn.Sequential([nn.HadamardDiagonal(256, 256), layer, nn.HadamardDiagonal(256, outputs)], seed=1)
    for bits in (real - 8, real - 6, real - 4):
        setting = Setting() if knob else Setting(phase_bits=bits)
        with mock.patch(knob, bits) if knob else nullcontext():
            queries = Queries(model, setting, ROW)
        attack = OpeningAttack(queries, opening, index)
        attack.ask(200_000)
        needed, sure = attack.needed()
    text, what = "" if sure else "more than ", f"{name}, {outputs} outputs"
    yield Line(f"{what}: {text}this many queries, extended from {bits} bits", extended(needed, 4), "reported", True)


def _series(layer: nn.Layer) -> Iterator[Line]:
    """The table of a series, at coarser settings; extended by four bits from the finest."""
    model = nn.Sequential([nn.HadamardDiagonal(256, 256), layer, nn.HadamardDiagonal(256, 10)], seed=1)
    for fewer, queries in ((10, 20_000), (7, 100_000), (4, 200_000)):
        with mock.patch(f"{COMPILER}.SERIES_SCALE", SERIES_SCALE - fewer):
            attack = SeriesAttack(Queries(model, Setting(), ROW))
        attack.ask(queries)
        needed, sure = attack.needed()
    text = "" if sure else "more than "
    yield Line(
        f"table of {layer.kind}: {text}this many queries, extended by 4 bits", extended(needed, 4), "reported", True
    )


def _without_dealer() -> Iterator[Line]:
    """Scales of 18 bits and noise in answers alone; a party's own rounding of cosines is as large as the table's."""
    attack = attacked(network(), Setting(table=18, dealt=18, coins=0), 1_000_000)
    yield Line("without a dealer: table channel", least(attack, "table"), "reported", True)
    yield Line("without a dealer: own rounding of made cosines", least(attack, "dealt"), "reported", True)


def _errors() -> Iterator[Line]:
    worst, generator = 0.0, np.random.default_rng(0)
    for depth in range(1, 9):
        model = nn.models.mlp([1024] * (depth + 1) + [10], "cos", "hadamard", seed=depth)
        x = generator.uniform(0, 1, (100, 1024))
        worst = max(worst, float(np.abs(simulate_private(model, x) - model(x)).max()))
    yield at_most("largest logit error, noise included, of 1 to 8 layers of 1024, 8,000 logits", worst, 5e-3)
    model = nn.models.mlp([65_536, 65_536, 10], "cos", "hadamard", seed=1)
    x = generator.uniform(0, 1, (20, 65_536))
    worst = float(np.abs(simulate_private(model, x) - model(x)).max())
    yield at_most("the same of one layer of 65,536, 200 logits", worst, 5e-3)
