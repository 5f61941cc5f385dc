"""A frame: 32 spelled-out bytes, then the raw payload.

offset  bytes  field      little-endian
0       4      magic      b"HDCS"
4       1      version    1
5       1      kind       one of `Kind`
6       2      reserved   0
8       8      sequence   per direction, from 0, one more for every frame
16      8      context    the program and step this frame belongs to
24      8      length     payload bytes that follow

Everything here is a pure function over bytes. Nothing is allocated for a payload before its length was
checked. TLS already detects a changed or replayed record; the sequence number detects a peer that lost count.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Collection, Iterator, Sequence
from typing import Any, NamedTuple

from hdcos.errors import FrameError, HandshakeError, HdcosError, InputError

MAGIC = b"HDCS"
VERSION = 1
HEADER_BYTES = 32
MAX_PAYLOAD = 1 << 30
MAX_ABORT = 8192
RECORD_BYTES = 16384  # the most plaintext one TLS record holds
PIECE_BYTES = 8 * RECORD_BYTES  # encrypted and sent at a time; while it is copied it stays in a core's cache

Buffer = bytes | bytearray | memoryview

_HEADER = struct.Struct("<4sBBHQQQ")
_ABORT = struct.Struct("<HH")


class Kind(enum.IntEnum):
    """What a frame is for."""

    HELLO = 1
    ROUND = 2
    MATERIAL = 3
    REQUEST = 4
    REPLY = 5
    ABORT = 6
    BYE = 7


_KINDS: dict[int, Kind] = {int(kind): kind for kind in Kind}
WITHOUT_CONTEXT = frozenset({Kind.HELLO, Kind.ABORT, Kind.BYE})


class Frame(NamedTuple):
    """The header of a frame."""

    kind: Kind
    sequence: int
    context: int
    length: int


def encode(kind: int, sequence: int, context: int, length: int) -> bytes:
    """The 32 header bytes."""
    return _HEADER.pack(MAGIC, VERSION, kind, 0, sequence, context, length)


def decode(data: Buffer, limit: int = MAX_PAYLOAD) -> Frame:
    """The header in the first 32 bytes of `data`, or a FrameError that names what is wrong with it."""
    if len(data) < HEADER_BYTES:
        raise FrameError(f"frame header cut short: {len(data)} of {HEADER_BYTES} bytes.")
    magic, version, kind, reserved, sequence, context, length = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise FrameError(f"these {HEADER_BYTES} bytes are not a frame header: they do not start with {MAGIC!r}.")
    if version != VERSION:
        raise FrameError(f"frame version {version}, this node speaks version {VERSION}.")
    if kind not in _KINDS:
        raise FrameError(f"frame kind {kind} is unknown, kinds are {min(_KINDS)} to {max(_KINDS)}.")
    if reserved:
        raise FrameError(f"reserved header field is {reserved}, must be 0.")
    if length > limit:
        raise FrameError(f"frame announces {length} payload bytes, at most {limit} are allowed here.")
    return Frame(_KINDS[kind], sequence, context, length)


def check(
    frame: Frame, sequence: int, context: int, kinds: Collection[Kind], expected_bytes: int | None = None
) -> None:
    """Is this the frame that was waited for? FrameError or HandshakeError if not."""
    if frame.sequence != sequence:
        slip = "repeated" if frame.sequence < sequence else "skipped"
        raise FrameError(f"frame number {slip}: got {frame.sequence}, expected {sequence}.")
    if frame.kind in (Kind.ABORT, Kind.BYE):
        return
    if frame.context != context and frame.kind not in WITHOUT_CONTEXT:
        raise HandshakeError(
            f"peer is running another program: its frame {frame.sequence} belongs to context "
            f"{frame.context:#018x}, this node is in {context:#018x}."
        )
    if frame.kind not in kinds:
        wanted = " or ".join(sorted(kind.name for kind in kinds))
        raise FrameError(f"frame {frame.sequence} is {frame.kind.name}, expected {wanted}.")
    if expected_bytes is not None and frame.length != expected_bytes:
        raise FrameError(
            f"{frame.kind.name} frame {frame.sequence} has {frame.length} payload bytes, expected {expected_bytes}."
        )


def report(error: BaseException) -> tuple[str, str]:
    """Name and message of an error as a peer is told them: one of any class but HdcosError might quote data."""
    if isinstance(error, HdcosError):
        return type(error).__name__, str(error)
    return "HdcosError", f"internal error ({type(error).__name__}), see the log of that node."


def encode_abort(name: str, message: str) -> bytes:
    """The payload of an ABORT frame: the error's class name and its message."""
    head, tail = name.encode()[:64], message.encode(errors="replace")[:4096]
    return _ABORT.pack(len(head), len(tail)) + head + tail


def decode_abort(payload: Buffer) -> tuple[str, str]:
    """Class name and message of an ABORT frame; control characters are replaced (terminals obey them)."""
    data = bytes(payload)
    if len(data) < _ABORT.size:
        raise FrameError(f"ABORT payload cut short: {len(data)} bytes.")
    head, tail = _ABORT.unpack_from(data)
    if len(data) != _ABORT.size + head + tail:
        raise FrameError(f"ABORT payload has {len(data)} bytes, announced {_ABORT.size + head + tail}.")
    text = data[_ABORT.size :]
    return _make_printable(text[:head]), _make_printable(text[head:])


def _make_printable(data: bytes) -> str:
    text = data.decode(errors="replace")
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)


def payload_bytes(buffers: Sequence[Any]) -> int:
    """Total size of what is to be sent; InputError for something that cannot be sent without a copy."""
    size = 0
    for buffer in buffers:
        view = memoryview(buffer)
        if not view.c_contiguous:
            raise InputError(f"a buffer of shape {view.shape} is not contiguous and cannot be sent as it is.")
        size += view.nbytes
    return size


def pieces(buffers: Sequence[Any]) -> Iterator[Buffer]:
    """Header and payload as consecutive pieces of PIECE_BYTES, the last one shorter.

    A piece is a whole number of full TLS records, so their number depends only on the payload's size, not on how it
    is cut into buffers. The middle of a large buffer is not copied.
    """
    if payload_bytes(buffers) <= PIECE_BYTES:
        return iter((b"".join(buffers),))
    return _cut(buffers)


def _cut(buffers: Sequence[Any]) -> Iterator[Buffer]:
    part: list[Buffer] = []
    held = 0
    for buffer in buffers:
        view = memoryview(buffer)
        if not view.nbytes:
            continue
        view = view.cast("B")
        while held + len(view) >= PIECE_BYTES:
            part.append(view[: PIECE_BYTES - held])
            yield part[0] if len(part) == 1 else b"".join(part)
            view = view[PIECE_BYTES - held :]
            part, held = [], 0
        if len(view):
            part.append(view)
            held += len(view)
    if held:
        yield b"".join(part)
