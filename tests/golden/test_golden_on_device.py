"""The same messages, word for word, where both parties, one of them or the dealer compute on a device.

The device is emulated: its kernels are the CUDA sources, and its arrays refuse to mix with those of this machine.
"""

from __future__ import annotations

from typing import Any

import pytest

from golden.cases import measured
from golden.test_golden import CASES, GOLDEN
from hdcos.testing.pair import computing_on


@pytest.mark.parametrize("name", CASES)
def test_messages_are_those_of_this_machine(name: str, device: Any) -> None:
    with computing_on(device, device, device):
        assert measured(name, CASES[name]) == GOLDEN[name]


@pytest.mark.parametrize("name", ["infer hadamard cos", "infer lenet5 masked", "step hadamard softmax"])
@pytest.mark.parametrize("places", [(0,), (1,), (2,)])
def test_a_device_works_with_a_processor(name: str, places: tuple[int, ...], device: Any) -> None:
    with computing_on(*(device if place in places else None for place in range(3))):
        assert measured(name, CASES[name]) == GOLDEN[name]
