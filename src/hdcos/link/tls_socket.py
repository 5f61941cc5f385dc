"""Mutual TLS 1.3 on a TCP socket that OpenSSL itself reads and writes: the connection of a lane.

`link.tls` hands OpenSSL's records to the socket through memory: best for small frames, and for large ones where one
thread does everything. But each of its calls encrypts or copies for a few microseconds and then wants Python's lock
again, for which threads wait longer than for the work itself: two of them together are hardly faster than one. Here one
call encrypts a record and sends it, or receives one and decrypts it, without that lock, and threads do not disturb
each other. Nothing is copied besides. Wire bytes are those that the kernel counted on this socket.

Security  as `link.tls`: the same settings, checks and errors.
"""

from __future__ import annotations

import contextlib
import fcntl
import select
import socket
import ssl
import struct
import termios
from collections.abc import Iterator

from hdcos.errors import FrameError, HandshakeError
from hdcos.link.certificate import Certificate
from hdcos.link.frame import RECORD_BYTES, Buffer
from hdcos.link.tls import count_bytes, explain_break, keep_alive
from hdcos.link.transport import LostError, SilentError
from hdcos.link.trust import explain_alert, explain_unverified

TURN_BYTES = 8 * RECORD_BYTES  # in one direction before the other is looked at
_END = (ssl.SSLEOFError, ssl.SSLZeroReturnError)
_INT = struct.Struct("@i")


