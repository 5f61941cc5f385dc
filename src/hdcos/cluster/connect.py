"""`hdcos.connect`: the interface of `hdcos.local()`, for a cluster that runs elsewhere and is asked over HTTPS.

Security  each party gets its own share and a token made for it alone. A cluster file that names one party twice is
          refused, and each party must say that it is the one it should be: both shares must never go to one party.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import numpy as np

from hdcos.api.quota import allowed_queries
from hdcos.api.tokens import token as token_for
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.https import Answer, Party, Tensors
from hdcos.cluster.remote_function import RemoteFunction
from hdcos.cluster.transport import (
    OVER,
    Masks,
    ModelRecord,
    Reply,
    RetryableError,
    Shares,
    Status,
    ask_again,
)
from hdcos.errors import DataMissing, HandshakeError, HdcosError, InputError, PeerLost, PolicyRefused
from hdcos.files import read_toml
from hdcos.protocol.catalogue import Call
from hdcos.ring import Array
from hdcos.secure.compile import CompiledNetwork, choose_bits
from hdcos.secure.labels import LOGITS

WAIT_S = 0.2
LOAD_S = 0.1


def connect(
    cluster: str | os.PathLike[str] | None = None,
    token: str | None = None,
    phase_bits: int | None = None,
    timeout_s: float = 30.0,
    *,
    exact: bool = False,
) -> Cluster:
    """A cluster whose nodes run elsewhere; best used in a `with` block.

    `cluster` is the cluster file and `token` the client's secret that `hdcos token new` made; by default what the
    environment variables HDCOS_CLUSTER and HDCOS_TOKEN say. `phase_bits` is the precision of cosines of what is shared
    or trained here; with `exact` phases are opened unrounded.
    """
    bits = choose_bits(phase_bits, exact)
    return Cluster(open_transport(cluster, token, timeout_s), bits)


def open_transport(
    cluster: str | os.PathLike[str] | None, token: str | None, timeout_s: float, greet: bool = True
) -> HttpsTransport:
    """The way to the two parties; without `greet`, one that is away is noticed when it is asked."""
    place, secret = _find(cluster, token)
    return HttpsTransport(place, secret, timeout_s, greet)


def reach_party(cluster: str | os.PathLike[str] | None, token: str | None, rank: int, timeout_s: float = 30.0) -> Party:
    """One party of a cluster, for what concerns no shares. File and secret are found as `connect` finds them."""
    place, secret = _find(cluster, token)
    record = _read_cluster(place)
    try:
        return Party(rank, record.get(f"party{rank}", {}), token_for(secret, str(record["id"]), rank), timeout_s)
    except InputError as error:
        raise InputError(f"{place}: {error}") from None


def _find(cluster: str | os.PathLike[str] | None, token: str | None) -> tuple[str | os.PathLike[str], str]:
    """The cluster file and the client's secret, from the environment where they are not named."""
    cluster, token = cluster or os.environ.get("HDCOS_CLUSTER"), token or os.environ.get("HDCOS_TOKEN")
    if not cluster:
        raise DataMissing("which cluster? Name its cluster file (--cluster), or set HDCOS_CLUSTER")
    if not token:
        raise DataMissing(
            "a client needs its secret: name its file (--token-file; token=... in Python has the secret itself), or "
            "set HDCOS_TOKEN. `hdcos token new` makes one"
        )
    return cluster, token.strip()


