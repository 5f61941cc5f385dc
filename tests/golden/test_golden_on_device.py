"""The same messages, word for word, where both parties, one of them or the dealer compute on a device.

The device is emulated: its kernels are the CUDA sources, and its arrays refuse to mix with those of this machine.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from golden.cases import measured
from golden.test_golden import CASES, GOLDEN
from hdcos.ring.device import to_host
from hdcos.testing.emulated_cupy import noting_numbers
from hdcos.testing.pair import computing_on
from hdcos.testing.steps import public_randomness


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
