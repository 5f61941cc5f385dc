"""Is the declared price the planned price, the simulated price and the metered price?"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hdcos.protocol.cosine import even
from hdcos.protocol.party import Party
from hdcos.protocol.plan import blank_share, plan
from hdcos.protocol.rounds import run
from hdcos.ring import encode
from hdcos.testing.pair import deal, share_pair, simulate
from protocol_cases import CASES, Case
from tls_pair import tls_pair


def _planned(case: Case, rank: int = 0):
    return plan(case.program, *(blank_share(shape, case.scale) for shape in case.shapes), rank=rank)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_declared_price_is_the_planned_price(case: Case) -> None:
    planned = _planned(case)
    assert planned.rounds == case.price.rounds
    assert planned.online_bytes == case.price.online_bytes
    assert planned.offline_bytes == case.price.offline_bytes
    assert planned.common_bytes == case.price.common_bytes
    assert tuple(need.kind.name for need in planned.material.needs) == case.price.material


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_both_parties_plan_the_same(case: Case) -> None:
    zero, one = _planned(case, 0), _planned(case, 1)
    assert zero.material == one.material
    assert (zero.rounds, zero.online_bytes) == (one.rounds, one.online_bytes)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_planned_price_is_what_is_exchanged(case: Case) -> None:
    shares = [share_pair(encode(values, case.scale), case.scale) for values in case.secrets()]
    _, transcript = simulate(case.program, *shares)
    assert len(transcript.rounds) == case.price.rounds
    assert sum(transcript.sent_bytes) == case.price.online_bytes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_planned_price_is_what_the_meter_counts_over_tls(case: Case) -> None:
    shares = [share_pair(encode(values, case.scale), case.scale) for values in case.secrets()]
    allocations = deal(_planned(case).material)
    with tls_pair() as links, ThreadPoolExecutor(2) as pool:

        def work(rank: int):
            with links[rank].meter.section("online"):
                program = case.program(Party(rank, allocations[rank]), *(pair[rank] for pair in shares))
                return run(program, links[rank])

        list(pool.map(work, (0, 1)))
        for rank, link in enumerate(links):
            allocations[rank].finish()
            online = link.meter.snapshot().sections["online"]
            assert online.rounds == case.price.rounds
            assert online.bytes_sent == online.bytes_received == case.price.online_bytes
            total = link.meter.snapshot().total
            assert link.os_counters() == (total.wire_bytes_sent, total.wire_bytes_received)


def test_named_steps_account_for_every_byte_and_share_rounds() -> None:
    from hdcos.protocol.cosine import cos
    from hdcos.protocol.rounds import named, together

    def program(party, x):
        first, _ = yield from together(named("a", cos(party, x)), named("b", cos(party, x, even(20, 26))))
        return (yield from named("c", cos(party, first)))

    planned = plan(program, blank_share((4, 8), 32))
    assert planned.rounds == 2
    assert planned.steps == {"a": (1, 64), "b": (1, 80), "c": (1, 64)}
    assert planned.online_bytes == 64 + 80 + 64


def test_a_share_times_a_share_is_a_type_error() -> None:
    x, _ = share_pair(encode(np.ones((2, 2)), 8), 8)
    with pytest.raises(TypeError, match="multiply"):
        x * x
