"""What a party does: it holds shares, spends material, talks to its peer and answers its client.

Security  the party sees its own halves and uniformly masked openings. The frames of a run carry a context, a hash
          of the program, the material's address and the execution's number: a peer that means anything else is
          refused at its first frame, before a second value could be opened under a mask. A run that fails is
          aborted on both sides and its material is burnt. What leaves for the client is rounded to the output
          scale and refreshed with a sharing of zero.
"""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np

from hdcos.errors import HdcosError, InputError, MaterialReused, ModelError
from hdcos.link import Kind, Link, Meter
from hdcos.link.message import decode_message, encode_message, integer, reply_error, text
from hdcos.offline import Stock
from hdcos.offline.service import DealerClient
from hdcos.protocol.catalogue import Call
from hdcos.protocol.drive import run
from hdcos.protocol.party import Party
from hdcos.protocol.plan import blank_share, plan
from hdcos.ring import Array, round_open
from hdcos.serve.cost import counts_to_json
from hdcos.sharing import Share, Stream, refresh

Meta = dict[str, Any]


@dataclass(frozen=True)
class _Work:
    """A function opened for shapes, with its stock of material."""

    call: Call
    shapes: tuple[tuple[int, ...], ...]
    scales: tuple[int, ...]
    fingerprint: bytes
    stock: Stock
    ahead: int


class PartyNode:
    """One party's state and the operations a client can ask for."""

    def __init__(
        self, rank: int, connect_peer: Callable[[Meter], tuple[Link, bytes]], dealer: DealerClient, meter: Meter
    ) -> None:
        self.rank, self.meter = rank, meter
        self._connect_peer, self._dealer = connect_peer, dealer
        self._peer: Link | None = None
        self._pair_seed = b""
        self._works: dict[str, _Work] = {}
        self._scopes: set[str] = set()
        # The dealer's link belongs to this one thread, which fills stocks while rounds go on.
        self._supply = ThreadPoolExecutor(1, thread_name_prefix="supply")
        self._start = (meter.snapshot(), dealer.meter.snapshot())
        self._offline_s = 0.0

    def serve(self, client: Link) -> None:
        """Answer one client's requests until it asks to shut down or leaves."""
        operations: Mapping[str, Callable[[Meta, dict[str, Array]], tuple[Meta, dict[str, Array]]]] = {
            "open": self._open,
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

    def _open(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
        scope, ahead = text(meta, "scope"), integer(meta, "ahead")
        if scope in self._scopes:
            raise MaterialReused(f"the name {scope} was used before")
        self._scopes.add(scope)
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
        fingerprint = call.fingerprint(shapes, scales, planned.material.fingerprint.hex())
        self._works[scope] = _Work(call, shapes, scales, fingerprint, stock, ahead)
        self._order(self._works[scope], ahead)
        return {"rounds": planned.rounds, "online_bytes": planned.online_bytes}, {}

    def _prepare(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
        filling = self._order(self._work(meta), integer(meta, "executions"))
        if meta.get("wait"):
            filling.result()
        return {}, {}

    def _order(self, work: _Work, executions: int) -> Future[None]:
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

    def _run(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
        work, start, executions = self._work(meta), integer(meta, "start"), integer(meta, "executions")
        peer = self._linked()
        address = f"{meta['scope']} {start} {executions}"
        digest = hashlib.sha256(work.fingerprint + address.encode()).digest()
        peer.context = int.from_bytes(digest[:8], "little")
        try:
            work.stock.check(start, executions)
            inputs = [
                Share(self._half(arrays, index, (shape[0] * executions, *shape[1:])), scale)
                for index, (shape, scale) in enumerate(zip(work.shapes, work.scales, strict=True))
            ]
            ration = work.stock.begin(executions, start, peer.timeout_s or 30.0)
            with self.meter.phase("online"):
                started = perf_counter()
                result = run(work.call.program(Party(self.rank, ration), *inputs), peer)
                seconds = perf_counter() - started
            ration.finish()
        except BaseException as error:
            # The peer must not wait for a round that will not come; both sides make a new link for the next run.
            peer.abort(error)
            raise
        missing = work.ahead - work.stock.available
        if missing > 0:
            self._order(work, missing)
        answer, words = self._leaving(result, work.call.output_scale, address)
        return {**answer, "seconds": seconds}, words

    def _leaving(self, result: Share, output_scale: int, address: str) -> tuple[Meta, dict[str, Array]]:
        """The result as it leaves for the client: refreshed, rounded to the output scale.

        The bits below that scale are noise that depends on the masks: they would tell a client that is also a party,
        and so knows the openings, more than the function does.
        """
        fresh = refresh(result, self.rank, self._pair_seed, address)
        drop = max(0, result.scale - output_scale)
        bits = result.bits - drop
        words = round_open(fresh.words, None, drop, bits, ties_up=self.rank == 0)
        return {"scale": result.scale - drop, "bits": bits}, {"words": words}

    def _stock(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
        stock = self._work(meta).stock
        return {"used": stock.used, "available": stock.available}, {}

    def _close(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
        work = self._work(meta)
        del self._works[meta["scope"]]
        self._supply.submit(self._dealer.close, work.stock.name).result()
        return {}, {}

    def _ping(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
        """The mean time of an exchange of nothing: one round trip as the protocols see it."""
        peer = self._linked()
        peer.context = 0
        rounds = integer(meta, "rounds")
        started = perf_counter()
        for _ in range(rounds):
            peer.exchange([])
        return {"seconds": (perf_counter() - started) / max(1, rounds)}, {}

    def _cost(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
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

    def _reset(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
        self._supply.submit(lambda: None).result()
        self._start = (self.meter.snapshot(), self._dealer.meter.snapshot())
        self._offline_s = 0.0
        return {}, {}

    def _linked(self) -> Link:
        if self._peer is None or self._peer.closed:
            self._peer, self._pair_seed = self._connect_peer(self.meter)
        return self._peer

    def _work(self, meta: Meta) -> _Work:
        scope = text(meta, "scope")
        work = self._works.get(scope)
        if work is None:
            raise InputError(f"nothing is open under the name {scope}")
        return work

    def _half(self, arrays: dict[str, Array], index: int, shape: tuple[int, ...]) -> Array:
        name = f"seed{index}" if self.rank == 0 else f"words{index}"
        half = arrays.get(name)
        if half is None:
            raise InputError(f"party {self.rank} was sent no {name}")
        if self.rank == 0:
            return Stream(half.tobytes()).words(shape)
        if half.shape != shape or half.dtype != np.uint64:
            raise InputError(f"{name} is {half.dtype} of shape {half.shape}, not uint64 of shape {shape}")
        return half
