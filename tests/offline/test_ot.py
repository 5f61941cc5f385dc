"""Oblivious transfer from the bottom up: base transfers, trees, compiled loops, extension, products."""

from __future__ import annotations

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdcos.errors import FrameError
from hdcos.offline.ot import reference, tree
from hdcos.offline.ot.base import BaseReceiver, BaseSender
from hdcos.offline.ot.kernels import loops
from hdcos.offline.ot.product import BATCH_TRANSFERS, Product, batches, exchanges
from hdcos.offline.ot.session import SETUP_BYTES, Session
from hdcos.ring import Blank
from hdcos.testing.ot_pair import Pair, in_lockstep

SESSION = bytes(range(32))
RNG = np.random.default_rng(7)


def words(*shape: int, bits: int = 64) -> np.ndarray:
    return RNG.integers(0, 2**64, shape, dtype=np.uint64) >> np.uint64(64 - bits)


def octets(*shape: int) -> np.ndarray:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair()


# ---- base transfers and trees


def test_the_receiver_of_base_transfers_gets_the_keys_it_chose_and_no_others() -> None:
    choices = [0, 1, 1, 0, 1]
    sender, receiver = BaseSender(SESSION, 5), BaseReceiver(SESSION, choices)
    pairs, keys = sender.keys(receiver.message), receiver.keys(sender.message)
    for pair_of_keys, key, c in zip(pairs, keys, choices, strict=True):
        assert pair_of_keys[c] == key
        assert pair_of_keys[1 - c] != key
    assert len({key for two in pairs for key in two}) == 10


def test_keys_of_another_session_are_other_keys() -> None:
    receiver = BaseReceiver(SESSION, [0])
    sender = BaseSender(bytes(32), 1)
    assert sender.keys(receiver.message)[0][0] != receiver.keys(sender.message)[0]


@pytest.mark.parametrize(
    "point", [bytes(32), b"\x01" + bytes(31), b"\xff" * 32], ids=["no point", "neutral", "no number"]
)
def test_what_is_no_point_of_the_group_is_refused(point: bytes) -> None:
    with pytest.raises(FrameError):
        BaseReceiver(SESSION, [0]).keys(point)
    with pytest.raises(FrameError):
        BaseSender(SESSION, 1).keys(point * 2)
    with pytest.raises(FrameError):
        BaseSender(SESSION, 2).keys(BaseReceiver(SESSION, [0]).message)


@pytest.mark.parametrize("leaf", range(16))
def test_all_leaves_but_one_follow_from_the_sums_that_leave_it_out(leaf: int) -> None:
    leaves, sums = tree.grow(os.urandom(16), SESSION, 3)
    known = tree.regrow(leaf, [pair[side] for pair, side in zip(sums, tree.sides(leaf), strict=True)], SESSION, 3)
    for x in range(16):
        assert known[x] == (bytes(16) if x == leaf else leaves[x])


# ---- compiled loops against their specification


def test_compiled_expansion_is_the_specification() -> None:
    keys = octets(3, 16, 16)
    for counters in (1, 2, 5):
        for whole in (True, False):
            expected = reference.combine(reference.key_schedule(keys), 3, 2**33 + 7, counters, whole)
            made = loops().combine(loops().key_schedule(keys), 3, 2**33 + 7, counters, whole)
            assert (made[1] == expected[1]).all()
            assert (made[0] is None) if not whole else (made[0] == expected[0]).all()


def test_compiled_transposition_is_the_specification() -> None:
    rows = octets(128, 33)
    assert (loops().transpose(rows) == reference.transpose(rows)).all()