class HttpsTransport:
    """Carries a caller's requests over HTTPS, both parties at once: the resources that docs/http.md describes."""

    keeps_checkpoints = True

    def __init__(self, cluster: str | os.PathLike[str], secret: str, timeout_s: float, greet: bool = True) -> None:
        record = _read_cluster(cluster)
        self.id = str(record.get("id", ""))
        self.has_dealer = record.get("dealer") != "none"
        self.timeout_s = timeout_s
        try:
            shown = [token_for(secret, self.id, rank) for rank in (0, 1)]
            self.both = [Party(rank, record.get(f"party{rank}", {}), shown[rank], timeout_s) for rank in (0, 1)]
        except InputError as error:
            raise InputError(f"{cluster}: {error}") from None
        zero, one = self.both
        if zero.address == one.address or zero.fingerprint == one.fingerprint:
            raise InputError("the cluster file names one party twice: both shares would go to the same place")
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="party")
        self._ended = False
        if greet:
            try:
                self._greet()
            except BaseException:
                self.close()
                raise

    def _greet(self) -> None:
        """Each party must be the one that it should be."""
        for rank, answer in enumerate(self.patiently("GET", "/v2")):
            self._recognise(rank, answer)

    def _recognise(self, rank: int, answer: Answer) -> None:
        known = answer.meta.get("parameters", {})
        if (known.get("party"), known.get("cluster")) != (rank, self.id):
            raise HandshakeError(
                f"{self.both[rank].address} is party {known.get('party')} of cluster {known.get('cluster')}, "
                f"not party {rank} of {self.id}"
            )

    # ---- questions

    def ask(
        self,
        method: str,
        path: str,
        meta: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        tensors: Sequence[Tensors] | None = None,
        raw: Sequence[bytes] | None = None,
    ) -> list[Answer]:
        """One question to each party, at the same time; if both fail, the error that explains more is raised."""
        if self._ended:
            raise PeerLost(OVER)
        metas = [meta, meta] if meta is None or isinstance(meta, Mapping) else meta
        none = (None, None)
        calls = [
            self._threads.submit(party.ask, method, path, said, arrays, content)
            for party, said, arrays, content in zip(self.both, metas, tensors or none, raw or none, strict=True)
        ]
        failures = [error for call in calls if (error := call.exception()) is not None]
        if failures:
            raise min(failures, key=lambda error: isinstance(error, RetryableError))
        return [call.result() for call in calls]

    def patiently(self, *question: Any, **more: Any) -> list[Answer]:
        """Ask something that may be asked twice, again and again while a party says that it is not ready."""
        return ask_again(lambda: self.ask(*question, **more), self.timeout_s)

    def each(self, method: str, path: str) -> list[Answer | HdcosError]:
        """One question to each party, and what it answered or why it did not: for what one is told though the other is
        away."""

        def ask_one(rank: int) -> Answer | HdcosError:
            try:
                self._recognise(rank, self.both[rank].ask("GET", "/v2", None, None))
                return self.both[rank].ask(method, path, None, None)
            except RetryableError as error:
                return error.error
            except HdcosError as error:
                return error

        return list(self._threads.map(ask_one, (0, 1)))

    # ---- models

    def keep_model(self, record: ModelRecord, shares: Shares) -> None:
        known = {"architecture": record.architecture, "phase_bits": record.phase_bits, "version": record.version}
        self.ask("PUT", _path(record), {"parameters": known}, shares)
        self._await_version(record.name, lambda: record.version)

    def _await_version(self, name: str, wanted: Callable[[], str]) -> None:
        """Wait until both parties serve a version of a model that both hold; nothing wanted is any version."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            zero, one = (answer.meta["version"] for answer in self.patiently("GET", f"/v2/models/{name}/ready"))
            if zero == one and wanted() in ("", zero):
                return
            if time.monotonic() > deadline:
                raise InputError(f"the parties still serve another version of {name}")
            time.sleep(LOAD_S)

    def model(self, name: str, wanted: Callable[[], str] = str) -> ModelRecord:
        if wanted is not str:
            self._await_version(name, wanted)
        zero = ask_again(lambda: self._read_agreed(name), self.timeout_s)
        known = zero["parameters"]
        return ModelRecord(
            name,
            zero["versions"][0],
            known["architecture"],
            known["phase_bits"],
            int(known["most_rows"]),
            (known["scale_bits"], known["input_bits"]),
            int((known.get("labels") or {"most_rows": 0})["most_rows"]),
        )

    def _read_agreed(self, name: str) -> dict[str, Any]:
        zero, one = (answer.meta for answer in self.ask("GET", f"/v2/models/{name}"))
        if _without_own(zero) != _without_own(one):  # one of them is replacing it just now
            raise RetryableError(HandshakeError(f"the parties hold different versions of {name}"))
        return zero

    def models(self) -> list[dict[str, Any]]:
        zero, one = ({item["name"]: item for item in answer.meta["models"]} for answer in self.ask("GET", "/v2/models"))
        return [_both(item, one.get(name, {})) for name, item in zero.items()]

    def queries_left(self, name: str, chosen: CompiledNetwork) -> int | None:
        left: list[int] = []
        for told in (answer.meta for answer in self.patiently("GET", "/v2/models")):
            if "queries_per_model" not in told:  # a party of an earlier release does not say
                return None
            used = sum(item["queries"] for item in told["models"] if item["name"] == name)
            left.append(allowed_queries(chosen, told["queries_per_model"]) - used)
        return max(0, min(left))

    def delete_model(self, name: str) -> None:
        self.ask("DELETE", f"/v2/models/{name}")

    def order(self, record: ModelRecord, rows: int, output: str) -> None:
        """The parties keep material available by themselves, and have what is missing made when rows come."""

    def prepare(self, record: ModelRecord, rows: int, wait: bool, output: str, mode: str = "masked") -> None:
        self.ask("POST", f"{_path(record)}/prepare", {"rows": rows, "mode": mode, "output": output})

    def keep_ahead(self, record: ModelRecord, rows: int, output: str) -> None:
        self.prepare(record, rows, False, output, "shares")
        self.prepare(record, rows, False, LOGITS, "masked")  # labels of either mode share their material

    def masks(self, record: ModelRecord, rows: int) -> Masks:
        """Party 0 allots masks, party 1 gives its share of those."""
        path, (zero, one) = f"{_path(record)}/masks", self.both
        first = zero.ask("POST", path, {"rows": rows}, None)
        second = one.ask("POST", path, {"mask_ids": first.meta["mask_ids"]}, None)
        shares = (first.tensors["mask"], second.tensors["mask"])
        return Masks(first.meta["mask_ids"], shares, float(first.meta["expires_s"]))

    def drop_masks(self, record: ModelRecord) -> None:
        """Parties drop the material of masks that have expired."""

    def infer(self, record: ModelRecord, inputs: Shares, mask_ids: Sequence[Any] | None, output: str) -> list[Reply]:
        parameters: dict[str, Any] = {"request_id": secrets.token_hex(16), "mode": "shares", "version": record.version}
        parameters["output"] = output
        if mask_ids is not None:
            parameters |= {"mode": "masked", "mask_ids": mask_ids}
        answers = self.ask("POST", f"{_path(record)}/infer", {"parameters": parameters}, inputs)
        return [answer.reply for answer in answers]

    def stock(self, record: ModelRecord) -> int:
        answers = self.patiently("GET", _path(record))
        return min(int(sum(answer.meta["parameters"]["stock"].values())) for answer in answers)

    def reveal(self, record: ModelRecord, number: str, asked_before: bool, wait_s: float) -> Shares:
        path = f"/v2/reveals/{number}"
        if not asked_before:
            self.ask("POST", "/v2/reveals", {"id": number, "model": record.name})
        deadline = time.monotonic() + wait_s
        while True:
            states = [answer.meta["state"] for answer in self.patiently("GET", path)]
            if states == ["released", "released"]:
                return [answer.tensors for answer in self.ask("GET", f"{path}/shares")]
            if "refused" in states:
                raise PolicyRefused(f"an operator refused to reveal {record.name}")
            if time.monotonic() > deadline:
                waiting = [f"party {rank}" for rank, state in enumerate(states) if state == "waiting"]
                raise PolicyRefused(
                    f"reveal {number} waits for {' and '.join(waiting) or 'the parties'}: each operator runs "
                    f"`hdcos approve {number} --node FOLDER`; then ask again with request={number} (--request)"
                )
            time.sleep(WAIT_S)

    # ---- data sets

    def upload(self, name: str, version: str, record: Mapping[str, Any], pieces: Iterable[Shares]) -> int:
        """Piece by piece; a piece that got lost is sent again."""
        path = f"/v2/datasets/{name}/{version}"
        try:
            begun = self.ask("POST", "/v2/datasets", {"name": name, "version": version, "by_rows": True, **record})
            number = max(int(answer.meta["number"]) for answer in begun)
            digests, offset, rows = [hashlib.sha256(), hashlib.sha256()], 0, 0
            for shares in pieces:
                content = [np.ascontiguousarray(share["rows"], dtype="<u8").tobytes() for share in shares]
                for digest, words in zip(digests, content, strict=True):
                    digest.update(words)
                self.patiently("PUT", f"{path}?offset={offset}", raw=content)
                offset, rows = offset + len(content[0]), rows + len(shares[0]["rows"])
            stated = [{"sha256": digest.hexdigest(), "number": number} for digest in digests]
            while not all(answer.meta["complete"] for answer in self.patiently("POST", f"{path}/complete", stated)):
                time.sleep(WAIT_S)  # a party that writes for long says so now and then
            return rows
        except BaseException:
            with suppress(HdcosError):  # where that fails too, the parties forget it in their own time
                self.ask("DELETE", path)
            raise

    # ---- statistics: who the owner is, the token tells

    def contribute(self, name: str, owner: str | None, record: Mapping[str, Any], shares: Shares) -> list[Status]:
        if owner is not None:
            raise InputError("the parties know the owner by its token: leave `owner` out")
        answers = self.patiently("POST", "/v2/statistics", {"parameters": {"name": name, **record}}, shares)
        return [answer.meta for answer in answers]

    def contributions(self, name: str, owner: str | None) -> list[Status]:
        return [answer.meta for answer in self.patiently("GET", f"/v2/statistics/{name}")]

    def totals(self, name: str, owner: str | None) -> list[tuple[Status, Array]]:
        answers = self.patiently("GET", f"/v2/statistics/{name}/total")
        return [(answer.meta, answer.tensors["total"]) for answer in answers]

    def withdraw(self, name: str, owner: str | None) -> None:
        """From both, even where one of them refuses."""
        self.ask("DELETE", f"/v2/statistics/{name}")

    # ---- what data sets there are

    def datasets(self) -> list[dict[str, Any]]:
        """As both parties know them: complete if it is so at both, and gone when the first of them removes it."""
        here, there = (
            {(item["owner"], item["name"], item["version"]): item for item in answer.meta["datasets"]}
            for answer in self.ask("GET", "/v2/datasets")
        )
        return [_both_hold(here.get(key), there.get(key)) for key in dict.fromkeys([*here, *there])]

    def forget_data(self, name: str) -> None:
        self.ask("DELETE", f"/v2/datasets/{name}")

    def allow_training(self, name: str, client: str) -> None:
        self.ask("POST", "/v2/grants", {"dataset": name, "client": client})

    # ---- jobs

    def submit(self, spec: dict[str, Any], shares: Shares) -> None:
        told = {name: value for name, value in spec.items() if name not in ("checkpoint", "resume")}
        self.ask("POST", "/v2/jobs", {"parameters": told}, shares)

    def job(self, number: str) -> list[Status]:
        return [answer.meta for answer in self.patiently("GET", f"/v2/jobs/{number}")]

    def jobs(self) -> list[Status]:
        found: list[Status] = self.ask("GET", "/v2/jobs")[0].meta["jobs"]
        return found

    def events(self, number: str) -> Iterator[Status]:
        with self.both[0].follow(f"/v2/jobs/{number}/events") as pieces:
            buffer = b""
            for piece in pieces:
                buffer += piece
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    if line.startswith(b"data: "):
                        try:
                            status: Status = json.loads(line[6:])
                        except ValueError:
                            lost = PeerLost("the events of the job stopped in the middle of one")
                            raise RetryableError(lost) from None
                        yield status

    def looked(self, number: str, epoch: int, best: bool = False, stop: bool = False) -> None:
        zero = self.both[0]
        said = {"epoch": epoch} | {name: True for name, true in (("best", best), ("stop", stop)) if true}
        ask_again(lambda: zero.ask("POST", f"/v2/jobs/{number}/look", said, None), self.timeout_s)

    def cancel(self, number: str, keep: bool) -> None:
        self.ask("POST", f"/v2/jobs/{number}/cancel", {"keep": keep})

    # ---- the rest

    def function(self, call: Call, shapes: Sequence[tuple[int, ...]], scale: int, ahead: int) -> RemoteFunction:
        return RemoteFunction(self, call, shapes, ahead)

    def counts(self) -> list[dict[str, Any]]:
        return [answer.meta for answer in self.patiently("GET", "/v2/cost")]

    def round_trip_s(self, rounds: int) -> float:
        """As the parties measured it last: they do that by themselves, every few seconds."""
        seen = [answer.meta["peer"]["rtt_ms"] for answer in self.patiently("GET", "/v2/status")]
        if None in seen:
            raise PeerLost("the parties have not measured a round trip yet: ask again in a few seconds")
        return float(max(seen)) / 1e3

    def close(self) -> None:
        self._ended = True
        self._threads.shutdown(cancel_futures=True)
        for party in self.both:
            party.close()


def _path(record: ModelRecord) -> str:
    return f"/v2/models/{record.name}"


def _without_own(meta: dict[str, Any]) -> dict[str, Any]:
    """A model's metadata without what differs between the parties."""
    known = {name: value for name, value in meta["parameters"].items() if name not in ("party", "stock")}
    return {**meta, "parameters": known}


