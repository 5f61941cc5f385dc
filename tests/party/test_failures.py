"""What ended a process or failed by name is not tried again, by the next process either."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from hdcos.api.commands import Load, OpenJob, Steps
from hdcos.errors import InputError, PeerLost, StorageFull
from hdcos.party.failures import MOST_LOST, Failures
from hdcos.party.store import Store

LOAD = Load("m", "0" * 32, "scope", {})
STEPS, OPEN = Steps("j", 0, 1, 0.1), OpenJob("j", "scope", [], 1, None)
DIES = """
import os, sys
from pathlib import Path
from hdcos.api.commands import Load
from hdcos.party.failures import Failures
from hdcos.party.store import Store
failures = Failures(Store(Path(sys.argv[1])))
if failures.final("load", "m", "0" * 32):
    sys.exit(7)
failures.begin(Load("m", "0" * 32, "scope", {}))
os._exit(137)
"""


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "state")
    yield opened
    opened.close()


def final(store):
    return Failures(store).final("load", "m", "0" * 32)


def test_a_model_that_ends_the_process_is_given_up_by_those_that_follow(tmp_path) -> None:
    codes = [
        subprocess.run([sys.executable, "-c", DIES, tmp_path / "state"], check=False).returncode
        for _ in range(MOST_LOST + 2)
    ]
    assert codes == [137] * MOST_LOST + [7] * 2
    store = Store(tmp_path / "state")
    assert "ended 3 times in a row" in final(store)
    store.close()


def test_a_failure_with_a_name_is_remembered_at_once_and_after_a_restart(store) -> None:
    failures = Failures(store)
    failures.begin(LOAD)
    failures.fail(InputError("no"))
    assert failures.final("load", "m", "0" * 32) == final(store) == "InputError: no"
    assert not Failures(store).final("load", "m", "1" * 32)


def test_a_load_that_succeeds_leaves_nothing_behind(store) -> None:
    for _ in range(5):
        failures = Failures(store)
        failures.begin(LOAD)
        failures.end()
    assert store.failures() == []


def test_a_lost_peer_counts_three_times_in_a_row_and_a_success_forgives(store) -> None:
    failures = Failures(store)
    for command in (LOAD, OPEN, STEPS):
        for _ in range(MOST_LOST - 1):
            failures.begin(command)
            failures.lose(PeerLost("gone"))
        assert all(not known.why for known in store.failures())
        failures.begin(command)
        failures.end()
        assert store.failures() == []
    for _ in range(MOST_LOST):
        failures.begin(STEPS)
        failures.lose(PeerLost("gone"))
    assert failures.final("job", "j") == "PeerLost: gone"


def test_forgetting_a_model_or_the_operator_clears_it(store) -> None:
    failures = Failures(store)
    for clear in (lambda: store.forget_model("m"), lambda: store.forgive("load", "m")):
        store.keep_model("m", "0" * 32, {"layers": []}, 16, "me", {"w": np.zeros(1, np.uint64)})
        failures.begin(LOAD)
        failures.fail(InputError("no"))
        assert final(store)
        clear()
        assert not final(store)
        store.forget_model("m")


def test_however_many_find_no_room_few_are_remembered(store, monkeypatch) -> None:
    monkeypatch.setattr("hdcos.party.failures.MOST_WAITING", 8)
    failures = Failures(store)
    for number in range(50):
        failures.begin(OpenJob(f"j{number}", "scope", [], 1, None))
        failures.fail(StorageFull("no room"))
    assert [number for number in range(50) if failures.found_no_room("job", f"j{number}")] == list(range(42, 50))
