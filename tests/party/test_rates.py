"""How fast a worker is said to be."""

from __future__ import annotations

import pytest

from hdcos.party import rates
from hdcos.party.rates import EVERY_S, OVER_S, Rates


@pytest.fixture
def at(monkeypatch):
    """Sets the clock."""
    return lambda now: monkeypatch.setattr(rates.time, "monotonic", lambda: now)


def test_a_rate_is_that_of_the_last_minute(at) -> None:
    noted = Rates()
    at(100.0)
    assert noted.note(500, 7) == [0.0, 0.0]
    at(120.0)
    assert noted.note(700, 7) == [10.0, 0.0]
    at(120.0 + OVER_S)
    assert noted.note(700 + 6 * 60, 67) == [6.0, 1.0]
    at(500.0)
    assert noted.note(2000, 67) == [0.0, 0.0]


def test_what_is_kept_is_bounded_however_often_somebody_asks(at) -> None:
    noted = Rates()
    for step in range(5000):
        at(step / 10)
        noted.note(step)
    assert len(noted._noted) <= OVER_S / EVERY_S + 1


def test_a_counter_that_seems_to_fall_is_no_speed(at) -> None:
    noted = Rates()
    at(1.0)
    noted.note(9)
    at(3.0)
    assert noted.note(4) == [0.0]
