"""Are shares the streams of their fields, whichever way they are expanded, and do corrections complete them?"""

from __future__ import annotations

import numpy as np
import pytest

from hdcos.errors import FrameError
from hdcos.offline import Mask, Need, Plan
from hdcos.offline import shares as module
from hdcos.offline.kinds import TrigPair
from hdcos.offline.shares import Corrections, FieldShares, field_stream
from hdcos.ring import compact_dtype, streaming
from hdcos.sharing import prg

ROOT = bytes(range(32))
WIDTHS = (1, 7, 8, 12, 16, 20, 31, 32, 33, 40, 46, 56, 57, 63, 64)
PLAN = Plan(
    (
        *(Need(Mask((3, 5), bits), units) for bits in WIDTHS for units in (0, 1, 3)),
        *(Need(TrigPair((5,), 16, 10, ring=bits), units) for bits in WIDTHS for units in (1, 301)),
    )
)
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
    shares, corrections = FieldShares(ROOT, PLAN.corrected), Corrections(PLAN, executions)
    values = [rng.integers(0, 2**64, slot.shape(executions), dtype=np.uint64) for slot in PLAN.corrected]
    packed = shares.rest(values, start, executions, corrections)
    assert len(packed) == corrections.size == PLAN.packed_bytes(executions)
    for slot, value, zero, one in zip(
        PLAN.corrected, values, shares.expand(start, executions), corrections.unpack(packed), strict=True
    ):
        assert zero.dtype == one.dtype == compact_dtype(slot.field.bits)
        keep = np.uint64((1 << slot.field.bits) - 1)
        assert ((zero.astype(np.uint64) + one.astype(np.uint64) - value) & keep == 0).all()


def test_both_ways_make_the_same_corrections(monkeypatch) -> None:
    rng = np.random.default_rng(0)
    values = [rng.integers(0, 2**64, slot.shape(2), dtype=np.uint64) for slot in PLAN.corrected]
    made = []
    for way in (module.streaming, lambda: None):
        monkeypatch.setattr(module, "streaming", way)
        made.append(FieldShares(ROOT, PLAN.corrected).rest(values, 3, 2, Corrections(PLAN, 2)))
    assert (made[0] == made[1]).all()


def test_corrections_that_are_something_else_are_refused() -> None:
    corrections = Corrections(PLAN, 1)
    packed = np.zeros(corrections.size, np.uint8)
    corrections.unpack(packed)
    for wrong in (packed[1:], np.append(packed, np.uint8(0))):
        with pytest.raises(FrameError, match="bytes of material expected"):
            corrections.unpack(wrong)
    packed[corrections.places[-1].stop - 1] = 0x80  # 301 * 5 values of 63 bits leave one bit of their last byte
    with pytest.raises(FrameError, match="padding"):
        corrections.unpack(packed)


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
        with pytest.raises(ValueError, match="do not fit"):
            native.expand(keys, row, *place, memory)
        with pytest.raises(ValueError, match="do not fit"):
            native.unpack_fields(memory, row, *place, memory)
        if count < 100:
            with pytest.raises(ValueError, match="do not fit"):
                native.correct(keys, row, *place, [np.zeros(count, np.uint64)], memory[:7])
    with pytest.raises(TypeError):
        native.expand(keys, row, row, row, row, memory[::2])
