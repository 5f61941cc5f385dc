"""The first words on a link: do both sides mean the same computation?

Compare, never assume. Two parties that run different programs, tables (libm differs between machines), runs
or attempts would not crash: they would compute garbage, or open two values under one mask. Each side sends
its hello before it compares, so both see the difference and both report it.

offset  bytes  field     little-endian
0       2      version   protocol version
2       2      role      length of the role in bytes (at most 64)
4       2      run       length of the run id in bytes (16 to 32)
6       2      reserved  0
8       8      attempt   grows with every start and resume
16      32     program   SHA-256 of the program
48      32     table     SHA-256 of the cosine table
80      32     nonce     fresh random bytes of this side
112     ...    role in UTF-8, then the run id
"""

from __future__ import annotations

import hashlib
import struct
from dataclasses import dataclass, field
from os import urandom

from hdcos._version import __version__
from hdcos.errors import FrameError, HandshakeError, InputError
from hdcos.link.base import Link
from hdcos.link.frame import Kind

PROTOCOL_VERSION = 1
REVISION = 2
"""Raised with what nodes say to each other between two releases: a checkout of one works with its like alone."""
SOFTWARE = hashlib.sha256(f"hdcos {__version__}, {REVISION}".encode()).digest()
"""The program that nodes and callers of the same release mean."""
_HELLO = struct.Struct("<HHHHQ32s32s32s")
MAX_HELLO = _HELLO.size + 64 + 32

_REMEDY = {
    "version": "Install the same hdcos version on both hosts.",
    "program": "Share the same model on both hosts, and install the same hdcos version on both.",
    "table": "Install the same hdcos version on both hosts.",
    "run": "Start both nodes with the same cluster file and job.",
    "attempt": "Restart both nodes, so that they agree on a new attempt.",
}


@dataclass(frozen=True, slots=True)
class Hello:
    """What a node says it is about to do."""

    role: str
    program: bytes
    table: bytes
    run: bytes
    attempt: int = 0
    version: int = PROTOCOL_VERSION
    nonce: bytes = field(default_factory=lambda: urandom(32), repr=False)

    def __post_init__(self) -> None:
        if not 1 <= len(self.role.encode()) <= 64:
            raise InputError(f"a role has 1 to 64 bytes, got {len(self.role.encode())}.")
        for name, low, high in (("program", 32, 32), ("table", 32, 32), ("nonce", 32, 32), ("run", 16, 32)):
            size = len(getattr(self, name))
            if not low <= size <= high:
                raise InputError(f"{name} of a hello has {size} bytes, must have {low} to {high}.")
        if not 0 <= self.attempt < 1 << 64 or not 0 <= self.version < 1 << 16:
            raise InputError(f"attempt {self.attempt} or version {self.version} of a hello is out of range.")

    def encode(self) -> bytes:
        role = self.role.encode()
        sizes = (len(role), len(self.run), 0)
        head = _HELLO.pack(self.version, *sizes, self.attempt, self.program, self.table, self.nonce)
        return head + role + self.run

    @classmethod
    def decode(cls, data: bytes) -> Hello:
        """The hello in these bytes, or a FrameError."""
        if len(data) < _HELLO.size:
            raise FrameError(f"hello cut short: {len(data)} of at least {_HELLO.size} bytes.")
        version, role, run, reserved, attempt, program, table, nonce = _HELLO.unpack_from(data)
        if reserved or len(data) != _HELLO.size + role + run:
            raise FrameError(f"hello of {len(data)} bytes announces {_HELLO.size + role + run}, reserved {reserved}.")
        text = data[_HELLO.size :]
        try:
            return cls(text[:role].decode(), program, table, text[role:], attempt, version, nonce)
        except (InputError, UnicodeDecodeError) as error:
            raise FrameError(f"hello is malformed: {type(error).__name__}.") from None


def handshake(link: Link, mine: Hello) -> Hello:
    """Exchange hellos and compare them. HandshakeError names the first field that differs, on both sides."""
    with link.meter.section("setup"):
        link.send(Kind.HELLO, mine.encode())
        _, payload = link.receive(Kind.HELLO, limit=MAX_HELLO)
    try:
        theirs = Hello.decode(payload.tobytes())
        compare(mine, theirs, link.peer)
    except (FrameError, HandshakeError) as error:
        known = type(error)(f"{link.peer}: {error}")
        link.abort(error)
        raise known from None
    return theirs


def compare(mine: Hello, theirs: Hello, peer: str) -> None:
    """HandshakeError if these two hellos do not belong to one computation."""
    for name, remedy in _REMEDY.items():
        ours, other = getattr(mine, name), getattr(theirs, name)
        if ours != other:
            raise HandshakeError(f"{name} differs: {_short(ours)} here, {_short(other)} there. {remedy}")
    if theirs.role == mine.role:
        raise HandshakeError(f"role differs from what it must be: both sides say they are {mine.role!r}.")
    if theirs.role != peer:
        raise HandshakeError(f"role differs: the peer with the certificate of {peer!r} says it is {theirs.role!r}.")


def _short(value: bytes | int) -> str:
    return value.hex()[:12] if isinstance(value, bytes) else str(value)
