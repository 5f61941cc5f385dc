"""How strongly hidden units move the outputs: what `answers` assumes of a model, and only who has its weights can see.

What is rounded without a coin of the dealer behind it (comparisons, squares, linear layers that round) hides behind
the noise of answers alone, and a unit that moves an output g times as much is known g**2 times as early. The numbers
that are stated were measured on n units that move outputs by 1 / sqrt(n), as the root of the mean square over outputs
and units, and by 3.5 times as much at most: diagonals of about 1 in size, or dense weights of 1 / sqrt(n). Parties hold
shares and cannot look; the caller that shares a model can.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod, sqrt

import numpy as np

from hdcos.errors import HdcosWarning
from hdcos.nn.columns import Rows
from hdcos.nn.hadamard import HadamardLinear, transform_work
from hdcos.nn.network import Network
from hdcos.ring import Array
from hdcos.secure.activations import Polynomial
from hdcos.secure.answers import WITHOUT_NOISE, least_units, stated_by_stage, stated_queries
from hdcos.secure.compile import CompiledNetwork
from hdcos.secure.stages import Stage

GAIN, LARGEST_GAIN = 1.2, 4.5
SQUARE_GAIN, LARGEST_SQUARE_GAIN = 1.6, 8.0
"""Times sqrt(n), of all units and of a single one, for which the numbers hold: as in the networks that were attacked,
and a little more, since a third at least was taken off what was measured there. A square moves outputs as its value
does."""
MOST_UNITS, LEAST_UNITS, PIECE_NUMBERS = 512, 4, 1 << 22
"""Units of a layer that are looked at, drawn at random where there are more; numbers at once."""
MOST_WORK, NUMBER = 1 << 33, 16
"""Multiplications of all that is looked at, some seconds of one core: fewer units are, where a row takes many of them.
To have a number in memory and work on it takes as long as this many."""
LARGEST = 4
"""Times MOST_WORK is what LEAST_UNITS may take: of larger networks none are looked at."""
PAIR, PAIRS = 2, 2
"""Rows at which a unit is looked at, of which the one counts where it moves more; and how many times that is done. More
rows at once would find more than in the networks that were attacked, of the same weights."""
STEP = 1e-6


@dataclass(frozen=True)
class Exposed:
    """The layer of a model about which answers tell first."""

    name: str
    gain: float
    """How many times as much its units move the outputs as they may for the number that is stated."""
    stated: float

    @property
    def queries(self) -> float:
        return self.stated / self.gain**2


def find_exposed(
    model: Network, chosen: CompiledNetwork, rows: Rows | None = None, stacklevel: int = 2
) -> Exposed | None:
    """The layer that holds for the fewest queries with the weights the model has; None if all hold for what is stated.

    Each is looked at where its value enters it, at some of the rows that the model will meet, if they are known.
    """
    by_stage = stated_by_stage(chosen)
    stated, units = stated_queries(chosen), least_units(chosen)
    generator = np.random.default_rng(0)
    looked_at = [
        (stage, number, model.inputs[int(layer)])
        for stage, number in by_stage
        if isinstance(stage, WITHOUT_NOISE) and _drops(stage) and (layer := stage.name.partition(" ")[0]).isdecimal()
    ]
    if not looked_at:
        return None
    most_units = _most_units(model, len({value for _, _, values in looked_at for value in values}))
    if not most_units:
        warnings.warn(
            "the weights of this network were not looked at, which would take too long in plaintext: how many queries "
            "are safe depends on them (docs/security.md)",
            HdcosWarning,
            stacklevel,
        )
        return None
    pairs = [list(model.values(pair)) for pair in _pairs(model, rows, generator)]
    gains = dict[int, tuple[float, float]]()
    worst: Exposed | None = None
    for stage, number, values in looked_at:
        square = isinstance(stage, Polynomial)
        most, largest = (SQUARE_GAIN, LARGEST_SQUARE_GAIN) if square else (GAIN, LARGEST_GAIN)
        for value in values:
            if value not in gains:
                gains[value] = _gains(model, pairs, value, most_units, generator)
            of_all, of_one = gains[value]
            found = Exposed(stage.name, max(1.0, sqrt(units) * max(of_all / most, of_one / largest)), number)
            if found.queries < (worst.queries if worst else stated):
                worst = found
    return worst


def _drops(stage: Stage) -> bool:
    """Whether a party rounds there: what is opened whole tells nothing."""
    drop: int = getattr(stage, "drop", 0)
    return drop > 0


def _pairs(model: Network, known: Rows | None, generator: np.random.Generator) -> list[Array]:
    """The rows at which a model is looked at: if none are known, some between 0 and 1, as in the attacks, and some of
    both signs and the same mean square. What a comparison passes depends on signs, what a square moves on sizes."""
    if known is not None:
        rows = model.rows(known)
        return np.array_split(rows[generator.permutation(len(rows))[: PAIR * PAIRS]], min(PAIRS, len(rows)))
    shape = PAIR, *model.input_shape
    return [generator.uniform(0, 1, shape), generator.normal(0, sqrt(1 / 3), shape)]


def warn_of_gain(
    name: str,
    model: Network,
    chosen: CompiledNetwork,
    left: int,
    part: int,
    rows: Rows | None = None,
    stacklevel: int = 2,
) -> None:
    """Say of a model that parties would answer more rows of it than is safe with its weights."""
    exposed = find_exposed(model, chosen, rows, stacklevel + 2)
    if exposed is None or left <= exposed.queries / part:
        return
    warnings.warn(
        f"the parties answer {left} rows of {name}, and some {exposed.queries:.2g} queries tell a party that is also a "
        f"client about layer {exposed.name}: its units move the outputs {exposed.gain:.2g} times as much as they may "
        f"for the {exposed.stated:.2g} that docs/security.md states. Scale the weights behind it down, or ask both "
        f"operators for [policy] queries_per_model = {max(1, int(exposed.queries / part))}",
        HdcosWarning,
        stacklevel + 1,
    )


def _most_units(model: Network, values: int) -> int:
    """How many units of each of these values are looked at, by what a row takes in plaintext; none if that is too much
    for any."""
    row = 0.0
    for layer, reads in zip(model.layers, model.inputs, strict=True):
        shapes = [model.shapes[number] for number in reads]
        row += NUMBER * layer.row_elements(*shapes) + layer.multiplications(shapes[0])
        if isinstance(layer, HadamardLinear):
            row += transform_work(layer.size) * getattr(layer, "blocks", 1)
    units = int(MOST_WORK / (row * PAIR * PAIRS * values))
    return min(MOST_UNITS, max(LEAST_UNITS, units)) if LARGEST * units >= LEAST_UNITS else 0


def _gains(
    model: Network, pairs: list[list[Array]], number: int, most_units: int, generator: np.random.Generator
) -> tuple[float, float]:
    """How much the units of a value move the outputs: the root of the mean square, and the most that one does."""
    units = np.arange(prod(model.shapes[number]))
    if len(units) > most_units:
        units = np.sort(generator.choice(units, most_units, replace=False))
    of_all = of_one = 0.0
    for values in pairs:
        most = np.zeros(len(units))
        with np.errstate(all="ignore"):
            for row in range(len(values[0])):
                at = [value[row : row + 1] for value in values]
                moved = np.concatenate([*_moved(model, at, number, units)])
                most = np.maximum(most, np.sqrt(np.mean(moved.reshape(len(units), -1) ** 2, axis=1)))
        of_all, of_one = max(of_all, float(np.sqrt(np.mean(most**2)))), max(of_one, float(most.max()))
    return of_all, of_one


def _moved(model: Network, at: list[Array], number: int, units: Array) -> Iterable[Array]:
    """The derivative of every output by each of some units, of one row, by differences."""
    widest = max(prod(shape) for shape in model.shapes)
    rows = max(1, PIECE_NUMBERS // widest)
    for start in range(0, len(units), rows):
        piece = units[start : start + rows]
        changed = np.repeat(at[number].reshape(1, -1), len(piece), axis=0)
        changed[np.arange(len(piece)), piece] += STEP
        known = {number: changed.reshape(len(piece), *at[number].shape[1:])}
        for index in range(len(model.layers)):
            reads = model.inputs[index]
            if any(read in known for read in reads):
                inputs = (known[read] if read in known else np.repeat(at[read], len(piece), axis=0) for read in reads)
                known[index + 1] = model.layers[index].forward(model.parameters(index), *inputs)
        yield (known[len(model.layers)] - at[-1]) / STEP
