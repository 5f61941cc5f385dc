"""Proofs can fail: what the proof of lost workers looks at shows when it is wrong."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import numpy as np

from benchmarks.scale_hosts import example
from benchmarks.scale_kills import LABELS, ROWS, count_changed, read_ledgers
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.store import Store
from hdcos.ring import encode
from hdcos.secure.training.plan import INPUT_SCALE, TARGET_SCALE

JOB = "0" * 32


def test_material_of_steps_that_was_used_twice_is_seen(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        store.keep_job(JOB, {}, "me", {"weights": np.zeros(1, np.uint64)})
        ledger = Checkpoints.of(store.job_folder(JOB), 0)
        ledger.lock()
        ledger.begin(1, "a scope")
        ledger.reserve(1, "a scope", 0, 5)
        assert read_ledgers(store, 0) == (2, [])
        ledger.reserve(1, "a scope", 4, 1)
        ledger.unlock()
        assert read_ledgers(store, 0) == (3, ["execution 4 of a scope"])


def test_a_word_of_a_data_set_that_is_another_is_counted() -> None:
    words = np.hstack([encode(ROWS, INPUT_SCALE), encode(np.eye(3)[LABELS], TARGET_SCALE)])
    assert count_changed(words) == 0
    words[7, 13] += np.uint64(1)
    assert count_changed(words) == 1
    assert count_changed(words[1:]) == words.size


def test_the_proxies_of_two_hosts_reach_a_node_and_its_workers() -> None:
    text = example("10.77.0.2", "party1", 5001, 5002, 5100)
    assert [text.count(f" {place}") for place in ("10.77.0.2:5002", "127.0.0.1:5101", "127.0.0.1:5102")] == [1, 2, 2]
    assert "10.0.0." not in text
    assert "-i w1.party1 }" in text
