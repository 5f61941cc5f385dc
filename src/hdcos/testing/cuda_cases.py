"""Calls of every kernel that a CUDA device has, for the emulation and for real devices: random words and boundaries."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from hdcos.ring import compact_dtype, reference, sign_blocks, sign_products, sign_rules
from hdcos.ring.comparison import dcf_levels
from hdcos.ring.types import HadamardGradient, HadamardLayer, Opening

BOUNDARIES = np.array([0, 1, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1], np.uint64)
Call = tuple[str, tuple[Any, ...]]


class Draw:
    """Random arrays, some of whose values are boundaries."""

    def __init__(self, seed: int = 20240607) -> None:
        self._rng = np.random.default_rng(seed)

    def words(self, *shape: int, bits: int = 64) -> np.ndarray:
        made = self._rng.integers(0, 2**64, shape, dtype=np.uint64)
        chosen = self._rng.random(shape) < 0.1
        made[chosen] = self._rng.choice(BOUNDARIES, int(chosen.sum()))
        return made & np.uint64(2**bits - 1)

    def compact(self, *shape: int, bits: int) -> np.ndarray:
        return self.words(*shape, bits=bits).astype(compact_dtype(bits))


def calls(size: int) -> Iterator[Call]:
    """Kernels with arguments of about `size` words, and smaller ones of odd shapes."""
    draw = Draw()
    for kind in (_products, _transforms, _openings, _cosines, _layers, _gradients, _lifted, _signs):
        yield from kind(draw, size)


def _products(draw: Draw, size: int) -> Iterator[Call]:
    side = max(8, int(size**0.5))
    for rows, depth, columns in ((1, 1, 1), (3, 700, 5), (65, 17, 129), (side, side, side)):
        yield "matmul", (draw.words(rows, depth), draw.words(depth, columns))
    yield "matmul", (draw.words(0, 4), draw.words(4, 3))
    images = max(2, size // 4096)
    for x, w, spacing in (
        ((images, 1, 28, 28), (6, 1, 5, 5), (1, 2)),
        ((images, 6, 14, 14), (16, 6, 5, 5), (1, 0)),
        ((2, 4, 9, 7), (6, 2, 3, 2), (2, 1, 2, 2)),
        ((3, 8, 6, 6), (8, 1, 3, 3), (1, 1, 8, 1)),
        ((1, 70, 4, 4), (3, 70, 4, 4), (1, 0)),
    ):
        yield "conv2d", (draw.words(*x), draw.words(*w), *spacing)


def _transforms(draw: Draw, size: int) -> Iterator[Call]:
    for length in (1, 2, 16, 256, 4096, 16384):
        yield "walsh_hadamard", (draw.words(max(1, size // length) if length > 2 else 5, length),)
    yield "walsh_hadamard", (draw.words(2, 3, 8),)


def _openings(draw: Draw, size: int) -> Iterator[Call]:
    for drop, bits in ((0, 64), (0, 1), (1, 63), (38, 26), (24, 40), (48, 16), (56, 8), (63, 1), (7, 5)):
        x, mask = draw.words(size), draw.compact(size, bits=bits)
        yield "round_open", (x, mask, drop, bits, True)
        yield "round_open", (x[: size // 2], None, drop, bits, False)
    for bits in (1, 3, 7, 8, 13, 16, 26, 31, 32, 33, 40, 56, 57, 63, 64):
        values = draw.compact(size - bits % 3, bits=bits)
        packed = reference.pack(values, bits)
        yield "pack", (values, bits)
        yield "unpack", (packed, values.size, bits)
        yield "unpack_sum", (packed, draw.compact(values.size, bits=bits), bits)
    yield "pack", (draw.compact(0, bits=5), 5)


def _cosines(draw: Draw, size: int) -> Iterator[Call]:
    for bits, scale in ((1, 24), (8, 10), (16, 22), (17, 30), (26, 24), (32, 26)):
        phase, a, b = draw.compact(size, bits=bits), draw.words(size), draw.words(size)
        yield "trig_words", (phase, bits, scale)
        yield "rotate", (phase, a, b, bits, scale, True, True)
        yield "rotate", (phase, a, b, bits, scale, bits % 2 == 0, bits % 2 == 1)
        harmonics = np.array([1, 2, 5], np.int64)
        series = draw.words(3).view(np.int64) >> np.int64(20), draw.words(3).view(np.int64) >> np.int64(20)
        shares = draw.words(size, 3), draw.words(size, 3)
        for shift in (0, 13):
            yield "trig_combine", (phase, *shares, bits, scale, *series, harmonics, shift)
    for drop in (1, 9, 16):
        yield "dither", (draw.words(size, bits=40).view(np.int64) - 2**39, draw.words(size), drop)


def _layers(draw: Draw, size: int) -> Iterator[Call]:
    for units, length, outputs, pool, weighted, terms in (
        (5, 8, 8, (5, 1, 1, 1), False, 1),
        (100, 128, 10, (100, 1, 1, 1), True, 1),
        (1024, 1024, 1000, (1024, 1, 1, 1), False, 1),
        (400, 512, 120, (16, 5, 5, 1), True, 3),
        (6 * 16, 32, 20, (6, 4, 4, 2), False, 2),
        (6 * 16, 32, 32, (6, 4, 4, 2), True, 1),
        (5000, 8192, 700, (5000, 1, 1, 1), False, 2),
    ):
        rows, bits, scale = max(1, min(size // length, 300)), 26, 24
        phase, a, b = draw.compact(rows, units, bits=bits), draw.words(rows, units), draw.words(rows, units)
        shapes = [(units,), (rows, units), (rows, units)] if weighted else [(rows, units)] * 2
        weight = [draw.words(*shape) for shape in shapes] if weighted else []
        more = [draw.words(*shape) for _ in range(terms - 1) for shape in shapes]
        bias = draw.words(outputs) if weighted else None
        layer = HadamardLayer(phase, a, b, bits, scale, length, outputs, bias, pool, weight, more)
        yield "hadamard_cos", (layer,)
        for drop, kept in ((38, 26), (40, 16), (0, 64)):
            mask = draw.compact(rows, outputs, bits=kept)
            yield "hadamard_cos_open", (layer, Opening(mask, drop, kept, kept == 26))


def _gradients(draw: Draw, size: int) -> Iterator[Call]:
    for units, reach, length, terms in ((5, 8, 8, 1), (100, 128, 128, 1), (96, 128, 256, 3), (1000, 1024, 8192, 2)):
        rows, bits = max(1, min(size // length, 300)), 30
        opened, b = draw.compact(rows, reach, bits=bits), draw.words(rows, reach)
        dealt = [draw.words(rows, units) for _ in range(2 + 10 * terms)]
        weight = draw.words(units) if terms == 1 else draw.words(terms, units)
        phase = draw.compact(rows, units, bits=16)
        known = (phase, dealt, weight, (12345, 7), (-777, 3), 16, 22, length)
        mask = draw.compact(rows, length, bits=24)
        for public in (True, False):
            yield "hadamard_back", (HadamardGradient(opened, b, bits, public, *known), Opening(mask, 40, 24, public))


def _lifted(draw: Draw, size: int) -> Iterator[Call]:
    for pool in ((40, 1, 1, 1), (3, 4, 6, 2)):
        units, windows = pool[0] * pool[1] * pool[2], pool[0] * pool[1] * pool[2] // pool[3] ** 2
        rows = max(1, size // units)
        for own, other in (((rows,), (rows,)), ((), (rows,)), ((rows,), ())):
            lifted = tuple(draw.words(*own, windows) for _ in range(4))
            factors = draw.words(*other, units), draw.words(*other, units)
            dealt = draw.words(rows, units), draw.words(rows, units)
            yield "lifted_times", (*lifted[:2], factors[0], *dealt, pool)
            yield "lifted_product", (lifted, *factors, *dealt, rows % 2 == 0, pool)
        yield "spread", (draw.words(rows, windows), pool)
        yield "pool_sum", (draw.words(rows, units), pool)
    rows, opened = max(1, size // 64), draw.compact(max(1, size // 64), 64, bits=28)
    wide, narrow = (draw.words(rows, 64), draw.words(rows, 64)), (draw.words(rows, 50), draw.words(rows, 50))
    yield "lifted_sums", (opened, *wide, 28, True, draw.words(rows, 50), draw.words(rows, 50), *narrow)


def _signs(draw: Draw, size: int) -> Iterator[Call]:
    for public in (True, False):
        for bits in (3, 8, 12, 17, 20, 31):
            widths = sign_blocks(bits)
            D, masks = draw.compact(size, bits=bits), draw.compact(size, bits=2 * len(widths) - 2)
            tables = [draw.compact(size, bits=1 << width) for width in widths]
            yield "sign_lookup", (D, tables, masks, bits, public)
            products = draw.compact(size, bits=len(sign_products(len(widths))) + 1)
            opened, first = draw.compact(size, bits=2 * len(widths) - 2), draw.compact(size, bits=1)
            yield "sign_combine", (opened, masks, products, first, sign_rules(len(widths)), public)
        for bits, shape in (
            (2, (3, 5)),
            (8, (1, 7)),
            (9, (2, 3, 4)),
            (20, (7, 1 + size // 64)),
            (63, (2, 300)),
            (40, (0, 4)),
        ):
            cipher, mask = draw.words(shape[0], 2), draw.compact(*shape, bits=bits)
            root0, root1 = draw.words(*shape, 2), draw.words(*shape, 2)
            yield "dcf_words", (cipher, root0, root1, mask, bits)
            words, D = draw.words(*shape, dcf_levels(bits) + 1, 2), draw.compact(*shape, bits=bits)
            yield "dcf_share", (cipher, root0, words, D, bits, public)


def put(device: Any, x: Any) -> Any:
    """Arguments of a kernel as a device takes them; coefficients and packed bytes stay, as they do in use."""
    if isinstance(x, np.ndarray):
        return device.put(x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(put(device, part) for part in x))
    return type(x)(put(device, part) for part in x) if isinstance(x, list | tuple) else x


def count_differences(made: Any, expected: Any) -> int:
    """Words that differ between results of a device and of the reference."""
    if isinstance(expected, tuple):
        return sum(count_differences(a, b) for a, b in zip(made, expected, strict=True))
    if expected is None:
        return int(made is not None)
    found = made.get()
    if found.shape != expected.shape or found.dtype != expected.dtype:
        return max(1, int(found.size), int(expected.size))
    return int((found != expected).sum())


def compare(device: Any, name: str, arguments: tuple[Any, ...]) -> int:
    """Words in which a kernel and the reference differ."""
    if name == "trig_combine":  # the series is of the host
        given = (*put(device, arguments[:3]), *arguments[3:])
    elif name == "unpack_sum":
        given = (arguments[0], device.put(arguments[1]), arguments[2])
    else:
        given = put(device, arguments)
    return count_differences(getattr(device.kernels, name)(*given), getattr(reference, name)(*arguments))
