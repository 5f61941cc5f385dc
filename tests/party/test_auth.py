"""Who is let in: tokens, roles, requests per second, and the memory that requests may hold."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from starlette.requests import ClientDisconnect

from hdcos.api.bodies import LENGTH_HEADER
from hdcos.api.tokens import token_hash
from hdcos.errors import InputError, PolicyRefused
from hdcos.party.batcher import Refused
from hdcos.party.config import Limits
from hdcos.party.http import auth
from hdcos.party.http.auth import CONNECTION, HELD, MOST_LASTING, Auth, Held, Releasing, Waiting
from hdcos.party.store import Store

MEGABYTE = 1_000_000


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(auth, "time", clock)
    return clock


@pytest.fixture
def store(tmp_path):
    store = Store(tmp_path / "state")
    store.allow("me", token_hash("my token"), ["predict"])
    yield store
    store.close()


def asking(header: str = "Bearer my token", **headers: str) -> SimpleNamespace:
    return SimpleNamespace(headers={"authorization": header, **headers}, scope={})


def refused(guard: Auth, request: SimpleNamespace, role: str = "predict") -> Refused:
    with pytest.raises(Refused) as caught:
        guard.admit(request, role)
    assert isinstance(caught.value.error, PolicyRefused)
    return caught.value


# ---- tokens and roles


def test_a_token_lets_its_client_in_for_its_roles(store, clock) -> None:
    guard, connection = Auth(store, Limits()), SimpleNamespace(known=False)
    request = asking("bearer  my token ")
    request.scope[CONNECTION] = connection
    assert guard.admit(request, "predict") == "me"
    assert connection.known is True
    assert isinstance(request.scope[HELD], Held)
    assert refused(guard, asking(), "train").status == 403
    for header in ("", "Bearer", "Bearer your token", "Basic my token", "my token"):
        request = asking(header)
        request.scope[CONNECTION] = SimpleNamespace(known=False)
        assert refused(guard, request).status == 401
        assert request.scope[CONNECTION].known is False
        assert HELD not in request.scope


def test_a_client_is_known_at_once_and_forgotten_within_a_second(store, clock) -> None:
    guard = Auth(store, Limits())
    assert guard.admit(asking(), "predict") == "me"
    store.allow("you", token_hash("your token"), ["predict"])
    assert guard.admit(asking("Bearer your token"), "predict") == "you"
    store.revoke("me")
    clock.now += 1.0
    assert guard.admit(asking(), "predict") == "me"
    clock.now += 0.01
    assert refused(guard, asking()).status == 401


# ---- requests per second


def test_requests_per_second_are_bounded_and_come_back(store, clock) -> None:
    guard = Auth(store, Limits(requests_per_s=4))
    for _ in range(4):
        guard.admit(asking(), "predict")
    late = refused(guard, asking())
    assert (late.status, late.retryable) == (429, True)
    assert "more than 4 requests per second" in str(late.error)
    clock.now += 0.5  # two more
    guard.admit(asking(), "predict")
    guard.admit(asking(), "predict")
    assert refused(guard, asking()).status == 429
    clock.now += 1000.0  # what is not used is not saved up
    for _ in range(4):
        guard.admit(asking(), "predict")
    assert refused(guard, asking()).status == 429


def test_reading_the_list_of_clients_again_changes_nothing_for_them(store, clock) -> None:
    guard = Auth(store, Limits(requests_per_s=2))
    guard.admit(asking(), "predict")
    guard.admit(asking(), "predict")
    store.allow("you", token_hash("your token"), ["predict"])
    guard.admit(asking("Bearer your token"), "predict")  # the list was read again
    assert refused(guard, asking()).status == 429
    clock.now += 0.5
    refused(guard, asking("Bearer wrong"))  # and again
    guard.admit(asking(), "predict")
    assert refused(guard, asking()).status == 429


# ---- memory


def test_a_client_and_all_clients_hold_what_they_may_and_no_byte_more() -> None:
    waiting = Waiting(Limits(client_mb=2, waiting_mb=3))
    waiting.take("a", 2 * MEGABYTE)
    for client, size, words in (("a", 1, "requests of a that"), ("b", MEGABYTE + 1, "requests that are not answered")):
        with pytest.raises(Refused, match=words) as caught:
            waiting.take(client, size)
        assert (caught.value.status, caught.value.retryable) == (429, True)
    waiting.take("b", MEGABYTE)
    assert waiting.total == 3 * MEGABYTE
    waiting.give_back("a", MEGABYTE)
    waiting.take("a", MEGABYTE)
    waiting.give_back("a", 2 * MEGABYTE)
    waiting.give_back("b", MEGABYTE)
    assert waiting.total == 0
    assert not waiting._of, "a client that holds nothing is forgotten"


def test_what_can_never_be_held_is_too_large_and_not_too_early() -> None:
    for limits in (Limits(client_mb=2, waiting_mb=9), Limits(client_mb=9, waiting_mb=2)):
        waiting = Waiting(limits)
        with pytest.raises(Refused, match="at most 2000000 bytes here, not 2000001") as caught:
            waiting.take("a", 2 * MEGABYTE + 1)
        assert (caught.value.status, caught.value.retryable) == (413, False)
        waiting.take("a", 2 * MEGABYTE)


def test_a_request_that_is_over_holds_nothing() -> None:
    waiting = Waiting(Limits())
    scope = {HELD: Held(waiting, "a")}

    async def app(scope, receive, send):
        scope[HELD].more(100)
        scope[HELD].more(23)
        assert waiting.total == 123
        raise ValueError

    with pytest.raises(ValueError):
        asyncio.run(Releasing(app)(scope, None, None))
    assert waiting.total == 0
    scope[HELD].release()
    assert waiting.total == 0, "what was given back is not given back again"

    async def quiet(scope, receive, send):
        pass

    asyncio.run(Releasing(quiet)({}, None, None))


# ---- requests at work


def test_requests_of_a_client_that_are_at_work_are_bounded_and_others_come_in(store) -> None:
    store.allow("you", token_hash("your token"), ["predict"])
    guard, working = Auth(store, Limits(), 3), [asking() for _ in range(3)]
    for request in working:
        guard.admit(request, "predict")
    late = refused(guard, asking())
    assert (late.status, late.retryable) == (429, True)
    assert "3 requests of me are at work" in str(late.error)
    assert guard.admit(asking("Bearer your token"), "predict") == "you"
    working[0].scope[HELD].release()
    working[0].scope[HELD].release()
    guard.admit(asking(), "predict")
    assert refused(guard, asking()).status == 429


def test_of_a_client_few_requests_wait_for_something_to_happen() -> None:
    waiting = Waiting(Limits())
    held = [Held(waiting, "a") for _ in range(MOST_LASTING + 1)]
    for one in held[:-1]:
        one.last()
    with pytest.raises(Refused, match="requests of a wait already for events of jobs or messages of meetings") as late:
        held[-1].last()
    assert (late.value.status, late.value.retryable) == (429, True)
    Held(waiting, "b").last()
    held[0].release()
    held[-1].last()
    for one in held:
        one.release()
    assert (waiting._requests, waiting._lasting) == ({"b": 1}, {"b": 1})


# ---- bodies


def body(limits: Limits, pieces: list[bytes | Exception], waiting: Waiting | None = None, **headers: str) -> bytes:
    async def stream():
        for piece in pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    request = asking(**{name.replace("_", "-"): text for name, text in headers.items()})
    request.stream, request.scope[HELD] = stream, Held(waiting or Waiting(limits), "me")
    guard = Auth(SimpleNamespace(), limits)
    return asyncio.run(guard.body(request))


def test_a_body_is_read_whole() -> None:
    assert body(Limits(), [b"ab", b"", b"c"]) == b"abc"
    assert body(Limits(), [b"ab", b"c"]) == b"abc"
    assert body(Limits(), [b"ab"], content_length="2") == b"ab"
    assert body(Limits(), []) == b""


def test_a_body_that_is_too_large_is_refused_before_it_is_read_and_while_it_is() -> None:
    limits = Limits(body_mb=0.01)
    for pieces, headers in (
        ([AssertionError("was read")], {"content_length": "10001"}),
        ([bytes(10_001)], {}),
        ([bytes(10_000), b"x"], {"content_length": "5"}),
    ):
        with pytest.raises(Refused, match="at most 10000 bytes") as caught:
            body(limits, pieces, **headers)
        assert caught.value.status == 413
        assert isinstance(caught.value.error, InputError)
    assert len(body(limits, [bytes(10_000)], content_length="10000")) == 10_000
    with pytest.raises(Refused, match="at most 2000000 bytes"):
        body(Limits(body_mb=2), [], content_length="2000001")


@pytest.mark.parametrize(("binary", "weight"), [(False, 4), (True, 2)])
@pytest.mark.parametrize("stated", ["", "100", "nonsense"])
def test_text_counts_four_times_and_words_twice(binary: bool, weight: int, stated: str) -> None:
    waiting = Waiting(Limits())
    headers = {LENGTH_HEADER: "0"} if binary else {}
    request = asking(**headers, **({"content-length": stated} if stated else {}))
    request.scope[HELD] = Held(waiting, "me")

    async def stream():
        assert waiting.total == (weight * 100 if stated == "100" else 0), "before the first byte is here"
        yield bytes(60)
        yield bytes(70)

    request.stream = stream
    asyncio.run(Auth(SimpleNamespace(), Limits()).body(request))
    assert waiting.total == weight * 130


def test_a_client_that_leaves_is_told_so() -> None:
    with pytest.raises(Refused, match="the client left") as caught:
        body(Limits(), [b"a", ClientDisconnect()])
    assert (caught.value.status, caught.value.retryable) == (400, False)


def test_a_client_that_is_too_slow_may_try_again() -> None:
    with pytest.raises(Refused, match="within 30 s") as caught:
        body(Limits(), [b"a", TimeoutError()])
    assert (caught.value.status, caught.value.retryable) == (408, True)
