"""How many queries of one row a network answers before a party that is also a client learns its secrets: stated.

The numbers are those of docs/security.md, measured by `make prove SUITE=hardening PART=leakage` and rounded down, with
the law that holds between them: four times as many for each bit, and fewer in proportion as a network has more outputs
for each hidden unit. They are for a correlation of one half with a hidden activation or a weight.
"""

from __future__ import annotations

from math import prod

from hdcos.protocol.cosine import Precision
from hdcos.secure import stages
from hdcos.secure.layout import DITHERED, PHASE_BITS, ROUNDED, CompiledNetwork
from hdcos.secure.stages import Stage

MOST = 1e9
"""Stated of any network."""
CARRY, TABLE, MADE = 3e8, 3e8, 7e4
"""With as many outputs as hidden units: phases of PHASE_BITS, tables of DITHERED.table; without a dealer."""
SQUARE, CUBIC, GROWING = 1e7, 1e3, 2e3


def stated_queries(chosen: CompiledNetwork) -> float:
    """Queries for a correlation of one half, the least over all layers."""
    outputs = prod(chosen.output_shape)
    units = [size for stage in chosen.stages if (size := _inputs(stage))]
    share = min(units, default=outputs) / outputs
    return min((_stated(stage, share) for stage in chosen.stages), default=MOST)


def _inputs(stage: Stage) -> int:
    """Hidden units that one output of a layer is made of."""
    if isinstance(stage, stages.Diagonal):
        return stage.weight.shape[0]
    if isinstance(stage, stages.Product):
        shape = stage.weight.shape
        return prod(shape[1:]) if stage.operation == "conv2d" else shape[0]
    return 0


def _stated(stage: Stage, share: float) -> float:
    if isinstance(stage, stages.FusedDiagonal | stages.Cosine | stages.Fourier):
        return min(MOST, share * _cosine(stage.precision))
    if isinstance(stage, stages.Polynomial):
        return SQUARE if len(stage.coefficients) == 3 else CUBIC
    return GROWING if isinstance(stage, stages.Growing) else MOST


def _cosine(precision: Precision) -> float:
    carry = CARRY * 4.0 ** (precision.phase_bits - PHASE_BITS)
    if not precision.dither:
        return min(carry, MADE * 4.0 ** (min(precision.table, precision.dealt) - ROUNDED.table))
    return min(carry, TABLE * 4.0 ** (precision.table - DITHERED.table))
