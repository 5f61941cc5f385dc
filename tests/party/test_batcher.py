"""Requests at the batcher: matched, merged, refused; none is ever left without an answer."""

from __future__ import annotations

import asyncio
from threading import Thread

import numpy as np
import pytest

from hdcos.errors import InputError, MaterialReused, PeerLost
from hdcos.party.batcher import Answer, Batcher, Refused, Request


@pytest.fixture
def loop():
    loop = asyncio.new_event_loop()
    thread = Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def made(loop, number, model="m", mode="shares", rows=1, output="logits"):
    future = asyncio.run_coroutine_threadsafe(_future(), loop).result()
    return Request(number, model, "v", mode, (), np.zeros((rows, 2), np.uint64), future, output=output)


async def _future():
    return asyncio.get_running_loop().create_future()


def outcome(loop, request):
    """The answer, or how it was refused."""

    async def wait():
        return await asyncio.wait_for(request.future, 2)

    try:
        return asyncio.run_coroutine_threadsafe(wait(), loop).result()
    except Refused as refused:
        return refused


def batcher_of(loop, rank, patience_s=5.0, waiting=10):
    batcher = Batcher(loop, rank, patience_s, waiting)
    batcher.open()
    return batcher


def test_matched_requests_of_one_model_and_mode_become_one_batch(loop) -> None:
    zero, one = batcher_of(loop, 0), batcher_of(loop, 1)
    requests = [made(loop, name, model) for name, model in (("a", "m"), ("b", "other"), ("c", "m"), ("d", "m"))]
    for request in requests:
        zero.add(request)
    for request in (requests[3], requests[0], requests[1]):
        one.add(made(loop, request.id, request.model))
    assert one.has_news
    zero.hear(one.news())
    assert not one.has_news
    batch = zero.batch(lambda request: 10)
    assert [request.id for request in batch] == ["d", "a"]  # in the order in which they were matched
    assert [request.id for request in one.take(["d", "a"])] == ["d", "a"]
    zero.settle([(request, Answer(np.zeros(1), 1, 2)) for request in batch])
    assert outcome(loop, batch[0]).scale == 1
    assert [request.id for request in zero.batch(lambda request: 10)] == ["b"]
    assert not zero.busy


def test_labels_and_logits_do_not_share_a_batch_and_both_parties_must_be_asked_for_the_same(loop) -> None:
    zero = batcher_of(loop, 0)
    for name, output in (("a", "logits"), ("b", "label"), ("c", "logits"), ("d", "label")):
        zero.add(made(loop, name, output=output))
        zero.hear([[name, made(loop, name, output=output).said]])
    assert [[request.id for request in zero.batch(lambda request: 10)] for _ in range(2)] == [["a", "c"], ["b", "d"]]
    asked = made(loop, "e", output="label")
    zero.add(asked)
    zero.hear([["e", made(loop, "e").said]])
    refused = outcome(loop, asked)
    assert (type(refused.error), refused.status) == (InputError, 409)
    assert "differ in model, version, mode, output" in str(refused)


def test_a_batch_has_no_more_rows_than_allowed_unless_one_request_has(loop) -> None:
    zero = batcher_of(loop, 0)
    for name, rows in (("a", 3), ("b", 2), ("c", 7)):
        zero.add(made(loop, name, rows=rows))
        zero.hear([[name, made(loop, name, rows=rows).said]])
    sizes = []
    while zero.busy:
        sizes.append([request.rows for request in zero.batch(lambda request: 5)])
    assert sizes == [[3, 2], [7]]


@pytest.mark.parametrize("rank", [0, 1])
def test_whatever_waits_or_runs_when_a_session_ends_is_refused_as_retryable(loop, rank) -> None:
    batcher = batcher_of(loop, rank)
    waiting, running = made(loop, "a"), made(loop, "b")
    batcher.add(waiting)
    batcher.add(running)
    if rank == 0:
        batcher.hear([["b", running.said]])
        assert batcher.batch(lambda request: 10) == [running]
    else:
        assert batcher.take(["b"]) == [running]
    batcher.close("the other party is gone.")
    for request in (waiting, running):
        refused = outcome(loop, request)
        assert isinstance(refused.error, PeerLost)
        assert refused.retryable
    with pytest.raises(PeerLost):
        batcher.add(made(loop, "c"))
    batcher.open()
    batcher.add(made(loop, "c"))


@pytest.mark.parametrize("heard", [False, True])
def test_a_batch_that_is_lost_at_party_0_does_not_wait_at_party_1(loop, heard) -> None:
    zero, one = batcher_of(loop, 0), batcher_of(loop, 1)
    mine, theirs = made(loop, "a"), made(loop, "a")
    zero.add(mine)
    one.add(theirs)
    zero.hear(one.news())
    running = zero.batch(lambda request: 10)
    lost = Refused(PeerLost("its worker is gone"), retryable=True)
    if heard:  # then party 1 has lost it as well
        one.lose(one.take(["a"]), lost)
    zero.lose(running, lost)
    one.drop(zero.refusals())
    for request in (mine, theirs):
        refused = outcome(loop, request)
        assert refused.retryable
        assert "its worker is gone" in str(refused.error)
    assert not one.refusals()


def test_what_differs_or_has_no_other_is_refused_at_both(loop) -> None:
    zero, one = batcher_of(loop, 0, patience_s=0.0), batcher_of(loop, 1, patience_s=0.0)
    pairs = [(made(loop, name), made(loop, name, rows=rows)) for name, rows in (("a", 2), ("b", 1))]
    zero.add(pairs[0][0])
    one.add(pairs[0][1])
    one.add(pairs[1][1])
    zero.hear(one.news())
    lonely = made(loop, "c")
    zero.add(lonely)
    one.expire()
    zero.expire()
    one.drop(zero.refusals())
    for request in (*pairs[0], pairs[1][1], lonely):
        refused = outcome(loop, request)
        assert isinstance(refused.error, InputError)
        assert refused.status == 409
    with pytest.raises(InputError, match="not waiting here"):
        one.take(["b"])


def test_request_ids_serve_once_and_the_batcher_is_not_endless(loop) -> None:
    batcher = batcher_of(loop, 0, waiting=2)
    batcher.add(made(loop, "a"))
    with pytest.raises(MaterialReused):
        batcher.add(made(loop, "a"))
    batcher.add(made(loop, "b"))
    with pytest.raises(PeerLost, match="too many"):
        batcher.add(made(loop, "c"))
