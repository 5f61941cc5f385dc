"""Every protocol test runs with both sources of material: a dealer, and the two parties by themselves.

Uniformity takes millions of numbers, which take the parties minutes to make: with them it runs where
HDCOS_ALL_SOURCES is set, as `make prove SUITE=offline` does. A module of what only a dealer makes says DEALER_ONLY.
"""

from __future__ import annotations

import os
from functools import cache

import pytest

from hdcos.testing import pair as simulate
from hdcos.testing.ot_pair import Pair


@cache
def pair() -> Pair:
    return Pair()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    long = metafunc.module.__name__.endswith("test_uniformity") and not os.environ.get("HDCOS_ALL_SOURCES")
    alone = long or getattr(metafunc.module, "DEALER_ONLY", False)
    metafunc.parametrize("source", ["dealer"] if alone else ["dealer", "parties"], indirect=True)


@pytest.fixture(autouse=True)
def source(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Where `deal` gets its material from, in this test; what only a dealer makes comes from one."""
    case = request.node.callspec.params.get("case")
    if request.param == "parties" and not (case is not None and case.dealer):
        for module in (simulate, request.module):
            if getattr(module, "deal", None) is not None:
                monkeypatch.setattr(module, "deal", pair().deal)
    return str(request.param)
