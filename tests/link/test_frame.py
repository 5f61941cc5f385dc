"""The header, byte by byte; and bytes that are no header."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdcos.errors import FrameError, HandshakeError, HdcosError, InputError
from hdcos.link import Kind
from hdcos.link.base import Link
from hdcos.link.frame import (
    HEADER_BYTES,
    MAX_PAYLOAD,
    PIECE_BYTES,
    check,
    decode,
    decode_abort,
    encode,
    encode_abort,
    payload_bytes,
    pieces,
    report,
)
from hdcos.link.handshake import Hello
from hdcos.testing.pair import memory_transports

GOOD = encode(Kind.ROUND, 5, 77, 12)
SECRET = b"SECRET-SHARE-WORDS"


def changed(offset, value):
    return GOOD[:offset] + value + GOOD[offset + len(value) :]


def test_a_header_is_these_32_bytes():
    assert encode(Kind.ROUND, 5, 77, 12) == b"HDCS\x01\x02\x00\x00" + struct.pack("<QQQ", 5, 77, 12)
    assert decode(GOOD) == (Kind.ROUND, 5, 77, 12)


def test_the_numbers_of_kinds_are_those_of_the_wire():
    names = ["HELLO", "ROUND", "MATERIAL", "REQUEST", "REPLY", "ABORT", "BYE"]
    assert [(kind.name, int(kind)) for kind in Kind] == [(name, place + 1) for place, name in enumerate(names)]
    for kind in Kind:
        assert decode(encode(kind, 0, 0, 0)).kind is kind


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (GOOD[:31], "31 of 32 bytes"),
        (changed(0, b"HTTP"), "not a frame header"),
        (changed(4, b"\x02"), "version 2, this node speaks version 1"),
        (changed(5, b"\x00"), "kind 0 is unknown"),
        (changed(5, b"\xff"), "kind 255 is unknown"),
        (changed(6, b"\x01\x00"), "reserved header field is 1"),
        (changed(24, struct.pack("<Q", 2**30 + 1)), "1073741825 payload bytes, at most 1073741824"),
        (changed(24, b"\xff" * 8), "at most 1073741824"),
    ],
)
def test_a_wrong_header_field_is_named_with_its_value(header, said):
    with pytest.raises(FrameError, match=said):
        decode(header)


@pytest.mark.parametrize(
    ("sequence", "context", "kinds", "size", "error", "said"),
    [
        (6, 77, [Kind.ROUND], 12, FrameError, "repeated: got 5, expected 6"),
        (4, 77, [Kind.ROUND], 12, FrameError, "skipped: got 5, expected 4"),
        (5, 78, [Kind.ROUND], 12, HandshakeError, "peer is running another program"),
        (5, 77, [Kind.REPLY, Kind.MATERIAL], 12, FrameError, "is ROUND, expected MATERIAL or REPLY"),
        (5, 77, [Kind.ROUND], 13, FrameError, "has 12 payload bytes, expected 13"),
    ],
)
def test_a_frame_that_was_not_waited_for_is_refused(sequence, context, kinds, size, error, said):
    with pytest.raises(error, match=said):
        check(decode(GOOD), sequence, context, kinds, size)


@pytest.mark.parametrize(
    ("header", "error", "said"),
    [
        (encode(Kind.ROUND, 0, 7, 18), HandshakeError, "another program"),
        (encode(Kind.ROUND, 1, 9, 18), FrameError, "skipped: got 1, expected 0"),
        (encode(Kind.ROUND, 0, 9, 19), FrameError, "19 payload bytes, expected 18"),
        (encode(Kind.ROUND, 0, 9, 1 << 50), FrameError, "at most 1073741824"),
        (encode(Kind.REPLY, 0, 9, 18), FrameError, "is REPLY, expected ROUND"),
        (SECRET + SECRET, FrameError, "not a frame header"),
    ],
)
@pytest.mark.parametrize("how", ["exchange", "receive"])
def test_a_link_reports_it_without_payload_bytes_tells_the_peer_and_is_unusable(header, error, said, how):
    near, far = memory_transports()
    link, peer = Link(near, "party 1", timeout_s=5), Link(far, "party 0", timeout_s=5)
    link.context = 9
    far.queue((header, SECRET))
    with pytest.raises(error, match=said) as caught:
        link.exchange([SECRET]) if how == "exchange" else link.receive(Kind.ROUND, expected_bytes=18)
    assert "SECRET" not in str(caught.value)
    assert SECRET.hex() not in str(caught.value)
    assert str(caught.value).startswith("party 1: ")
    with pytest.raises(HdcosError, match="link to party 1 is closed: party 1: "):
        link.send(Kind.REQUEST)
    if how == "exchange":
        peer.context = 9
        peer.receive(Kind.ROUND)
    with pytest.raises(error, match="party 0: "):
        peer.receive(Kind.ROUND)


def test_a_repeated_frame_is_refused():
    near, far = memory_transports()
    link = Link(near, "party 1", timeout_s=5)
    for _ in range(2):
        far.queue((encode(Kind.REQUEST, 0, 0, 1), b"x"))
    assert link.receive(Kind.REQUEST)[1].tobytes() == b"x"
    with pytest.raises(FrameError, match="repeated: got 0, expected 1"):
        link.receive(Kind.REQUEST)


def test_a_receive_allows_no_more_than_its_own_limit():
    near, far = memory_transports()
    far.queue((encode(Kind.REQUEST, 0, 0, 1001),))
    with pytest.raises(FrameError, match="1001 payload bytes, at most 1000"):
        Link(near, "party 1").receive(Kind.REQUEST, limit=1000)


def test_an_abort_is_no_way_to_send_much():
    near, far = memory_transports()
    far.queue((encode(Kind.ABORT, 0, 0, 8193),))
    with pytest.raises(FrameError, match="ABORT frame announces 8193 bytes, at most 8192"):
        Link(near, "party 1").receive(Kind.REQUEST)


def test_an_abort_text_cannot_drive_a_terminal():
    assert decode_abort(encode_abort("FrameError", "a\x1b[2Jb\u202ec")) == ("FrameError", "a?[2Jb?c")


def test_an_abort_keeps_lines_and_a_bounded_part_of_its_text():
    name, text = decode_abort(encode_abort("N" * 100, "one\ntwo " + "x" * 5000))
    assert name == "N" * 64
    assert text == ("one\ntwo " + "x" * 5000)[:4096]
    assert len(encode_abort("N" * 100, "x" * 5000)) == 4 + 64 + 4096


@pytest.mark.parametrize(
    ("payload", "said"),
    [
        (b"", "cut short: 0 bytes"),
        (bytes(3), "cut short: 3 bytes"),
        (encode_abort("A", "b")[:-1], "has 5 bytes, announced 6"),
        (encode_abort("A", "b") + b"c", "has 7 bytes, announced 6"),
    ],
)
def test_an_abort_of_another_length_is_refused(payload, said):
    with pytest.raises(FrameError, match=said):
        decode_abort(payload)
    assert decode_abort(encode_abort("", "")) == ("", "")


def test_a_payload_may_have_as_many_bytes_as_allowed():
    assert decode(changed(24, struct.pack("<Q", MAX_PAYLOAD))).length == MAX_PAYLOAD
    assert decode(GOOD, limit=12).length == 12
    with pytest.raises(FrameError, match="12 payload bytes, at most 11"):
        decode(GOOD, limit=11)


def test_frames_of_a_connection_have_no_context_and_endings_are_always_heard():
    for kind in (Kind.ABORT, Kind.BYE):
        check(decode(encode(kind, 5, 1, 3)), 5, 77, [Kind.ROUND], 12)
        with pytest.raises(FrameError, match="skipped"):
            check(decode(encode(kind, 5, 1, 3)), 4, 77, [Kind.ROUND])
    check(decode(encode(Kind.HELLO, 5, 1, 3)), 5, 77, [Kind.HELLO])
    with pytest.raises(FrameError, match="is HELLO, expected ROUND"):
        check(decode(encode(Kind.HELLO, 5, 1, 3)), 5, 77, [Kind.ROUND])
    check(decode(GOOD), 5, 77, [Kind.ROUND])
    check(decode(GOOD), 5, 77, [Kind.ROUND], 12)


def test_a_payload_is_counted_in_bytes_and_sent_as_it_lies():
    words = np.arange(12, dtype=np.uint64).reshape(3, 4)
    assert payload_bytes([b"abc", words, memoryview(b"")]) == 3 + 96
    with pytest.raises(InputError, match="not contiguous"):
        payload_bytes([words[:, :2]])


def test_a_frame_that_fits_is_one_piece_and_a_large_buffer_is_not_copied():
    fits = bytes(PIECE_BYTES - HEADER_BYTES)
    (piece,) = pieces([GOOD, fits])
    assert len(piece) == PIECE_BYTES
    large = np.zeros(4 * PIECE_BYTES, np.uint8)
    cut = list(pieces([GOOD, b"", large, np.zeros(0, np.uint64)]))
    assert [len(piece) for piece in cut] == [PIECE_BYTES] * 4 + [HEADER_BYTES]
    assert [isinstance(piece, memoryview) for piece in cut] == [False, True, True, True, False]


def test_small_buffers_are_gathered_until_a_piece_is_full() -> None:
    whole, rest = divmod(HEADER_BYTES + 9 * 40000, PIECE_BYTES)
    cut = list(pieces([GOOD, *[bytes(40000)] * 9]))
    assert [len(piece) for piece in cut] == [PIECE_BYTES] * whole + [rest]


@settings(max_examples=1000, database=None)  # `make prove SUITE=service` tries 100,000
@given(
    st.binary(max_size=64),
    st.lists(st.tuples(st.integers(0, 31), st.integers(0, 255)), max_size=3),
    st.sampled_from(list(Kind)),
    st.integers(0, 3),
    st.integers(0, 60),
)
def test_mutated_frames_only_ever_raise_errors_of_the_link(tail, edits, kind, sequence, length):
    header = bytearray(encode(kind, sequence, 0, length))
    for place, value in edits:
        header[place] = value
    for work in (
        lambda: check(decode(header), 0, 0, (Kind.ROUND,), 20),
        lambda: decode(tail),
        lambda: decode_abort(tail),
        lambda: Hello.decode(tail * 3),
    ):
        with contextlib.suppress(FrameError, HandshakeError):
            work()
    near, far = memory_transports()
    far.queue((header, tail))
    far.close()
    link = Link(near, "party 1", timeout_s=1)
    with pytest.raises(HdcosError):  # at the latest because the peer is gone
        link.exchange([bytes(20)])


@given(st.lists(st.integers(0, 40000), max_size=6))
@settings(max_examples=200, database=None)
def test_pieces_join_to_the_frame_and_are_whole_records_except_the_last(sizes):
    buffers = [bytes([place]) * size for place, size in enumerate(sizes)]
    cut = list(pieces([GOOD, *buffers]))
    assert b"".join(cut) == GOOD + b"".join(buffers)
    assert all(len(piece) % 16384 == 0 for piece in cut[:-1])
    assert sum(map(len, cut)) == HEADER_BYTES + sum(sizes)


def test_a_peer_is_told_what_was_written_for_it_and_nothing_that_might_quote_data() -> None:
    assert report(InputError("12 rows, not 10")) == ("InputError", "12 rows, not 10")
    name, message = report(ValueError("could not convert '4711'"))
    assert name == "HdcosError"
    assert "ValueError" in message
    assert "4711" not in message
