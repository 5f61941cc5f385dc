"""Is the answer right, against the float specification, with a tolerance derived from the bits?"""

from __future__ import annotations

import numpy as np
import pytest

from hdcos.protocol.catalogue import find
from hdcos.protocol.masked import product
from hdcos.protocol.opening import open_masked
from hdcos.protocol.rounds import together
from hdcos.ring import decode, encode
from hdcos.sharing import Share, join
from hdcos.testing.pair import share_pair, simulate
from protocol_cases import CASES, Case


def _joined(share0: Share, share1: Share) -> np.ndarray:
    assert (share0.scale, share0.bits, share0.shape) == (share1.scale, share1.bits, share1.shape)
    return decode(join(share0.words, share1.words, share0.bits), share0.scale, share0.bits)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_joined_result_is_the_specification_within_its_bound(case: Case) -> None:
    for seed in range(3):
        secrets = case.secrets(seed)
        shares = [share_pair(encode(values, case.scale), case.scale) for values in secrets]
        (result0, result1), _ = simulate(case.program, *shares)
        expected = case.meaning(*secrets)
        if isinstance(result0, Share):
            result0, result1, expected = (result0,), (result1,), (expected,)
        for share0, share1, exact in zip(result0, result1, expected, strict=True):
            error = np.abs(_joined(share0, share1) - exact)
            assert (error <= case.tolerance(*secrets)).all(), f"largest error {error.max():.3g}"


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_shares_chosen_to_wrap_change_nothing(case: Case) -> None:
    """The answer may not depend on how the secret was split: shares at the ends of the ring wrap every time."""
    secrets = case.secrets()
    edge = np.uint64(2**63)
    shares = []
    for values in secrets:
        words = encode(values, case.scale)
        shares.append((Share(words - edge, case.scale), Share(np.full_like(words, edge), case.scale)))
    (result0, result1), _ = simulate(case.program, *shares)
    expected = case.meaning(*secrets)
    if isinstance(result0, Share):
        result0, result1, expected = (result0,), (result1,), (expected,)
    for share0, share1, exact in zip(result0, result1, expected, strict=True):
        assert (np.abs(_joined(share0, share1) - exact) <= case.tolerance(*secrets)).all()


def test_rounding_is_unbiased_and_off_by_less_than_one_unit_for_every_number_of_dropped_bits() -> None:
    from hdcos.protocol.opening import open_masked

    def program(party, x, drop, bits):
        return (yield from open_masked(party, x, drop, bits)).share(party)

    for drop in (1, 2, 3, 8, 24, 40):
        words = np.random.default_rng(drop).integers(0, 2**62, (64, 1024), dtype=np.uint64) - np.uint64(2**61)
        (share0, share1), _ = simulate(program, share_pair(words, 0), drop=drop, bits=64 - drop)
        rounded = (join(share0.words, share1.words, 64 - drop) << np.uint64(drop)).astype(np.int64)
        error = (rounded - words.astype(np.int64)) / 2.0**drop
        assert np.abs(error).max() < 1
        # The error is at most 1 and has mean zero: five standard deviations of the mean of 65,536.
        assert abs(error.mean()) < 5 * error.std() / 256, f"bias {error.mean()} at drop {drop}"


def test_what_was_opened_under_a_mask_is_a_share_again() -> None:
    x = np.arange(24, dtype=np.uint64).reshape(2, 3, 4) << np.uint64(40)

    def program(party, shared):
        return (yield from open_masked(party, shared)).share(party)

    (zero, one), _ = simulate(program, share_pair(x, 16))
    assert (join(zero.words, one.words) == x).all()


def test_a_convolution_moves_by_one_and_pads_nothing_unless_it_is_told_to() -> None:
    generator = np.random.default_rng(0)
    x, weight = (generator.integers(0, 9, shape).astype(np.uint64) for shape in ((2, 1, 5, 5), (3, 1, 2, 2)))

    def program(party, *shares):
        opened = yield from together(open_masked(party, shares[0]), open_masked(party, shares[1], whole=True))
        return product(party, *opened, "conv2d")

    (zero, one), _ = simulate(program, share_pair(x, 8), share_pair(weight, 8))
    assert (join(zero.words, one.words) == find("conv2d").meaning(x, weight)).all()
