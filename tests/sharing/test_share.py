"""Shares: local operations, splitting, joining, refreshing."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hdcos.errors import InputError
from hdcos.ring import decode, encode
from hdcos.sharing import Public, Share, Stream, fresh_seed, join, refresh, split


def pair(values, scale=16):
    seed, rest = split(encode(np.asarray(values, float), scale))
    return Share(Stream(seed).words(rest.shape), scale), Share(rest, scale)


def value(share0: Share, share1: Share):
    return decode(join(share0.words, share1.words, share0.bits), share0.scale, share0.bits)


def test_linear_maps_of_shares_are_local_and_exact() -> None:
    x, y = pair([[1.5, -2.0], [0.25, 3.0]]), pair([[0.5, 1.0], [-1.0, 2.0]])
    both = [a + b for a, b in zip(x, y, strict=True)]
    assert (value(*both) == [[2, -1], [-0.75, 5]]).all()
    assert (value(*(a - b for a, b in zip(x, y, strict=True))) == [[1, -3], [1.25, 1]]).all()
    assert (value(*(-a for a in x)) == [[-1.5, 2], [-0.25, -3]]).all()
    assert (value(*(a * -3 for a in x)) == [[-4.5, 6], [-0.75, -9]]).all()
    assert (value(*(a * Public.of([0.5, 2.0], 4) for a in x)) == [[0.75, -4], [0.125, 6]]).all()
    assert (value(*(a.sum(0) for a in x)) == [1.75, 1.0]).all()
    assert (value(*(a.reshape(4)[1:3] for a in x)) == [-2.0, 0.25]).all()
    assert (value(*(a.rescaled(17) for a in x)) == [[0.75, -1], [0.125, 1.5]]).all()


def test_every_operation_keeps_scale_and_bits() -> None:
    x, y = (Share(np.arange(6, dtype=np.uint64).reshape(2, 3), 16, bits) for bits in (40, 50))
    assert [(z.scale, z.bits) for z in (x + y, y + x, x - y, y - x)] == [(16, 40)] * 4
    for z in (-x, x * 3, x * np.int64(-3), 3 * x, x[0], x.reshape(6), x.sum(0)):
        assert (z.scale, z.bits) == (16, 40)
    assert ((x * Public.of(0.5, 4)).scale, (x * Public.of(0.5, 4)).bits) == (20, 40)
    assert ((x * np.int64(-3)).words.view(np.int64) == -3 * np.arange(6).reshape(2, 3)).all()
    assert (x.shape, x.size, len(x)) == ((2, 3), 6, 2)
    assert (x.rescaled(5).scale, x.rescaled(5).bits) == (5, 40)


def test_no_word_of_a_share_is_printed() -> None:
    x = Share(np.array([123456789], np.uint64), 16)
    assert "123456789" not in f"{x} {x!r} {Public(x.words)!r}"
    assert (Public(x.words).scale, x.bits) == (0, 64)


def test_a_share_is_raised_to_a_higher_scale_and_known_modulo_as_much_more() -> None:
    x = Share(np.array([3, 5], np.uint64), 16, 40)
    up = x.raised(20)
    assert (up.words == [3 << 4, 5 << 4]).all()
    assert (up.scale, up.bits) == (20, 44)
    assert Share(x.words, 16, 63).raised(20).bits == 64
    assert x.raised(16) is x


def test_joining_counts_modulo_the_bits_of_both() -> None:
    zero, one = np.array([250, 3], np.uint8), np.array([10, 4], np.uint8)
    assert (join(zero, one, 8) == [4, 7]).all()
    assert (join(zero, one) == [260, 7]).all(), "narrow words are widened before they are added"


def test_what_is_not_local_is_a_type_error() -> None:
    x, _ = pair([1.0])
    with pytest.raises(TypeError, match="one round"):
        x * x
    with pytest.raises(TypeError, match=r"Public\.of"):
        x * 0.5
    with pytest.raises(TypeError, match=r"party\.constant"):
        x + 1


def test_shares_at_different_scales_are_not_added() -> None:
    with pytest.raises(InputError, match="scales 16 and 8"):
        pair([1.0])[0] + pair([1.0], 8)[0]


def test_each_share_alone_is_uniform() -> None:
    for word in (0, 1, 2**64 - 1):
        seed, rest = split(np.full(50_000, word, np.uint64))
        for share in (Stream(seed).words((50_000,)), rest):
            assert stats.chisquare(np.bincount((share >> np.uint64(56)).astype(int), minlength=256)).pvalue > 1e-9


def test_shares_of_different_shapes_are_not_joined() -> None:
    with pytest.raises(InputError, match="shapes"):
        join(np.zeros(2, np.uint64), np.zeros(3, np.uint64))


def test_refreshing_keeps_the_secret_and_replaces_both_shares() -> None:
    x, seed = pair(np.arange(1000.0)), fresh_seed()
    fresh = [refresh(x[rank], rank, seed, "run 1") for rank in (0, 1)]
    again = refresh(x[0], 0, seed, "run 2")
    assert (value(*fresh) == np.arange(1000.0)).all()
    assert (fresh[0].words != x[0].words).mean() > 0.99
    assert (fresh[0].words != again.words).mean() > 0.99
    assert (fresh[1].words != x[1].words).mean() > 0.99
    narrow = refresh(Share(x[0].words, 7, 33), 0, seed, "run 3")
    assert (narrow.scale, narrow.bits) == (7, 33)
