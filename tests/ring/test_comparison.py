"""Comparison kernels: right for every pair of small numbers and at every boundary; compiled as the reference has it."""

from __future__ import annotations

from importlib import import_module
from itertools import combinations

import numpy as np
import pytest

from hdcos import ring
from hdcos.errors import InputError
from hdcos.ring import compact_dtype, reference
from hdcos.ring.backend import aes_implementation
from hdcos.ring.comparison import dcf_levels

WIDTHS = (2, 3, 4, 6, 8, 9, 10, 12, 16, 17, 20, 25, 26, 31, 33, 48, 63)


def expected(D: np.ndarray, m: np.ndarray, bits: int) -> np.ndarray:
    """1 where D - m, read as a signed number of `bits` bits, is not negative."""
    difference = (D - m) << np.uint64(64 - bits)
    return (difference.view(np.int64) >= 0).astype(np.uint8)


def pairs(bits: int) -> tuple[np.ndarray, np.ndarray]:
    """All pairs of few bits; of more, random ones and those that differ in one place or by one."""
    if bits <= 6:
        every = np.arange(1 << bits, dtype=np.uint64)
        return np.repeat(every, 1 << bits), np.tile(every, 1 << bits)
    rng, keep = np.random.default_rng(bits), np.uint64(2**bits - 1)
    D = rng.integers(0, 2**bits, 300, dtype=np.uint64)
    near = [D, D + np.uint64(1), D - np.uint64(1), np.zeros_like(D), np.full_like(D, keep)]
    near += [D ^ np.uint64(1 << place) for place in range(bits)]
    m = np.concatenate([rng.integers(0, 2**bits, 3000, dtype=np.uint64), *near])
    return np.resize(D, m.size), m & keep


def split_by_xor(values: np.ndarray, bits: int, rng: np.random.Generator) -> list[np.ndarray]:
    share = rng.integers(0, 2**bits - 1, values.shape, dtype=np.uint64, endpoint=True)
    return [part.astype(compact_dtype(bits)) for part in (share, share ^ values)]


def by_tables(kernels, D: np.ndarray, m: np.ndarray, bits: int) -> np.ndarray:
    rng = np.random.default_rng(1)
    widths, left, tables = ring.sign_blocks(bits), bits - 1, []
    for width in widths:
        left -= width
        below = (m >> np.uint64(left)) & np.uint64((1 << width) - 1)
        tables.append(split_by_xor((np.uint64(1) << below) - np.uint64(1), 1 << width, rng))
    products, count = ring.sign_products(len(widths)), 2 * (len(widths) - 1)
    r = rng.integers(0, 1 << count, D.shape, dtype=np.uint64)
    words = (m >> np.uint64(bits - 1)) << np.uint64(len(products))
    for number, factors in enumerate(products):
        words |= np.bitwise_and.reduce([(r >> np.uint64(f)) & np.uint64(1) for f in factors]) << np.uint64(number)
    masks, dealt = split_by_xor(r, 8, rng), split_by_xor(words, len(products) + 1, rng)
    opened = D.astype(compact_dtype(bits))
    said = [
        kernels.sign_lookup(opened, [table[rank] for table in tables], masks[rank], bits, rank == 0) for rank in (0, 1)
    ]
    e = (said[0][1] ^ said[1][1]) & np.uint8((1 << count) - 1)
    rules = ring.sign_rules(len(widths))
    shares = [
        kernels.sign_combine(e, masks[rank] & np.uint8((1 << count) - 1), dealt[rank], said[rank][0], rules, rank == 0)
        for rank in (0, 1)
    ]
    return shares[0] ^ shares[1]


