"""Two ends of a real TLS connection on loopback, for tests in one process."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache

from hdcos.link import Identity, Link, Listener, connect


@cache
def identities() -> tuple[Identity, Identity]:
    return Identity.create("party0"), Identity.create("party1")


@contextmanager
def tls_pair(timeout_s: float = 10.0) -> Iterator[tuple[Link, Link]]:
    zero, one = identities()
    with (
        Listener(zero, {one.certificate: "party1"}, link_timeout_s=timeout_s) as listener,
        ThreadPoolExecutor(1) as pool,
    ):
        accepting = pool.submit(listener.accept, timeout_s)
        with (
            connect(
                one, {zero.certificate: "party0"}, "127.0.0.1", listener.port, timeout_s, link_timeout_s=timeout_s
            ) as dialled,
            accepting.result() as accepted,
        ):
            yield accepted, dialled
