"""Each kernel in plain NumPy: the specification that the compiled kernels must match bit for bit.

Arguments are validated and contiguous. Everything is modulo 2**64.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from hdcos.ring import trig
from hdcos.ring.backend import compact_dtype
from hdcos.ring.fixed import centred_sum
from hdcos.ring.reference_sign import dcf_share as dcf_share
from hdcos.ring.reference_sign import dcf_words as dcf_words
from hdcos.ring.reference_sign import sign_combine as sign_combine
from hdcos.ring.reference_sign import sign_lookup as sign_lookup
from hdcos.ring.types import Compact, HadamardGradient, HadamardLayer, Opening, Pool, Signed, Words


def keystream(key: bytes, block: int, keep: int, size: int) -> npt.NDArray[np.uint8]:
    """AES-256 in counter mode: `size` bytes of the stream from a block of 16 on, each word of 8 bytes and `keep`."""
    cipher = Cipher(algorithms.AES(key), modes.CTR(block.to_bytes(16, "big"))).encryptor()
    words = np.frombuffer(cipher.update(bytes(-(-size // 8) * 8)), "<u8") & np.uint64(keep)
    return words.astype("<u8").view(np.uint8)[:size]


def matmul(a: Words, b: Words, out: Words | None = None) -> Words:
    """a @ b."""
    product: Words = np.matmul(a, b, out=out)
    return product


def conv2d(x: Words, weight: Words, stride: int, padding: int, groups: int = 1, dilation: int = 1) -> Words:
    """Cross-correlation: y[n,o,i,j] = sum over c,u,v of x[n,c,i*stride+u*d,j*stride+v*d] * weight[o,c,u,v].

    d is the dilation. Of several groups, each output's c runs over the channels of its group.
    """
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding), (padding, padding)))
    spans = tuple(dilation * (side - 1) + 1 for side in weight.shape[2:])
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, axis=(2, 3))
    windows = windows[:, :, ::stride, ::stride, ::dilation, ::dilation].transpose(1, 0, 2, 3, 4, 5)
    _, n, height, width, *_ = windows.shape
    size = math.prod(weight.shape[1:])
    made = []
    for seen, own in zip(np.split(windows, groups), np.split(weight, groups), strict=True):
        patches = seen.transpose(1, 2, 3, 0, 4, 5).reshape(n * height * width, size)
        out = patches @ own.reshape(len(own), size).T
        made.append(out.reshape(n, height, width, len(own)).transpose(0, 3, 1, 2))
    return np.ascontiguousarray(np.concatenate(made, axis=1))


def walsh_hadamard(x: Words, out: Words | None = None) -> Words:
    """x times the Sylvester-Hadamard matrix, along the last axis."""
    n = x.shape[-1]
    values = x.reshape(-1, n).copy()
    half = 1
    while half < n:
        pairs = values.reshape(-1, n // (2 * half), 2, half)
        low, high = pairs[:, :, 0], pairs[:, :, 1]
        values = np.stack((low + high, low - high), axis=2).reshape(-1, n)
        half *= 2
    if out is None:
        return values.reshape(x.shape)
    out[...] = values.reshape(x.shape)
    return out


def round_open(x: Words, mask: Compact | None, drop: int, bits: int, ties_up: bool) -> Compact:
    """((x + half) >> drop) + mask modulo 2**bits; half is 2**(drop-1), or one less to round ties down."""
    half = np.uint64((1 << (drop - 1)) - (not ties_up) if drop else 0)
    rounded = (x + half) >> np.uint64(drop)
    if mask is not None:
        rounded = rounded + mask.astype(np.uint64)
    return (rounded & np.uint64(2**bits - 1)).astype(compact_dtype(bits))


def pack(values: Compact, bits: int) -> npt.NDArray[np.uint8]:
    """The low `bits` bits of each value, one after the other, in a little-endian bit stream."""
    little = values.reshape(-1).astype(values.dtype.newbyteorder("<"))
    octets = little.view(np.uint8).reshape(values.size, values.itemsize)
    stream = np.unpackbits(octets, axis=1, count=bits, bitorder="little")
    return np.packbits(stream.reshape(-1), bitorder="little")


def unpack(buffer: npt.NDArray[np.uint8], count: int, bits: int) -> Compact:
    """The inverse of pack."""
    kind = compact_dtype(bits)
    stream = np.unpackbits(buffer, count=count * bits, bitorder="little").reshape(count, bits)
    octets = np.zeros((count, kind.itemsize), np.uint8)
    packed = np.packbits(stream, axis=1, bitorder="little")
    octets[:, : packed.shape[1]] = packed
    return octets.reshape(-1).view(kind.newbyteorder("<")).astype(kind)


def unpack_sum(buffer: npt.NDArray[np.uint8], values: Compact, bits: int) -> Compact:
    """Values plus the packed ones, modulo 2**bits."""
    total = unpack(buffer, values.size, bits).reshape(values.shape) + values
    return total & values.dtype.type(2**bits - 1)


def trig_words(phase: Compact, bits: int, scale: int) -> tuple[Signed, Signed]:
    """2**scale times cos and sin of phase / 2**bits turns."""
    index = phase.astype(np.int64) & (2**bits - 1)
    if bits <= trig.DIRECT_BITS:
        rows = trig.direct_table(bits, scale).astype(np.int64)[index]
        return np.ascontiguousarray(rows[..., 0]), np.ascontiguousarray(rows[..., 1])
    rest_bits = bits - trig.HIGH_BITS
    from_first = index + (1 << (rest_bits - 1))
    rows = trig.high_table().astype(np.int64)[from_first >> rest_bits & (2**trig.HIGH_BITS - 1)]
    c, s = trig.small_rotation(((from_first & (2**rest_bits - 1)) - (1 << (rest_bits - 1))) << (trig.MAX_BITS - bits))
    drop = 2 * trig.SPLIT_SCALE - scale
    half = 1 << (drop - 1)
    cos = rows[..., 0] * c - rows[..., 1] * s
    sin = rows[..., 1] * c + rows[..., 0] * s
    return (cos + half) >> drop, (sin + half) >> drop


def dither(x: Signed, coins: Words, drop: int) -> Words:
    """(x + the centred sum of four uniform numbers of `drop` bits) / 2**drop, rounded."""
    rounded: Words = ((x + centred_sum(coins, drop) + (1 << (drop - 1))) >> drop).view(np.uint64)
    return rounded


def trig_combine(
    phase: Compact,
    cos_share: Words,
    sin_share: Words,
    bits: int,
    scale: int,
    cos_coefficients: Signed,
    sin_coefficients: Signed,
    harmonics: Signed,
    shift: int = 0,
) -> Words:
    """Sum over k of (a cos kd + b sin kd) C + (b cos kd - a sin kd) S, each bracket shifted down and rounded."""
    half = np.uint64(1 << (shift - 1) if shift else 0)
    total = np.zeros(phase.shape, np.uint64)
    for j, k in enumerate(harmonics.astype(np.uint64)):
        turned = phase.astype(np.uint64) * k & np.uint64(2**bits - 1)
        cos, sin = (part.view(np.uint64) for part in trig_words(turned, bits, scale))
        a, b = cos_coefficients[j].astype(np.uint64), sin_coefficients[j].astype(np.uint64)
        u, v = ((x + half).view(np.int64) >> shift for x in (a * cos + b * sin, b * cos - a * sin))
        total += u.view(np.uint64) * cos_share[..., j] + v.view(np.uint64) * sin_share[..., j]
    return total


def rotate(
    phase: Compact,
    a: Words,
    b: Words,
    bits: int,
    scale: int,
    cosine: bool,
    sine: bool,
    to_cosine: Words | None = None,
    to_sine: Words | None = None,
) -> tuple[Words | None, Words | None]:
    """(cos d * a - sin d * b, sin d * a + cos d * b)."""
    cos, sin = (part.view(np.uint64) for part in trig_words(phase, bits, scale))
    turned = [cos * a - sin * b if cosine else None, sin * a + cos * b if sine else None]
    for place, (words, out) in enumerate(zip(turned, (to_cosine, to_sine), strict=True)):
        if words is not None and out is not None:
            out[...] = words
            turned[place] = out
    return turned[0], turned[1]


def hadamard_cos(layer: HadamardLayer) -> Words:
    """H (cos d * a - sin d * b), summed over blocks and padded with zeros first; the first outputs, plus bias.

    With a weight (D, w_a, w_b), of D a - w_a and D b - w_b instead.
    """
    phase, a, b, bits, scale, size, outputs, bias, pool, weight, more = layer
    cos, sin = (part.view(np.uint64) for part in trig_words(phase, bits, scale))
    padded = np.zeros((len(a), size), np.uint64)
    each = 3 if weight else 2
    own = [weight or (a, b), *(more[start : start + each] for start in range(0, len(more), each))]
    for term, arrays in enumerate(own):
        if weight:
            arrays = arrays[0] * a - arrays[1], arrays[0] * b - arrays[2]
        z = pool_sum(cos * arrays[0] - sin * arrays[1], pool or (a.shape[1], 1, 1, 1))
        padded[:, np.arange(z.shape[1]) ^ term] += z
    walsh_hadamard(padded, padded)
    kept = padded[:, :outputs]
    return np.ascontiguousarray(kept if bias is None else kept + bias)


def hadamard_cos_open(layer: HadamardLayer, opening: Opening) -> Compact:
    """round_open of hadamard_cos."""
    return round_open(hadamard_cos(layer), *opening)


def hadamard_back(gradient: HadamardGradient, opening: Opening) -> tuple[Words, Words, Compact]:
    """Sums over rows of x + m and of a x cos y, and the opening of H (b w x sin y), for a lifted x = E - m + t b.

    a and b are the integers of `step` and `slope`, with the shift that the public factors are rounded by.
    """
    opened, b, opened_bits, with_public, phase, terms, weight, step, slope, phase_bits, scale, size = gradient
    E, t = _lift(opened, opened_bits)
    share = t * b + E if with_public else t * b
    units = phase.shape[1]
    c, s = (part.view(np.uint64) for part in trig_words(phase, phase_bits, scale))
    a, q = np.uint64(step[0]), np.int64(slope[0]).astype(np.uint64)
    padded, moved = np.zeros((len(phase), size), np.uint64), np.zeros_like(weight)
    for term, D_w in enumerate(weight.reshape(-1, units) if units else [weight]):
        places = np.arange(units) ^ term
        w_cos, w_sin, *dealt = terms[2 + 10 * term : 12 + 10 * term]
        dealt[4], dealt[6] = (dealt[i] << np.uint64(opened_bits) for i in (4, 6))
        x_cos, x_sin, m_cos, m_sin = (
            E[:, places] * factor - dealt[2 * i] + t[:, places] * dealt[2 * i + 1]
            for i, factor in enumerate((terms[0], terms[1], w_cos, w_sin))
        )
        steps = _round(a * c, step[1]) * x_cos + _round(np.uint64(0) - a * s, step[1]) * x_sin
        moved.reshape(-1, units)[term] = steps.sum(axis=0, dtype=np.uint64)
        padded[:, :units] += _round(q * s, slope[1]) * (D_w * x_cos - m_cos)
        padded[:, :units] += _round(q * c, slope[1]) * (D_w * x_sin - m_sin)
    walsh_hadamard(padded, padded)
    total: Words = share.sum(axis=0, dtype=np.uint64)
    return total, moved, round_open(padded, *opening)


def _lift(opened: Compact, bits: int) -> tuple[Words, Words]:
    """E and t of a lifted value that was opened in `bits` bits."""
    D = opened.astype(np.uint64)
    return D - np.uint64(1 << (bits - 2)), (np.uint64(1) - (D >> np.uint64(bits - 1))) << np.uint64(bits)


def _round(x: Words, shift: int) -> Words:
    """x as a signed number over 2**shift, ties up."""
    if shift == 0:
        return x
    return ((x + np.uint64(1 << (shift - 1))).view(np.int64) >> np.int64(shift)).view(np.uint64)


def spread(x: Words, pool: Pool) -> Words:
    """One value per window as one per unit, along the last axis."""
    channels, height, width, window = pool
    grid = x.reshape(*x.shape[:-1], channels, height // window, width // window)
    return grid.repeat(window, axis=-2).repeat(window, axis=-1).reshape(*x.shape[:-1], -1)


def pool_sum(x: Words, pool: Pool) -> Words:
    """Sums over windows of units, along the last axis."""
    channels, height, width, window = pool
    grid = x.reshape(*x.shape[:-1], channels, height // window, window, width // window, window)
    total: Words = grid.sum(axis=-1, dtype=np.uint64).sum(axis=-2, dtype=np.uint64)
    return total.reshape(*x.shape[:-1], channels * height * width // window**2)


def lifted_times(E: Words, t: Words, factor: Words, m_factor: Words, b_factor: Words, pool: Pool) -> Words:
    """E C - [m C] + t [b C]; E and t are rows of one value per window."""
    E, t = spread(E, pool), spread(t, pool)
    return E * factor - m_factor + t * b_factor


def lifted_sums(
    opened: Compact,
    m: Words,
    b: Words,
    bits: int,
    with_public: bool,
    w_opened: Words,
    w_mask: Words,
    m_mask: Words,
    b_mask: Words,
) -> tuple[Words, Words]:
    """Sums over rows of a lifted x, and of x times w = D - M for its first units."""
    E, t = _lift(opened, bits)
    units = m_mask.shape[1]
    lifted = E[:, :units], t[:, :units], m[:, :units], b[:, :units]
    product = lifted_product(lifted, w_opened, w_mask, m_mask, b_mask, with_public, (units, 1, 1, 1))
    share = t * b - m + E if with_public else t * b - m
    return share.sum(axis=0, dtype=np.uint64), product.sum(axis=0, dtype=np.uint64)


def lifted_product(
    lifted: tuple[Words, Words, Words, Words],
    opened: Words,
    mask: Words,
    m_mask: Words,
    b_mask: Words,
    with_public: bool,
    pool: Pool,
) -> Words:
    """D (t b - m, plus E) - (E M - [m M] + t [b M]): x times w = D - M."""
    E, t, m, b = (spread(values, pool) for values in lifted)
    x = t * b - m + E if with_public else t * b - m
    return opened * x - (E * mask - m_mask + t * b_mask)
