"""The name that a TLS client asks for, read from the first bytes it sends.

Those bytes are not encrypted, and anybody may send anything: every length is checked against what is there, nothing
is trusted, and the whole is bounded. TLS itself reads them again afterwards, so a mistake here could send a connection
to the wrong worker, which would refuse it, and no further.

record     type 22, version (2 bytes), length (2), part of a message    RFC 8446, 5.1
message    type 1, length (3), body                                     RFC 8446, 4
body       version (2), random (32), session id (1 + n), suites (2 + n), compression (1 + n), extensions (2 + n)
extension  type (2), length (2), data; server_name is type 0: list (2 + n) of type (1), name (2 + n)    RFC 6066, 3
"""

from __future__ import annotations

from hdcos.link.frame import RECORD_BYTES

MAX_HELLO_BYTES = 1 << 14
"""Those of hdcos have about 300, those with post-quantum keys 1,800."""
_HANDSHAKE, _CLIENT_HELLO, _SERVER_NAME, _HOST_NAME = 22, 1, 0, 0


class MalformedError(Exception):
    """These bytes are not the beginning of a ClientHello. The text says why."""


class _Bytes:
    """What is left of some bytes."""

    def __init__(self, data: bytes) -> None:
        self.rest = data

    def take(self, size: int) -> bytes:
        if size > len(self.rest):
            raise MalformedError("a length is longer than what holds it")
        taken, self.rest = self.rest[:size], self.rest[size:]
        return taken

    def number(self, size: int) -> int:
        return int.from_bytes(self.take(size), "big")

    def block(self, size: int) -> bytes:
        """What follows a length of `size` bytes."""
        return self.take(self.number(size))


def read_server_name(data: bytes) -> str | None:
    """The name in a ClientHello that begins with these bytes, "" if it has none; None if more bytes are needed."""
    message = _read_message(data)
    return None if message is None else _read_name(message)


def _read_message(data: bytes) -> bytes | None:
    """The body of the first handshake message, which may lie in several records. None if it is not all there."""
    message, place = b"", 0
    while True:
        if message and message[0] != _CLIENT_HELLO:
            raise MalformedError("no ClientHello")
        size = 4 + int.from_bytes(message[1:4], "big")
        if size > MAX_HELLO_BYTES:
            raise MalformedError(f"a ClientHello of {size} bytes")
        if len(message) >= size:
            return message[4:size]
        head = data[place : place + 5]
        if head[:1] not in (b"", bytes([_HANDSHAKE])) or head[1:2] not in (b"", b"\x03"):
            raise MalformedError("no TLS")
        length = int.from_bytes(head[3:], "big")
        if len(head) == 5 and not 0 < length <= RECORD_BYTES:
            raise MalformedError(f"a record of {length} bytes")
        if len(head) < 5:
            if len(data) >= MAX_HELLO_BYTES:
                raise MalformedError("a ClientHello without end")
            return None
        message += data[place + 5 : place + 5 + length]
        place += 5 + length


def _read_name(body: bytes) -> str:
    hello = _Bytes(body)
    hello.take(2 + 32)
    hello.block(1)
    hello.block(2)
    hello.block(1)
    if not hello.rest:
        return ""
    extensions = _Bytes(hello.block(2))
    while extensions.rest:
        kind, data = extensions.number(2), extensions.block(2)
        if kind == _SERVER_NAME:
            return _read_host_name(_Bytes(_Bytes(data).block(2)))
    return ""


def _read_host_name(names: _Bytes) -> str:
    """The one name of the list: no other kind of name was ever defined."""
    kind, name = names.number(1), names.block(2)
    if kind != _HOST_NAME or names.rest or not 0 < len(name) < 256 or not name.isascii():
        raise MalformedError("a server name that is none")
    return name.decode("ascii").lower()
