"""Every protocol once, with secrets, the exact answer, a tolerance derived from bits, and its declared price."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from hdcos.protocol import (
    argmax,
    bent,
    cos_paper,
    cosine,
    fit,
    fourier,
    growing_cos,
    hadamard,
    lifted,
    masked,
    opening,
    polynomial,
    relu,
    selection,
    sign,
)
from hdcos.protocol.cosine import Precision, even
from hdcos.protocol.fourier import Series
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Price, Rounds, together
from hdcos.sharing import Share

SHAPE = (16, 32)
SCALE = 16
Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Case:
    """A program of shares, what it must compute, how far off it may be, and what it says it costs."""

    name: str
    program: Callable[..., Rounds[Any]]
    meaning: Callable[..., Any]
    price: Price
    tolerance: Callable[..., Any] = lambda *secrets: 0.0
    shapes: tuple[tuple[int, ...], ...] = (SHAPE,)
    scale: int = SCALE
    bound: float = 8.0
    dealer: bool = False
    """Whether only a dealer can make its material."""

    def secrets(self, seed: int = 0) -> list[Array]:
        """Reals that are exact at the case's scale, so that linear protocols have no excuse."""
        generator = np.random.default_rng(seed)
        reals = [generator.uniform(-self.bound, self.bound, shape) for shape in self.shapes]
        return [np.rint(values * 2**self.scale) / 2**self.scale for values in reals]


def _revealed(party: Party, x: Share) -> Rounds[Share]:
    public = yield from opening.reveal(party, x)
    return Share(public.words if party.rank == 0 else public.words * np.uint64(0), public.scale)


def _open(party: Party, x: Share, drop: int, bits: int) -> Rounds[Share]:
    value = yield from opening.open_masked(party, x, drop, bits)
    return value.share(party)


def _masked_products(party: Party, x: Share, y: Share) -> Rounds[tuple[Share, Share]]:
    """One masked value in two products: its opening is paid once."""
    X, Y = yield from together(opening.open_masked(party, x), opening.open_masked(party, y, whole=True))
    return masked.product(party, X, Y, "matmul"), masked.product(party, X, X)


def _cos_twice(party: Party, x: Share, y: Share) -> Rounds[tuple[Any, ...]]:
    return (yield from together(cosine.cos(party, x), cosine.cos(party, y)))