def by_keys(kernels, D: np.ndarray, m: np.ndarray, bits: int) -> np.ndarray:
    rng = np.random.default_rng(2)
    opened, mask = (x.astype(compact_dtype(bits)).reshape(2, -1) for x in (D, m))
    roots = [rng.integers(0, 2**64, (*mask.shape, 2), dtype=np.uint64) for _ in range(2)]
    cipher = rng.integers(0, 2**64, (2, 2), dtype=np.uint64)
    words = kernels.dcf_words(cipher, *roots, mask, bits)
    shares = [kernels.dcf_share(cipher, roots[rank], words, opened, bits, rank == 0) for rank in (0, 1)]
    assert all(abs(share.mean() - 0.5) < 2 / np.sqrt(share.size) for share in shares), "a share alone says nothing"
    return (shares[0] ^ shares[1]).reshape(-1)


@pytest.mark.parametrize("bits", WIDTHS)
def test_the_sign_is_right_by_keys(kernels, bits):
    for implementation in (kernels, reference):
        assert (by_keys(implementation, *pairs(bits), bits) == expected(*pairs(bits), bits)).all()


@pytest.mark.parametrize("bits", [bits for bits in WIDTHS if 3 <= bits <= 31])
def test_the_sign_is_right_by_tables(kernels, bits):
    for implementation in (kernels, reference):
        assert (by_tables(implementation, *pairs(bits), bits) == expected(*pairs(bits), bits)).all()


@pytest.mark.parametrize("bits", [2, 8, 9, 20, 33, 63])
@pytest.mark.parametrize("shape", [(1,), (7,), (1, 8), (3, 5), (2, 19), (0,), (3, 0)])
def test_compiled_keys_equal_the_reference(kernels, words, bits, shape):
    roots, mask = (words(*shape, 2), words(*shape, 2)), words(*shape, bits=bits).astype(compact_dtype(bits))
    D, cipher = words(*shape, bits=bits).astype(compact_dtype(bits)), words(shape[0], 2)
    made = kernels.dcf_words(cipher, *roots, mask, bits)
    np.testing.assert_array_equal(made, reference.dcf_words(cipher, *roots, mask, bits))
    assert made.shape == (*shape, dcf_levels(bits) + 1, 2)
    for public in (True, False):
        share = kernels.dcf_share(cipher, roots[0], made, D, bits, public)
        np.testing.assert_array_equal(share, reference.dcf_share(cipher, roots[0], made, D, bits, public))
        assert share.dtype == np.uint8


def test_the_same_seeds_are_expanded_otherwise_in_another_row(kernels, words):
    """Who found what a seed expands to in one row, at the cost of many guesses, has found nothing about the others."""
    roots, mask = (words(1, 50, 2), words(1, 50, 2)), words(1, 50, bits=20).astype(np.uint32)
    twice = [np.concatenate([x, x]) for x in (*roots, mask)]
    alike, apart = np.repeat(words(1, 2), 2, axis=0), words(2, 2)
    first, second = kernels.dcf_words(alike, *twice, 20)
    assert (first == second).all()
    first, second = kernels.dcf_words(apart, *twice, 20)
    assert (first != second).all()
    shares = [kernels.dcf_share(apart[::step].copy(), root, np.stack([first, second]), twice[2], 20, public)
              for root, public, step in ((twice[0], True, 1), (twice[1], False, -1))]  # fmt: skip
    assert 0.2 < (shares[0] ^ shares[1]).mean() < 0.8, "keys of AES that differ make nonsense, of D = m always 1"


@pytest.mark.parametrize("bits", [3, 8, 16, 20, 31])
def test_compiled_look_ups_equal_the_reference(kernels, words, bits):
    widths = ring.sign_blocks(bits)
    tables = [words(3, 11, bits=1 << width).astype(compact_dtype(1 << width)) for width in widths]
    D, masks = words(3, 11, bits=bits).astype(compact_dtype(bits)), words(3, 11, bits=8).astype(np.uint8)
    width, rules = len(ring.sign_products(len(widths))) + 1, ring.sign_rules(len(widths))
    products = words(3, 11, bits=width).astype(compact_dtype(width))
    opened, first = (words(3, 11, bits=2 * len(widths) - 2).astype(np.uint8), words(3, 11, bits=1).astype(np.uint8))
    for public in (True, False):
        for one, other in zip(
            kernels.sign_lookup(D, tables, masks, bits, public),
            reference.sign_lookup(D, tables, masks, bits, public),
            strict=True,
        ):
            np.testing.assert_array_equal(one, other)
        combine = opened, masks, products, first, rules, public
        np.testing.assert_array_equal(kernels.sign_combine(*combine), reference.sign_combine(*combine))


