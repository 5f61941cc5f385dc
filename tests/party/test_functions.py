"""What clients have open besides models, at one party: its limits, its end, and what party 1 lets party 0 open."""

from __future__ import annotations

import secrets

import msgspec
import pytest

from hdcos.api.commands import read_command, write_command
from hdcos.errors import DataMissing, InputError, MaterialReused, ModelError, PolicyRefused
from hdcos.party import functions as module
from hdcos.party.config import Config, Limits
from hdcos.party.functions import Asked, Functions, open_command
from hdcos.protocol.catalogue import FUNCTIONS, Call

ROOM = 10**12
SHAPES = {"matmul": [(2, 3), (3, 2)], "multiply": [(2, 3), (2, 3)], "conv2d": [(1, 1, 4, 4), (1, 1, 2, 2)]}
SHAPES |= {name: [(2, 3), (2, 3)] for name in ("greater_equal", "maximum", "minimum")}


def asked(functions: Functions, name: str = "cos", client: str = "me", number: str = "", **more) -> Asked:
    ahead, shapes = more.pop("ahead", 0), more.pop("shapes", SHAPES.get(name, [(2, 3)]))
    number = number or secrets.token_hex(16)
    return functions.add(functions.plan(number, client, Call.of(name, **more), shapes, ahead), ROOM)


@pytest.fixture
def functions() -> Functions:
    return Functions(Config(), has_dealer=True)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_party_1_opens_what_its_own_client_asked_for_and_nothing_else(functions, name) -> None:
    command = open_command(asked(functions, name), "a scope")
    functions.check(read_command(msgspec.json.decode(msgspec.json.encode(write_command(command)))))
    other = "cos" if name == "none" else "none"
    wrong = {"name": "function " + "0" * 32, "function": other, "shapes": [[2, 4]], "scales": [3], "ahead": 1}
    for field, value in {**wrong, "parameters": {"phase_bits": 17}}.items():
        with pytest.raises(InputError, match="no client asked this party for"):
            functions.check(msgspec.structs.replace(command, **{field: value}))


def test_what_both_must_have_been_told_holds_the_client_and_all_that_is_computed(functions) -> None:
    said = {
        asked(functions).said,
        asked(functions, client="you").said,
        asked(functions, "sin").said,
        asked(functions, phase_bits=20).said,
        asked(functions, shapes=[(3, 2)]).said,
        asked(functions, ahead=1).said,
    }
    assert len(said) == 6
    assert asked(functions).said == asked(functions).said


def test_an_id_is_used_for_one_function(functions) -> None:
    first = asked(functions)
    assert asked(functions, number=first.id) is first
    with pytest.raises(MaterialReused, match="draw a new one"):
        asked(functions, "sin", number=first.id)
    with pytest.raises(MaterialReused, match="draw a new one"):
        asked(functions, client="you", number=first.id)


def test_what_nobody_uses_is_forgotten_and_what_is_used_stays(functions, monkeypatch) -> None:
    now = 1000.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    idle, used = asked(functions), asked(functions)
    idle.touched = used.touched = now
    now += 200
    functions.find(used.id)
    now += 200
    functions.expire()
    assert functions.all() == [used]
    with pytest.raises(DataMissing, match="open it again"):
        functions.find(idle.id)


def test_memory_is_bounded_for_a_client_and_in_all(functions) -> None:
    one = asked(functions)
    size = one.execution_bytes
    for executions, room in ((10**9, ROOM), (3, 2 * size)):
        with pytest.raises(InputError, match="prepare fewer at a time"):
            functions.prepare(one, executions, room)
    assert (one.prepared, functions.bytes) == (0, size)
    functions.prepare(one, 3, 3 * size)
    functions.prepare(one, 2, 0)
    assert (one.prepared, functions.bytes) == (3, 4 * size)
    one.spent = 3
    functions.prepare(one, 6, 3 * size)
    assert functions.bytes == 4 * size, "what was used takes nothing"
    small = Functions(Config(limits=Limits(model_mb=3.5e-6 * size)), has_dealer=True)
    small.prepare(asked(small, client="me"), 1, ROOM)
    with pytest.raises(InputError, match="prepare fewer"):
        asked(small, client="me", ahead=1)
    asked(small, client="you", ahead=1)


def test_work_is_bounded_for_the_dealer_and_between_the_parties() -> None:
    shapes = [(1 << 11, 1 << 10), (1 << 10, 1 << 11)]
    with_dealer, without = (Functions(Config(limits=Limits(body_mb=128)), dealer) for dealer in (True, False))
    heavy = asked(with_dealer, "matmul", shapes=shapes)
    with pytest.raises(InputError, match="prepare fewer"):
        with_dealer.prepare(heavy, 5, ROOM)
    with pytest.raises(PolicyRefused, match="between the parties"):
        asked(without, "matmul", shapes=shapes)
    light = asked(without)
    with pytest.raises(InputError, match="prepare fewer"):
        without.prepare(light, 1 << 20, ROOM)
    without.prepare(light, 10, ROOM)


def test_a_party_without_a_dealer_refuses_comparisons_by_name() -> None:
    without = Functions(Config(), has_dealer=False)
    for way in ("tables", "dcf"):
        with pytest.raises(ModelError, match="start a dealer"):
            asked(without, "relu", way=way)
    assert len(without) == 0


def test_functions_are_counted_for_a_client_and_in_all(functions, monkeypatch) -> None:
    monkeypatch.setattr(module, "MOST_OF_CLIENT", 2)
    monkeypatch.setattr(module, "MOST_OPEN", 3)
    mine = [asked(functions) for _ in range(2)]
    for client, more in (("me", 0), ("you", 1)):
        for _ in range(more):
            asked(functions, client=client)
        with pytest.raises(PolicyRefused, match="close some first"):
            asked(functions, client=client)
    changes = functions.changes
    functions.drop(mine[0].id)
    functions.drop(mine[0].id)
    assert (len(functions), functions.changes) == (2, changes + 1)
    asked(functions)
    functions.clear()
    assert (len(functions), functions.bytes, functions.listed()) == (0, 0, {})
