"""Requests and replies: what travels comes back, and what is not a message is refused by name."""

from __future__ import annotations

import json
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdcos.errors import FrameError
from hdcos.link.message import decode_message, encode_message


def payload(meta, arrays=None) -> np.ndarray:
    return np.frombuffer(b"".join(bytes(part) for part in encode_message(meta, arrays)), np.uint8).copy()


def test_a_message_comes_back_as_it_was() -> None:
    arrays = {
        "a": np.arange(7, dtype=np.uint8),
        "b": np.arange(6, dtype=np.uint64).reshape(2, 3),
        "c": np.zeros((0, 4), np.uint16),
        "d": np.arange(8, dtype=np.uint32).reshape(4, 2).T,
    }
    meta, back = decode_message(payload({"operation": "run", "n": 3}, arrays))
    assert meta == {"operation": "run", "n": 3}
    assert list(back) == list(arrays)
    for name, array in arrays.items():
        assert back[name].dtype == array.dtype
        assert (back[name] == array).all()
        assert back[name].shape == array.shape


def header(record: object, rest: bytes = b"") -> np.ndarray:
    text = json.dumps(record).encode()
    start = struct.pack("<I", len(text)) + text
    return np.frombuffer(start + bytes(-len(start) % 8) + rest, np.uint8)


@pytest.mark.parametrize(
    "wrong",
    [
        np.zeros(0, np.uint8),
        np.zeros(3, np.uint8),
        np.full(8, 255, np.uint8),
        header([]),
        header({}),
        header({"arrays": [["a", "u8", [2]]]}, bytes(8)),
        header({"arrays": [["a", "u8", [1]]]}, bytes(16)),
        header({"arrays": [["a", "f8", [1]]]}, bytes(8)),
        header({"arrays": [["a", "O", [1]]]}, bytes(8)),
        header({"arrays": [["a", "u8", [-1]]]}, bytes(8)),
        header({"arrays": [["a", "u8", ["x"]]]}, bytes(8)),
        header({"arrays": [["a", "u8"]]}, bytes(8)),
        header({"arrays": 5}),
        header({"arrays": [["a", "u8", [1 << 62, 4]]]}, bytes(8)),
    ],
)
def test_what_is_not_a_message_is_a_frame_error(wrong: np.ndarray) -> None:
    with pytest.raises(FrameError):
        decode_message(wrong)


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), min_size=1, max_size=5))
def test_mutated_messages_only_ever_raise_frame_errors(changes) -> None:
    data = payload({"operation": "run", "scope": "cos"}, {"words": np.arange(9, dtype=np.uint64)})
    for position, value in changes:
        data[position % data.size] = value
    try:
        decode_message(data)
    except FrameError:
        return
