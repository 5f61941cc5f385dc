"""What a party has open for callers: models and functions, how a batch of them runs, and what leaves the party.

Security  weights are opened once per scope, each under a mask of its own; loading a model again takes a new scope and
          so new masks. What leaves is refreshed with a sharing of zero and rounded; answers of models have noise
          besides (`secure.answers`). Of a label nothing else leaves: its sharing, modulo a small power of two
          (`secure.labels`), is as uniform as any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic

import numpy as np

from hdcos.errors import InputError
from hdcos.nn import Network
from hdcos.party.allotment import A, MaterialAllotment
from hdcos.party.batcher import Request, join_rows
from hdcos.party.engine import Engine, fingerprint
from hdcos.party.store import StoredModel
from hdcos.protocol.catalogue import Call
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Planned, plan
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array, Blank
from hdcos.secure import CompiledNetwork, infer, join_pieces, open_weights, pieces
from hdcos.secure.answers import answer, round_answer
from hdcos.secure.labels import LABEL, check_output, infer_label
from hdcos.secure.stages import Parameters
from hdcos.sharing import Share, refresh

Shape = tuple[int, ...]


@dataclass
class Opened(Generic[A]):
    """Something that callers can run, again and again."""

    allotments: Mapping[str, A]
    """Its material, by the mode in which rows come."""
    agreed: bytes
    """What both parties must mean by it."""
    rows: int = field(default=0, kw_only=True)
    """Rows computed in this session."""

    @property
    def version(self) -> str:
        """Of a model."""
        return ""

    def allotment(self, mode: str) -> A:
        """The material for a mode; a caller that numbers executions itself has the same for both."""
        return self.allotments.get(mode) or self.allotments["shares"]

    def input_shapes(self, executions: int) -> list[Shape]:
        """Of the inputs of a batch."""
        raise NotImplementedError

    def executions(self, rows: int) -> int:
        """That a batch of rows takes."""
        raise NotImplementedError

    def pieces(self, executions: int) -> list[int]:
        """How executions are divided into pieces with material of their own; the same at both parties."""
        return [executions]

    def program(
        self, parties: Sequence[Party], requests: Sequence[Request], label_parties: Sequence[Party]
    ) -> Rounds[Share]:
        """A batch of requests that come in the same mode, piece by piece; with material for labels, the labels."""
        raise NotImplementedError

    def round_answer(self, result: Share, rank: int, output: str) -> tuple[int, int, Array]:
        """The scale, the bits and the words of this party's share of a result as the client gets it."""
        raise NotImplementedError

    def refresh_for_client(self, result: Share, engine: Engine, address: str, output: str) -> tuple[int, int, Array]:
        """A result as it leaves for clients; an address is used once, and is the same at both parties."""
        result = engine.fetch(result)
        return self.round_answer(refresh(result, engine.rank, engine.pair_seed, address), engine.rank, output)


@dataclass
class OpenedFunction(Opened[A]):
    """A function of the catalogue, opened for shapes."""

    call: Call
    shapes: Sequence[Shape]
    scales: Sequence[int]

    def input_shapes(self, executions: int) -> list[Shape]:
        return [(shape[0] * executions, *shape[1:]) for shape in self.shapes]

    def executions(self, rows: int) -> int:
        return rows // self.shapes[0][0]

    def program(
        self, parties: Sequence[Party], requests: Sequence[Request], label_parties: Sequence[Party]
    ) -> Rounds[Share]:
        ((party,), (request,)) = parties, requests
        inputs = zip((request.words, *request.more), self.scales, strict=True)
        return self.call.program(party, *(Share(party.place(words), scale) for words, scale in inputs))

    def round_answer(self, result: Share, rank: int, output: str) -> tuple[int, int, Array]:
        """Rounded far above the noise of the evaluation, which would depend on the masks."""
        return round_answer(result, self.call.output_scale, rank)


