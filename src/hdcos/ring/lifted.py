"""Products of lifted values x = E - m + t b, and pooled units: each one pass over memory.

Rows are (rows, units) words; an operand that serves all rows is (units,). A lifted operand may have more units than the
product, which takes the first ones, or one per window of `pool` = (channels, height, width, window). Blanks are planned
as in kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hdcos.errors import InputError
from hdcos.ring import checks
from hdcos.ring.backend import compiled_first, implementation
from hdcos.ring.blank import Blank


def spread(x: Any, pool: Sequence[int]) -> Any:
    """One value per window of pooled units as one value per unit, along the last axis."""
    if not pool:
        return x
    x, (channels, height, width, window) = checks.words(x, "x"), _checked(pool)
    units = channels * height * width
    if x.shape[-1] * window**2 != units:
        raise InputError(f"{x.shape[-1]} windows do not make {units} units")
    if isinstance(x, Blank):
        return Blank((*x.shape[:-1], units))
    return implementation().spread(x, (channels, height, width, window))


def pool_sum(x: Any, pool: Sequence[int]) -> Any:
    """Sums over the windows of pooled units, along the last axis."""
    if not pool:
        return x
    x, (channels, height, width, window) = checks.words(x, "x"), _checked(pool)
    if x.shape[-1] != channels * height * width:
        raise InputError(f"{x.shape[-1]} units are not {channels} x {height} x {width}")
    if isinstance(x, Blank):
        return Blank((*x.shape[:-1], x.shape[-1] // window**2))
    return implementation().pool_sum(x, (channels, height, width, window))


@compiled_first
def lifted_times(E: Any, t: Any, factor: Any, m_factor: Any, b_factor: Any, pool: Sequence[int] = ()) -> Any:
    """[x C] = E [C] - [m C] + t [b C]."""
    return _rows(
        lambda lifted, factors, dealt, whole: implementation().lifted_times(*lifted, *factors, *dealt, whole),
        (E, t),
        (factor,),
        (m_factor, b_factor),
        pool,
    )


@compiled_first
def lifted_product(
    lifted: Sequence[Any],
    opened: Any,
    mask: Any,
    m_mask: Any,
    b_mask: Any,
    with_public: bool,
    pool: Sequence[int] = (),
) -> Any:
    """[x w] = D [x] - (E [M] - [m M] + t [b M]) for w = D - M; `with_public` adds E to this party's share of x."""
    return _rows(
        lambda values, factors, dealt, whole: implementation().lifted_product(
            values, *factors, *dealt, with_public, whole
        ),
        lifted,
        (opened, mask),
        (m_mask, b_mask),
        pool,
    )


@compiled_first
def lifted_sums(
    opened: Any, m: Any, b: Any, bits: int, with_public: bool, w_opened: Any, w_mask: Any, m_mask: Any, b_mask: Any
) -> tuple[Any, Any]:
    """Sums over rows of [x], opened as D in `bits` bits, and of [x w] for w = D_w - M, one pass over both."""
    if not 2 <= bits <= 62:
        raise InputError(f"a lifted value was opened in 2 to 62 bits, not {bits}")
    opened = checks.compact(opened, max(bits, 17), "opened")
    m, b = checks.words(m, "m", 2), checks.words(b, "b", 2)
    factors = [checks.words(x, "factor", 2) for x in (w_opened, w_mask, m_mask, b_mask)]
    shape = factors[0].shape
    if not opened.shape == m.shape == b.shape or m.shape[0] != shape[0] or m.shape[1] < shape[1]:
        raise InputError(f"lifted values of shape {m.shape} do not fit factors of {shape}")
    if {x.shape for x in factors} != {shape}:
        raise InputError(f"factors of shape {shape} expected, got {[x.shape for x in factors]}")
    if checks.is_blank(opened, m, b, *factors):
        return Blank(m.shape[1]), Blank(shape[1])
    total, sums = implementation().lifted_sums(opened, m, b, bits, with_public, *factors)
    return total, sums


def _rows(
    compute: Any, lifted: Sequence[Any], factors: Sequence[Any], dealt: Sequence[Any], pool: Sequence[int]
) -> Any:
    shape = dealt[0].shape
    units = int(shape[-1])
    window = _checked(pool)[3] if pool else 1
    lifted = tuple(checks.words(x[..., : units // window**2], "lifted") for x in lifted)
    factors = tuple(checks.words(x, "factor") for x in factors)
    dealt = tuple(checks.words(x, "dealt") for x in dealt)
    allowed = (shape, shape[-1:])
    if any(x.shape not in allowed for x in factors) or any(x.shape != shape for x in dealt) or len(shape) != 2:
        raise InputError(f"factors of shape {shape} expected, got {[x.shape for x in (*factors, *dealt)]}")
    if any(x.shape not in ((shape[0], units // window**2), (units // window**2,)) for x in lifted):
        raise InputError(f"lifted values for {shape} expected, got {[x.shape for x in lifted]}")
    if len({x.shape for x in lifted}) != 1 or len({x.shape for x in factors}) != 1:
        raise InputError(f"operands differ in shape: {[x.shape for x in (*lifted, *factors)]}")
    if pool and pool[0] * pool[1] * pool[2] != units:
        raise InputError(f"pooling {tuple(pool)} does not fit {units} units")
    if checks.is_blank(*lifted, *factors, *dealt):
        return Blank(shape)
    return compute(lifted, factors, dealt, tuple(pool) if pool else (units, 1, 1, 1))


def _checked(pool: Sequence[int]) -> tuple[int, int, int, int]:
    channels, height, width, window = pool
    if not 1 <= window < checks.MOST_WINDOW or height % window or width % window:
        raise InputError(f"cannot pool {channels} x {height} x {width} over blocks of {window} x {window}")
    return channels, height, width, window
