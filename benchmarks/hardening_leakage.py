"""How many queries of one row tell a party that is also a client about the model: the numbers of docs/security.md.

Every channel is measured at three settings that are coarser than the real one, with the secret noise there, and
extended to the real one by the law that theory gives and the settings confirm: four times as many queries for each bit.
Nothing is extended by more than four bits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from benchmarks.leakage import (
    COMPILER,
    Array,
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
from hdcos.secure.answers import CARRY, TABLE
from hdcos.secure.compile import DITHERED, FINE_SCALE, OPENED_SCALE, PHASE_BITS, SERIES_SCALE, SQUARE_SCALE
from hdcos.secure.stages import Product
from hdcos.testing.pair import simulate_private

ENOUGH, ALL_OUTPUTS = 1e9, min(CARRY, TABLE)
"""What is stated with 10 outputs of 256 units, and with as many outputs as units."""
ROW = np.random.default_rng(5).uniform(0, 1, 256)
BITS = ((18, 16, 200_000), (20, 18, 1_000_000), (22, 20, 4_000_000))
"""Phase bits, table bits and queries of each setting."""
ALL_BITS = ((18, 16, 50_000), (20, 18, 250_000), (22, 20, 1_000_000))
DEEP_BITS = ((14, 20, 50_000), (18, 20, 500_000), (22, 20, 2_000_000))
"""The same with as many outputs as units, and for three hidden layers."""
COINS = ((4, 12, 100_000), (6, 12, 500_000), (8, 12, 2_000_000))
ALL_COINS = ((6, 14, 100_000), (8, 14, 300_000), (10, 14, 2_000_000))
"""Bits of coins, those that the finest is extended to (there are 16) and queries; with as many outputs as units."""
PIECE = 250_000
"""Queries of one process."""
WAYS = ("regression", "likelihood")
SQUARES, OPENED, FINE = (f"{COMPILER}.{name}" for name in ("SQUARE_SCALE", "OPENED_SCALE", "FINE_SCALE"))
COMPARED = "hdcos.secure.activations.COMPARED_SCALE"


def extended(needed: float, bits: int) -> float:
    """Queries at this many bits more."""
    assert 0 <= bits <= 4
    return needed * 4.0**bits


Lines = Callable[[], list[Line]]
Measured = tuple[float, bool]
"""Queries, and whether they are more than a bound."""


def attacked(model: nn.Sequential, setting: Setting, queries: int) -> Attack:
    attack = Attack(Queries(model, setting, ROW))
    attack.ask(queries)
    return attack


def least(attack: Attack, channel: str) -> Measured:
    return min(attack.needed(channel, way) for way in WAYS)


def more(sure: bool) -> str:
    return "" if sure else "more than "


def prove(seed: int) -> Iterator[Line]:
    """Measurements are processes, as many at a time as there are cores; those of many queries are several, whose sums
    add up. All are begun before the first is waited for."""
    found: list[float] = []
    with ProcessPoolExecutor() as pool:
        for lines in _begin(pool):
            made = lines()
            found += [line.value for line in made if line.limit == f">= {ENOUGH:g}"]
            yield from made
    yield at_least("queries for a correlation of one half, the least of all channels and attacks", min(found), ENOUGH)
    yield exactly("bytes per hidden unit each way, online", PHASE_BITS / 8, 3.25)
    yield from _errors()


def _begin(pool: Executor) -> list[Lines]:
    every, deep = ("256 outputs: ", {"outputs": 256}, ALL_OUTPUTS), ("depth 3: ", {"depth": 3}, 0)
    return [
        *(_known(pool, "", {}, ENOUGH, *setting) for setting in BITS),
        *(_dealt(pool, "", {}, ENOUGH, *setting) for setting in COINS),
        *(_known(pool, *every, *setting) for setting in ALL_BITS),
        *(_dealt(pool, *every, *setting) for setting in ALL_COINS),
        *(_known(pool, *deep, *setting) for setting in DEEP_BITS),
        *(_alone(pool, *task) for task in _tasks()),
        _without_dealer(pool),
    ]


def _alone(pool: Executor, function: Callable[..., Iterator[Line]], *arguments: Any) -> Lines:
    return pool.submit(_measured, function, *arguments).result


def _measured(function: Callable[..., Iterator[Line]], *arguments: Any) -> list[Line]:
    return list(function(*arguments))


def _asked(pool: Executor, shape: dict[str, int], setting: Setting, queries: int) -> Callable[[], Attack]:
    """An attack whose queries are asked by several processes."""
    sizes = [min(PIECE, queries - start) for start in range(0, queries, PIECE)]
    pieces = [pool.submit(_piece, shape, setting, size) for size in sizes]

    def joined() -> Attack:
        first, *others = [piece.result() for piece in pieces]
        for other in others:
            first.add(other)
        return first

    return joined


def _piece(shape: dict[str, int], setting: Setting, queries: int) -> Attack:
    attack = attacked(network(**shape), setting, queries)
    del attack.queries  # what it found is all that counts
    return attack


def _tasks() -> Iterator[tuple[Any, ...]]:
    yield from ((_unrounded,), (_variance,), (_broken,))
    for what, layer, opening, index, knob, real in (
        ("square", nn.Square(), 0, 1, (SQUARES,), SQUARE_SCALE),
        ("ReLU", nn.ReLU(), 0, 1, (COMPARED,), COMPARED_SCALE),
        ("a Hadamard-Diagonal layer behind a square", nn.Square(), 1, 2, (OPENED, FINE), FINE_SCALE),
        ("a Hadamard-Diagonal layer behind tanh", nn.Tanh(), 1, 2, (OPENED, FINE), FINE_SCALE),
    ):
        for outputs in (10, 256):
            yield from (
                (attack_opening, what, layer, opening, index, knob, bits, real, outputs)
                for bits in (real - 8, real - 6, real - 4)
            )
    yield from ((_low_rank, bits) for bits in (FINE_SCALE - 8, FINE_SCALE - 6, FINE_SCALE - 4))
    yield from ((_residual, bits) for bits in (OPENED_SCALE - 8, OPENED_SCALE - 6, OPENED_SCALE - 4))
    for layer in (nn.Sigmoid(), nn.Tanh(), nn.ExpM1()):
        yield from (
            (attack_opening, layer.kind, layer, 0, 1, (), bits, PHASE_BITS, outputs)
            for outputs in (10, 256) for bits in (PHASE_BITS - 8, PHASE_BITS - 6, PHASE_BITS - 4)
        )  # fmt: skip
        yield from ((attack_table, layer, *setting) for setting in ((10, 20_000), (7, 100_000), (4, 200_000)))
    yield (_exception, nn.PolyReLU3(), 1)
    yield (_exception, nn.GrowingCos(), 2)


def _known(
    pool: Executor, name: str, shape: dict[str, int], enough: float, phase_bits: int, table: int, queries: int
) -> Lines:
    """HD(256, 256) - Cos - HD(256, 10), or other shapes: what a party knows of phases and tables."""
    asked = _asked(pool, shape, Setting(phase_bits, table), queries)

    def lines() -> list[Line]:
        attack, made = asked(), []
        for channel, bits, real in (("carry", phase_bits, PHASE_BITS), ("table", table, DITHERED.table)):
            if channel == "carry" or "depth" not in shape:  # the tail is secret: there is no table to look for
                needed = least(attack, channel)
                made.append(_line(f"{name}{channel} channel", needed, bits, real, attack.count, enough))
        return made

    return lines


def _dealt(
    pool: Executor, name: str, shape: dict[str, int], enough: float, coin_bits: int, last: int, queries: int
) -> Lines:
    asked = _asked(pool, shape, Setting(coin_bits=coin_bits), queries)

    def lines() -> list[Line]:
        attack = asked()
        what = f"{name}dealt channel, true phases given, coins"
        return [_line(what, least(attack, "dealt"), coin_bits, last, attack.count, enough)]

    return lines


def _line(what: str, needed: Measured, bits: int, real: int, queries: int, enough: float = 0) -> Line:
    """At the finest setting extended to the real one, and then with a limit if there is one."""
    least_queries, sure = needed
    text = f"{what} at {bits} bits, {queries:,} queries: {more(sure)}this many"
    if bits != real - 4:
        return Line(text, least_queries, "reported", True)
    text, total = f"{text}, extended to {real} bits", extended(least_queries, 4)
    return at_least(text, total, enough) if enough else Line(text, total, "reported", True)


def _unrounded() -> Iterator[Line]:
    rounded = [stage.drop for stage in compile_network(_dense()).stages if isinstance(stage, Product)]
    yield exactly("dense channel: bits dropped as a dense layer after a cosine is opened", rounded, [0])


def _variance() -> Iterator[Line]:
    variance = VarianceAttack(Queries(network(32), Setting(answer_noise=False), ROW[:32]))
    variance.ask(100_000)
    found = abs(variance.correlation())
    yield at_most("variance of dealt cosines, 32 units, 100,000 queries: correlation", found, 4 / np.sqrt(32))


def _dense() -> nn.Sequential:
    return nn.Sequential([nn.HadamardDiagonal(256, 256, bandwidth=4.0), nn.Cos(), nn.Dense(256, 10)], seed=1)


def _broken() -> Iterator[Line]:
    """The attacks find what they look for where the protection is taken away."""
    bare = attacked(network(), Setting(16, 16, 20, coins=0, answer_noise=False), 20_000)
    yield at_most("without noise, 16 bits: carry channel", least(bare, "carry")[0], 2000)
    yield at_most("without noise, 16 bits: table channel", least(bare, "table")[0], 20_000)
    yield at_most(
        "cosines rounded to the nearest: dealt channel",
        least(attacked(network(), Setting(coins=0), 5000), "dealt")[0],
        500,
    )
    single = VarianceAttack(Queries(network(32), Setting(coins=1, answer_noise=False), ROW[:32]))
    single.ask(10_000)
    yield at_least("cosines rounded by one coin, 32 units: correlation by variance", single.correlation(), 0.9)
    queries = Queries(_dense(), Setting(), ROW)
    stages = [
        replace(s, drop=24, bits=s.bits - 24, bias=None) if isinstance(s, Product) else s
        for s in queries.network.stages
    ]
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


def attack_opening(
    name: str,
    layer: nn.Layer,
    opening: int,
    index: int,
    knobs: tuple[str, ...],
    bits: int,
    real: int,
    outputs: int,
    queries: int = 200_000,
) -> Iterator[Line]:
    """An opening that rounds, at a coarser setting."""
    model = nn.Sequential([nn.HadamardDiagonal(256, 256), layer, nn.HadamardDiagonal(256, outputs)], seed=1)
    setting = Setting() if knobs else Setting(phase_bits=bits)
    attack = OpeningAttack(coarser(model, setting, knobs, bits), opening, index)
    yield describe(f"{name}, {outputs} outputs:", attack, bits, real, queries)


def _low_rank(bits: int) -> Iterator[Line]:
    """What is lifted between the factors of a layer; its columns are secret, so every output is looked at by itself."""
    model = nn.Sequential([nn.HadamardDiagonal(256, 256, bandwidth=4.0), nn.Cos(), nn.LowRank(256, 10, 4)], seed=1)
    queries = coarser(model, Setting(), (OPENED, FINE), bits)
    attack = OpeningAttack(queries, 2, 2, by=model.state()["2.left"])
    yield describe("inside LowRank(256, 10, 4):", attack, bits, FINE_SCALE)


def _residual(bits: int) -> Iterator[Line]:
    """A value that is lifted before it is added to another, of a graph with 64 units and 10 outputs."""
    layers: list[nn.Layer] = [
        nn.HadamardDiagonal(64, 64, bandwidth=4.0), nn.Cos(), nn.HadamardDiagonal(64, 64), nn.Add(), nn.Cos(),
        nn.Dense(64, 10),
    ]  # fmt: skip
    model, row = nn.Graph(layers, [[0], [1], [2], [3, 0], [4], [5]], seed=1), ROW[:64]
    value = row[None]
    for number in range(3):
        value = layers[number].forward(model.parameters(number), value)
    by = -np.sin(value + row)[0] * model.parameters(5)["weight"]
    attack = OpeningAttack(coarser(model, Setting(), (OPENED,), bits, row), 1, 0, by=by)
    yield describe("a sum of two values in a graph:", attack, bits, OPENED_SCALE)


def coarser(model: nn.Network, setting: Setting, knobs: tuple[str, ...], bits: int, row: Array = ROW) -> Queries:
    with ExitStack() as stack:
        for knob in knobs:
            stack.enter_context(mock.patch(knob, bits))
        return Queries(model, setting, row)


def describe(what: str, attack: OpeningAttack, bits: int, real: int, queries: int = 200_000) -> Line:
    attack.ask(queries)
    return _line(what, attack.needed(), bits, real, queries)


def attack_table(layer: nn.Layer, fewer: int, queries: int, outputs: int = 10) -> Iterator[Line]:
    """The table of a series, at a coarser setting; extended by four bits from the finest."""
    model = nn.Sequential([nn.HadamardDiagonal(256, 256), layer, nn.HadamardDiagonal(256, outputs)], seed=1)
    with mock.patch(f"{COMPILER}.SERIES_SCALE", SERIES_SCALE - fewer):
        attack = SeriesAttack(Queries(model, Setting(), ROW))
    attack.ask(queries)
    what = f"table of {layer.kind}" + (f", {outputs} outputs:" if outputs != 10 else "")
    yield _line(what, attack.needed(), SERIES_SCALE - fewer, SERIES_SCALE, queries)


def _without_dealer(pool: Executor) -> Lines:
    """Scales of 18 bits and noise in answers alone; a party's own rounding of cosines is as large as the table's."""
    asked = _asked(pool, {}, Setting(table=18, dealt=18, coins=0), 1_000_000)

    def lines() -> list[Line]:
        attack, made = asked(), []
        for channel, what in (("table", "table channel"), ("dealt", "own rounding of made cosines")):
            needed, sure = least(attack, channel)
            made.append(Line(f"without a dealer: {what}: {more(sure)}this many", needed, "reported", True))
        return made

    return lines


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
