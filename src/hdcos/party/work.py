"""What a party has open for a client: a function of shapes, or a model, each with its stock of material."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from hdcos.errors import InputError, MaterialReused
from hdcos.offline import MaterialPool
from hdcos.protocol.catalogue import Call
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Planned
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array
from hdcos.secure import CompiledNetwork, infer_pieces, pieces
from hdcos.secure.answers import answer, round_answer
from hdcos.secure.stages import Parameters
from hdcos.sharing import Share, Stream

Shape = tuple[int, ...]
Arrays = Mapping[str, Array]
Parties = Sequence[Party]


def fingerprint(*parts: Any) -> bytes:
    """What both parties must agree on, of JSON values."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).digest()


def read_share(arrays: Arrays, name: str, shape: Shape, rank: int) -> Array:
    """This party's share of an input: words as they are, or expanded from a seed at party 0."""
    given = arrays.get(name)
    if given is None:
        raise InputError(f"party {rank} was sent no share of {name}")
    if rank == 0 and given.dtype == np.uint8:
        return Stream(given.tobytes()).words(shape)
    if given.shape != shape or given.dtype != np.uint64:
        raise InputError(f"{name} is {given.dtype} of shape {given.shape}, not uint64 of shape {shape}")
    return given


@dataclass
class Work:
    """Something a client can run, again and again."""

    stock: MaterialPool
    ahead: int
    fingerprint: bytes

    def pieces(self, executions: int) -> list[int]:
        """How executions are divided into pieces with rations of their own; the same at both parties."""
        return [executions]

    def program(
        self, parties: Sequence[Party], arrays: Arrays, start: int, executions: int, mode: str
    ) -> Rounds[Share]:
        """Executions [start, start + executions) on a client's inputs; InputError if they do not fit what is open."""
        raise NotImplementedError

    def answer(self, result: Share, rank: int) -> tuple[int, int, Array]:
        """The scale, the bits and the words of this party's share of a result as the client gets it."""
        raise NotImplementedError


@dataclass
class FunctionWork(Work):
    """A function of the catalogue, opened for shapes."""

    call: Call
    shapes: tuple[Shape, ...]
    scales: tuple[int, ...]

    def program(
        self, parties: Sequence[Party], arrays: Arrays, start: int, executions: int, mode: str
    ) -> Rounds[Share]:
        (party,) = parties
        inputs = [
            Share(read_share(arrays, f"input{index}", (shape[0] * executions, *shape[1:]), party.rank), scale)
            for index, (shape, scale) in enumerate(zip(self.shapes, self.scales, strict=True))
        ]
        return self.call.program(party, *inputs)

    def answer(self, result: Share, rank: int) -> tuple[int, int, Array]:
        """Rounded far above the noise of the evaluation, which would depend on the masks."""
        return round_answer(result, self.call.output_scale, rank)


@dataclass
class ModelWork(Work):
    """A shared model; an execution is one row."""

    layout: CompiledNetwork
    parameters: Parameters = field(repr=False)
    shares: dict[str, Share] = field(repr=False)
    planned: Planned | None = field(default=None, repr=False)
    """What a row takes, for an input that comes masked."""
    issued: int = 0
    """Rows whose input masks were handed out; each only ever once."""

    def issue(self, start: int, rows: int) -> Array:
        """This party's share of the input masks of rows [start, start + rows), for the owner of the input."""
        if start < max(self.issued, self.stock.used):
            raise MaterialReused(f"the input mask of row {start} was handed out or used before")
        if not 1 <= rows <= 1 << 24:
            raise InputError(f"masks for {rows} rows cannot be handed out at once")
        self.issued = start + rows
        return self.stock.uniform(0, start, rows)

    def pieces(self, executions: int) -> list[int]:
        return pieces(executions)

    def program(
        self, parties: Sequence[Party], arrays: Arrays, start: int, executions: int, mode: str
    ) -> Rounds[Share]:
        values: list[Share | Array]
        shape = (executions, *self.layout.input_shape)
        if mode == "shares":
            if start < self.issued:
                raise MaterialReused("rows whose input masks were handed out cannot come as shares")
            words = read_share(arrays, "input", shape, parties[0].rank)
            values = [Share(part, self.layout.input_scale) for part in _cut(words, self.pieces(executions))]
            return infer_pieces(parties, self.layout, self.parameters, values)
        if mode != "masked":
            raise InputError(f"inputs come as shares or masked, not {mode!r}")
        if start + executions > self.issued:
            raise InputError(f"the input masks of rows {start} to {start + executions} were not handed out")
        opened = arrays.get("input")
        if opened is None or opened.shape != shape or opened.dtype != np.uint64:
            raise InputError(f"masked rows of shape {shape} in uint64 expected")
        values = list(_cut(opened, self.pieces(executions)))
        return infer_pieces(parties, self.layout, self.parameters, values)

    def answer(self, result: Share, rank: int) -> tuple[int, int, Array]:
        return answer(result, rank)


def _cut(rows: Array, sizes: Sequence[int]) -> list[Array]:
    return np.split(rows, np.cumsum(sizes)[:-1])