class TlsSocket:
    """`negotiate` until it returns True, then it is a Transport, for large pieces. It takes the socket over."""

    spin = 0

    def __init__(self, sock: socket.socket, settings: ssl.SSLContext, server: bool, server_name: str = "") -> None:
        sock.setblocking(False)
        keep_alive(sock)
        self._sock = settings.wrap_socket(
            sock,
            server_side=server,
            server_hostname=server_name or None,
            do_handshake_on_connect=False,
            suppress_ragged_eofs=False,
        )
        self._patience: float | None = 0.0  # how long the socket itself waits
        self._pieces: Iterator[Buffer] = iter(())
        self._piece: memoryview | None = None  # what is left of the one that is being sent
        self._broken: str | None = None  # why nothing more can be sent
        self._poll = select.poll()
        self._mask = select.POLLIN
        self._poll.register(self._sock, self._mask)
        self._counters: tuple[int, int] | None = None
        self._unread = 0

    @property
    def socket(self) -> socket.socket:
        return self._sock

    # ---- counting

    @property
    def sent(self) -> int:
        return (self.os_counters() or (0, 0))[0]

    @property
    def received(self) -> int:
        while True:  # more may arrive between two looks
            _, arrived = self.os_counters() or (0, 0)
            unread = self.unread
            if (self.os_counters() or (0, 0))[1] == arrived:
                return arrived - unread

    @property
    def unread(self) -> int:
        if self._sock.fileno() < 0:
            return self._unread
        waiting = _INT.unpack(fcntl.ioctl(self._sock, termios.FIONREAD, bytes(_INT.size)))[0]
        return int(waiting)

    def os_counters(self) -> tuple[int, int] | None:
        """What the kernel counted; after `close`, what it counted until then."""
        return self._counters if self._sock.fileno() < 0 else count_bytes(self._sock)

    # ---- TLS handshake

    def negotiate(self) -> bool:
        """Advance the TLS handshake as far as it goes without waiting. True when it is complete."""
        try:
            self._sock.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return False
        except _END:
            raise LostError("closed the connection during the TLS handshake") from None
        except ssl.SSLCertVerificationError as error:
            raise explain_unverified(error) from None
        except ssl.SSLError as error:
            raise explain_alert(error, HandshakeError) from None
        except OSError as error:
            raise LostError(f"{explain_break(error)} during the TLS handshake") from None
        return True

    def certificate(self) -> Certificate:
        """The certificate that the peer has proven to own."""
        return Certificate(self._sock.getpeercert(True) or b"")

    @property
    def protocol(self) -> str | None:
        """What both sides agreed to speak (ALPN)."""
        return self._sock.selected_alpn_protocol()

    # ---- both directions, in turn

    def queue(self, pieces: Iterator[Buffer]) -> None:
        self._pieces = pieces
        self._piece = _next(pieces)

    def read_now(self, size: int) -> bytes:
        """At most this many bytes of those that have arrived, without waiting."""
        data = bytearray(size)
        return bytes(data[: self._pull(memoryview(data), 0.0, False)])

    def read(self, view: memoryview, timeout_s: float | None, announced: bool = False) -> int:
        got, size = 0, len(view)
        while True:
            if self._piece is None:  # nothing to send: OpenSSL itself may wait
                more = self._pull(view[got:], timeout_s, announced)
            else:
                pushed = self._push()
                more = self._pull(view[got:], 0.0, announced)
                if not more and not pushed:
                    self._wait(select.POLLIN | select.POLLOUT, timeout_s)
            got += more
            if got == size or (got and not announced):
                return got

    def flush(self, timeout_s: float | None) -> None:
        while self._piece is not None:
            if not self._push():
                self._wait(select.POLLOUT, timeout_s)
        if self._broken is not None:
            raise LostError(self._broken)

    def _push(self) -> bool:
        """Encrypt and send some records, as the socket takes them. Whether one went out."""
        self._be_patient(0.0)
        send, limit, piece = self._sock.send, TURN_BYTES, self._piece
        try:
            while piece is not None and limit > 0:
                done = send(piece)  # one record
                limit -= done
                piece = piece[done:] if done < len(piece) else _next(self._pieces)
                self._piece = piece
        except ssl.SSLWantWriteError:
            pass
        except ssl.SSLError:
            self._broken, self._piece = "closed the connection", None
            return True
        except OSError as error:
            self._broken, self._piece = explain_break(error), None
            return True
        return limit < TURN_BYTES

    def _pull(self, view: memoryview, timeout_s: float | None, announced: bool) -> int:
        """Receive and decrypt some records, and wait for each of them so long. How many bytes these are."""
        self._be_patient(timeout_s)
        receive, got, size = self._sock.recv_into, 0, min(len(view), TURN_BYTES)
        try:
            while got < size:
                more = receive(view[got:] if got else view, len(view) - got)
                if not more:
                    raise LostError("closed the connection")
                got += more
                if not announced:
                    break
        except ssl.SSLWantReadError:
            pass
        except TimeoutError:
            raise SilentError from None
        except _END:
            if not got:
                raise LostError("closed the connection") from None
        except ssl.SSLSyscallError:
            raise LostError("closed the connection abruptly") from None
        except ssl.SSLError as error:
            raise explain_alert(error, FrameError) from None
        except OSError as error:
            if not got:
                raise LostError(explain_break(error)) from None
        return got

    def _be_patient(self, timeout_s: float | None) -> None:
        if timeout_s != self._patience:
            self._sock.settimeout(timeout_s)
            self._patience = timeout_s

    def _wait(self, mask: int, timeout_s: float | None) -> None:
        if mask != self._mask:
            self._poll.modify(self._sock, mask)
            self._mask = mask
        if not self._poll.poll(None if timeout_s is None else timeout_s * 1e3):
            raise SilentError

    # ---- the end

    def interrupt(self) -> None:
        with contextlib.suppress(OSError):
            socket.socket.shutdown(self._sock, socket.SHUT_RDWR)  # ssl's own would forget what OpenSSL is using

    def close(self, linger_s: float = 0.0) -> None:
        if self._sock.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            self._counters, self._unread = self.os_counters(), self.unread
        self._sock.close()


def _next(pieces: Iterator[Buffer]) -> memoryview | None:
    piece = next(pieces, None)
    return None if piece is None else memoryview(piece)
