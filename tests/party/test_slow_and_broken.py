"""Real nodes of which one is slower than the other, or dies while it loads a model."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import pytest

from hdcos import nn
from hdcos.cluster.https import Party
from hdcos.errors import HdcosError
from hdcos.party.failures import MOST_LOST
from party.conftest import connected, running_all

LATE_S = 1.5
SLOW = f"""
import time
from hdcos.party.store import Store
from hdcos.party.worker import Worker

def late(method):
    def act(*known, **options):
        time.sleep({LATE_S})
        return method(*known, **options)
    return act

Store.keep_model, Worker._close_job = late(Store.keep_model), late(Worker._close_job)
"""
DEADLY = """
import os, signal
from hdcos.party import worker

open_model = worker.open_model

def die(engine, scope, *known):
    if "deadly" in scope:
        os.kill(os.getpid(), signal.SIGKILL)
    return open_model(engine, scope, *known)

worker.open_model = die
"""


def test_a_party_that_is_slow_is_never_asked_for_a_model_that_it_does_not_have_yet(folder, monkeypatch) -> None:
    """Party 1 keeps the trained model, and ends the job, well after party 0."""
    x = np.random.default_rng(0).uniform(-1, 1, (40, 6))
    heard = list[tuple[float, int, str, str]]()
    ask = Party.ask

    def listen(party, method, path, *more):
        try:
            answer = ask(party, method, path, *more)
        except HdcosError as error:
            heard.append((time.monotonic(), party.rank, path, type(getattr(error, "error", error)).__name__))
            raise
        state = answer.meta.get("state", "") if isinstance(answer.meta, dict) else ""
        heard.append((time.monotonic(), party.rank, path, state))
        return answer

    with running_all(folder, changed={"party1": SLOW}), connected(folder) as cluster:
        cluster.upload(x, x[:, :3].argmax(axis=1), name="rows", outputs=3)  # those of a call are forgotten first
        monkeypatch.setattr(Party, "ask", listen)
        private = cluster.fit(nn.models.mlp([6, 8, 3]), "rows", epochs=1, batch_size=20, lr=0.1, name="late")
        assert private.predict(x[:2]).shape == (2, 3)
    ended = [min(at for at, rank, path, said in heard if rank == one and said == "done") for one in (0, 1)]
    assert ended[1] - ended[0] > LATE_S / 2, "party 1 was not late at all"
    wanted = [(at, said) for at, _, path, said in heard if path.startswith("/v2/models/late")]
    assert wanted
    assert min(at for at, _ in wanted) > ended[1]
    assert "DataMissing" not in {said for _, said in wanted}


@pytest.mark.parametrize("rank", [0, 1])
def test_a_node_that_is_killed_while_it_loads_a_model_gives_it_up_and_serves_others(folder, rank) -> None:
    """As often as its supervisor starts it again: three times, and no more."""
    role, other = f"party{rank}", f"party{1 - rank}"
    good, rows = nn.models.mlp([6, 8, 3]), np.random.default_rng(0).uniform(-1, 1, (5, 6))
    with ExitStack() as stack:
        stack.enter_context(running_all(folder, ("dealer", other)))
        waiting = stack.enter_context(ThreadPoolExecutor(1))
        deaths = 0
        for start in range(MOST_LOST + 1):
            with running_all(folder, (role,), changed={role: DEADLY}) as started:
                if start == 0:
                    with connected(folder) as cluster:
                        cluster.share(good, "good")
                        lost = waiting.submit(_share_deadly, folder)
                if start < MOST_LOST:
                    deaths += started[role].wait(60) == -9
                    continue
                assert deaths == MOST_LOST
                with connected(folder, timeout_s=60.0) as cluster:
                    assert np.abs(cluster.model("good").predict(rows) - good(rows)).max() < 0.02
                    assert started[role].poll() is None
                    with pytest.raises(HdcosError, match=r"deadly cannot be loaded: .* Share it again, or have"):
                        cluster.model("deadly")
                assert isinstance(lost.result(60), HdcosError)


def _share_deadly(folder) -> HdcosError | None:
    """What a client is told meanwhile."""
    try:
        with connected(folder, timeout_s=10.0) as cluster:
            cluster.share(nn.models.mlp([6, 8, 2]), "deadly")
    except HdcosError as error:
        return error
    return None