@settings(max_examples=60)
@given(
    count=st.integers(1, 37),
    rows=st.integers(1, 9),
    fold=st.integers(1, 5),
    length=st.sampled_from([1, 2, 3, 4, 9, 17]),
    first=st.integers(0, 11),
    bit=st.integers(0, 63),
    negative=st.booleans(),
    signed=st.booleans(),
    coarse=st.integers(0, 40),
)
def test_compiled_transfers_are_the_specification(
    count: int, rows: int, fold: int, length: int, first: int, bit: int, negative: bool, signed: bool, coarse: int
) -> None:
    q, delta, key = octets(count, 16), octets(16), octets(16)
    vectors, signs = words(rows, length), words(rows) if signed else None
    sums = words((first + count - 1) // fold + 1, length)
    made, expected = sums.copy(), sums.copy()
    place = (first, fold, 2**40, bit)
    compiled = loops().send(q, delta, loops().key_schedule(key)[0], vectors, signs, made, *place, negative, coarse)
    specified = reference.send(q, delta, key, vectors, signs, expected, *place, negative, coarse)
    assert (compiled == specified).all()
    assert (made == expected).all()
    choices = words(count)
    loops().receive(q, loops().key_schedule(key)[0], choices, specified, made, *place, coarse)
    reference.receive(q, key, choices, specified, expected, *place, coarse)
    assert (made == expected).all()


# ---- products


@settings(max_examples=40)
@given(
    fold=st.integers(1, 4),
    sums=st.integers(1, 9),
    shared_rows=st.booleans(),
    length=st.sampled_from([1, 2, 5]),
    width=st.integers(1, 64),
    bits=st.integers(1, 64),
    signed=st.booleans(),
    signs=st.booleans(),
    chooser=st.integers(0, 1),
)
def test_shares_of_a_product_add_up_to_it(
    pair: Pair,
    fold: int,
    sums: int,
    shared_rows: bool,
    length: int,
    width: int,
    bits: int,
    signed: bool,
    signs: bool,
    chooser: int,
) -> None:
    count = fold * sums
    rows = fold if shared_rows else count
    numbers, vectors, flips = words(count, bits=width), words(rows, length), words(rows) if signs else None
    sides = [
        Product(chooser, numbers, count, rows, length, width, bits, fold, signed),
        Product(chooser, vectors, count, rows, length, width, bits, fold, signed, flips),
    ]
    products = sides if chooser == 0 else sides[::-1]
    (share0,), (share1,) = in_lockstep(*(pair.sessions[rank].products([products[rank]]) for rank in (0, 1)))
    expected = np.zeros((count, length), np.uint64)
    picked = np.arange(count) % rows
    for bit in range(width):
        sign = np.where((flips[picked] >> np.uint64(bit)) & np.uint64(1), -1, 1) if signs else np.ones(count, int)
        if signed and bit == width - 1:
            sign = -sign
        term = (((numbers >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit)) * sign.astype(np.int64).view(np.uint64)
        expected += term[:, None] * vectors[picked]
    expected = expected.reshape(sums, fold, length).sum(1, dtype=np.uint64)
    assert ((share0 + share1 - expected) << np.uint64(64 - bits) == 0).all()


@pytest.mark.parametrize("coarse", [1, 5, 17])
def test_a_coarse_product_is_off_by_half_a_unit_per_rounded_bit_at_most(pair: Pair, coarse: int) -> None:
    width, bits = 18, 37
    numbers = RNG.integers(-(2**17), 2**17, 500)
    vectors = RNG.integers(-(2**17), 2**17, (500, 2))
    sides = [
        Product(0, numbers.view(np.uint64), 500, 500, 2, width, bits, 1, True, None, coarse),
        Product(0, vectors.view(np.uint64), 500, 500, 2, width, bits, 1, True, None, coarse),
    ]
    (share0,), (share1,) = in_lockstep(*(pair.sessions[rank].products([sides[rank]]) for rank in (0, 1)))
    spare = np.uint64(64 - (bits - coarse))
    made = ((share0 + share1) << spare).view(np.int64) >> np.int64(spare)
    error = made - numbers[:, None] * vectors / 2**coarse
    assert np.abs(error).max() <= coarse / 2
    assert abs(error.mean()) < 5 * error.std() / np.sqrt(error.size)


def test_many_products_share_batches_and_large_ones_are_cut() -> None:
    small = [Product(n % 2, Blank((3,)), 3, 3, 1, 64, 64) for n in range(10)]
    assert [len(batches(small, chooser)) for chooser in (0, 1)] == [1, 1]
    large = Product(0, Blank((10_000,)), 10_000, 10_000, 1, 64, 64)
    cut = batches([large], 0)
    assert len(cut) > 4
    assert all(batch.transfers <= BATCH_TRANSFERS for batch in cut)
    assert sum(piece.count for batch in cut for piece in batch.slices) == 10_000
    assert len(list(exchanges([large]))) == len(cut) + 1


def test_what_is_sent_is_what_was_planned_and_looks_random(pair: Pair) -> None:
    numbers, vectors = words(3000), words(3000, 1)
    products = [Product(1, vectors, 3000, 3000, 1, 64, 64), Product(1, numbers, 3000, 3000, 1, 64, 64)]
    sent: list[list[int]] = [[], []]
    counts = np.zeros(256, int)

    def heard(talk, rank: int):
        answer = None
        while True:
            try:
                buffers, size = talk.send(answer)
            except StopIteration as finished:
                return finished.value
            sent[rank].append(size)
            for buffer in buffers:
                counts[:] += np.bincount(np.frombuffer(bytes(memoryview(buffer).cast("B")), np.uint8), minlength=256)
            answer = yield buffers, size

    in_lockstep(*(heard(pair.sessions[rank].products([products[rank]]), rank) for rank in (0, 1)))
    assert sent[0] == sent[1] == list(exchanges(products[:1]))
    expected = counts.sum() / 256
    assert ((counts - expected) ** 2).sum() / expected < 450  # 255 degrees of freedom: beyond any chance


def test_no_number_of_a_transfer_is_used_twice(pair: Pair) -> None:
    before = pair.sessions[0].used
    products = [Product(0, words(5), 5, 5, 1, 8, 64), Product(0, words(5, 1), 5, 5, 1, 8, 64)]
    in_lockstep(*(pair.sessions[rank].products([products[rank]]) for rank in (0, 1)))
    assert pair.sessions[0].used == pair.sessions[1].used == (before[0] + 128, before[1])


def test_equal_products_of_two_times_have_unrelated_shares(pair: Pair) -> None:
    numbers, vectors = words(2000), words(2000, 1)
    products = [Product(0, numbers, 2000, 2000, 1, 64, 64), Product(0, vectors, 2000, 2000, 1, 64, 64)]
    first, second = (
        in_lockstep(*(pair.sessions[rank].products([products[rank]]) for rank in (0, 1))) for _ in range(2)
    )
    for rank in (0, 1):
        assert not (first[rank][0] == second[rank][0]).any()


def test_sessions_have_secrets_of_their_own() -> None:
    one, other = Pair(), Pair()
    deltas = {bytes(session._offerer.delta) for each in (one, other) for session in each.sessions}
    assert len(deltas) == 4


def test_one_changed_bit_of_a_transfer_makes_a_wrong_product(pair: Pair) -> None:
    """Outside the semi-honest model: nobody notices while it happens, but who joins both shares does."""
    numbers, vectors = words(64), words(64, 1)
    products = [Product(0, numbers, 64, 64, 1, 64, 64), Product(0, vectors, 64, 64, 1, 64, 64)]

    def flipped(talk):
        answer, step = None, 0
        while True:
            try:
                buffers, size = talk.send(answer)
            except StopIteration as finished:
                return finished.value
            step += 1
            if step == 2:  # what answers the chooser's bits
                buffers = [np.array(buffer) for buffer in buffers]
                for part in buffers:
                    part[0] ^= 1
            answer = yield buffers, size

    talks = (pair.sessions[0].products([products[0]]), flipped(pair.sessions[1].products([products[1]])))
    (share0,), (share1,) = in_lockstep(*talks)
    wrong = share0 + share1 != numbers[:, None] * vectors
    assert wrong.any()
    assert not wrong.all()


def test_messages_of_the_wrong_size_are_refused() -> None:
    talk = Session.setup(0, SESSION)
    next(talk)
    with pytest.raises(FrameError):
        talk.send(np.zeros(SETUP_BYTES[0] - 64, np.uint8))
    one = Pair().sessions[0]
    talk = one.products([Product(1, words(3, 1), 3, 3, 1, 64, 64)])
    next(talk)
    with pytest.raises(FrameError, match="bytes of transfers"):
        talk.send(np.zeros(100, np.uint8))
