"""A party's memory does not grow with what it has served."""

from __future__ import annotations

import gc
import secrets
import time
import tracemalloc
import weakref
from threading import Event
from types import SimpleNamespace

import numpy as np
import pytest

from hdcos.errors import MaterialReused, PeerLost, PolicyRefused
from hdcos.nn import models
from hdcos.offline import Dealer, MaterialPool, Need, Plan
from hdcos.offline.kinds import Mask
from hdcos.party import allotment as allotments
from hdcos.party import node
from hdcos.party import service as service_module
from hdcos.party.allotment import MaterialAllotment
from hdcos.party.batcher import ROWS, WAYS, Batcher, RecentIds, Request
from hdcos.party.budget import Budget
from hdcos.party.config import Config, Limits
from hdcos.party.service import Service
from hdcos.party.store import Store

SERVED = 20_000


class Growth:
    """Bytes that a block of code leaves behind."""

    def __enter__(self):
        gc.collect()
        tracemalloc.start()
        self._before = tracemalloc.get_traced_memory()[0]
        return self

    def __exit__(self, *error):
        gc.collect()
        self.bytes = tracemalloc.get_traced_memory()[0] - self._before
        tracemalloc.stop()


@pytest.mark.parametrize("rank", [0, 1])
def test_requests_that_were_answered_leave_nothing_but_their_trace_in_a_table(rank) -> None:
    loop = SimpleNamespace(is_closed=lambda: True)
    batcher = Batcher(loop, rank, 5.0, 10)
    batcher.open()
    words, future = np.zeros((1, 2), np.uint64), SimpleNamespace()

    def serve(number: str) -> None:
        request = Request(number, "m", "v", "shares", (), words, future)
        batcher.add(request)
        if rank == 0:
            batcher.hear([[number, request.said]])
            batcher.settle([(one, None) for one in batcher.batch(lambda *_: 100)])
        else:
            batcher.news()
            batcher.settle([(one, None) for one in batcher.take([number])])

    serve(secrets.token_hex(16))
    last = ""
    with Growth() as growth:
        for _ in range(SERVED):
            last = secrets.token_hex(16)
            serve(last)
    assert growth.bytes < 2 * SERVED  # 210 bytes of each were kept once
    with pytest.raises(MaterialReused):
        serve(last)


def test_a_session_that_was_lost_is_gone_before_the_next_begins(monkeypatch) -> None:
    """With the material of a large model two of them are more than the model may take."""
    service = object.__new__(Service)
    service._stop, service.reason, service.sessions = Event(), "", 0
    monkeypatch.setattr(service_module, "FIRST_PAUSE_S", 0.0)
    sessions = []

    class Session:
        def run(self) -> None:
            self.failure = PeerLost("gone")  # which knows where it was raised, and so this session
            raise self.failure

    def one_session() -> None:
        assert not [known for known in sessions if known() is not None]
        session = Session()
        sessions.append(weakref.ref(session))
        service.sessions += 1
        service._stop.set() if service.sessions == 3 else None
        session.run()

    service._one_session = one_session  # type: ignore[method-assign]
    gc.disable()
    try:
        service._live()
    finally:
        gc.enable()
    assert [known() for known in sessions] == [None] * 3


def test_a_request_id_is_known_for_a_hundred_thousand_others() -> None:
    remembered = RecentIds()
    ids = [secrets.token_hex(16) for _ in range(60_000)]
    for number in ids:
        assert number not in remembered
        remembered.add(number)
    assert all(number in remembered for number in ids[-1000:])
    assert sum(number in remembered for number in ids) > 0.99 * len(ids)
    assert remembered._table.nbytes == 8 * ROWS * WAYS == 1 << 20


@pytest.fixture
def allotment(tmp_path):
    plan = Plan((Need(Mask((1,)), 1),))
    pool = MaterialPool("scope", plan, 0, Dealer().open("scope", plan, 0))
    pool.order(2 * SERVED)
    pool.fill(0, 2 * SERVED, None)
    store = Store(tmp_path / "state")
    yield MaterialAllotment(pool, SERVED, store, SimpleNamespace(material_s=1.0, pair_seed=bytes(32)))
    store.close()


