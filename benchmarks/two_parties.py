"""Two processes joined by TLS on loopback that make material without a dealer, for measurements."""

from __future__ import annotations

import hashlib
import multiprocessing
import time
from collections.abc import Callable
from typing import Any

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from hdcos.link import Identity, Link, Listener, Meter, connect
from hdcos.offline.ot import OtSource
from hdcos.ring import keep_memory

Work = Callable[[OtSource, dict[str, Any]], Any]


def run_both(work: Work, **options: Any) -> list[Any]:
    """What `work(source, options)` returned at party 0 and at party 1, each a process of its own."""
    context = multiprocessing.get_context("spawn")
    identities = [Identity.create(f"party{rank}") for rank in (0, 1)]
    ports, results = context.Queue(), context.Queue()
    processes = [
        context.Process(target=_party, args=(rank, identities, ports, results, work, options)) for rank in (1, 0)
    ]
    for process in processes:
        process.start()
    answers = dict(results.get(timeout=540) for _ in processes)
    for process in processes:
        process.join()
    failures = [answer for answer in answers.values() if isinstance(answer, str)]
    if failures:
        raise RuntimeError(failures[0])
    return [answers[rank][0] for rank in (0, 1)]


def _party(
    rank: int, identities: list[Identity], ports: Any, results: Any, work: Work, options: dict[str, Any]
) -> None:
    keep_memory()
    me, other = identities[rank], identities[1 - rank]
    allowed = {other.certificate: f"party{1 - rank}"}

    def dial(meter: Meter) -> tuple[Link, bytes]:
        name = hashlib.sha256(b"".join(identity.certificate.pem.encode() for identity in identities)).digest()
        if rank == 1:
            with Listener(me, allowed, link_timeout_s=120.0) as listener:
                ports.put(listener.port)
                return listener.accept(60.0, meter), name
        return connect(me, allowed, "127.0.0.1", ports.get(), 60.0, link_timeout_s=120.0, meter=meter), name

    try:
        source = OtSource(dial, rank)
        source.link  # noqa: B018  base transfers first
        results.put((rank, (work(source, options),)))
        source.leave()
    except BaseException as error:
        results.put((rank, f"party {rank}: {type(error).__name__} {error}"))
        raise


def aes_bytes_per_second(seconds: float = 0.5) -> float:
    """AES-128 in counter mode on one core, as OpenSSL does it."""
    cipher, block, best = Cipher(algorithms.AES(bytes(16)), modes.CTR(bytes(16))).encryptor(), bytes(1 << 22), 0.0
    out = bytearray(len(block) + 16)
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        started = time.perf_counter()
        cipher.update_into(block, out)
        best = max(best, len(block) / (time.perf_counter() - started))
    return best
