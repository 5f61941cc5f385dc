"""Random plans of material: positions of every kind and size, most of which fit what they refer to."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from benchmarks.random_networks import size
from hdcos.offline.material import Kind

TARGETS = {
    "lifted": ("rounding_mask",),
    "bit": ("random_bit",),
    "left": ("random_bit", "mask"),
    "right": ("random_bit", "mask"),
    "trig": ("trig_pair", "fused_trig"),
}
ANY_MASK = ("mask", "rounding_mask", "powers", "lifted_powers", "trig_pair")
"""What references by these names are to, and what those by others are to."""
BEGINNINGS = (*ANY_MASK, "rounding_mask", "random_bit", "mask")
OPERATIONS = ("multiply", "channels", "matmul", "circulant", "conv2d")
LIKELY: dict[str, tuple[int, ...]] = {
    "bits": (1, 5, 8, 20, 31, 36, 63, 64),
    "ring": (1, 20, 46, 64),
    "phase_bits": (1, 8, 16, 20, 26, 32, 53, 64),
    "scale": (0, 9, 16, 24, 30),
    "degree": (1, 2, 3, 8, 9, 10**6),
}
"""Numbers that protocols ask for, and some just beyond."""
SMALL = (0, 1, 1, 1, 1, 2, 3)
Record = dict[str, Any]


def random_plan(draw: random.Random) -> list[Record]:
    most_bits = draw.choice((4, 8, 12, 18, 26, 34))
    needs: list[Record] = []
    if draw.random() < 0.1:
        needs += _convolution(draw, most_bits)
    if draw.random() < 0.1:
        for kind in ("rounding_mask", "trig_pair", "lifted_times_trig"):
            needs.append(_random_need(draw, needs, most_bits, kind))
    for _ in range(draw.randint(1, 8)):
        beginning = not needs and draw.random() < 0.9
        kind = draw.choice(BEGINNINGS if beginning else sorted(Kind.registry))
        needs.append(_random_need(draw, needs, most_bits, kind))
    return needs


def _random_need(draw: random.Random, before: list[Record], most_bits: int, kind: str) -> Record:
    types = {item.name: str(item.type) for item in fields(Kind.registry[kind])}  # type: ignore[arg-type]
    to: dict[str, int] = {}
    for name in (name for name, type_ in types.items() if type_ == "Reference"):
        to[name] = _target(draw, name, before, to)
    example = before[next(iter(to.values()), draw.randrange(len(before)))] if before else {"shape": [1], "units": 1}
    shape = example["shape"] if draw.random() < 0.6 else _shape(draw, most_bits)
    units = 1 if draw.random() < 0.5 else size(draw, most_bits / 3)
    record: Record = {"kind": kind, "shape": shape, "units": example["units"] if draw.random() < 0.7 else units}
    over_rows = draw.random() < 0.15  # then of all references: material is of all rows, or of each
    for name, type_ in types.items():
        if name in to and draw.random() < 0.98:
            rows, whole = draw.random() < (0.95 if over_rows else 0.02), draw.random() < 0.25
            record[name] = {"position": to[name], **({"rows": True} if rows else {"whole": True} if whole else {})}
        elif name != "shape":
            record[name] = _random_field(draw, kind, name, type_, most_bits)
    if to and "bits" in record and "bits" in example and draw.random() < 0.8:
        record["bits"] = example["bits"]
    return record


def _target(draw: random.Random, name: str, before: list[Record], others: Mapping[str, int]) -> int:
    """An earlier position, mostly of the shape of what else is referred to; or the first, which may be the own one."""
    fitting = [n for n, record in enumerate(before) if record["kind"] in TARGETS.get(name, ANY_MASK)]
    shapes = [before[n]["shape"] for n in others.values() if n < len(before)]
    alike = [n for n in fitting if before[n]["shape"] in shapes]
    if fitting and draw.random() < 0.9:
        return draw.choice(alike or fitting)
    return draw.randrange(max(1, len(before)))


def _shape(draw: random.Random, most_bits: int) -> list[int]:
    return [size(draw, most_bits / 2) for _ in range(draw.randint(1, 3))]


def _random_field(draw: random.Random, kind: str, name: str, type_: str, most_bits: int) -> Any:
    """Of its type, but for one in fifty."""
    if draw.random() < 0.02:
        return draw.choice((0, -1, 10**30, 0.5, True, "x", None, [1], {"position": 0}))
    if type_ == "bool":
        return draw.random() < 0.5
    if type_ == "str":
        return draw.choice(OPERATIONS) + draw.choice(("", "", ".weight", ".input"))
    if name == "harmonics":
        return [1] if draw.random() < 0.5 else [size(draw, 10) for _ in range(size(draw, 9))]
    if name == "pool":
        pools = [1, 2, 2, 2], [size(draw, 8), 4, 4, 2], _shape(draw, most_bits)
        return [] if draw.random() < 0.85 else draw.choice(pools)
    return _number(draw, name, *Kind.registry[kind].ranges.get(name, (0, 1 << 34)))


def _number(draw: random.Random, name: str, low: int, high: int) -> int:
    """Such as are asked for, small ones, and huge ones; mostly such as the kind takes."""
    numbers = LIKELY.get(name, SMALL)
    chosen = draw.random()
    if chosen < 0.8:
        return draw.choice([number for number in numbers if low <= number <= high] or [low, high])
    return draw.choice((*numbers, low, high, high + 1)) if chosen < 0.9 else size(draw, draw.choice((6, 17, 34)))


def _convolution(draw: random.Random, most_bits: int) -> list[Record]:
    """The masks of an image and of a weight, and their product."""
    kernel, stride = size(draw, 3), draw.choice((1, 1, 2, size(draw, 17)))
    dilation = draw.choice((1, 1, 2, size(draw, 10)))
    span = dilation * (kernel - 1) + 1
    padding = draw.choice((0, 0, draw.randrange(span), size(draw, 17)))
    groups, channels, made = draw.choice((1, 1, 2, size(draw, 17))), size(draw, 3), size(draw, 3)
    side = span + size(draw, most_bits / 3)
    after = (side + 2 * padding - span) // stride + 1
    shapes = [groups * channels, side, side], [groups * made, channels, kernel, kernel]
    image, weight = ({"kind": "mask", "shape": shape, "bits": 64, "units": 1} for shape in shapes)
    product = {"kind": "mask_product", "operation": "conv2d", "shape": [groups * made, after, after], "units": 1}
    product |= {"left": {"position": 0}, "right": {"position": 1, "whole": True}, "stride": stride, "padding": padding}
    return [image, weight, {**product, "groups": groups, "dilation": dilation}]