def _turns(function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    return lambda x: function(2 * np.pi * x)


def _series_case(name: str, series: Series, bound: float, phase_bits: int) -> Case:
    return Case(
        name,
        lambda party, x: fourier.fourier(party, x, series, even(phase_bits, fourier.TRIG_SCALE)),
        series,
        fourier.price(SHAPE, series, phase_bits),
        lambda x: fourier.error_bound(series, even(phase_bits, fourier.TRIG_SCALE)),
        bound=bound,
        scale=20,
    )


def _bent_case(function: str, bound: float, drop: int, bits: int) -> Case:
    """x/2 and a series of x; with `bits`, x is opened besides and rounded."""
    series, precision = fit.series(function), even(20, fourier.TRIG_SCALE)
    return Case(
        f"{function} {'of what is rounded' if bits else 'of what fits the ring'}",
        lambda party, x: bent.bent(party, x, series, precision, drop, bits),
        lambda x: x / 2 + series(x),
        bent.price(SHAPE, series, 20, bits),
        lambda x: fourier.error_bound(series, precision) + (2.0 ** (drop - 25) if bits else 0.0),
        bound=bound,
        scale=24,
    )


def _cos_case(phase_bits: int, bound: float) -> Case:
    return Case(
        f"cos at {phase_bits} bits, up to {bound:g} turns",
        lambda party, x: cosine.cos(party, x, even(phase_bits, cosine.trig_scale(phase_bits))),
        _turns(np.cos),
        cosine.price(SHAPE, phase_bits),
        lambda x: cosine.error_bound(phase_bits),
        scale=32,
        bound=bound,
    )


def _dithered_case(name: str, precision: Precision) -> Case:
    return Case(
        name,
        lambda party, x: cosine.cos(party, x, precision),
        _turns(np.cos),
        cosine.price(SHAPE, precision.phase_bits),
        lambda x: precision.angle + precision.rounding,
        scale=44,
        dealer=precision.dither,
    )


def _fused(party: Party, x: Share, w: Share, outputs: int, pool=None) -> Rounds[Share]:
    """Open the weight, then the cosine and the layer in one more round; bias of one per output."""
    W = yield from opening.open_masked(party, w, whole=True)
    scale = w.scale + 32
    bias = Share(np.full(outputs, (1 << scale) if party.rank == 0 else 0, np.uint64), scale)
    result = yield from hadamard.cos_hadamard(party, x, W, 32, outputs, even(16, 16), bias, pool)
    return result.share()


def _fused_twice(party: Party, x: Share, w: Share, v: Share) -> Rounds[Share]:
    """The second layer opens the first one's result without writing it down."""
    W, V = yield from together(opening.open_masked(party, w, whole=True), opening.open_masked(party, v, whole=True))
    first = yield from hadamard.cos_hadamard(party, x, W, 32, 20, even(16, 16))
    second = yield from hadamard.cos_hadamard(party, first, V, 32, 5, even(16, 16))
    return second.share()


def _lifted_diagonal(party: Party, x: Share, w: Share) -> Rounds[tuple[Share, ...]]:
    W = yield from opening.open_masked(party, w, whole=True)
    return tuple((yield from hadamard.lifted_diagonal(party, x, W, 2, 26)))


def _terms(z: Array, w: Array, outputs: int) -> Array:
    """The sum of S_t H (w_t * z), whose signs are those of row t of H."""
    H = _hadamard(32)
    return sum(((z * row) @ H[: z.shape[1], :outputs]) * H[t, :outputs] for t, row in enumerate(w))


def _lifted_products(party: Party, x: Share, w: Share, y: Share) -> Rounds[tuple[Share, Share]]:
    """One lifted value in two products: with a masked weight, and with the sine of an angle."""
    reference = type(party.next_reference())(2)
    phase = cosine.open_angle(party, y, even(16, 16))
    X, W, (d, cos_r, sin_r) = yield from together(
        lifted.open_lifted(party, x, 4, 24), opening.open_masked(party, w, whole=True), phase
    )
    weighted = lifted.times_masked(party, X, W)
    trig = lifted.times_trig(party, X, lifted.Phase(d, cos_r, sin_r, 16, 16, reference))
    return weighted, trig.combine(0, 3 << 20, 20, X.scale + 32)


def _lifted_narrow(party: Party, x: Share, w: Share) -> Rounds[Share]:
    """A lifted value by one that is rounded as it is opened, in a ring that holds their product and no more."""
    X, W = yield from together(lifted.open_lifted(party, x, 4, 24), opening.open_masked(party, w, 6, 40))
    return lifted.times_masked(party, X, W, ring=40)


def _lifted_polynomial(party: Party, x: Share, coefficients: Sequence[float], *scales: int) -> Rounds[Share]:
    (result,) = yield from polynomial.lifted_polynomials(party, x, [coefficients], *scales)
    return result


def _turns_cos(x: Array) -> Array:
    return np.cos(2 * np.pi * x)


def _hadamard(n: int) -> Array:
    return linalg.hadamard(n).astype(float)


def _pooled(z: Array) -> Array:
    return z.reshape(len(z), 2, 2, 2, 2, 2).sum((3, 5)).reshape(len(z), -1)


def _compared(
    name: str,
    program: Callable[..., Rounds[Any]],
    meaning: Callable[..., Any],
    price: Callable[..., Price],
    shapes: tuple[tuple[int, ...], ...] = (SHAPE,),
    drop: int = 0,
    bits: int = 20,
    ways: tuple[str, ...] = sign.WAYS,
    **more: Any,
) -> list[Case]:
    """A comparison by both ways: exact of what is not rounded, at the scale that its bits leave room for."""

    def case(way: str) -> Case:
        return Case(
            f"{name} of {bits} bits by {way}",
            lambda party, *x: program(party, *x, drop=drop, bits=bits, way=way, **more),
            meaning,
            price(shapes[0], bits, way),
            lambda *x: 2.0 ** (drop - scale) if drop else 0.0,
            shapes,
            scale,
            4.0,
            dealer=True,
        )

    scale = max(0, min(bits, 24) - 6) + drop
    return [case(way) for way in ways]


def _positive(party: Party, x: Share, drop: int, bits: int, way: str, ring: int) -> Rounds[tuple[Share, ...]]:
    above, whole, b = yield from selection.positive(party, party.round(x, drop), bits, way, ring)
    return above, whole, b.share(party)


def _winners(party: Party, x: Share, drop: int, bits: int, way: str) -> Rounds[tuple[Share, ...]]:
    largest, won = yield from selection.winners(party, party.round(x, drop), bits, way)
    return largest, (yield from sign.open_bit(party, won, 8)).share(party)


def _first_largest(x: Array) -> Array:
    return np.arange(x.shape[-1]) == x.argmax(-1)[..., None]


_PAIR = (SHAPE, SHAPE)
_COMPARISONS = [
    *_compared("sign", sign.sign, lambda x: np.where(x >= 0, 1, -1), sign.price),
    *_compared("sign", sign.sign, lambda x: np.where(x >= 0, 1, -1), sign.price, bits=8),
    *_compared("sign", sign.sign, lambda x: np.where(x >= 0, 1, -1), sign.price, bits=31),
    *_compared("sign", sign.sign, lambda x: np.where(x >= 0, 1, -1), sign.price, bits=50, ways=("dcf",)),
    *_compared("at least 1.5", sign.at_least, lambda x: x >= 1.5, sign.price, ways=("tables",), threshold=1.5),
    *_compared("greater or equal", sign.greater_equal, np.greater_equal, sign.price, _PAIR),
    *_compared("relu", relu.relu, lambda x: np.maximum(x, 0), relu.price),
    *_compared("relu", relu.relu, lambda x: np.maximum(x, 0), relu.price, bits=16),
    *_compared("rounded relu", relu.relu, lambda x: np.maximum(x, 0), relu.price, drop=7),
    *_compared("absolute value", relu.absolute, np.abs, relu.price, ways=("dcf",)),
    *_compared("leaky relu", relu.leaky_relu, lambda x: np.where(x > 0, x, x / 8), relu.price, slope=1 / 8),
    *_compared("clip", relu.clip, lambda x: np.clip(x, -1, 2), relu.clip_price, low=-1.0, high=2.0),
    *_compared("maximum", relu.maximum, np.maximum, relu.price, _PAIR),
    *_compared("rounded maximum", relu.maximum, np.maximum, relu.price, _PAIR, drop=3, ways=("tables",)),
    *_compared("minimum", relu.minimum, np.minimum, relu.price, _PAIR, ways=("tables",)),
    *_compared("largest of 7", relu.largest, lambda x: x.max(-1), relu.largest_price, ((16, 5, 7),)),
    *_compared(
        "whether positive",
        _positive,
        lambda x: (np.maximum(x, 0), x, x > 0),
        lambda shape, bits, way: selection.positive_price(shape, bits, way, 48),
        ways=("tables",),
        ring=48,
    ),
    *_compared(
        "which is the largest of 8",
        _winners,
        lambda x: (x.max(-1, keepdims=True), _first_largest(x)),
        lambda shape, bits, way: selection.winners_price(shape, bits, way) + sign.bit_price(shape, 8),
        ((16, 5, 8),),
        ways=("tables",),
    ),
    *_compared("argmax of 10", argmax.argmax, lambda x: x.argmax(1), argmax.price, ((16, 10),)),
    *_compared("argmax of 37", argmax.argmax, lambda x: x.argmax(1), argmax.price, ((16, 37),)),
]

_CUBIC = fit.relu_cubic()
_SIZE = SHAPE[0] * SHAPE[1]
_LIFTED_MATERIAL = ("rounding_mask", "mask", "trig_pair", "lifted_times_mask", "lifted_times_trig")

CASES = [
    Case("reveal", _revealed, lambda x: x, opening.reveal_price(SHAPE)),
    Case("open masked", lambda p, x: _open(p, x, 0, 64), lambda x: x, opening.price(SHAPE, 64)),
    Case(
        "open rounded",
        lambda p, x: _open(p, x, 9, 21),
        lambda x: x,
        opening.price(SHAPE, 21),
        lambda x: 2.0**-7,
    ),
    Case(
        "round and lift",
        lambda p, x: opening.round_lift(p, x, 9, 27),
        lambda x: x,
        opening.price(SHAPE, 27, lift=True),
        lambda x: 2.0**-7,
    ),
    Case(
        "multiply",
        masked.multiply,
        np.multiply,
        masked.multiply_price(SHAPE, SHAPE, SHAPE),
        shapes=(SHAPE, SHAPE),
    ),
    Case(
        "multiply by a row",
        masked.multiply,
        np.multiply,
        masked.multiply_price(SHAPE, SHAPE[1:], SHAPE),
        shapes=(SHAPE, SHAPE[1:]),
    ),
    Case("matmul", masked.matmul, np.matmul, masked.multiply_price(SHAPE, (32, 5), (16, 5)), shapes=(SHAPE, (32, 5))),
    Case(
        "conv2d",
        lambda p, x, w: masked.conv2d(p, x, w, stride=2, padding=1),
        lambda x, w: _convolved(x, w),
        masked.multiply_price((3, 2, 8, 8), (4, 2, 3, 3), (3, 4, 4, 4)),
        shapes=((3, 2, 8, 8), (4, 2, 3, 3)),
    ),
    Case(
        "masked products",
        _masked_products,
        lambda x, y: (x @ y, x * x),
        Price(1, 8 * (_SIZE + 32 * 5), 8 * (16 * 5 + _SIZE), ("mask", "mask", "mask_product", "mask_product")),
        shapes=(SHAPE, (32, 5)),
    ),
    Case("square", polynomial.square, np.square, polynomial.price(SHAPE, 2)),
    Case(
        "cubic",
        lambda p, x: polynomial.polynomial(p, x, _CUBIC, 10),
        np.polynomial.Polynomial(_CUBIC),
        polynomial.price(SHAPE, 3),
        lambda x: sum(2.0 ** -(11 + (3 - n) * 12) * np.abs(x) ** n for n in range(4)),
        scale=12,
    ),
    Case(
        "cos and sin",
        cosine.cos_sin,
        lambda x: (np.cos(2 * np.pi * x), np.sin(2 * np.pi * x)),
        cosine.price(SHAPE),
        lambda x: cosine.error_bound(16),
        scale=32,
    ),
    _cos_case(16, 4.0),
    _cos_case(16, 1e6),
    _cos_case(20, 4.0),
    _cos_case(24, 4.0),
    _cos_case(11, 4.0),
    _cos_case(32, 4.0),
    _dithered_case("dithered cos", Precision(26, 24, 10, dither=True)),
    _dithered_case("dithered cos of a whole turn", Precision(44, 24, 10, dither=True)),
    _dithered_case("cos of a whole turn", Precision(44, 18, 18)),
    Case(
        "sin",
        cosine.sin,
        _turns(np.sin),
        cosine.price(SHAPE),
        lambda x: cosine.error_bound(16),
        scale=32,
    ),
    Case(
        "growing cos",
        growing_cos.growing_cos,
        lambda x: x * np.cos(x),
        growing_cos.price(SHAPE),
        lambda x: np.abs(x) * (2 * np.pi / 2**16 + 1.5 / 2**18),
    ),
    Case(
        "cos by the paper",
        cos_paper.cos_paper,
        _turns(np.cos),
        cos_paper.price(SHAPE),
        lambda x: cos_paper.error_bound(),
        scale=32,
    ),
    Case(
        "fused Hadamard layer",
        lambda p, x, w: _fused(p, x, w, 20),
        lambda x, w: (_turns_cos(x) * w) @ _hadamard(32)[:, :20] + 1,
        opening.price((32,), 64) + hadamard.price(16, 32, 16),
        lambda x, w: np.abs(w).sum() * (2 * np.pi / 2**16 + 1.5 / 2**16),
        shapes=(SHAPE, (32,)),
        scale=24,
        bound=1.0,
    ),
    Case(
        "fused Hadamard layer through pooling",
        lambda p, x, w: _fused(p, x, w, 20, (2, 4, 4, 2)),
        lambda x, w: (_pooled(_turns_cos(x)) * w) @ _hadamard(32)[:8, :20] + 1,
        opening.price((8,), 64) + hadamard.price(16, 32, 16),
        lambda x, w: 4 * np.abs(w).sum() * (2 * np.pi / 2**16 + 1.5 / 2**16),
        shapes=(SHAPE, (8,)),
        scale=24,
        bound=1.0,
    ),
    Case(
        "two fused layers, of three terms and of one",
        _fused_twice,
        lambda x, w, v: (_turns_cos(_terms(_turns_cos(x), w, 20)) * v) @ _hadamard(32)[:20, :5],
        Price(1, 8 * 116, 0, ("mask", "mask")) + hadamard.price(16, 32, 16, 3) + hadamard.price(16, 20, 16),
        lambda x, w, v: np.abs(v).sum() * (2 * np.pi * np.abs(w).sum() + 1) * (2 * np.pi / 2**16 + 1.5 / 2**16),
        shapes=(SHAPE, (3, 32), (20,)),
        scale=24,
        bound=0.1,
    ),
    Case(
        "lifted diagonal of two terms",
        _lifted_diagonal,
        lambda x, w: (x * w[0], x * w[1]),
        opening.price((2, 32), 64) + hadamard.lifted_price(16, 32, 26, 2),
        lambda x, w: np.abs(w).max(0) * 2.0**-14,
        shapes=(SHAPE, (2, 32)),
    ),
    Case(
        "lifted products",
        _lifted_products,
        lambda x, w, y: (x * w, 3 * x * np.sin(2 * np.pi * y)),
        Price(1, 3 * _SIZE + 8 * 32 + 2 * _SIZE, (10 + 16 + 13 + 26) * _SIZE, _LIFTED_MATERIAL),
        lambda x, w, y: 2.0**-16 * np.abs(w) + 3 * (2.0**-12 + (np.abs(x) + 1) * 2 * np.pi / 2**16),
        shapes=(SHAPE, (32,), SHAPE),
        scale=20,
        bound=2.0,
    ),
    Case(
        "lifted product in a narrow ring",
        _lifted_narrow,
        np.multiply,
        Price(1, 3 * _SIZE + 5 * _SIZE, (10 + 5 + 2) * _SIZE, ("rounding_mask", "mask", "lifted_times_mask")),
        lambda x, w: 2.0**-16 * np.abs(w) + 2.0**-14 * (np.abs(x) + 2.0**-16),
        shapes=(SHAPE, SHAPE),
        scale=20,
        bound=2.0,
    ),
    Case(
        "lifted square",
        lambda p, x: _lifted_polynomial(p, x, [0, 0, 1], 4, 24, 0),
        np.square,
        polynomial.lifted_price(SHAPE, 2, 24),
        lambda x: (2 * np.abs(x) + 2.0**-12) * 2.0**-12,
    ),
    Case(
        "lifted cubic",
        lambda p, x: _lifted_polynomial(p, x, _CUBIC, 6, 22, 8),
        np.polynomial.Polynomial(_CUBIC),
        polynomial.lifted_price(SHAPE, 3, 22),
        lambda x: 4 * 2.0**-10 + sum(2.0 ** -(9 + (3 - n) * 10) * (np.abs(x) + 1) ** n for n in range(4)),
    ),
    _series_case("sigmoid", fit.series("sigmoid"), 8.0, 16),
    _series_case("sigmoid of 40 terms", fit.loss_sigmoid(56), 56.0, 20),
    _series_case("sigmoid of 56 terms", fit.loss_sigmoid(120), 120.0, 20),
    _series_case("tanh", fit.series("tanh"), 4.0, 16),
    _series_case("expm1", fit.series("expm1"), 4.0, 20),
    _bent_case("gelu", 4.0, 0, 0),
    _bent_case("silu", 6.0, 10, 20),
    _series_case("one harmonic", Series(3, (1,), 5, (1 << 20,), (0,)), 4.0, 16),
    Case(
        "two cosines together",
        _cos_twice,
        lambda x, y: (np.cos(2 * np.pi * x), np.cos(2 * np.pi * y)),
        Price(1, 2 * (_SIZE + 7), 16 * (_SIZE + 7), ("trig_pair", "trig_pair")),
        lambda x, y: cosine.error_bound(16),
        shapes=(SHAPE, (7,)),
        scale=32,
    ),
    *_COMPARISONS,
]


def _convolved(x: Array, w: Array) -> Array:
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], axis=(2, 3))[:, :, ::2, ::2]
    return np.einsum("nchwij,ocij->nohw", windows, w)
