"""Where openings and products end: the fewest and the most bits, and what they refuse before anything is sent."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos.errors import InputError
from hdcos.offline import Reference
from hdcos.protocol import lifted, masked, opening
from hdcos.protocol.masked import Masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import together
from hdcos.sharing import Share, join
from hdcos.testing.pair import share_pair, simulate
from hdcos.testing.plaintext import Counter, run_plaintext


def words(*values: int) -> np.ndarray:
    return np.array(values, np.int64).view(np.uint64).reshape(-1, 1)


def joined(shares: tuple[Share, Share]) -> np.ndarray:
    return join(shares[0].words, shares[1].words, shares[0].bits)


@pytest.mark.parametrize(("bits", "largest"), [(2, 0), (3, 1), (40, 2**38 - 1), (63, 2**61 - 1)])
def test_a_lift_is_exact_over_its_whole_range(bits: int, largest: int) -> None:
    secret = words(-largest - 1, -largest, 0, largest)
    for _ in range(5):
        shares, transcript = simulate(lambda party, x: opening.round_lift(party, x, 0, bits), share_pair(secret, 16))
        assert (joined(shares) == secret).all()
        assert transcript.rounds[0][0].bits == bits


@pytest.mark.parametrize("bits", [1, 64])
def test_a_lift_of_other_bits_is_refused(bits: int) -> None:
    with pytest.raises(InputError, match=f"2 to 63 bits, not {bits}"):
        simulate(lambda party, x: opening.round_lift(party, x, 0, bits), share_pair(words(0), 16))


def test_an_opening_keeps_what_it_is_not_told_to_drop() -> None:
    def program(party: Party, x: Share):
        found = yield from opening.open_masked(party, x, 4)
        assert (found.bits, found.scale, found.shape) == (36, 12, (3, 1))
        assert found.opened.dtype == found.mask.words.dtype == np.uint64
        return found.share(party)

    shares, transcript = simulate(program, share_pair(words(16, 32, -16), 16, 40))
    assert (joined(shares) == np.array([[1], [2], [2**36 - 1]], np.uint64)).all()
    assert (shares[0].bits, shares[0].scale) == (36, 12)
    assert transcript.rounds[0][0].bits == 36


def test_bits_that_a_share_does_not_have_are_not_opened() -> None:
    for drop, bits, fits in ((4, 36, True), (4, 37, False), (5, 36, False)):
        pair = share_pair(words(0), 16, 40)
        if fits:
            simulate(lambda party, x: opening.open_masked(party, x, drop, bits), pair)  # noqa: B023
        else:
            with pytest.raises(InputError, match=rf"2\*\*40 cannot drop {drop} bits and keep {bits}"):
                simulate(lambda party, x: opening.open_masked(party, x, drop, bits), pair)  # noqa: B023


def test_factors_that_do_not_fit_are_refused() -> None:
    def program(shape: tuple[int, ...], whole: bool, operation: str = "multiply"):
        def multiply(party: Party, x: Share, y: Share):
            X, Y = yield from together(
                opening.open_masked(party, x, whole=whole), opening.open_masked(party, y, whole=True)
            )
            return masked.product(party, X, Y, operation)

        pairs = [share_pair(np.zeros(each, np.uint64), 16) for each in ((4, 3), shape)]
        return simulate(multiply, *pairs)

    with pytest.raises(InputError, match="masked per row, not whole"):
        program((4, 3), whole=True)
    for shape in ((4,), (4, 2), (2, 3)):
        with pytest.raises(InputError, match="cannot multiply shapes"):
            program(shape, whole=False)
    program((3,), whole=False)
    program((3, 2), whole=False, operation="matmul")


def test_a_convolution_goes_by_single_steps_without_padding_unless_told() -> None:
    image = np.arange(16, dtype=np.uint64).reshape(1, 1, 4, 4)
    kernel = np.array([[1, 0], [0, 2]], np.uint64).reshape(1, 1, 2, 2)
    shares, _ = simulate(masked.conv2d, share_pair(image, 4), share_pair(kernel, 3))
    assert (joined(shares)[0, 0] == image[0, 0, :3, :3] + 2 * image[0, 0, 1:, 1:]).all()
    assert (shares[0].shape, shares[0].scale) == ((1, 1, 3, 3), 7)


def test_tensors_that_were_masked_side_by_side_are_told_apart() -> None:
    mask = Share(np.arange(100, 110, dtype=np.uint64), 12, 50)
    row = Masked(np.arange(10, dtype=np.uint64), mask, Reference.of(3, True))
    part = row.part(2, (2, 3))
    assert (part.opened == [[2, 3, 4], [5, 6, 7]]).all()
    assert (part.mask.words == [[102, 103, 104], [105, 106, 107]]).all()
    assert (part.bits, part.scale, part.shape) == (50, 12, (2, 3))
    assert part.reference == Reference.of(3, True, start=2, shape=(2, 3))
    elsewhere = row.of_scope("model")
    assert elsewhere.reference == Reference(3, "model", whole=True)
    assert elsewhere.opened is row.opened


def test_a_gradient_is_the_sum_over_rows_of_a_product() -> None:
    def gradient(party: Party, x: Share, g: Share):
        X, G = yield from together(opening.open_masked(party, x), opening.open_masked(party, g))
        return masked.product(party, X, G, "matmul.weight", shape=(3, 2))

    x, g = np.arange(12, dtype=np.uint64).reshape(4, 3), np.arange(8, dtype=np.uint64).reshape(4, 2)
    shares, _ = simulate(gradient, share_pair(x, 5), share_pair(g, 6, 50))
    assert (joined(shares) == x.T @ g).all()
    assert (shares[0].scale, shares[0].bits) == (11, 50)


def test_no_word_that_was_opened_is_printed() -> None:
    words = np.array([123456789], np.uint64)
    assert "123456789" not in repr(Masked(words, Share(words, 12), Reference.of(0, True)))


def test_factors_of_different_bits_have_a_product_of_the_fewer() -> None:
    def multiply(party: Party, x: Share, y: Share):
        X, Y = yield from together(opening.open_masked(party, x), opening.open_masked(party, y))
        return masked.product(party, X, Y)

    secret = words(3, -5, 7)
    for bits in ((40, 50), (50, 40)):
        pairs = [share_pair(secret, 8 + place, each) for place, each in enumerate(bits)]
        shares, _ = simulate(multiply, *pairs)
        assert (shares[0].bits, shares[0].scale) == (40, 17)
        assert (joined(shares) == [[9], [25], [49]]).all()


@pytest.mark.parametrize(
    ("program", "within"),
    [
        (lambda party, x: opening.open_masked(party, x, 0, 20), 19),
        (lambda party, x: opening.round_lift(party, x, 0, 20), 18),
    ],
    ids=["open_masked", "round_lift"],
)
def test_openings_say_how_large_a_value_they_rely_on(program, within: int) -> None:
    """Nothing can check it on shares; where values are known, it is counted."""
    for secret, out_of_range in ((2**within - 1, 0), (2**within, 1)):
        counter = Counter()
        run_plaintext(program, Share(words(secret), 16), counter=counter)
        assert (counter.openings, counter.out_of_range) == (1, out_of_range)


@pytest.mark.parametrize("ring", [40, 41])
def test_a_lifted_value_meets_masks_that_are_as_wide_as_their_product(ring: int) -> None:
    def program(party: Party, x: Share):
        X, W = yield from together(lifted.open_lifted(party, x, 0, 24), opening.open_masked(party, x, 0, 40))
        return lifted.times_masked(party, X, W, ring=ring)

    secret = words(-3, 0, 5)
    if ring > 40:
        with pytest.raises(InputError, match="masks of the 41 bits of their product, not of 40"):
            simulate(program, share_pair(secret, 16))
        return
    shares, _ = simulate(program, share_pair(secret, 16))
    assert shares[0].bits == 40
    assert joined(shares).ravel().tolist() == [9, 0, 25]
