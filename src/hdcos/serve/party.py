"""What a party does: it holds shares, spends material, talks to its peer and answers its client.

Security  the party sees its own halves and uniformly masked openings. The frames of a run carry a context, a hash
          of the program, the material's address and the execution's number: a peer that means anything else is
          refused at its first frame, before a second value could be opened under a mask. A run that fails is
          aborted on both sides and its material is burnt. What leaves for the client is rounded to the output
          scale and refreshed with a sharing of zero.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter
from typing import Any, TypeVar

from hdcos.errors import HdcosError, InputError, MaterialReused, ModelError
from hdcos.link import Kind, Link, Meter
from hdcos.link.message import decode_message, encode_message, integer, reply_error, text
from hdcos.nn import Sequential
from hdcos.nn.private import infer, layout, open_weights
from hdcos.nn.private.layout import OUTPUT_SCALE
from hdcos.nn.private.stages import Parameters
from hdcos.offline import Ration, Stock
from hdcos.offline.service import DealerClient
from hdcos.protocol.catalogue import Call
from hdcos.protocol.drive import run
from hdcos.protocol.party import Party
from hdcos.protocol.plan import blank_share, plan
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array, Blank, round_open
from hdcos.serve.cost import counts_to_json
from hdcos.serve.work import Arrays, FunctionWork, ModelWork, Work, fingerprint, half
from hdcos.sharing import Share, refresh

Meta = dict[str, Any]
Answer = tuple[Meta, dict[str, Array]]
T = TypeVar("T")


class PartyNode:
    """One party's state and the operations a client can ask for."""

    def __init__(
        self,
        rank: int,
        connect_peer: Callable[[Meter], tuple[Link, bytes]],
        dealer: DealerClient,
        meter: Meter,
        timeout_s: float = 30.0,
    ) -> None:
        self.rank, self.meter, self._timeout_s = rank, meter, timeout_s
        self._connect_peer, self._dealer = connect_peer, dealer
        self._peer: Link | None = None
        self._pair_seed = b""
        self._works: dict[str, Work] = {}
        self._scopes: set[str] = set()
        # The dealer's link belongs to this one thread, which fills stocks while rounds go on.
        self._supply = ThreadPoolExecutor(1, thread_name_prefix="supply")
        self._start = (meter.snapshot(), dealer.meter.snapshot())
        self._offline_s = self._online_s = 0.0
        self._reveals = 0

    def serve(self, client: Link) -> None:
        """Answer one client's requests until it asks to shut down or leaves."""
        operations: Mapping[str, Callable[[Meta, Arrays], Answer]] = {
            "open": self._open,
            "share_model": self._share_model,
            "masks": self._masks,
            "reveal": self._reveal,
            "prepare": self._prepare,
            "run": self._run,
            "stock": self._stock,
            "close": self._close,
            "ping": self._ping,
            "cost": self._cost,
            "reset": self._reset,
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

    def stop(self) -> None:
        self._supply.shutdown(cancel_futures=True)
        if self._peer is not None:
            self._peer.close()
        self._dealer.leave()

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
        stock = self._supply.submit(self._dealer.open, scope, planned.material).result()
        record = [call.function, dict(call.parameters), shapes, scales, planned.material.fingerprint.hex()]
        work = FunctionWork(stock, ahead, fingerprint(record), call.output_scale, call, shapes, scales)
        self._works[scope] = work
        self._order(work, ahead)
        return {}, {}

    def _share_model(self, meta: Meta, arrays: Arrays) -> Answer:
        """Take this party's half of a model, open its weights under masks, and plan its inference."""
        scope, ahead = self._new_scope(meta), integer(meta, "ahead")
        model = Sequential.from_architecture(meta.get("architecture"))
        chosen = layout(model, integer(meta, "phase_bits"))
        shares = {
            tensor.name: Share(half(arrays, tensor.name, tensor.shape, self.rank), tensor.scale)
            for tensor in chosen.tensors
        }
        weights_scope = f"{scope} weights"
        planned = plan(open_weights, chosen, shares, weights_scope, rank=self.rank)
        stock = self._supply.submit(self._dealer.open, weights_scope, planned.material).result()
        stock.order(1)
        self._supply.submit(self._fill, stock, 1).result()
        record = [model.architecture(), integer(meta, "phase_bits"), planned.material.fingerprint.hex()]

        def begin() -> tuple[Rounds[Parameters], list[Ration]]:
            ration = stock.begin(1)
            return open_weights(Party(self.rank, ration), chosen, shares, weights_scope), [ration]

        with self.meter.phase("offline"):
            parameters = self._exchange(fingerprint(record, weights_scope), begin)
        rows = Blank((1, *chosen.input_shape))
        planned = plan(infer, chosen, parameters, rows, rank=self.rank)
        stock = self._supply.submit(self._dealer.open, scope, planned.material, planned.finishes).result()
        record.append(planned.material.fingerprint.hex())
        work = ModelWork(stock, ahead, fingerprint(record), OUTPUT_SCALE, chosen, parameters, shares)
        self._works[scope] = work
        self._order(work, ahead)
        return {}, {}

    def _masks(self, meta: Meta, arrays: Arrays) -> Answer:
        work = self._model(meta)
        return {}, {"masks": work.issue(integer(meta, "start"), integer(meta, "rows"))}

    def _reveal(self, meta: Meta, arrays: Arrays) -> Answer:
        """This party's half of a model's parameters, refreshed."""
        work = self._model(meta)
        fresh = {
            name: refresh(share, self.rank, self._pair_seed, f"{meta['scope']} reveal {name} {self._reveals}").words
            for name, share in work.shares.items()
        }
        self._reveals += 1
        return {}, fresh

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
        filling = self._order(self._work(meta), integer(meta, "executions"))
        if meta.get("wait"):
            filling.result()
        return {}, {}

    def _order(self, work: Work, executions: int) -> Future[None]:
        work.stock.order(executions)
        return self._supply.submit(self._fill, work.stock, executions)

    def _fill(self, stock: Stock, executions: int) -> None:
        started = perf_counter()
        try:
            self._dealer.fill(stock, executions)
        except Exception as error:
            if not isinstance(error, HdcosError):
                error = HdcosError(f"making material failed ({type(error).__name__})")
            stock.fail(error)
            raise
        self._offline_s += perf_counter() - started

    def _run(self, meta: Meta, arrays: Arrays) -> Answer:
        work, start, executions = self._work(meta), integer(meta, "start"), integer(meta, "executions")
        mode = meta.get("mode", "shares")
        address = f"{meta['scope']} {start} {executions} {mode}"

        def begin() -> tuple[Rounds[Share], list[Ration]]:
            work.stock.check(start, executions)
            rations, first = [], start
            for size in work.pieces(executions):
                rations.append(work.stock.begin(size, first, self._timeout_s))
                first += size
            parties = [Party(self.rank, ration) for ration in rations]
            return work.program(parties, arrays, start, executions, mode), rations

        started_s = self._online_s
        with self.meter.phase("online"):
            result = self._exchange(fingerprint(work.fingerprint.hex(), address), begin)
        missing = work.ahead - work.stock.available
        if missing > 0:
            self._order(work, missing)
        answer, words = self._leaving(result, work.output_scale, address)
        return {**answer, "seconds": self._online_s - started_s}, words

    def _exchange(self, agreed: bytes, begin: Callable[[], tuple[Rounds[T], list[Ration]]]) -> T:
        """Run a program with the peer; both must have agreed on the same fingerprint.

        Whatever fails, before the first round or in any, is told to the peer, which must not wait for a round that
        will not come. Both sides then make a new link for the next program.
        """
        peer = self._linked()
        peer.context = int.from_bytes(agreed[:8], "little")
        try:
            program, rations = begin()
            started = perf_counter()
            result = run(program, peer)
            self._online_s += perf_counter() - started
            for ration in rations:
                ration.finish()
        except BaseException as error:
            peer.abort(error)
            raise
        return result

    def _leaving(self, result: Share, output_scale: int, address: str) -> Answer:
        """The result as it leaves for the client: refreshed, rounded to the output scale.

        The bits below that scale are noise that depends on the masks: they would tell a client that is also a party,
        and so knows the openings, more than the function does.
        """
        fresh = refresh(result, self.rank, self._pair_seed, address)
        drop = max(0, result.scale - output_scale)
        bits = result.bits - drop
        words = round_open(fresh.words, None, drop, bits, ties_up=self.rank == 0)
        return {"scale": result.scale - drop, "bits": bits}, {"words": words}

    def _stock(self, meta: Meta, arrays: Arrays) -> Answer:
        stock = self._work(meta).stock
        return {"used": stock.used, "available": stock.available, "expected": stock.expected}, {}

    def _close(self, meta: Meta, arrays: Arrays) -> Answer:
        work = self._work(meta)
        del self._works[meta["scope"]]
        self._supply.submit(self._dealer.close, work.stock.name).result()
        return {}, {}

    def _ping(self, meta: Meta, arrays: Arrays) -> Answer:
        """The mean time of an exchange of nothing: one round trip as the protocols see it."""
        peer = self._linked()
        peer.context = 0
        rounds = integer(meta, "rounds")
        started = perf_counter()
        for _ in range(rounds):
            peer.exchange([])
        return {"seconds": (perf_counter() - started) / max(1, rounds)}, {}

    def _cost(self, meta: Meta, arrays: Arrays) -> Answer:
        self._supply.submit(lambda: None).result()
        online = self.meter.snapshot() - self._start[0]
        offline = self._dealer.meter.snapshot() - self._start[1]
        dealt = replace(offline.phases["offline"], seconds=self._offline_s)
        answer = counts_to_json({"online": online.phases["online"], "offline": dealt})
        # The socket to the peer as this party's meter and as the operating system counted it, from its start.
        total = self.meter.snapshot().total
        sockets = {
            "metered": [total.wire_bytes_sent, total.wire_bytes_received],
            "counted": self._peer and self._peer.os_counters(),
        }
        return {**answer, "steps": counts_to_json(online.steps.get("online", {})), "socket": sockets}, {}

    def _reset(self, meta: Meta, arrays: Arrays) -> Answer:
        self._supply.submit(lambda: None).result()
        self._start = (self.meter.snapshot(), self._dealer.meter.snapshot())
        self._offline_s = 0.0
        return {}, {}

    def _linked(self) -> Link:
        if self._peer is None or self._peer.closed:
            self._peer, self._pair_seed = self._connect_peer(self.meter)
        return self._peer

    def _work(self, meta: Meta) -> Work:
        scope = text(meta, "scope")
        work = self._works.get(scope)
        if work is None:
            raise InputError(f"nothing is open under the name {scope}")
        return work
