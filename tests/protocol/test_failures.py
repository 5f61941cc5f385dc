"""A peer that vanishes, or means another program: the named error on the other side, and no result."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from hdcos.errors import HandshakeError, PeerLost
from hdcos.link import Link
from hdcos.protocol.party import Party
from hdcos.protocol.plan import blank_share, plan
from hdcos.protocol.rounds import cut_reply, pack_parts, run
from hdcos.ring import encode
from hdcos.testing.pair import deal, share_pair
from protocol_cases import CASES, Case
from tls_pair import tls_pair

TALKING = [case for case in CASES if case.price.rounds]


def vanishing(protocol, link: Link, round_number: int):
    """Drive a protocol but leave, without a word, instead of sending round `round_number`."""
    reply = None
    for number in range(round_number + 1):
        message = protocol.send(reply)
        if number == round_number:
            link.cancel()
            return
        parts = pack_parts(message)
        reply = cut_reply((part.nbytes for part in parts), link.exchange(parts))


@pytest.mark.parametrize("leaver", [0, 1])
@pytest.mark.parametrize(
    ("case", "round_number"),
    [(case, number) for case in TALKING for number in range(case.price.rounds)],
    ids=lambda value: value.name if isinstance(value, Case) else f"round {value}",
)
def test_a_peer_that_vanishes_at_any_round_is_named_and_nothing_comes_out(case, round_number, leaver) -> None:
    shares = [share_pair(encode(values, case.scale), case.scale) for values in case.secrets()]
    allocations = deal(plan(case.program, *(blank_share(shape, case.scale) for shape in case.shapes)).material)
    programs = [case.program(Party(rank, allocations[rank]), *(pair[rank] for pair in shares)) for rank in (0, 1)]
    with tls_pair(timeout_s=5) as links, ThreadPoolExecutor(2) as pool:
        started = time.monotonic()
        vanished = pool.submit(vanishing, programs[leaver], links[leaver], round_number)
        staying = pool.submit(run, programs[1 - leaver], links[1 - leaver])
        with pytest.raises(PeerLost, match=f"party{leaver}"):
            staying.result()
        vanished.result()
        assert time.monotonic() - started < 5


def test_a_peer_that_runs_another_program_is_refused_on_both_sides_at_the_first_frame() -> None:
    case = TALKING[0]
    shares = [share_pair(encode(values, case.scale), case.scale) for values in case.secrets()]
    with tls_pair(timeout_s=5) as links, ThreadPoolExecutor(2) as pool:
        links[0].context, links[1].context = 1, 2
        allocations = deal(plan(case.program, *(pair[0] for pair in shares)).material)
        programs = [case.program(Party(rank, allocations[rank]), *(pair[rank] for pair in shares)) for rank in (0, 1)]
        for future in [pool.submit(run, programs[rank], links[rank]) for rank in (0, 1)]:
            with pytest.raises(HandshakeError, match="another program"):
                future.result()
