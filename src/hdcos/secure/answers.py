"""What an answer looks like as it leaves a party: with noise that only this party knows, rounded.

Computes  this party's share of a result at scale s -> its share at OUTPUT_SCALE.
Error     |error| <= LARGEST_NOISE: two parties' noise of up to 2**-9 each, and the rounding. The standard deviation of
          both parties' noise together is 8e-4.
Security  the error of an answer before the noise is a function of openings, which each party sees, and of the model's
          secrets; averages of many answers would tell a party that is also a client about them. The other party's
          noise, fresh for every answer and seen by nobody else, must be averaged away first. Rounding alone does not
          help: its thresholds are known.

How many queries of one row that takes is stated by `stated_queries`. The numbers are those of docs/security.md,
measured by `make prove SUITE=hardening PART=leakage` and `PART=layers` and rounded down, with the law that holds
between them: four times as many for each bit, and fewer in proportion as a network has more outputs for each hidden
unit. With fewer outputs than the ten that were measured no more is stated than for ten: each kind has its most, and
tests/security/test_shown.py compares all of them with what was recorded. They are for a correlation of one half with a
hidden activation or a weight. Whatever a stage rounds has a number here; a stage that is not known is an error, never
the highest number. What rounds without secret noise behind it assumes weights of about 1 in size, which parties cannot
see; who shares a model can (`gain`).

They are stated for labels too. A label is computed from logits with this noise and this rounding (`labels`): it tells
at most what the logits would have told, and no more than log2(classes) bits. How much less is not counted on.
"""

from __future__ import annotations

from math import pi, prod

import numpy as np

from hdcos.protocol.cosine import Precision
from hdcos.ring import Array, Opening, centred_sum
from hdcos.ring.device import beside
from hdcos.secure import activations, stages
from hdcos.secure.compile import DITHERED, FINE_SCALE, OPENED_SCALE, OUTPUT_SCALE, PHASE_BITS, ROUNDED, CompiledNetwork
from hdcos.secure.stages import Stage
from hdcos.sharing import Share, Stream, fresh_seed

NOISE_SCALE = 10
"""A party's noise is the sum of four numbers that are uniform over 2**-10."""
NOISE_BITS = 16
LARGEST_NOISE = 2 * 2.0 ** (1 - NOISE_SCALE) + 2.0**-OUTPUT_SCALE
MOST = 1e9
"""Stated of no network more than this."""
CARRY, TABLE, MADE = 3e8, 3e8, 6e4
"""With as many outputs as hidden units: phases of PHASE_BITS, tables of DITHERED.table; without a dealer."""
MOST_MADE = 1.6e6
LIFTED = 2.5e6
"""The same for a value that is rounded to OPENED_SCALE fraction bits in front of a linear layer or a sum. Measured
behind a square, where no dealt noise helps, with 256 outputs of 256 units: 2.4e8 at 24 bits, hence 3.8e6; a third is
taken off for the error of that."""
MOST_DIAGONAL = {FINE_SCALE: 2.3e8}
"""By the bits that are left: in front of a Hadamard-Diagonal layer nothing was found at 20 bits, behind a square."""
MOST_LIFTED = {OPENED_SCALE: 1.3e7, FINE_SCALE: 2.6e7}
"""Elsewhere: what was found inside LowRank at 18 bits, and that nothing was at 20."""
UNROUNDED = (
    stages.MaskedDiagonal | stages.LiftedDiagonal | stages.Product | stages.Lift | stages.Open | stages.Scale
    | stages.Join | stages.Pool | stages.Flatten | stages.Reshape | stages.Project
    | activations.ToTurns | activations.QuarterTurn
)  # fmt: skip
"""What opens nothing that a party rounds: these, if they drop no bits."""
CUBIC, GROWING, TEN = 1e2, 1e3, 25.6
"""As they are, with 10 outputs of 256 units: 119 and 1,959 were measured."""
SERIES = 0.7
"""What series hold of the law of cosines: sigmoid with 256 outputs and the table of e^x - 1 fell short of it."""
MOST_SERIES = 4e7
"""What the tables of all series show at 33 bits of 37: bounds by the number of queries, since little was found."""
SQUARE, RECTIFIED, LARGEST = 3e4, 3e5, 7e4
"""With as many outputs as hidden units whose values and weights are about 1 in size: a unit that counts g times as much
in an output is known g**2 times as early. All outputs are projected on the public columns of the last layer. ReLU opens
19 fraction bits and was attacked at 15, squares 18 and at 14; max-pooling opens one fewer than ReLU, which makes a
quarter of it."""
MOST_SQUARE, MOST_RECTIFIED, MOST_LARGEST = 1.6e6, 1e7, 1.5e6
WITHOUT_NOISE = (
    activations.Polynomial, activations.Growing, activations.Rectified, activations.Clipped, activations.Largest,
    stages.LiftedDiagonal, stages.Lift, stages.Product,
)  # fmt: skip
"""What a party rounds and no coin of the dealer hides: these, where they drop bits."""


