"""What all tests share: machines that run them are slow at times, which is no failure of an example."""

import os
import signal
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
def ports_of_its_own() -> Iterator[None]:
    """Tests that run beside each other choose none of each other's ports before these are listened on."""
    from hdcos.link import ports

    number, count = (os.environ.get(f"PYTEST_XDIST_WORKER{what}") for what in ("", "_COUNT"))
    mine = ports.candidates()[int((number or "gw0")[2:]) :: int(count or 1)]
    with mock.patch.object(ports, "candidates", return_value=mine):
        yield


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
