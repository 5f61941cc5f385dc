"""Owners who meet at a party: seats, messages, limits, and a whole join by the commands."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from types import SimpleNamespace

import pytest

from hdcos.errors import DataMissing, InputError, PolicyRefused
from hdcos.join.rows import JoinedRows
from hdcos.party.batcher import Refused
from hdcos.party.config import Limits
from hdcos.party.http import meetings
from hdcos.party.http.meetings import MOST_MESSAGE, MOST_OF_CLIENT, WAITING, Meetings
from join.owners import outcomes, write_table
from party.conftest import command, connected

IDS = {"north": "0" * 32, "south": "1" * 32}


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now


class Client:
    """Calls handlers as the server does for an admitted client."""

    def __init__(self, handlers: Meetings, name: str, guest: str, seat: str = "", meeting: str = "m") -> None:
        self._handlers, self._name, self._guest = handlers, name, guest
        self.seat, self._meeting = seat or IDS[name], meeting

    async def ask(self, what: str, number: int = 0, content: bytes = b"", wait_s: float = 0.0):
        async def body() -> bytes:
            return content

        counted = {"hold": lambda size: None, "last": lambda: None}
        call = SimpleNamespace(client=self._name, name=self._meeting, id=self.seat, bytes=body, **counted)
        query = SimpleNamespace(guest=self._guest, number=number, wait_s=wait_s)
        answer = await getattr(self._handlers, what)(call, query=query)
        return answer if isinstance(answer, dict) else bytes(answer.body)


@pytest.fixture
def clock(monkeypatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(meetings, "time", clock)
    return clock


@pytest.fixture
def handlers(clock) -> Meetings:
    limits = Limits(meeting_gb=0.000_01)
    api = SimpleNamespace(service=SimpleNamespace(store=None), limits=limits, audit=lambda *noted: None)
    return Meetings(api)


def pair(handlers: Meetings) -> tuple[Client, Client]:
    return Client(handlers, "north", "south"), Client(handlers, "south", "north")


def test_messages_go_from_seat_to_seat_once_each_and_in_order(handlers) -> None:
    async def meet() -> None:
        north, south = pair(handlers)
        assert await north.ask("attend") == {"present": False}
        assert await south.ask("attend") == {"present": True}
        assert await north.ask("attend") == {"present": True}
        for number in (0, 0, 1):  # one is sent twice
            await north.ask("send", number, b"message %d" % number)
        assert await south.ask("receive", 0) == b"message 0"
        assert await south.ask("receive", 0) == b"message 0"  # an answer that got lost
        assert await south.ask("receive", 1) == b"message 1"
        assert await south.ask("receive", 2) == b""
        with pytest.raises(InputError, match="message 2 comes next, not 0"):
            await south.ask("receive", 0)
        with pytest.raises(InputError, match="message 2 comes next, not 5"):
            await north.ask("send", 5, b"x")
        waiting = asyncio.create_task(south.ask("receive", 2, wait_s=5.0))
        await asyncio.sleep(0.01)
        await north.ask("send", 2, b"late")
        assert await waiting == b"late"

    asyncio.run(meet())


def test_a_meeting_is_bounded(handlers, clock) -> None:
    async def meet() -> None:
        north, south = pair(handlers)
        await north.ask("attend")
        await south.ask("attend")
        with pytest.raises(InputError, match="1 to"):
            await north.ask("send", 0, bytes(MOST_MESSAGE + 1))
        for number in range(WAITING):
            await north.ask("send", number, bytes(1000))
        with pytest.raises(Refused, match="messages wait for south") as full:
            await north.ask("send", WAITING, bytes(1000))
        assert full.value.retryable
        await south.ask("receive", 2)
        with pytest.raises(PolicyRefused, match=r"meeting_gb.*--listen"):
            await north.ask("send", WAITING, bytes(7000))
        for number in range(1, MOST_OF_CLIENT):
            await Client(handlers, "north", "south", meeting=f"m{number}").ask("attend")
        other = Client(handlers, "north", "east", meeting="one more")
        with pytest.raises(Refused, match="north is at 4 meetings"):
            await other.ask("attend")
        # South was only waited for, and may meet whom it likes.
        assert await Client(handlers, "south", "east", meeting="another").ask("attend") == {"present": False}
        clock.now += meetings.FORGET_S + 1
        assert await other.ask("attend") == {"present": False}  # the others are forgotten
        with pytest.raises(DataMissing, match="over"):
            await south.ask("receive", 2)

    asyncio.run(meet())


def test_nobody_enters_the_meeting_of_two_others(handlers) -> None:
    async def meet() -> None:
        north, south = pair(handlers)
        await north.ask("attend")
        await south.ask("attend")
        await north.ask("send", 0, b"for south")
        for stranger in (
            Client(handlers, "east", "north", IDS["north"]),
            Client(handlers, "south", "north", "2" * 32),  # south, but not at its seat
            Client(handlers, "south", "south", IDS["south"]),
        ):
            with pytest.raises(DataMissing):
                await stranger.ask("receive", 0)
        with pytest.raises(InputError, match="between two clients"):
            await Client(handlers, "south", "south", IDS["south"]).ask("attend")
        assert await south.ask("receive", 0) == b"for south"

    asyncio.run(meet())


def test_who_takes_another_seat_begins_the_meeting_again(handlers) -> None:
    async def meet() -> None:
        north, south = pair(handlers)
        await north.ask("attend")
        await south.ask("attend")
        await north.ask("send", 0, b"old")
        again = Client(handlers, "south", "north", "3" * 32)
        assert await again.ask("attend") == {"present": False}
        with pytest.raises(DataMissing, match="began again"):
            await north.ask("receive", 0)
        assert await north.ask("attend") == {"present": True}  # one who only waits takes its seat again
        assert await again.ask("receive", 0) == b""

    asyncio.run(meet())


def test_who_leaves_or_is_silent_is_gone_when_its_messages_are_fetched(handlers, clock) -> None:
    async def meet() -> None:
        north, south = pair(handlers)
        for leave in (True, False):
            await north.ask("attend")
            await south.ask("attend")
            await north.ask("send", 0, b"last")
            if leave:
                await north.ask("leave")
            else:
                clock.now += meetings.GONE_S + 1
            assert await south.ask("receive", 0) == b"last"
            with pytest.raises(DataMissing, match="north left"):
                await south.ask("receive", 1)
            await south.ask("leave")
            if not leave:
                await north.ask("leave")
            assert not handlers._meetings

    asyncio.run(meet())


# ---- a whole join, at a party of real processes


def process(*arguments) -> tuple[int, str]:
    """A command in a process of its own: two of them run at once."""
    called = [sys.executable, "-m", "hdcos", *map(str, arguments)]
    done = subprocess.run(called, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout or done.stderr


@pytest.mark.filterwarnings("ignore:column number is about")  # it counts the rows
def test_two_owners_join_at_a_party_by_the_commands_and_upload_what_they_share(home, tmp_path) -> None:
    cluster = ("--cluster", home / "cluster.toml")
    south_token = tmp_path / "south.token"
    code, said = command("token", "new", *cluster, "--output", south_token)
    assert code == 0, said
    for rank, line in enumerate([line for line in said.splitlines() if "token allow" in line]):
        shown, node = line.split()[5], home / f"party{rank}"
        code, said = command("token", "allow", "south", shown, "--node", node, "--role", "upload")
        assert code == 0, said
    files, owners = {}, {"me": home / "token", "south": south_token}
    for number, name in enumerate(owners):
        code, said = command("identity", tmp_path / name, "--name", name)
        assert code == 0, said
        code, shown = command("identity", tmp_path / name, "--json")
        assert json.loads(shown)["fingerprint"] in said
        files[name] = write_table(tmp_path / f"{name}.csv", [f"c{n}" for n in range(40 * number, 40 * number + 100)])
    works = [
        lambda name=name, other=other: process(
            *("join", files[name], "--id", "id", "--identity", tmp_path / name, "--json"),
            *("--peer", tmp_path / other / "certificate.pem", "--meet", "march", "--with", other),
            *(*cluster, "--token-file", owners[name], "--wait-s", 20),
        )
        for name, other in (("me", "south"), ("south", "me"))
    ]
    found = outcomes(*works)
    assert [code for code, _ in found] == [0, 0], found
    told = [json.loads(text) for _, text in found]
    assert told[0]["join"] == told[1]["join"]
    assert [(each["rows"], each["ids"], each["theirs_at_most"]) for each in told] == [(60, 100, 1024)] * 2
    for name in owners:
        code, said = command(
            *("upload", files[name], "--name", f"rows-{name}", "--join", f"{files[name]}.joined.json"),
            *(*cluster, "--token-file", owners[name]),
        )
        assert code == 0, said
        assert "60 rows" in said
    with connected(home) as seen:
        (mine,) = [item for item in seen.datasets() if item["name"] == "rows-me"]
    assert mine["join"] == told[0]["join"] == JoinedRows.read(f"{files['me']}.joined.json").join
    assert (mine["rows"], mine["columns"]) == (60, ["number"])
