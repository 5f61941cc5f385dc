"""Cosine and sine tables made of integers only, so that every host has the same words.

Base   four tables of 256 rotations, by multiples of 2**-8, 2**-16, 2**-24 and 2**-32 of a turn, as integers
       with PRECISION fractional bits: Machin's pi, a Taylor series, then powers by complex multiplication.
Direct up to 16 bits of phase: one table at the scale asked for, each entry rounded from the base.
Split  17 to 32 bits of phase: the nearest of 2**HIGH_BITS rotations h from a table at SPLIT_SCALE, which stays in the
       fastest cache, and the rest l, below 2**-9, by sin l = l and cos l = 1 - l**2 / 2 in integers;
       cos(h + l) = cos h cos l - sin h sin l in int64, then one rounding shift.
Error  of cosine and sine at most half a unit of the scale each; of a split table both together SPLIT_ERROR besides (a
       third of it is l**3 / 6, the rest roundings at SPLIT_SCALE).
"""

from __future__ import annotations

import hashlib
from functools import cache

import numpy as np
import numpy.typing as npt

PRECISION = 96
SPLIT_SCALE = 30
DIRECT_BITS = 16
MAX_BITS = 32
HIGH_BITS = 11
HALF_PI_SCALE = 29
SPLIT_ERROR = 2.0**-29
"""How far a rotation of a split table is off, before it is rounded to the scale asked for."""

Rotation = tuple[int, int]
Table = npt.NDArray[np.int32]


@cache
def direct_table(bits: int, scale: int) -> Table:
    """(2**bits, 2) rows of cos and sin of index / 2**bits turns at `scale`."""
    return _freeze(_whole_turn(bits, scale))


@cache
def high_table() -> Table:
    """Rows of cos and sin of all multiples of 2**-HIGH_BITS of a turn, at SPLIT_SCALE."""
    return _freeze(_whole_turn(HIGH_BITS, SPLIT_SCALE))


def table(bits: int, scale: int) -> Table:
    """The table that phases of `bits` bits are looked up in."""
    return direct_table(bits, scale) if bits <= DIRECT_BITS else high_table()


def small_rotation(angle: npt.NDArray[np.int64]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """cos and sin at SPLIT_SCALE of angle / 2**MAX_BITS turns, for a few thousandths of a radian at most."""
    # Half pi, because one turn is 2 pi radians and MAX_BITS is two more than SPLIT_SCALE.
    sin = (angle * half_pi() + (1 << (HALF_PI_SCALE - 1))) >> HALF_PI_SCALE
    return (1 << SPLIT_SCALE) - ((sin * sin + (1 << SPLIT_SCALE)) >> (SPLIT_SCALE + 1)), sin


@cache
def half_pi() -> int:
    """Pi / 2 at HALF_PI_SCALE."""
    drop = PRECISION + 1 - HALF_PI_SCALE
    return (_pi() + (1 << (drop - 1))) >> drop


@cache
def table_hash() -> bytes:
    """SHA-256 of the base tables and of the parameters of what is derived from them."""
    digest = hashlib.sha256(
        f"hdcos trig 2: precision {PRECISION}, direct up to {DIRECT_BITS}, split at {SPLIT_SCALE}, "
        f"{HIGH_BITS} bits looked up, {half_pi()}\n".encode()
    )
    for level in _base():
        for rotation in level:
            for part in rotation:
                digest.update(part.to_bytes(16, "little", signed=True))
    return digest.digest()


def _rows(count: int, bits: int, scale: int) -> Table:
    """Rows of cos and sin of index / 2**bits turns, for the first `count` indices."""
    step = 1 << (MAX_BITS - bits)
    rows = [_round(_rotation(index * step), scale) for index in range(count)]
    return np.array(rows, dtype=np.int32).reshape(-1, 2)


def _whole_turn(bits: int, scale: int) -> Table:
    """All rows, mirrored from the first eighth: only 0 and 1 are rational there, so no rounding is a tie."""
    if bits < 3:
        return _rows(1 << bits, bits, scale)
    eighth = _rows((1 << (bits - 3)) + 1, bits, scale)
    quarter = np.concatenate((eighth, eighth[-2:0:-1, ::-1]))
    turned = np.stack((-quarter[:, 1], quarter[:, 0]), axis=1)
    return np.concatenate((quarter, turned, -quarter, -turned))


def _freeze(table: Table) -> Table:
    table.flags.writeable = False
    return table


def _rotation(angle: int) -> Rotation:
    """cos and sin of angle / 2**32 turns with PRECISION bits."""
    result: Rotation = (1 << PRECISION, 0)
    for level, rotations in enumerate(_base()):
        index = angle >> (MAX_BITS - 8 * (level + 1)) & 255
        if index:
            result = _turn(result, rotations[index])
    return result


@cache
def _base() -> list[list[Rotation]]:
    tables = []
    for level in range(1, 5):
        step = _taylor(2 * _pi() >> (8 * level))
        rotations = [(1 << PRECISION, 0)]
        for _ in range(255):
            rotations.append(_turn(rotations[-1], step))
        tables.append(rotations)
    return tables


def _turn(a: Rotation, b: Rotation) -> Rotation:
    half = 1 << (PRECISION - 1)
    return (a[0] * b[0] - a[1] * b[1] + half) >> PRECISION, (a[1] * b[0] + a[0] * b[1] + half) >> PRECISION


def _round(rotation: Rotation, scale: int) -> Rotation:
    drop = PRECISION - scale
    half = 1 << (drop - 1)
    return (rotation[0] + half) >> drop, (rotation[1] + half) >> drop


def _taylor(radians: int) -> Rotation:
    """cos and sin of a small angle in fixed point."""
    sums = [0, 0]
    term, n = 1 << PRECISION, 0
    while term:
        sums[n % 2] += term if n % 4 < 2 else -term
        n += 1
        term = (term * radians >> PRECISION) // n
    return sums[0], sums[1]


def _pi() -> int:
    """Machin: pi = 16 arctan(1/5) - 4 arctan(1/239)."""
    return (16 * _arctan_inverse(5) - 4 * _arctan_inverse(239)) >> 32


def _arctan_inverse(x: int) -> int:
    power, total, n = (1 << (PRECISION + 32)) // x, 0, 1
    while power:
        total += power // n if n % 4 == 1 else -(power // n)
        power //= x * x
        n += 2
    return total