@dataclass
class OpenedModel(Opened[A]):
    """A shared model that is ready; an execution is one row."""

    stored: StoredModel
    network: CompiledNetwork
    parameters: Parameters = field(repr=False)
    masked_rounds: int
    """Of a batch whose rows come masked."""
    row_bytes: int
    """Memory for each row that material is kept for."""
    counted: str
    """The model whose quota its answers count for."""
    allowed: int
    """Rows that are answered in all."""
    label_plan: Planned | None
    """What the label of a row takes besides; None where there are no labels: `require_labels` says why."""
    label_rows: int
    """Rows of a batch of labels, and rows whose labels material is kept for, at most."""
    forgotten: bool = False
    """A client had it forgotten: no new requests, while party 0 gets round to unloading it."""
    labels: A | None = None
    """The material of labels: there is none until somebody asks for one."""
    labels_asked: int = 0
    """Rows whose labels a client wants to have prepared, until party 0 gets round to it."""

    @property
    def version(self) -> str:
        return self.stored.version

    @property
    def rounds(self) -> dict[str, int]:
        return {"masked": self.masked_rounds, "shares": self.masked_rounds + 1}

    @property
    def label_bytes(self) -> int:
        """Memory for each row whose label material is kept for."""
        return 0 if self.label_plan is None else 8 * self.label_plan.material.words

    def require_labels(self, has_dealer: bool) -> Planned:
        """What a label takes; ModelError if this model gives none."""
        check_output(LABEL, self.network, has_dealer)
        assert self.label_plan is not None
        return self.label_plan

    def input_shapes(self, executions: int) -> list[Shape]:
        return [(executions, *self.network.input_shape)]

    def executions(self, rows: int) -> int:
        return rows

    def pieces(self, executions: int) -> list[int]:
        return pieces(executions)

    def program(
        self, parties: Sequence[Party], requests: Sequence[Request], label_parties: Sequence[Party]
    ) -> Rounds[Share]:
        words = join_rows(requests)
        split: list[Array] = np.split(words, np.cumsum(pieces(len(words)))[:-1])
        parts = [party.place(part) for party, part in zip(parties, split, strict=True)]
        values: list[Share | Array] = list(parts)
        if requests[0].mode == "shares":
            values = [Share(part, self.network.input_scale) for part in parts]
        known = (self.network, self.parameters)
        if label_parties:
            taking = zip(parties, label_parties, values, strict=True)
            return join_pieces([infer_label(party, labels, *known, value) for party, labels, value in taking])
        return join_pieces([infer(party, *known, value) for party, value in zip(parties, values, strict=True)])

    def round_answer(self, result: Share, rank: int, output: str) -> tuple[int, int, Array]:
        return round_answer(result, 0, rank) if output == LABEL else answer(result, rank)


Loaded = OpenedModel[MaterialAllotment]
"""A model at a party that serves many clients."""


def open_model(
    engine: Engine, scope: str, model: Network, network: CompiledNetwork, shares: Mapping[str, Share]
) -> tuple[Parameters, Planned, bytes]:
    """Open a model's weights under masks, once, and plan the inference of a row whose input comes masked.

    The last of what it gives is what both parties must mean by the model.
    """
    weights_scope, shares = f"{scope} weights", {name: engine.place(share) for name, share in shares.items()}
    record: list[object] = [model.architecture(), network.record()]
    parameters = engine.once(
        weights_scope,
        plan(open_weights, network, shares, weights_scope, rank=engine.rank),
        record,
        lambda party: open_weights(party, network, shares, weights_scope),
    )
    planned = plan(infer, network, parameters, Blank((1, *network.input_shape)), rank=engine.rank)
    return parameters, planned, fingerprint(record, planned.material.fingerprint.hex())


def check_shares(words: Mapping[str, Array], shapes: Mapping[str, Shape]) -> None:
    """This party's share of parameters, as it came from outside."""
    if set(words) != set(shapes):
        raise InputError(f"the network has the parameters {sorted(shapes)}, got {sorted(words)}")
    for name, shape in shapes.items():
        found = words[name]
        if found.shape != shape or found.dtype != np.uint64:
            raise InputError(f"{name} has the shape {list(shape)} in uint64, got {list(found.shape)} in {found.dtype}")
