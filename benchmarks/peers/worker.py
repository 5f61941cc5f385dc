"""How a worker talks to the driver: one JSON job per line in, one JSON answer per line out.

Jobs: {"prepare": KEY, ...} makes a piece of work ready (weights shared, programs compiled) and {"run": KEY} does it
once. Arrays travel in .npz files named by the job. Whatever a library prints goes to stderr.
"""

from __future__ import annotations

import json
import os
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any

BYTES_RECEIVED, BYTES_SENT = 128, 200
"""Where Linux keeps these counters in struct tcp_info."""


def serve(answer: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer jobs until the driver closes its end; a job that fails is answered with its error."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    print(json.dumps({"ready": True}), file=replies)
    for line in sys.stdin:
        try:
            reply = answer(json.loads(line))
        except Exception as error:
            traceback.print_exc()
            reply = {"error": f"{type(error).__name__}: {error}"}
        print(json.dumps(reply), file=replies)


def socket_bytes() -> tuple[int, int]:
    """Bytes sent and received on all TCP connections of this process, as the kernel counted them."""
    sent = received = 0
    for name in os.listdir("/proc/self/fd"):
        try:
            is_socket = os.readlink(f"/proc/self/fd/{name}").startswith("socket:")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
        if not is_socket:
            continue
        with socket.socket(fileno=os.dup(int(name))) as found:
            if found.family in (socket.AF_INET, socket.AF_INET6) and found.type == socket.SOCK_STREAM:
                info = found.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 256)
                sent += struct.unpack_from("=Q", info, BYTES_SENT)[0]
                received += struct.unpack_from("=Q", info, BYTES_RECEIVED)[0]
    return sent, received
