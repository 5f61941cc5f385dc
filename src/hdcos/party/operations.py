"""What a party does: it holds shares, spends material, talks to its peer and answers its client.

Security  the party sees its own shares and uniformly masked openings. The frames of a run carry a context, a hash
          of the program, the material's address and the execution's number: a peer that means anything else is
          refused at its first frame, before a second value could be opened under a mask. A run that fails is
          aborted on both sides and its material is burnt. What leaves for the client is rounded to the output
          scale and refreshed with a sharing of zero.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

from hdcos.api.cost import counts_to_json
from hdcos.errors import HdcosError, InputError, MaterialReused, ModelError
from hdcos.link import Kind, Link
from hdcos.link.message import decode_message, encode_message, integer, reply_error, text
from hdcos.nn import Sequential
from hdcos.offline import Allocation
from hdcos.party.engine import Engine
from hdcos.party.loading import load_model, refresh_for_client, revealed, trained_shares
from hdcos.party.policy import OPEN, Policy
from hdcos.party.trainer import Trainer
from hdcos.party.work import Arrays, FunctionWork, ModelWork, Work, fingerprint, read_share
from hdcos.protocol.catalogue import Call
from hdcos.protocol.party import Party
from hdcos.protocol.plan import blank_share, plan
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array
from hdcos.secure import Tensor, compile_network
from hdcos.sharing import Share

MAX_STOCK_BYTES = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 4
"""What one party may keep in stock: two parties and a dealer share a machine in a local cluster."""
Meta = dict[str, Any]
Answer = tuple[Meta, dict[str, Array]]


class PartyNode:
    """One party's state and the operations a client can ask for."""

    def __init__(self, engine: Engine, policy: Policy = OPEN) -> None:
        self._engine, self.rank, self._policy = engine, engine.rank, policy
        self._works: dict[str, Work] = {}
        self._trainer = Trainer(engine, policy)
        self._scopes: set[str] = set()

    def serve(self, client: Link) -> None:
        """Answer one client's requests until it asks to shut down or leaves."""
        operations: Mapping[str, Callable[[Meta, Arrays], Answer]] = {
            "open": self._open,
            "share_model": self._share_model,
            "masks": self._masks,
            "reveal": self._reveal,
            **self._trainer.operations(),
            "finish_training": self._finish_training,
            "prepare": self._prepare,
            "keep_ahead": self._keep_ahead,
            "run": self._run,
            "stock": self._stock,
            "close": self._close,
            "ping": self._ping,
            "cost": self._cost,
        }
        while True:
            _, payload = client.receive(Kind.REQUEST, timeout_s=None)
            try:
                meta, arrays = decode_message(payload)
                operation = text(meta, "operation")
                if operation == "shutdown":
                    client.send(Kind.REPLY, *encode_message({}))
                    return
                if operation not in operations:
                    raise InputError(f"a party does not know the request {operation!r}")
                answer, results = operations[operation](meta, arrays)
            except Exception as error:
                if client.closed:
                    raise
                reply_error(client, error)
                if not isinstance(error, HdcosError):
                    traceback.print_exc()
            else:
                client.send(Kind.REPLY, *encode_message(answer, results))

    def _open(self, meta: Meta, arrays: Arrays) -> Answer:
        """Open a function for shapes."""
        scope, ahead = self._new_scope(meta), integer(meta, "ahead")
        try:
            call = Call.of(text(meta, "function"), **meta["parameters"])
            shapes = tuple(tuple(shape) for shape in meta["shapes"])
            scales = tuple(meta["scales"])
            planned = plan(call.program, *(blank_share(*form) for form in zip(shapes, scales, strict=True)))
        except HdcosError:
            raise
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            raise ModelError(f"not a program that can be planned: {type(error).__name__} {error}") from error
        stock = self._engine.open(scope, planned)
        record = [call.function, dict(call.parameters), shapes, scales, planned.material.fingerprint.hex()]
        work = FunctionWork(stock, ahead, fingerprint(record), call, shapes, scales)
        self._works[scope] = work
        self._engine.order(stock, ahead)
        return {}, {}

    def _share_model(self, meta: Meta, arrays: Arrays) -> Answer:
        """Take this party's share of a model and make it ready for inference."""
        scope = self._new_scope(meta)
        model = Sequential.outline(meta.get("architecture"))
        chosen = compile_network(model, integer(meta, "phase_bits"), self._engine.dealer.has_dealer)
        self._works[scope] = load_model(self._engine, scope, model, chosen, self._shares(arrays, chosen.tensors), 0)
        return {}, {}

    def _shares(self, arrays: Arrays, tensors: Sequence[Tensor]) -> dict[str, Share]:
        return {
            tensor.name: Share(read_share(arrays, tensor.name, tensor.shape, self.rank), tensor.scale)
            for tensor in tensors
        }

    def _masks(self, meta: Meta, arrays: Arrays) -> Answer:
        work = self._model(meta)
        return {}, {"masks": work.issue(integer(meta, "start"), integer(meta, "rows"))}

    def _reveal(self, meta: Meta, arrays: Arrays) -> Answer:
        """This party's share of a model's parameters, refreshed."""
        self._policy.check_reveal()
        work, token = self._model(meta), self._new_scope({"scope": f"reveal {text(meta, 'token')}"})
        self._engine.peer  # noqa: B018  the pair's seed comes with the link
        return {}, revealed(self._engine, work.shares, token)

    def _finish_training(self, meta: Meta, arrays: Arrays) -> Answer:
        """The trained parameters as a model that can infer; training may go on."""
        training, scope = self._trainer.training(text(meta, "training")), self._new_scope(meta)
        model = Sequential.outline(meta.get("architecture"))
        chosen = compile_network(model, integer(meta, "phase_bits"), self._engine.dealer.has_dealer)
        shares = trained_shares(self._engine, scope, training, chosen)
        self._works[scope] = load_model(self._engine, scope, model, chosen, shares, 0)
        return {}, {}

    def _model(self, meta: Meta) -> ModelWork:
        work = self._work(meta)
        if not isinstance(work, ModelWork):
            raise InputError(f"{text(meta, 'scope')} is not a model")
        return work

    def _new_scope(self, meta: Meta) -> str:
        scope = text(meta, "scope")
        if scope in self._scopes:
            raise MaterialReused(f"the name {scope} was used before")
        self._scopes.add(scope)
        return scope

    def _prepare(self, meta: Meta, arrays: Arrays) -> Answer:
        work, executions = self._work(meta), integer(meta, "executions")
        self._check_room(work, executions)
        filling = self._engine.order(work.stock, executions)
        if meta.get("wait"):
            filling.result()
        return {}, {}

    @staticmethod
    def _check_room(work: Work, executions: int) -> None:
        """Refuse to make more material than a party keeps."""
        stock = work.stock
        held = (stock.expected - stock.used + executions) * stock.plan.packed_bytes(1)
        if held > MAX_STOCK_BYTES:
            raise InputError(
                f"material for {executions} more executions makes {held / 2**30:.0f} GiB, more than the "
                f"{MAX_STOCK_BYTES / 2**30:.0f} GiB a party keeps: prepare fewer at a time"
            )

    def _keep_ahead(self, meta: Meta, arrays: Arrays) -> Answer:
        """Have so many executions in stock from now on: more are made as they are used."""
        work = self._work(meta)
        work.ahead = integer(meta, "executions")
        self._refill(work)
        return {}, {}

    def _refill(self, work: Work) -> None:
        missing = work.ahead - (work.stock.expected - work.stock.used)
        if missing > 0:
            self._check_room(work, missing)
            self._engine.order(work.stock, missing)

    def _run(self, meta: Meta, arrays: Arrays) -> Answer:
        work, start, executions = self._work(meta), integer(meta, "start"), integer(meta, "executions")
        mode, engine = str(meta.get("mode", "shares")), self._engine
        address = f"{meta['scope']} {start} {executions} {mode}"

        def begin() -> tuple[Rounds[Share], list[Allocation]]:
            work.stock.check(start, executions)
            rations, first = [], start
            for size in work.pieces(executions):
                rations.append(work.stock.begin(size, first, engine.timeout_s))
                first += size
            parties = [Party(self.rank, ration) for ration in rations]
            return work.program(parties, arrays, start, executions, mode), rations

        started_s = engine.online_s
        with engine.meter.section("online"):
            result = engine.exchange(fingerprint(work.fingerprint.hex(), address), begin)
        self._refill(work)
        scale, bits, words = refresh_for_client(engine, result, work, address)
        return {"scale": scale, "bits": bits, "seconds": engine.online_s - started_s}, {"words": words}

    def _stock(self, meta: Meta, arrays: Arrays) -> Answer:
        stock = self._work(meta).stock
        return {"used": stock.used, "available": stock.available, "expected": stock.expected}, {}

    def _close(self, meta: Meta, arrays: Arrays) -> Answer:
        work = self._work(meta)
        del self._works[meta["scope"]]
        self._engine.close(work.stock)
        return {}, {}

    def _ping(self, meta: Meta, arrays: Arrays) -> Answer:
        """The mean time of an exchange of nothing: one round trip as the protocols see it."""
        peer = self._engine.peer
        peer.context = 0
        rounds = integer(meta, "rounds")
        started = perf_counter()
        for _ in range(rounds):
            peer.exchange([])
        return {"seconds": (perf_counter() - started) / max(1, rounds)}, {}

    def _cost(self, meta: Meta, arrays: Arrays) -> Answer:
        engine = self._engine
        engine.settle()
        online, offline = engine.meter.snapshot(), engine.dealer.meter.snapshot()
        dealt = replace(offline.sections["offline"], seconds=engine.offline_s)
        answer = counts_to_json({"online": online.sections["online"], "offline": dealt})
        # The socket to the peer as this party's meter and as the operating system counted it, from its start.
        total = online.total
        sockets = {
            "metered": [total.wire_bytes_sent, total.wire_bytes_received],
            "counted": engine.peer.os_counters(),
        }
        return {**answer, "steps": counts_to_json(online.steps.get("online", {})), "socket": sockets}, {}

    def _work(self, meta: Meta) -> Work:
        scope = text(meta, "scope")
        work = self._works.get(scope)
        if work is None:
            raise InputError(f"nothing is open under the name {scope}")
        return work
