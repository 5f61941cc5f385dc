"""Are shares the streams of their fields, whichever way they are expanded, and do corrections complete them?"""

from __future__ import annotations

import numpy as np
import pytest

from hdcos.errors import FrameError
from hdcos.offline import Mask, Need, Plan, Reference, SignKeys, SignTables
from hdcos.offline import shares as module
from hdcos.offline.kinds import TrigPair
from hdcos.offline.material import Sharing
from hdcos.offline.shares import Corrections, FieldShares, field_stream
from hdcos.ring import compact_dtype, streaming
from hdcos.sharing import prg

ROOT = bytes(range(32))
WIDTHS = (1, 7, 8, 12, 16, 20, 31, 32, 33, 40, 46, 56, 57, 63, 64)
PLAN = Plan(
    (
        *(Need(Mask((3, 5), bits), units) for bits in WIDTHS for units in (0, 1, 3)),
        *(Need(TrigPair((5,), 16, 10, ring=bits), units) for bits in WIDTHS for units in (1, 301)),
        *(Need(SignTables((3, 5), bits, Reference(WIDTHS.index(64) * 3 + 2)), 3) for bits in (3, 20, 31)),
        Need(SignKeys((3, 5), 20, Reference(WIDTHS.index(64) * 3 + 2)), 3),
    )
)
SHARED = [slot for slot in PLAN.corrected if slot.field.sharing is not Sharing.COMMON]
SPANS = ((0, 1), (0, 7), (1, 1), (5, 3))


@pytest.fixture(params=["compiled", "one by one"])
def way(request, monkeypatch) -> None:
    if request.param == "one by one":
        for user in (module, prg):
            monkeypatch.setattr(user, "streaming", lambda: None)
    elif streaming() is None:
        pytest.skip("no vector AES here")


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("start", "executions"), SPANS)
def test_shares_are_the_streams_of_their_fields(start: int, executions: int) -> None:
    for slot, share in zip(PLAN.slots, FieldShares(ROOT, PLAN.slots).expand(start, executions), strict=True):
        stream = field_stream(ROOT, slot.position, slot.field.name)
        expected = stream.words(slot.shape(executions), slot.field.bits, slot.count(start))
        assert share.dtype == expected.dtype
        assert (share == expected).all()


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(("start", "executions"), SPANS)
def test_corrections_are_what_shares_lack(start: int, executions: int) -> None:
    rng = np.random.default_rng(start)
    shares, corrections = FieldShares(ROOT, SHARED), Corrections(PLAN, executions)
    values = [rng.integers(0, 2**64, slot.shape(executions), dtype=np.uint64) for slot in SHARED]
    common = [rng.integers(0, 2**64, slot.shape(executions), dtype=np.uint64) for slot in PLAN.common]
    packed = shares.rest(values, start, executions, corrections)
    corrections.put_common(packed, PLAN.common, common)
    assert len(packed) == corrections.size == PLAN.packed_bytes(executions)
    received = dict(zip(PLAN.corrected, corrections.unpack(packed), strict=True))
    for slot, value, zero in zip(SHARED, values, shares.expand(start, executions), strict=True):
        assert zero.dtype == received[slot].dtype == compact_dtype(slot.field.bits)
        keep, mine, theirs = (np.uint64((1 << slot.field.bits) - 1), zero.astype(np.uint64), received[slot])
        by_xor = slot.field.sharing is Sharing.XOR
        joined = mine ^ theirs if by_xor else mine + theirs
        assert ((joined ^ value if by_xor else joined - value) & keep == 0).all()
    for slot, value in zip(PLAN.common, common, strict=True):
        assert (received[slot] == value).all()


def test_party_0_is_sent_what_is_common_and_nothing_else() -> None:
    corrections = Corrections(PLAN, 2, rank=0)
    common = [np.random.default_rng(0).integers(0, 2**64, slot.shape(2), dtype=np.uint64) for slot in PLAN.common]
    packed = np.empty(corrections.size, np.uint8)
    corrections.put_common(packed, PLAN.common, common)
    assert corrections.size == PLAN.packed_bytes(2, rank=0) == 2 * 3 * (15 * 13 + 1) * 16
    for received, sent in zip(corrections.unpack(packed), common, strict=True):
        assert (received == sent).all()


def test_both_ways_make_the_same_corrections(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    values = [rng.integers(0, 2**64, slot.shape(2), dtype=np.uint64) for slot in SHARED]
    made = []
    for way in (module.streaming, lambda: None):
        monkeypatch.setattr(module, "streaming", way)
        corrections = Corrections(PLAN, 2)
        packed = FieldShares(ROOT, SHARED).rest(values, 3, 2, corrections)
        made.append(np.concatenate([packed[place] for place in corrections.places_of_shares]))
    assert (made[0] == made[1]).all()


def test_corrections_that_are_something_else_are_refused() -> None:
    corrections = Corrections(PLAN, 1)
    packed = np.zeros(corrections.size, np.uint8)
    corrections.check(packed)
    for wrong in (packed[1:], np.append(packed, np.uint8(0))):
        with pytest.raises(FrameError, match="bytes of material expected"):
            corrections.check(wrong)
    place = corrections.places[[slot.field.bits for slot in PLAN.corrected].index(63)]
    count = PLAN.needs[PLAN.corrected[corrections.places.index(place)].position].units
    assert count * 5 * 63 % 8, "values of 63 bits leave some bits of their last byte"
    packed[place.stop - 1] = 0x80
    with pytest.raises(FrameError, match="padding"):
        corrections.check(packed)


@pytest.mark.skipif(streaming() is None, reason="no vector AES here")
def test_fields_outside_their_memory_are_refused() -> None:
    native = streaming()
    assert native is not None
    keys, memory = np.zeros(32, np.uint8), np.zeros(64, np.uint8)
    row = np.zeros(1, np.uint64)
    native.expand(keys, row, row, row + np.uint64(8), row + np.uint64(64), memory)
    for start, count, bits in (
        (1, 8, 64),
        (65, 0, 64),
        (2**40, 1, 8),
        (0, 2**61, 8),
        (0, 1, 0),
        (0, 1, 65),
        (0, 2**64 - 1, 1),
    ):
        place = [np.array([number], np.uint64) for number in (start, count, bits)]
        with pytest.raises(TypeError, match="do not fit"):
            native.expand(keys, row, *place, memory)
        with pytest.raises(TypeError, match="do not fit"):
            native.unpack_fields(memory, row, *place, memory)
        if count < 100:
            with pytest.raises(TypeError, match="do not fit"):
                native.correct(keys, row, *place, [np.zeros(count, np.uint64)], memory[:7])
    with pytest.raises(TypeError):
        native.expand(keys, row, row, row, row, memory[::2])