def _both(zero: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    """A model as both parties know it: ready if it is at both, and as far used up as at the party that allows less."""
    fewest = min((zero, one or zero), key=lambda known: known["queries_allowed"] - known["queries"])
    return {
        **zero,
        "ready": zero["ready"] and one.get("version") == zero["version"],
        "queries": fewest["queries"],
        "queries_allowed": fewest["queries_allowed"],
        "error": zero["error"] or one.get("error", ""),
    }


def _both_hold(zero: dict[str, Any] | None, one: dict[str, Any] | None) -> dict[str, Any]:
    """A data set as both parties know it, or as the one that has it."""
    if zero is None or one is None:
        return {**(zero or one or {}), "complete": False}
    ends = [item["expires"] for item in (zero, one) if item["expires"]]
    return {
        **zero,
        "complete": zero["complete"] and one["complete"],
        "number": max(zero["number"], one["number"]),
        "allowed": [client for client in zero["allowed"] if client in one["allowed"]],
        "expires": min(ends, default=0.0),
    }


def _read_cluster(cluster: str | os.PathLike[str]) -> dict[str, Any]:
    record = read_toml(cluster, "a cluster file")
    if record.get("version") != 1:
        raise InputError(f"{cluster} is not a cluster file of version 1")
    if not re.fullmatch("[0-9a-f]{32}", str(record.get("id"))):
        raise InputError(f"{cluster} has no id of 32 hexadecimal digits")
    return record
