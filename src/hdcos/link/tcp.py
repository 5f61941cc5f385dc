"""What only the kernel knows: how many bytes a connection carried, and whether an idle peer exists."""

from __future__ import annotations

import socket
import struct

KEEPALIVE_S = 30  # an idle peer that lost power is noticed after about a minute

# struct tcp_info of linux/tcp.h, since Linux 4.19
_INFO_BYTES = 216
_BYTES_RECEIVED, _NOT_SENT, _BYTES_SENT_AND_RESENT = 128, 144, 200
_FIN_ARRIVED = (6, 8, 9, 11)  # TIME_WAIT, CLOSE_WAIT, LAST_ACK, CLOSING: the peer's FIN counts as one byte


def tune(sock: socket.socket) -> None:
    """Send small frames at once, and ask a silent peer from time to time whether it is there."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, KEEPALIVE_S)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, KEEPALIVE_S // 3)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)


def tcp_bytes(sock: socket.socket) -> tuple[int, int] | None:
    """Bytes handed to TCP (resent ones counted once) and bytes that arrived; None on old kernels."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO_BYTES)
    if len(info) < _INFO_BYTES:
        return None
    (arrived,) = struct.unpack_from("=Q", info, _BYTES_RECEIVED)
    (waiting,) = struct.unpack_from("=I", info, _NOT_SENT)
    sent, resent = struct.unpack_from("=QQ", info, _BYTES_SENT_AND_RESENT)
    return sent - resent + waiting, arrived - (info[0] in _FIN_ARRIVED)
