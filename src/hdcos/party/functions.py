"""Single functions that clients have open at one party, for as long as a session lives.

A client opens a function at both parties under one id that it drew, has material made, evaluates, and closes it. Party
1 tells party 0 what it was told; party 0 opens what both were told alike, orders what both were asked to prepare, and
closes what either forgot or nobody has used for a while. Nothing of it is on disk: what the end of a session forgets is
DataMissing, and the client opens it again.

Security  both parties must have been told the same by the same client: function, parameters, shapes. Party 1 opens
          nothing that its own client did not ask it for, whatever party 0 says. A function has a scope of its own,
          named by fresh randomness, so all its masks are its own. Every input belongs to the client that asks, so an
          answer can tell it nothing of another's secrets: answers are rounded at the size of their error and not
          counted. What a function takes is bounded before anything of it is built.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from threading import Lock
from typing import Any

from hdcos.api.commands import OpenFunction
from hdcos.errors import DataMissing, HdcosError, InputError, MaterialReused, ModelError, PolicyRefused
from hdcos.offline import Plan, limits
from hdcos.offline.ot import chunk as ot
from hdcos.party.config import Config
from hdcos.party.engine import fingerprint
from hdcos.protocol.catalogue import Call, find
from hdcos.protocol.plan import Planned, blank_share, plan
from hdcos.ring import Array

Shape = tuple[int, ...]
COPIES = 4
"""Numbers of an execution are there as they came, as what is computed with them, as the result and as it leaves."""
MOST_OPEN, MOST_OF_CLIENT = 1024, 64
"""Functions that are open at once, for all clients and for one."""


def plan_call(call: Call, shapes: Sequence[Shape]) -> Planned:
    """What inputs of these shapes take; whatever is wrong with a call from outside is InputError or ModelError."""
    scale = find(call.function).input_scale
    try:
        planned, rounded = plan(call.program, *(blank_share(shape, scale) for shape in shapes)), call.output_scale
    except HdcosError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError, MemoryError) as error:
        raise ModelError(f"{call.function} of {shapes} cannot be planned: {type(error).__name__}") from None
    result = planned.result
    if result.shape[:1] != shapes[0][:1] or result.bits <= result.scale - rounded:
        raise InputError(f"{call.function} gives no result for each row of {shapes}")
    return planned


@dataclass(eq=False)
class Asked:
    """A function as a client asked for it at this party."""

    id: str
    client: str
    call: Call
    shapes: tuple[Shape, ...]
    ahead: int
    planned: Planned = field(repr=False)
    prepared: int = 0
    """Executions that material was asked for in all."""
    spent: int = 0
    """Executions that were run."""
    touched: float = field(default_factory=time.monotonic)
    error: HdcosError | None = None
    """Why it could not be opened."""

    @property
    def name(self) -> str:
        """What it is open under. Names of models have no space."""
        return f"function {self.id}"

    @cached_property
    def said(self) -> str:
        """What both parties must have been told."""
        return fingerprint(self.client, self.call.function, dict(self.call.parameters), self.shapes, self.ahead).hex()

    @property
    def held(self) -> int:
        """Executions that material is here for or on its way, and one that runs."""
        return 1 + self.ahead + max(0, self.prepared - self.spent)

    @cached_property
    def execution_bytes(self) -> int:
        inputs = sum(prod(shape) for shape in self.shapes)
        outputs = int(prod(self.planned.result.shape))
        return 8 * (self.planned.material.words + COPIES * (inputs + outputs))

    @property
    def bytes(self) -> int:
        return self.held * self.execution_bytes

    def executions(self, inputs: Mapping[str, Array]) -> int:
        """That inputs which came from outside take; InputError unless all of them fit."""
        names = [f"input{index}" for index in range(len(self.shapes))]
        if list(inputs) != names:
            raise InputError(f"{self.call.function} takes the tensors {names}, got {list(inputs)}")
        count = len(inputs["input0"]) // self.shapes[0][0] if inputs["input0"].ndim else 0
        expected = [(shape[0] * count, *shape[1:]) for shape in self.shapes]
        found = [array.shape for array in inputs.values()]
        if count < 1 or found != expected:
            raise InputError(f"{self.call.function} is open for rows of shapes {list(self.shapes)}, got {found}")
        if count > 1:
            needs = plan_call(self.call, expected).material.needs
            several = [(need.kind, need.units * count) for need in self.planned.material.needs]
            if self.planned.material.one_by_one or several != [(need.kind, need.units) for need in needs]:
                raise InputError(f"{self.call.function} is open for exactly the shapes {list(self.shapes)}")
        return count


class Functions:
    """The functions of one party's clients. The event loop and the session's threads share it."""

    def __init__(self, config: Config, has_dealer: bool) -> None:
        self._limits, self._has_dealer, self._megabytes = config.limits, has_dealer, config.stock.megabytes
        self._asked: dict[str, Asked] = {}
        self._lock = Lock()
        self.changes = 0
        """Grows whenever something changes that a session should look at."""

    def __len__(self) -> int:
        return len(self._asked)

    @property
    def bytes(self) -> int:
        return sum(asked.bytes for asked in self.all())

    def all(self) -> list[Asked]:
        with self._lock:
            return list(self._asked.values())

    def clear(self) -> None:
        """A session begins, with links and scopes of its own."""
        with self._lock:
            self._asked.clear()
            self.changes += 1

    # ---- what clients ask

    def plan(self, number: str, client: str, call: Call, shapes: Sequence[Sequence[int]], ahead: int) -> Asked:
        """A function that a client wants to open, with its cost; refused if one execution cannot be afforded."""
        known = tuple(tuple(shape) for shape in shapes)
        if any(not shape or 0 in shape for shape in known):
            raise InputError(f"inputs are arrays with at least one row, got shapes {list(known)}")
        size = 8 * sum(prod(shape) for shape in known)
        if size > self._limits.body_mb * 1e6:
            raise InputError(
                f"inputs of {size / 1e6:.0f} MB do not fit the {self._limits.body_mb:g} MB of a request: use fewer rows"
            )
        planned = plan_call(call, known)
        limits.check_source(planned.material, self._has_dealer)
        Plan.from_json(planned.material.to_json())  # what a dealer would refuse is refused here
        return Asked(number, client, call, known, ahead, planned)

    def add(self, asked: Asked, room: int) -> Asked:
        """Keep a function that is to be opened; one that is here already, and is the same, stays as it is."""
        with self._lock:
            known = self._asked.get(asked.id)
            if known is not None:
                if known.said != asked.said:
                    raise MaterialReused(f"the function id {asked.id} was used before: draw a new one")
                return known
            own = sum(other.client == asked.client for other in self._asked.values())
            if own >= MOST_OF_CLIENT or len(self._asked) >= MOST_OPEN:
                raise PolicyRefused(
                    f"{own} functions of this client are open, {len(self._asked)} in all; at most {MOST_OF_CLIENT} "
                    f"and {MOST_OPEN} may be: close some first"
                )
            self._check(asked, asked.bytes, room)
            self._asked[asked.id] = asked
            self.changes += 1
            return asked

    def prepare(self, asked: Asked, executions: int, room: int) -> None:
        """Have material made until this many executions were ordered in all."""
        with self._lock:
            before, asked.touched = asked.prepared, time.monotonic()
            asked.prepared = max(before, executions)
            try:
                self._check(asked, (asked.prepared - before) * asked.execution_bytes, room)
            except HdcosError:
                asked.prepared = before
                raise
            self.changes += 1

    def _check(self, asked: Asked, more: int, room: int) -> None:
        """Refuse what takes too much memory or work, of one client or in all; `more` bytes are wanted now."""
        most = max(1, limits.MOST_MULTIPLICATIONS // max(1, asked.planned.material.work.multiplications))
        if not self._has_dealer:
            # Two parties without a dealer say far more to each other than they keep: what they say is what counts.
            rounds = ot.rounds(asked.planned.material, 1, {})
            said = sum(product.message_bytes(product.count) for products in rounds for product in products)
            most = min(most, max(1, int(1e6 * self._megabytes / max(1, said))))
            if said > 1e6 * self._limits.model_mb:
                raise PolicyRefused(f"one execution takes {said / 1e6:.0f} MB between the parties: use fewer rows")
        others = sum(one.bytes for one in self._asked.values() if one.client == asked.client and one is not asked)
        if asked.held - 1 > most or others + asked.bytes > 1e6 * self._limits.model_mb or more > room:
            raise InputError(
                f"material for {asked.held - 1} executions of {asked.call.function} is more than this party keeps for "
                f"a client ([limits] model_mb, {self._limits.model_mb:g} MB) or has left: prepare fewer at a time"
            )

    def __contains__(self, asked: Asked) -> bool:
        return self._asked.get(asked.id) is asked

    def find(self, number: str) -> Asked:
        with self._lock:
            if number not in self._asked:
                raise DataMissing(f"no function is open under the id {number}: open it again")
            asked = self._asked[number]
            asked.touched = time.monotonic()
            return asked

    def drop(self, number: str) -> None:
        with self._lock:
            self.changes += self._asked.pop(number, None) is not None

    # ---- what a session asks

    def listed(self) -> dict[str, list[Any]]:
        """What was told here and how much was prepared, by id: party 1 tells it to party 0."""
        return {asked.id: [asked.said, asked.prepared] for asked in self.all()}

    def prepared(self, number: str) -> int:
        """Executions that material was asked for here, in all."""
        asked = self._asked.get(number)
        return 0 if asked is None else asked.prepared

    def expire(self) -> None:
        """Forget what nobody has used for a while. What one party forgets, party 0 closes at both."""
        limit = time.monotonic() - self._limits.mask_s
        for asked in self.all():
            if asked.touched < limit:
                self.drop(asked.id)

    def check(self, command: OpenFunction) -> None:
        """InputError unless a client asked this party for what is to be opened."""
        asked = self._asked.get(command.name.removeprefix("function "))
        told = None if asked is None else open_command(asked, command.scope)
        if told != command:
            raise InputError("party 0 wants to open a function that no client asked this party for")

    def fail(self, name: str, error: HdcosError) -> None:
        """It could not be opened."""
        asked = self._asked.get(name.removeprefix("function "))
        if asked is not None:
            asked.error = error


def open_command(asked: Asked, scope: str) -> OpenFunction:
    """The command that opens a function for both parties."""
    scale, call = find(asked.call.function).input_scale, asked.call
    shapes = [list(shape) for shape in asked.shapes]
    parameters = _plain(call.parameters)
    return OpenFunction(asked.name, scope, call.function, parameters, shapes, [scale] * len(shapes), asked.ahead)


def _plain(value: Any) -> Any:
    """Parameters as JSON gives them back: a command that went over the wire must compare equal."""
    if isinstance(value, Mapping):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value