def test_masks_that_were_used_leave_nothing(allotment) -> None:
    with Growth() as growth:
        for _ in range(0, SERVED, 50):
            numbers, _share = allotment.hand_out(50, "me", 300.0)
            allotment.claim(numbers, "me")
            allotment.executions.take([(numbers[0], 50)])
    assert growth.bytes < 5 * SERVED  # 350 bytes of each were kept for six minutes
    with pytest.raises(MaterialReused):
        allotment.issue([3, 4], "me", 300.0)
    with pytest.raises(MaterialReused):
        allotment.claim([3, 4], "me")
    with pytest.raises(MaterialReused):
        allotment.executions.take([(3, 2)])


def test_a_claimed_mask_is_kept_until_its_request_must_have_run(allotment, monkeypatch) -> None:
    numbers, _share = allotment.hand_out(5, "me", 300.0)
    allotment.claim(numbers[2:4], "me")
    assert allotment.expired_before() == 0
    allotment.claim([*numbers[:2], numbers[4]], "me")
    assert allotment.expired_before() == 0  # it may still wait in a queue
    monkeypatch.setattr(allotments, "GRACE_S", 0.0)
    time.sleep(0.01)
    assert allotment.expired_before() == 5


def test_a_party_that_only_hears_what_has_expired_forgets_claims_as_well(allotment, monkeypatch) -> None:
    with Growth() as growth:
        for _ in range(SERVED // 2):
            allotment.claim(allotment.hand_out(1, "me", 300.0)[0], "me")
        kept = tracemalloc.get_traced_memory()[0]
        allotment.burn_before(0)
        assert tracemalloc.get_traced_memory()[0] > kept - 1000  # their requests may still wait
        monkeypatch.setattr(allotments, "GRACE_S", 0.0)
        allotment.burn_before(0)
    assert growth.bytes < 10 * SERVED  # 120 bytes of each were kept until the next claim, which may never come


def test_who_holds_enough_masks_uses_up_none(allotment, monkeypatch) -> None:
    monkeypatch.setattr(allotments, "LEAST_HELD", 10)
    allotment._ahead = 20
    allotment.hand_out(10, "eve", 300.0)
    for _ in range(100):
        with pytest.raises(PolicyRefused, match="not used yet"):
            allotment.hand_out(10, "eve", 300.0)
    assert allotment.allotted == 10


def _trims(monkeypatch, busy, looks):
    """When a node gives memory back, and looks for garbage before, that looks every second and was busy before some."""
    seen, trimmed, collected, used = 0, [], [], 0.0

    def sleep(seconds):
        nonlocal seen, used
        if seen == looks:
            raise StopIteration
        used += 0.5 * busy(seen)
        seen += 1

    for name, value in {"KEPT_S": 6.0, "LONGEST_KEPT_S": 20.0, "LOOK_S": 1.0}.items():
        monkeypatch.setattr(node, name, value)
    monkeypatch.setattr(node, "time", SimpleNamespace(sleep=sleep, process_time=lambda: used))
    monkeypatch.setattr(node, "gc", SimpleNamespace(collect=lambda: collected.append(seen)))
    monkeypatch.setattr(node, "return_memory", lambda: trimmed.append(seen))
    with pytest.raises(StopIteration):
        node._tidy_memory()
    return trimmed, collected


def test_a_node_gives_memory_back_after_a_while_without_work_and_never_between_requests(monkeypatch) -> None:
    assert _trims(monkeypatch, lambda second: second < 3, 19) == ([9], [9])
    assert _trims(monkeypatch, lambda second: second % 5 == 0, 19) == ([], [])


def test_a_node_that_always_works_gives_memory_back_now_and_then(monkeypatch) -> None:
    assert _trims(monkeypatch, lambda second: True, 50) == ([20, 40], [])


def test_the_limit_of_a_job_counts_the_rows_that_are_in_memory_and_how_they_move(tmp_path) -> None:
    store = Store(tmp_path / "state")
    budget = Budget(Config(limits=Limits(job_mb=512)), store, True)
    spec = {"rates": [0.1], "momentum": 0.0, "weight_decay": 0.0, "batch_size": 256, "loss": "logistic"}
    model, mapped, held = models.higgs_mlp(), 1 << 23, 10**8
    for shuffle in ("rows", "blocks"):  # the order of many rows takes no memory
        shuffled = {**spec, "shuffle": shuffle}
        budget.job(model, shuffled, mapped, 10**9)
        with pytest.raises(PolicyRefused, match=r"\d MB of memory, this party gives 512 .*smaller batches or layers"):
            budget.job(model, shuffled, held, 10**6)
        with pytest.raises(PolicyRefused):
            budget.job(model, {**shuffled, "flip": True}, mapped, 10**8)
    store.close()
