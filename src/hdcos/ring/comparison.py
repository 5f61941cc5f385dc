"""The public kernels behind comparisons: whether D - m is negative, where D was opened and m is known to nobody.

Results are one party's shares by XOR, of one bit each. `with_public` says that this party adds what is public, as party
0 does. What is computed, and why it is right, is said in `reference_sign`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np

from hdcos.errors import InputError
from hdcos.ring.backend import (
    UINT8,
    aes_implementation,
    check_compact,
    check_same_shape,
    check_words,
    has_blank,
    kernel,
)
from hdcos.ring.device import find_device
from hdcos.ring.types import Blank, Words

TABLE_BITS, KEY_BITS = (3, 31), (2, 63)
"""The fewest and the most bits of a value that tables and keys compare."""
BLOCK_BITS, MOST_BLOCKS = 5, 5
LEAF_BITS = 7
"""The last levels of a comparison function, which have one word of 128 bits."""


def sign_blocks(bits: int) -> tuple[int, ...]:
    """The widths of the blocks that the low bits of a value are compared in, the highest first."""
    low, high = TABLE_BITS
    if not low <= bits <= high:
        raise InputError(f"tables compare values of {low} to {high} bits, not of {bits}: use the way dcf")
    left, number, widths = bits - 1, max(2, min(MOST_BLOCKS, -(-(bits - 1) // BLOCK_BITS))), []
    for block in range(number):
        widths.append(-(-left // (number - block)))
        left -= widths[-1]
    return tuple(widths)


@cache
def sign_products(blocks: int) -> tuple[tuple[int, ...], ...]:
    """The products of masks that the bits of this many blocks need, each as the numbers of its factors.

    The bits are equal 1, below 2, equal 2, below 3 and so on: equal to all blocks before, and below in this one.
    """
    needed: set[tuple[int, ...]] = set()
    for factors in _terms(blocks):
        for size in range(2, len(factors) + 1):
            needed.update(combinations(factors, size))
    return tuple(sorted(needed, key=lambda factors: (len(factors), factors)))


def _terms(blocks: int) -> list[tuple[int, ...]]:
    """For each block but the first, the bits that must be set for it to decide: equal before, below here."""
    return [(*range(0, 2 * block, 2), 2 * block - 1) for block in range(1, blocks)]


@cache
def sign_rules(blocks: int) -> Words:
    """For each value of the opened bits e, which masks, products and constants add up to the sum of all terms.

    A term is the product of its e_i ^ r_i: the sum over all subsets of the product of their r_i, wherever all other e_i
    are set. A rule is a word: a bit for each mask, one for each product, one that is always set, for the top of the
    mask, and the highest for the constant.
    """
    products, masks = sign_products(blocks), 2 * (blocks - 1)
    place = {factors: masks + number for number, factors in enumerate(products)}
    place |= {(mask,): mask for mask in range(masks)} | {(): 63}
    rules = np.full(1 << masks, 1 << (masks + len(products)), np.uint64)
    for opened in range(1 << masks):
        for factors in _terms(blocks):
            for size in range(len(factors) + 1):
                for subset in combinations(factors, size):
                    if all(opened >> other & 1 for other in factors if other not in subset):
                        rules[opened] ^= np.uint64(1 << place[subset])
    rules.setflags(write=False)
    return rules


@kernel
def sign_lookup(D: Any, tables: Sequence[Any], masks: Any, bits: int, with_public: bool) -> Any:
    """1 ^ top(D) ^ below of the first block, and the bits to open next, masked."""
    widths = sign_blocks(bits)
    D, masks = check_compact(D, bits, "D"), check_compact(masks, 8, "masks")
    if len(tables) != len(widths):
        raise InputError(f"{len(widths)} tables compare {bits} bits, not {len(tables)}")
    checked = [check_compact(table, 1 << width, "table") for table, width in zip(tables, widths, strict=True)]
    check_same_shape(D=D, masks=masks, **{f"table {place}": table for place, table in enumerate(checked)})
    return (D, checked, masks, bits, with_public), (Blank(D.shape, UINT8), Blank(D.shape, UINT8))


@kernel
def sign_combine(opened: Any, masks: Any, products: Any, first: Any, rules: Any, with_public: bool) -> Any:
    """The share of b from the bits that were opened and what `sign_rules` makes of them."""
    rules = check_words(rules, "rules", 1)
    blocks = int(rules.size).bit_length() // 2 + 1
    if rules.shape != (1 << 2 * (blocks - 1),) or not 2 <= blocks <= MOST_BLOCKS:
        raise InputError(f"no comparison in blocks has {rules.size} rules")
    opened, masks, first = (
        check_compact(x, 8, name) for x, name in ((opened, "opened"), (masks, "masks"), (first, "first"))
    )
    products = check_compact(products, len(sign_products(blocks)) + 1, "products")
    check_same_shape(opened=opened, masks=masks, products=products, first=first)
    return (opened, masks, products, first, rules, with_public), Blank(opened.shape, UINT8)


def dcf_levels(bits: int) -> int:
    """Levels of the tree over the low bits that have a word of their own."""
    return max(0, bits - 1 - LEAF_BITS)


def dcf_words(cipher: Any, root0: Any, root1: Any, mask: Any, bits: int) -> Any:
    """The words that both parties' keys have in common, from their roots: (..., levels + 1, 2) from (..., 2).

    `cipher` has a public key of AES, two words, for each row of values.
    """
    mask = _check_key(mask, bits, "mask")
    checked = _check_cipher(cipher, mask), *(_check_root(root, mask) for root in (root0, root1)), mask, bits
    planned = Blank((*mask.shape, dcf_levels(bits) + 1, 2))
    return planned if has_blank(checked) else _aes_for(*checked).dcf_words(*checked)


def dcf_share(cipher: Any, root: Any, words: Any, D: Any, bits: int, with_public: bool) -> Any:
    """One party's share of b from its key."""
    D, words = _check_key(D, bits, "D"), check_words(words, "words")
    if words.shape != (*D.shape, dcf_levels(bits) + 1, 2):
        raise InputError(f"keys for {bits} bits of shape {D.shape} do not have words of shape {words.shape}")
    checked = _check_cipher(cipher, D), _check_root(root, D), words, D, bits, with_public
    return Blank(D.shape, UINT8) if has_blank(checked) else _aes_for(*checked).dcf_share(*checked)


def _aes_for(*arrays: Any) -> Any:
    """Whose AES functions compute with these arrays."""
    device = find_device(arrays)
    return aes_implementation() if device is None else device.kernels


def _check_key(x: Any, bits: int, name: str) -> Any:
    low, high = KEY_BITS
    if not low <= bits <= high:
        raise InputError(f"a comparison function takes values of {low} to {high} bits, not of {bits}")
    return check_compact(x, bits, name)


def _check_cipher(cipher: Any, like: Any) -> Any:
    cipher = check_words(cipher, "cipher")
    if cipher.shape != (*like.shape[:1], 2):
        raise InputError(f"a key of AES for each of {like.shape[0]} rows expected, got shape {cipher.shape}")
    return cipher


def _check_root(root: Any, like: Any) -> Any:
    root = check_words(root, "root")
    if root.shape != (*like.shape, 2):
        raise InputError(f"a root of shape {(*like.shape, 2)} expected, got {root.shape}")
    return root
