"""What a party does: it holds shares, spends material, talks to its peer and answers its client.

Security  the party sees its own halves and uniformly masked openings. The frames of a run carry a context, a hash
          of the program, the material's address and the execution's number: a peer that means anything else is
          refused at its first frame, before a second value could be opened under a mask. A run that fails is
          aborted on both sides and its material is burnt. What leaves for the client is rounded to the output
          scale and refreshed with a sharing of zero.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from hdcos.errors import HdcosError, InputError
from hdcos.link import Count, Kind, Link, Meter
from hdcos.link.message import decode_message, encode_message, reply_error
from hdcos.offline import Stock
from hdcos.offline.service import DealerClient
from hdcos.protocol.catalogue import Call
from hdcos.protocol.drive import run
from hdcos.protocol.party import Party
from hdcos.protocol.plan import blank_share, plan
from hdcos.ring import Array, round_open
from hdcos.serve.cost import counts_to_json
from hdcos.sharing import Share, Stream, refresh

OUTPUT_SCALE = 24
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
        # The dealer's link belongs to this one thread, which fills stocks while rounds go on.
        self._supply = ThreadPoolExecutor(1, thread_name_prefix="supply")
        self._start = (meter.snapshot(), dealer.meter.snapshot())
        self._seconds = {"online": 0.0, "offline": 0.0}

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
                operation = meta.pop("operation", None)
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
                    raise
            else:
                client.send(Kind.REPLY, *encode_message(answer, results))

    def stop(self) -> None:
        self._supply.shutdown(cancel_futures=True)
        if self._peer is not None:
            self._peer.close()
        self._dealer.leave()

    def _open(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
        call = Call.of(meta["function"], **meta["parameters"])
        shapes = tuple(tuple(shape) for shape in meta["shapes"])
        scales = tuple(meta["scales"])
        planned = plan(call.program, *(blank_share(*form) for form in zip(shapes, scales, strict=True)))
        scope = meta["scope"]
        stock = self._supply.submit(self._dealer.open, scope, planned.material).result()
        fingerprint = call.fingerprint(shapes, scales, planned.material.fingerprint.hex())
        self._works[scope] = _Work(call, shapes, scales, fingerprint, stock, meta["ahead"])
        self._order(self._works[scope], meta["ahead"])
        return {"rounds": planned.rounds, "online_bytes": planned.online_bytes}, {}

    def _prepare(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
        filling = self._order(self._work(meta), meta["executions"])
        if meta["wait"]:
            filling.result()
        return {}, {}

    def _order(self, work: _Work, executions: int) -> Future[None]:
        work.stock.order(executions)
        return self._supply.submit(self._fill, work.stock, executions)

    def _fill(self, stock: Stock, executions: int) -> None:
        started = perf_counter()
        try:
            self._dealer.fill(stock, executions)
        except HdcosError as error:
            stock.fail(error)
            raise
        self._seconds["offline"] += perf_counter() - started

    def _run(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
        work, start, executions = self._work(meta), int(meta["start"]), int(meta["executions"])
        inputs = [
            Share(self._half(arrays, index, (shape[0] * executions, *shape[1:])), scale)
            for index, (shape, scale) in enumerate(zip(work.shapes, work.scales, strict=True))
        ]
        peer = self._linked()
        address = f"{meta['scope']} {start} {executions}"
        digest = hashlib.sha256(work.fingerprint + address.encode()).digest()
        peer.context = int.from_bytes(digest[:8], "little")
        try:
            ration = work.stock.begin(executions, start, peer.timeout_s or 30.0)
            with self.meter.phase("online"):
                started = perf_counter()
                result = run(work.call.program(Party(self.rank, ration), *inputs), peer)
                self._seconds["online"] += perf_counter() - started
            ration.finish()
        except BaseException as error:
            # The peer must not wait for a round that will not come; both sides make a new link for the next run.
            peer.abort(error)
            raise
        missing = work.ahead - work.stock.available
        if missing > 0:
            self._order(work, missing)
        return self._leaving(result, address)

    def _leaving(self, result: Share, address: str) -> tuple[Meta, dict[str, Array]]:
        """The result as it leaves for the client: refreshed, rounded to the output scale."""
        fresh = refresh(result, self.rank, self._pair_seed, address)
        drop = max(0, result.scale - OUTPUT_SCALE)
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
        started = perf_counter()
        for _ in range(meta["rounds"]):
            peer.exchange([])
        return {"seconds": (perf_counter() - started) / meta["rounds"]}, {}

    def _cost(self, meta: Meta, arrays: dict[str, Array]) -> tuple[Meta, dict[str, Array]]:
        self._supply.submit(lambda: None).result()
        online = self.meter.snapshot() - self._start[0]
        offline = self._dealer.meter.snapshot() - self._start[1]
        phases = {"online": online.phases["online"], "offline": offline.phases["offline"]}
        answer = counts_to_json({name: _timed(count, self._seconds[name]) for name, count in phases.items()})
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
        self._seconds = dict.fromkeys(self._seconds, 0.0)
        return {}, {}

    def _linked(self) -> Link:
        if self._peer is None or self._peer.closed:
            self._peer, self._pair_seed = self._connect_peer(self.meter)
        return self._peer

    def _work(self, meta: Meta) -> _Work:
        work = self._works.get(meta["scope"])
        if work is None:
            raise InputError(f"nothing is open under the name {meta['scope']}")
        return work

    def _half(self, arrays: dict[str, Array], index: int, shape: tuple[int, ...]) -> Array:
        if self.rank == 0:
            return Stream(arrays[f"seed{index}"].tobytes()).words(shape)
        words = arrays[f"words{index}"]
        if words.shape != shape:
            raise InputError(f"input {index} has shape {words.shape}, not {shape}")
        return words


def _timed(count: Count, seconds: float) -> Count:
    return Count(
        count.rounds, count.bytes_sent, count.bytes_received, count.wire_bytes_sent, count.wire_bytes_received, seconds
    )
