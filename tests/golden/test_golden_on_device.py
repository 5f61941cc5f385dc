"""The same messages, word for word, where both parties, one of them or the dealer compute on a device.

The device is emulated: its kernels are the CUDA sources, and its arrays refuse to mix with those of this machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest

from golden.cases import measured
from golden.test_golden import CASES, GOLDEN
from hdcos.link import Link
from hdcos.protocol.rounds import Rounds, run
from hdcos.ring.device import to_host
from hdcos.testing import pair
from hdcos.testing.emulated_cupy import noting_numbers
from hdcos.testing.pair import Transcript, computing_on
from hdcos.testing.steps import public_randomness
from tests.tls_pair import tls_pair


@pytest.mark.parametrize("name", CASES)
def test_messages_are_those_of_this_machine(name: str, device: Any) -> None:
    with computing_on(device, device, device):
        assert measured(name, CASES[name]) == GOLDEN[name]


@pytest.mark.parametrize("name", ["infer hadamard cos", "infer lenet5 masked", "step hadamard softmax"])
@pytest.mark.parametrize("places", [(0,), (1,), (2,)])
def test_a_device_works_with_a_processor(name: str, places: tuple[int, ...], device: Any) -> None:
    with computing_on(*(device if place in places else None for place in range(3))):
        assert measured(name, CASES[name]) == GOLDEN[name]


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("step")])
def test_no_number_that_a_kernel_is_given_was_drawn(name: str, device: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording repeats the numbers and constants that it was made with: what is drawn must lie in other arrays."""
    put, noted = device.constant, []

    def constant(x: Any) -> Any:
        seen.append(("constant", np.asarray(to_host(x)).tobytes()))
        return put(x)

    monkeypatch.setattr(device, "constant", constant)
    for drawn in ("tables are made", "one way", "another"):
        with noting_numbers() as seen, public_randomness(drawn), computing_on(device, device, device):
            CASES[name]()
        noted.append(seen)
    assert len(noted[1]) > 100
    assert noted[1] == noted[2]


def drive_over_tls(links: Sequence[Link], protocol0: Rounds[Any], protocol1: Rounds[Any]) -> tuple[Any, Transcript]:
    """Both parties at once, each in a thread of its own, over a connection; and what they sent."""
    sent: list[list[bytes]] = [[], []]

    def drive(rank: int, protocol: Rounds[Any]) -> Any:
        link = links[rank]
        exchange = type(link).exchange.__get__(link)

        def note(buffers: Sequence[Any], *known: Any) -> Any:
            sent[rank].append(b"".join(np.asarray(buffer).tobytes() for buffer in buffers))
            return exchange(buffers, *known)

        link.exchange = note  # type: ignore[method-assign]
        return run(protocol, link)

    with ThreadPoolExecutor(2) as pool:
        results = tuple(pool.map(drive, (0, 1), (protocol0, protocol1)))
    transcript = Transcript(sent_bytes=[len(payload) for payload in sent[0]])
    for payloads in zip(*sent, strict=True):
        for payload in payloads:
            transcript.words.update(payload)
    return results, transcript


@pytest.mark.parametrize("name", ["infer lenet5 masked", "step lenet5", "step hadamard logistic", "infer dense cos"])
@pytest.mark.parametrize("rank", [0, 1])
def test_a_device_and_a_processor_say_the_same_over_tls(
    name: str, rank: int, device: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One party on a device and the other on processors, over the links that parties use."""
    with tls_pair() as links, computing_on(*(device if place == rank else None for place in range(3))):
        monkeypatch.setattr(pair, "drive_pair", partial(drive_over_tls, links))
        assert measured(name, CASES[name]) == GOLDEN[name]
        assert all(link.meter.snapshot().total.wire_bytes_sent > GOLDEN[name]["bytes"] for link in links)
