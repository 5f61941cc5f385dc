"""What the two parties' sessions say to each other about jobs that one of them cannot go on with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from threading import Condition, Event
from types import SimpleNamespace
from typing import Any

import pytest

from hdcos.api import commands
from hdcos.api.commands import Command, read_command, write_command
from hdcos.errors import StorageFull
from hdcos.link import Kind, Link
from hdcos.link.message import decode_message, encode_message, reply_error
from hdcos.party import session as sessions
from hdcos.party.session import Session
from hdcos.testing.pair import memory_pair

OPEN = commands.OpenJob("j", "scope", [["d", "1"]], 1, None, [0])


def session_with(**parts: Any) -> Any:
    """A session whose surroundings are these."""
    made = Session.__new__(Session)
    vars(made).update(parts, _answer_s=2.0, _carried=0, _told=0, _functions_told=0, _ended=Event())
    return made


def hear(link: Link) -> Command:
    return read_command(decode_message(link.receive(Kind.REQUEST, timeout_s=2.0)[1])[0])


def test_party_1_tells_what_it_holds_after_every_pause_whether_it_changed_anything_or_not(monkeypatch) -> None:
    """Party 0 waits to hear it: a job that party 1 could not open, so that it had nothing to write down, waited for
    ever."""
    (zero, one), (arrivals, telling) = memory_pair(), memory_pair()
    batcher = SimpleNamespace(changed=Condition(), news=list, has_news=False)
    store, functions = SimpleNamespace(changes=0), SimpleNamespace(changes=0)
    links = SimpleNamespace(commands=one, arrivals=telling)
    party = session_with(_links=links, _store=store, _batcher=batcher, _functions=functions, _failures=None)
    party._obey = party._look_after = lambda *_: None
    monkeypatch.setattr(sessions, "inventory", lambda *_: {"jobs": []})
    monkeypatch.setattr(sessions, "HEARTBEAT_S", 0.2)
    with ThreadPoolExecutor(2) as pool:
        following, reporting = pool.submit(party._follow), pool.submit(party._report)
        for number, command in enumerate((commands.PauseJob("j"), commands.Idle(), commands.PauseJob("k")), 1):
            zero.send(Kind.REQUEST, *encode_message(write_command(command)))
            if not isinstance(command, commands.Idle):
                told: dict[str, Any] = {}
                while "inventory" not in told:
                    told = decode_message(arrivals.receive(Kind.REQUEST, timeout_s=2.0)[1])[0]
                assert told["inventory"]["carried"] == (number + 1) // 2
        party._ended.set()
        zero.send(Kind.REQUEST, *encode_message(write_command(commands.Idle())))
        following.result(2.0)
        reporting.result(2.0)


@pytest.mark.parametrize("command", [OPEN, commands.Publish("j", "v", "scope")])
def test_a_job_that_finds_no_room_at_one_party_is_let_go_of_by_both_and_nothing_else_is(command) -> None:
    """Party 0 would ask for steps of a job that party 1 has not opened."""
    (zero, one), failed, paused = memory_pair(), list[str](), list[tuple[str, int]]()
    party = session_with(
        _links=SimpleNamespace(commands=zero, rounds=SimpleNamespace(closed=False)),
        _scheduler=SimpleNamespace(pause=lambda job, number: paused.append((job, number))),
        _side_workers=SimpleNamespace(tell=lambda *_: None),
        _crews={},
        _failures=SimpleNamespace(
            begin=lambda _: None, end=lambda: None, fail=lambda e: failed.append(type(e).__name__)
        ),
        worker=SimpleNamespace(begin=lambda _: lambda: None),
    )

    def party_1() -> list[Command]:
        heard = [hear(one)]
        reply_error(one, StorageFull("the disk is full"))
        assert decode_message(one.receive(Kind.REQUEST, timeout_s=2.0)[1])[0] == {"go": False}
        if command == OPEN:
            heard.append(hear(one))
            for _ in range(2):
                one.send(Kind.REPLY, *encode_message({}))
                assert decode_message(one.receive(Kind.REQUEST, timeout_s=2.0)[1])[0] == {"go": True}
        return heard

    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(party_1)
        party._carry_out_both(command)
        assert told.result(2.0) == [command, *([commands.PauseJob("j")] if command == OPEN else [])]
    assert failed == ["StorageFull"]
    assert paused == ([("j", 2)] if command == OPEN else [])