@pytest.mark.parametrize("blocks", [2, 3, 4, 5])
def test_rules_are_the_polynomial_for_all_bits_and_masks(blocks):
    """Of masked bits e and masks r, all of both: the sum of the terms of e ^ r."""
    products, count = ring.sign_products(blocks), 2 * (blocks - 1)
    assert len(products) == {2: 1, 3: 5, 4: 15, 5: 37}[blocks]
    rules = ring.sign_rules(blocks)
    masks = range(1 << count) if blocks < 5 else range(0, 1 << count, 7)
    for r in masks:
        word = r | 1 << 63
        for number, factors in enumerate(products):
            word |= all(r >> factor & 1 for factor in factors) << (count + number)
        for e in range(1 << count):
            x, wanted, equal = e ^ r, 0, 1
            for block in range(1, blocks):
                equal &= x >> (2 * block - 2) & 1
                wanted ^= equal & x >> (2 * block - 1)
            assert (word & int(rules[e])).bit_count() & 1 == wanted & 1


def test_products_are_those_that_some_term_needs():
    terms = [{0, 1}, {0, 2, 3}, {0, 2, 4, 5}]
    subsets = {c for term in terms for n in range(2, 5) for c in combinations(sorted(term), n)}
    assert set(ring.sign_products(4)) == subsets


@pytest.mark.parametrize(("bits", "widths"), [(3, (1, 1)), (16, (5, 5, 5)), (20, (5, 5, 5, 4)), (31, (6,) * 5)])
def test_blocks_are_as_equal_as_can_be(bits, widths):
    assert ring.sign_blocks(bits) == widths


def test_what_cannot_be_compared_is_refused_by_name(words):
    for bits in (2, 32):
        with pytest.raises(InputError, match="tables compare values of 3 to 31 bits"):
            ring.sign_blocks(bits)
    for bits in (1, 64):
        with pytest.raises(InputError, match="values of 2 to 63 bits"):
            ring.dcf_words(words(3, 2), words(3, 2), words(3, 2), words(3), bits)
    D = words(3, bits=20).astype(np.uint32)
    with pytest.raises(InputError, match="do not have words"):
        ring.dcf_share(words(3, 2), words(3, 2), words(3, 12, 2), D, 20, True)
    with pytest.raises(InputError, match="a root of shape"):
        ring.dcf_share(words(3, 2), words(4, 2), words(3, 13, 2), D, 20, True)
    with pytest.raises(InputError, match="a key of AES for each of 3 rows expected"):
        ring.dcf_share(words(1, 2), words(3, 2), words(3, 13, 2), D, 20, True)
    with pytest.raises(InputError, match="4 tables compare 20 bits, not 1"):
        ring.sign_lookup(D, [D], D.astype(np.uint8), 20, True)
    with pytest.raises(InputError, match="has 7 rules"):
        ring.sign_combine(D.astype(np.uint8), D.astype(np.uint8), D, D.astype(np.uint8), words(7), True)


def test_a_processor_without_aes_instructions_uses_the_reference(monkeypatch, words):
    mask = words(5, bits=20).astype(np.uint32)
    roots = words(5, 2), words(5, 2), words(5, 2)
    made = ring.dcf_words(*roots, mask, 20)

    class Bare:
        has_aes = False

    monkeypatch.setattr(import_module("hdcos.ring.backend"), "implementation", Bare)
    aes_implementation.cache_clear()
    try:
        assert aes_implementation() is reference
        np.testing.assert_array_equal(ring.dcf_words(*roots, mask, 20), made)
    finally:
        aes_implementation.cache_clear()