def answer(result: Share, rank: int) -> tuple[int, int, Array]:
    """The scale, the bits and the words of this party's share of a result, with noise of its own, rounded."""
    return round_answer(add_noise(result), OUTPUT_SCALE, rank)


def add_noise(result: Share) -> Share:
    """This party's share of a result with fresh noise that it alone knows."""
    own = beside(noise(result.shape, result.scale), result.words)
    return Share(result.words + own, result.scale, result.bits)


def round_answer(result: Share, scale: int, rank: int) -> tuple[int, int, Array]:
    """The scale, the bits and the words of a share as it leaves: at `scale` at most, rounded."""
    drop = max(0, result.scale - scale)
    bits = result.bits - drop
    return result.scale - drop, bits, result.round_open(Opening(None, drop, bits, rank == 0))


def noise(shape: tuple[int, ...], scale: int) -> Array:
    """Fresh noise at a scale, as ring words: standard deviation 0.58 / 2**10, mean zero, at most 2**-9."""
    total = centred_sum(Stream(fresh_seed()).words(shape), NOISE_BITS)
    shift = scale - NOISE_SCALE - NOISE_BITS
    return (total << shift if shift >= 0 else total >> -shift).view(np.uint64)


def stated_queries(chosen: CompiledNetwork) -> float:
    """Queries for a correlation of one half, the least over all layers."""
    return min((number for _, number in stated_by_stage(chosen)), default=MOST)


def stated_by_stage(chosen: CompiledNetwork) -> list[tuple[Stage, float]]:
    """The same of each stage; of one that opens nothing rounded the highest number."""
    share = least_units(chosen) / prod(chosen.output_shape)
    return [(stage, _state(stage, share)) for stage in chosen.stages]


def least_units(chosen: CompiledNetwork) -> int:
    """Hidden units of the narrowest layer, by which the number of outputs is measured."""
    units = list[int]()
    for stage in reversed(chosen.stages):
        by_channels = isinstance(stage, stages.Product) and stage.operation == "channels"
        if (size := _inputs(stage)) and not (by_channels and units):  # it mixes nothing: what follows does
            units.append(size)
    return min(units, default=prod(chosen.output_shape))


def _inputs(stage: Stage) -> int:
    """Hidden units that one output of a layer is made of."""
    if isinstance(stage, stages.Diagonal):
        return stage.weight.shape[0]
    if isinstance(stage, stages.Product):
        shape = stage.weight.shape
        return {"conv2d": prod(shape[1:]), "channels": 1}.get(stage.operation, shape[0])
    return 0


def _state(stage: Stage, share: float) -> float:
    """Of one stage; TypeError if nobody has said what its openings tell."""
    if isinstance(stage, activations.Fourier):
        return min(MOST_SERIES, _series(stage, share))
    if isinstance(stage, stages.FusedDiagonal | activations.Cosine):
        return min(MOST, _cosine(stage.precision, share))
    if isinstance(stage, activations.Polynomial):
        square = len(stage.coefficients) == 3
        return min(MOST_SQUARE, share * SQUARE) if square else CUBIC * min(1.0, share / TEN)
    if isinstance(stage, activations.Largest):
        return min(MOST_LARGEST, share * LARGEST)
    if isinstance(stage, activations.Rectified | activations.Clipped):
        return min(MOST_RECTIFIED, share * RECTIFIED)
    if isinstance(stage, activations.Growing):
        return GROWING * min(1.0, share / TEN)
    if isinstance(stage, stages.LiftedDiagonal) and stage.drop:
        return min(MOST_DIAGONAL[stage.opened], share * LIFTED * 4.0 ** (stage.opened - OPENED_SCALE))
    if isinstance(stage, stages.Lift) and stage.drop:
        return min(MOST_LIFTED[stage.opened], share * LIFTED * 4.0 ** (stage.opened - OPENED_SCALE))
    if isinstance(stage, stages.Product) and stage.drop:
        return min(MOST_LIFTED[OPENED_SCALE], share * LIFTED)
    if isinstance(stage, UNROUNDED):
        return MOST
    raise TypeError(f"what answers tell about {type(stage).__name__} is not stated")


def _series(stage: activations.Fourier, share: float) -> float:
    """A phase is rounded to a part of the period, which counts as the series is steep there."""
    steepest = float(np.abs(stage.series.slope(np.linspace(-1, 1, 65))).max())
    radians = 2.0**stage.series.period_bits * steepest
    return SERIES * _cosine(stage.precision, share, CARRY * min(1.0, (2 * pi / radians) ** 2))


def _cosine(precision: Precision, share: float, carry: float = CARRY) -> float:
    carry *= share * 4.0 ** (precision.phase_bits - PHASE_BITS)
    if not precision.dither:
        return min(carry, min(MOST_MADE, share * MADE) * 4.0 ** (min(precision.table, precision.dealt) - ROUNDED.table))
    return min(carry, share * TABLE * 4.0 ** (precision.table - DITHERED.table))
