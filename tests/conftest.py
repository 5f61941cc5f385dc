"""What all tests share: machines that run them are slow at times, which is no failure of an example."""

import signal
import socket
from collections import deque
from collections.abc import Iterator
from typing import Any
from unittest import mock

import pytest
from hypothesis import settings

# In the background of a shell interrupts are ignored, and every process that tests start would ignore them too.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture(scope="session", autouse=True)
def ports_of_their_own() -> Iterator[None]:
    """Ports that a test has found stay its own until it listens there, however many tests run beside it.

    They stay bound, so that they are not found again, by this process or another. Servers, which bind with
    SO_REUSEADDR, may listen there all the same.
    """
    from hdcos.link import ports

    kept = deque[socket.socket]()
    bind = ports.bind_somewhere

    def keep(host: str) -> socket.socket:
        found = bind(host)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.append(found.dup())
        if len(kept) > 100:
            kept.popleft().close()
        return found

    with mock.patch.object(ports, "bind_somewhere", keep):
        yield
    for each in kept:
        each.close()


@pytest.fixture
def short_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans simulate fewer batches than those that somebody relies on: an eighth of the time."""
    from hdcos.planning import serving_plan

    monkeypatch.setattr(serving_plan, "BATCHES", 500)
    monkeypatch.setattr(serving_plan, "FULL_BATCHES", 200)


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A CUDA device that is emulated; tests/gpu has a real one."""
    from hdcos.ring.cuda import open_device
    from hdcos.ring.device import DEVICES

    monkeypatch.setenv("HDCOS_CUPY", "hdcos.testing.emulated_cupy")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    yield open_device("cuda:0")
    DEVICES.clear()
