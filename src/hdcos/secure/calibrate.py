"""What reaches each activation, measured in plaintext on rows at hand, and the intervals that series need for it.

Series fold back outside their interval, and nobody can see on shares that they did. Those who have the network and some
rows of the kind it will meet can: the rows never leave, and all that the parties learn of them is which of a few public
intervals was chosen for each layer.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from hdcos import nn
from hdcos.errors import HdcosWarning, InputError, ModelError, RangeError
from hdcos.nn.activations import SeriesActivation
from hdcos.nn.comparing import Comparing, check_compare
from hdcos.nn.layer import Layer
from hdcos.nn.network import Network
from hdcos.offline import Plan, TrigPair
from hdcos.ring import Array
from hdcos.secure.activations import RANGE_BITS
from hdcos.secure.compile import compile_network
from hdcos.secure.program import PIECE_ROWS, plan_inference
from hdcos.secure.reader import PUBLIC
from hdcos.secure.wiring import Chain, cut

MARGIN = 1.5
"""Rows are a sample: an interval is chosen for this many times the largest value they bring."""
Reach = tuple[float, float]
"""The least and the largest value somewhere in a network."""


@dataclass(frozen=True)
class Interval:
    """The series of one layer, and what it takes."""

    layer: int
    kind: str
    interval: int
    assumed: bool
    """Whether nobody chose the interval."""
    harmonics: int
    material_bytes: int
    """Of one row, from a dealer."""

    def __str__(self) -> str:
        assumed = ", assumed" if self.assumed else ""
        return (
            f"layer {self.layer}, {self.kind}: right for |x| <= {self.interval}{assumed}; {self.harmonics} harmonics, "
            f"{self.material_bytes:,} bytes of material a row"
        )


@dataclass(frozen=True)
class Calibration:
    """A network with the intervals that its rows need, and what they were chosen by."""

    model: Network
    rows: int
    reached: tuple[Reach, ...]
    """What came to each series."""
    before: tuple[Interval, ...]
    """The series of the network as it was."""
    bytes_before: int
    """Material of a row, all layers together, from a dealer."""
    intervals: tuple[Interval, ...]
    material_bytes: int

    def __str__(self) -> str:
        rows = f"{self.rows:,} row{'s' if self.rows > 1 else ''}"
        lines = [f"Calibrated on {rows}, with a margin of {MARGIN:g}; intervals are public."]
        for (low, high), series in zip(self.reached, self.intervals, strict=True):
            lines.append(f"{series}; reached from {low:.3g} to {high:.3g}")
        now, before = f"{self.material_bytes:,}", f"{self.bytes_before:,}"
        lines.append(f"A row takes {now} bytes of material from a dealer in all, {before} before.")
        return "\n".join(lines)


def calibrate(model: Network, rows: ArrayLike, stacklevel: int = 2) -> Calibration:
    """Choose the interval of every series by what reaches it; warn where values leave little room.

    RangeError names a layer that is reached by values for which there is no series.
    """
    x = model.rows(rows)
    if not len(x):
        raise InputError("calibration needs rows to measure with, and got none")
    reached = _measure(model, x)
    before = {index: reached[model.inputs[index][0]] for index, _ in _series(model)}
    fitted = _with_intervals(model, {index: _choose(index, layer, before[index]) for index, layer in _series(model)})
    for doubt in _doubts(model, reached):
        warnings.warn(doubt, HdcosWarning, stacklevel + 1)
    return Calibration(fitted, len(x), tuple(before.values()), *intervals(model), *intervals(fitted))


def intervals(model: Network) -> tuple[tuple[Interval, ...], int]:
    """The series of a network, each with its cost, and the material of a row in all."""
    material = plan_inference(compile_network(model)).material
    pairs = [(need, len(need.kind.harmonics)) for need in material.needs if isinstance(need.kind, TrigPair)]
    series = [(harmonics, Plan((need,)).packed_bytes(1)) for need, harmonics in pairs if harmonics > 1]
    made = [
        Interval(index, layer.kind, layer.reach, layer.interval is None, harmonics, material_bytes)
        for (index, layer), (harmonics, material_bytes) in zip(_series(model), series, strict=True)
    ]
    return tuple(made), sum(material.packed_bytes(1, rank) for rank in (0, 1))


def make_shareable(
    model: Network, rows: ArrayLike | None, compare: str | None = None
) -> tuple[Network, Calibration | None]:
    """A network as `share` takes it: calibrated on rows, or with a warning that says which intervals are assumed.

    What calibration chose, and its cost, is shown on a terminal. With `compare` all layers that compare do it so.
    """
    if not isinstance(model, Network):
        raise ModelError(
            f"share takes an hdcos.nn.Sequential or an hdcos.nn.Graph, got {type(model).__name__}: "
            f"hdcos.nn.from_torch(module) and hdcos.nn.load(path) make one"
        )
    model = compare_by(model, compare)
    if rows is None:
        warn_of_assumed(model, stacklevel=3)
        return model, None
    made = calibrate(model, rows, stacklevel=3)
    if sys.stderr.isatty():
        print(made, file=sys.stderr)
    return made.model, made


def warn_of_assumed(model: Network, stacklevel: int = 2) -> None:
    """Say which intervals nobody chose."""
    assumed = [f"|x| <= {layer.reach} in layer {index} ({layer.kind})" for index, layer in _series(model, assumed=True)]
    if assumed:
        warnings.warn(
            f"assumed {', '.join(assumed)}: beyond that a series folds back, and results on shares are wrong without a "
            f"word. share(model, calibrate=rows) measures what your rows need; interval= of a layer states it.",
            HdcosWarning,
            stacklevel + 1,
        )


def state_intervals(model: Network) -> Network:
    """The network with the intervals that would be assumed, for those who know what they assume."""
    return _with_intervals(model, {index: layer.reach for index, layer in _series(model)})


def compare_by(model: Network, compare: str | None) -> Network:
    """The network whose layers compare by "tables" or "dcf"; as each of them says, if nothing is said here."""
    if compare is None:
        return model
    check_compare(compare)
    comparing = ((index, layer) for index, layer in enumerate(model.layers) if isinstance(layer, Comparing))
    return _with_layers(model, {index: replace(layer, compare=compare) for index, layer in comparing})


def _with_intervals(model: Network, chosen: dict[int, int]) -> Network:
    return _with_layers(model, {index: replace(layer, interval=chosen[index]) for index, layer in _series(model)})


def _with_layers(model: Network, others: dict[int, Layer]) -> Network:
    return model.with_layers([others.get(index, layer) for index, layer in enumerate(model.layers)])


def _series(model: Network, assumed: bool = False) -> Iterator[tuple[int, SeriesActivation]]:
    for index, layer in enumerate(model.layers):
        if isinstance(layer, SeriesActivation) and not (assumed and layer.interval):
            yield index, layer


def _measure(model: Network, x: Array) -> list[Reach]:
    """Of each value of the network: the rows, and what each layer gives."""
    low, high = np.full(len(model.layers) + 1, np.inf), np.full(len(model.layers) + 1, -np.inf)
    with np.errstate(over="ignore", invalid="ignore"):  # what is infinite is out of range, and told as such
        for start in range(0, len(x), PIECE_ROWS):
            for number, value in enumerate(model.values(x[start : start + PIECE_ROWS])):
                low[number], high[number] = np.minimum(low[number], value.min()), np.maximum(high[number], value.max())
    return list(zip(low.tolist(), high.tolist(), strict=True))


def _choose(index: int, layer: SeriesActivation, reached: Reach) -> int:
    """The narrowest interval that has room for MARGIN times what reached the layer, or else the widest."""
    largest = _largest(reached)
    if not largest <= layer.intervals[-1]:
        raise RangeError(
            f"layer {index}, {layer.kind}, is reached by {_span(reached)}, and its widest series ends at "
            f"{layer.intervals[-1]}: scale the rows or the weights before it down, or use Cos, which has no interval"
        )
    return next((each for each in layer.intervals if MARGIN * largest <= each), layer.intervals[-1])


def _doubts(model: Network, reached: list[Reach]) -> Iterable[str]:
    """Where other rows may leave an interval after all, or the range that networks on shares are compiled for."""
    for index, series in _series(model):
        widest = series.intervals[-1]
        before = reached[model.inputs[index][0]]
        if MARGIN * _largest(before) > widest:
            yield (
                f"layer {index}, {series.kind}, is reached by {_span(before)}, and its widest series ends at "
                f"{widest}: rows that bring larger values will be computed wrong"
            )
    chains = [piece.layers for piece in cut(model) if isinstance(piece, Chain)]
    following = {number: chain[place + 1 :] for chain in chains for place, number in enumerate(chain)}
    for index, layer in enumerate(model.layers):
        if isinstance(layer, nn.Identity):
            continue  # what it gives was told where it was made
        after = (model.layers[number] for number in following.get(index, ()))
        reader = next((each for each in after if not isinstance(each, PUBLIC)), None)
        periodic = isinstance(reader, nn.Cos | nn.Sin | SeriesActivation)  # they take values modulo a period
        if not periodic and not MARGIN * _largest(reached[index + 1]) < 2**RANGE_BITS:
            yield (
                f"layer {index}, {layer.kind}, gives {_span(reached[index + 1])}: with a margin of {MARGIN:g} that "
                f"leaves the 2**{RANGE_BITS} that can be relied on. Scale the rows or the weights before it down."
            )
            break  # what follows from it would be told again


def _largest(reached: Reach) -> float:
    return max(-reached[0], reached[1])


def _span(reached: Reach) -> str:
    return f"values from {reached[0]:.4g} to {reached[1]:.4g}"
