"""Mutual TLS 1.3 over one TCP socket, read and written by one thread, and what only the kernel knows of that socket.

An OpenSSL connection must not be used by two threads at once, so a pump moves bytes both ways: it encrypts a
piece ahead, sends what the socket takes, and decrypts what arrived, in turn. Two parties that exchange can therefore
send each other any amount at once. Every wire byte is counted where the socket's send or recv
returns. There are two pumps: a compiled one (`link.pump`), and the one that is written here, which paces what it sends
where a slower network is emulated, and serves wherever the other cannot.

Security  only TLS 1.3, both sides show a certificate, and only pinned certificates are accepted. No session
          tickets, so nothing is ever resumed. An eavesdropper sees the name that was asked for, sizes and times of
          records. AES-GCM keys are good for about 2**24.5 full records (380 GB each way) per connection: every
          link ends before that (`link.base`, MOST_BYTES).
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Sequence
from time import perf_counter, sleep
from typing import Any

from hdcos.errors import FrameError, HandshakeError
from hdcos.link import frame as frames
from hdcos.link.base import LostError, SilentError
from hdcos.link.certificate import Certificate
from hdcos.link.emulation import Emulation, Pacer
from hdcos.link.frame import HEADER_BYTES, RECORD_BYTES, Buffer
from hdcos.link.pump import ALL, BROKEN, BUSY, FAILED, INTERRUPTED, SILENT, Pump, open_pump
from hdcos.link.trust import explain_alert, explain_unverified

RECORD_OVERHEAD = 22  # 5 header, 1 content type, 16 tag
READ_BYTES = 1 << 19
BACKLOG_BYTES = 1 << 23
SPIN = 20  # looks at the socket before going to sleep: about 20 us, a sleep and a wake-up cost more
LUCK = 4  # after this many looks in vain only every RETRY-th time, and again always after one that paid
RETRY = 64
SHORTER = 4  # are the looks of compiled code: as many more of them take as long
BUSY_TEXT = "was closed on this side, or another thread is using the link"
KEEPALIVE_S = 30  # an idle peer that lost power is noticed after about a minute

# struct tcp_info of linux/tcp.h, since Linux 4.19
_INFO_BYTES = 216
_BYTES_RECEIVED, _NOT_SENT, _BYTES_SENT_AND_RESENT = 128, 144, 200
_FIN_ARRIVED = (6, 8, 9, 11)  # TIME_WAIT, CLOSE_WAIT, LAST_ACK, CLOSING: the peer's FIN counts as one byte


def wire_bytes(payload_bytes: int) -> int:
    """What a frame with this payload takes on the wire: its records are full except the last."""
    size = HEADER_BYTES + payload_bytes
    return size + RECORD_OVERHEAD * -(-size // RECORD_BYTES)


class TlsTransport:
    """The pump. `negotiate` until it returns True, then it is a Transport."""

    def __init__(
        self,
        sock: socket.socket,
        settings: ssl.SSLContext,
        server: bool,
        spin: int = SPIN,
        server_name: str = "",
    ) -> None:
        sock.setblocking(False)
        keep_alive(sock)
        self.spin = spin
        self._vain = 0
        self._patience: float | None = None  # how long the socket itself waits
        self._sent = 0
        self._sock = sock
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = settings.wrap_bio(self._incoming, self._outgoing, server, server_name or None)
        self._pieces: Iterator[Buffer] = iter(())
        self._piece: Buffer | None = None  # the next to be encrypted
        self._sealed: Buffer = b""
        self._taken = 0
        self._fresh = False
        self._buffer = memoryview(bytearray(READ_BYTES))
        self._end: str | None = None  # why nothing more will arrive
        self._broken: str | None = None  # why nothing more can be sent
        self._poll = select.poll()
        self._mask = select.POLLIN
        self._poll.register(sock, self._mask)
        self._pacer: Pacer | None = None
        self._due = 0.0
        self._heard = True
        self._counters: tuple[int, int] | None = None
        self._pump: Pump | None = None
        self._closed = False
        self._closing = threading.RLock()

    # ---- counting

    @property
    def sent(self) -> int:
        return self._sent if self._pump is None else self._sent + self._pump.sent

    @property
    def received(self) -> int:
        taken = self._taken if self._pump is None else self._taken + self._pump.taken
        return taken - self._incoming.pending

    @property
    def unread(self) -> int:
        return self._incoming.pending

    def os_counters(self) -> tuple[int, int] | None:
        """What the kernel counted; after `close`, what it counted until then."""
        if self._sock.fileno() < 0:
            return self._counters
        return _count_bytes(self._sock)

    # ---- TLS handshake

    def negotiate(self) -> bool:
        """Advance the TLS handshake as far as it goes without waiting. True when it is complete."""
        done = False
        self._receive()
        try:
            self._tls.do_handshake()
            done = True
        except ssl.SSLWantReadError:
            if self._end is not None:
                raise LostError(f"{self._end} during the TLS handshake") from None
        except ssl.SSLCertVerificationError as error:
            self._flush_handshake()
            raise explain_unverified(error) from None
        except ssl.SSLError as error:
            self._flush_handshake()
            raise explain_alert(error, HandshakeError) from None
        self._flush_handshake()
        if not done or self._sealed:
            return False
        self._sock.setblocking(True)  # `_wait_to_receive` waits in it, all else asks it not to wait
        self._pump = open_pump(self._tls, self._incoming, self._sock.fileno(), SHORTER * self.spin)
        return True

    def certificate(self) -> Certificate:
        """The certificate that the peer has proven to own."""
        return Certificate(self._tls.getpeercert(True) or b"")

    def _flush_handshake(self) -> None:
        self._sealed = bytes(self._sealed) + self._outgoing.read()
        self._push()

    # ---- the pump

    def emulate(self, emulation: Emulation | None) -> None:
        """Pace what is sent from now on."""
        self._pacer = None if emulation is None else Pacer(emulation)
        if self._pacer is not None:
            self._pump = None

    def queue(self, buffers: Sequence[Any]) -> None:
        if self._pump is not None:
            if self._pump.queue(buffers) == BUSY:
                raise LostError(BUSY_TEXT)
            return
        self._check_open()
        self._pieces = frames.pieces(buffers)
        self._piece = next(self._pieces, None)
        if self._pacer is not None:
            self._pacer.begin(perf_counter())
            self._heard = False
        self._push()

    def read(self, view: memoryview, timeout_s: float | None, announced: bool = False) -> int:
        if self._pump is not None:
            return self._read(self._pump, view, timeout_s, announced)
        self._check_open()
        got, size = 0, len(view)
        read: Callable[[int, memoryview], int] = self._tls.read  # type: ignore[assignment]
        while True:
            if self._fresh:
                try:
                    while got < size:
                        more = read(size - got, view[got:] if got else view)
                        if not more:  # TLS says that the stream ends here
                            self._end = "closed the connection"
                            break
                        got += more
                    self._fresh = bool(self._incoming.pending or self._tls.pending())
                except ssl.SSLWantReadError:
                    self._fresh = False
                except ssl.SSLError as error:
                    raise explain_alert(error, FrameError) from None
                if got or not size:
                    if self._pacer is not None:
                        self._pacer.heard()
                        self._heard = True
                    return got
            if self._end is not None:
                raise LostError(self._end)
            if self._sealed or self._piece is not None:
                self._step(timeout_s)
            else:
                self._wait_to_receive(timeout_s, size if announced else 0)

    def _read(self, pump: Pump, view: memoryview, timeout_s: float | None, whole: bool) -> int:
        moved, got = pump.read(view, whole, timeout_s)
        while moved == INTERRUPTED and not got:  # by a signal, whose handler has run
            moved, got = pump.read(view, whole, timeout_s)
        if moved == SILENT:
            raise SilentError
        if got or moved == ALL:
            return got  # if it ended behind these bytes, the next call says so
        if moved == BUSY:
            raise LostError(BUSY_TEXT)
        if moved == BROKEN:
            error = ssl.SSLError(ssl.SSL_ERROR_SSL, pump.reason)
            error.reason = pump.reason.upper().replace(" ", "_")
            raise explain_alert(error, FrameError)
        raise LostError(_ending(pump.end_error))

    def flush(self, timeout_s: float | None) -> None:
        if self._pump is not None:
            self._flush(self._pump, timeout_s)
            return
        self._check_open()
        while self._sealed or self._piece is not None:
            self._step(timeout_s)
        if self._broken is not None:
            raise LostError(self._broken)
        if self._pacer is not None and not self._heard:
            self._pacer.sent_one_way(perf_counter())

    def _flush(self, pump: Pump, timeout_s: float | None) -> None:
        while (moved := pump.flush(timeout_s)) == INTERRUPTED:
            pass
        if moved == SILENT:
            raise SilentError
        if moved == BUSY:
            raise LostError(BUSY_TEXT)
        if moved == FAILED:
            why = _ending(pump.cut_error)
            if not pump.reason:  # else TLS alone is broken, and the peer may still read its alert
                self._broken = why
            raise LostError(why)

    def _check_open(self) -> None:
        """Who closes a link may be another thread, and OpenSSL's buffers are its own from then on."""
        if self._closed:
            raise LostError(BUSY_TEXT)

    def _step(self, timeout_s: float | None) -> None:
        """Move some bytes, out if possible; wait for the socket if none can be moved."""
        if self._push() or self._receive():
            return
        mask = select.POLLIN if self._end is None and self._incoming.pending < BACKLOG_BYTES else 0
        if self._pacer is not None and (held := self._due - perf_counter()) > 0.0:
            if held < 1e-3:
                sleep(min(held, 1e-4))
            else:
                self._wait(mask, int(held * 1e3))
        elif not self._wait(mask | select.POLLOUT, None if timeout_s is None else timeout_s * 1e3):
            raise SilentError

    def _wait_to_receive(self, timeout_s: float | None, announced: int) -> None:
        """With nothing to send: look again and again for a moment, as long as that tends to pay, then sleep.

        Of many announced bytes as many are awaited as certainly come: OpenSSL may hold part of a record already. The
        socket keeps the time, so a handler of signals that runs again and again starts the wait again each time.
        """
        flags, most = 0, READ_BYTES
        if announced > 4 * RECORD_BYTES:
            flags, most = socket.MSG_WAITALL, min(announced - 2 * RECORD_BYTES, READ_BYTES)
        elif self._vain <= LUCK or not self._vain % RETRY:
            look = self._receive(looks=1 + self.spin)
            if look > 1:
                self._vain = 0
            if look:
                return
        self._vain += 1
        if timeout_s != self._patience:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(timeout_s))
            self._patience = timeout_s
        if not self._receive(flags, most):
            raise SilentError

    def _wait(self, mask: int, milliseconds: float | None) -> bool:
        if mask != self._mask:
            self._poll.modify(self._sock, mask)
            self._mask = mask
        return bool(self._poll.poll(milliseconds))

    def _push(self) -> bool:
        """Encrypt the next piece if none is waiting, and send what the socket takes now. True if something moved."""
        sealed = self._sealed
        if not sealed:
            piece = self._piece
            if piece is None:
                return False
            write, size = self._tls.write, len(piece)
            done = write(piece)  # one record
            while done < size:
                done += write(memoryview(piece)[done : done + RECORD_BYTES])
            sealed = self._sealed = self._outgoing.read()
            self._piece = next(self._pieces, None)
            if self._pacer is not None:
                self._due = self._pacer.due(len(sealed))
        if self._pacer is not None and perf_counter() < self._due:
            return False
        try:
            size = self._sock.send(sealed, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            self._broken = _reason(error)
            self._sealed, self._piece = b"", None
            return True
        self._sent += size
        self._sealed = b"" if size == len(sealed) else memoryview(sealed)[size:]
        return True

    def _receive(self, flags: int = socket.MSG_DONTWAIT, most: int = READ_BYTES, looks: int = 1) -> int:
        """Take what has arrived, or what arrives in time. The number of the look that found it or the end, or 0."""
        if self._end is not None or self._incoming.pending >= BACKLOG_BYTES:
            return 0
        buffer = self._buffer
        for look in range(1, looks + 1):
            try:
                size = self._sock.recv_into(buffer, most, flags)
            except BlockingIOError:
                continue
            except OSError as error:
                self._end = _reason(error)
                return look
            if size:
                self._taken += size
                self._incoming.write(buffer[:size])
                self._fresh = True
            else:
                self._end = "closed the connection"
            return look
        return 0

    def interrupt(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self, linger_s: float = 0.0) -> None:
        """From any thread: when this returns the socket is closed, by this thread or by another one."""
        self._closed = True
        with self._closing:
            if self._sock.fileno() >= 0:
                self._close(linger_s)

    def _close(self, linger_s: float) -> None:
        pump, self._pump = self._pump, None
        if pump is not None:
            pump.close()
            self._sent, self._taken = self._sent + pump.sent, self._taken + pump.taken
        try:
            if linger_s > 0.0 and self._broken is None:
                self._sock.shutdown(socket.SHUT_WR)
                limit = perf_counter() + linger_s
                while self._end is None and (left := limit - perf_counter()) > 0:
                    if not self._receive():
                        self._wait(select.POLLIN, left * 1e3)
                    self._incoming.read()
            self._counters = self.os_counters()
        except OSError:
            pass
        finally:
            self._sock.close()


def _ending(number: int) -> str:
    """Why a connection has ended, by the number of the error; 0 for one that was closed in good order."""
    return _reason(OSError(number, os.strerror(number))) if number else "closed the connection"


def _reason(error: OSError) -> str:
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "closed the connection abruptly"
    return f"is out of reach ({error.strerror or type(error).__name__})"


def _timeval(seconds: float | None) -> bytes:
    """A time limit as the kernel takes it; zero is none."""
    microseconds = 0 if seconds is None else max(1, round(seconds * 1e6))
    return struct.pack("@ll", *divmod(microseconds, 1_000_000))


def keep_alive(sock: socket.socket) -> None:
    """Send small frames at once, and ask a silent peer from time to time whether it is there."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S // 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def _count_bytes(sock: socket.socket) -> tuple[int, int] | None:
    """Bytes handed to TCP (resent ones counted once) and bytes that arrived; None on old kernels."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(info) < _INFO_BYTES:
        return None
    (arrived,) = struct.unpack_from("=Q", info, _BYTES_RECEIVED)
    (waiting,) = struct.unpack_from("=I", info, _NOT_SENT)
    sent, resent = struct.unpack_from("=QQ", info, _BYTES_SENT_AND_RESENT)
    return sent - resent + waiting, arrived - (info[0] in _FIN_ARRIVED)
