"""Two parties somewhere else, asked over HTTPS: the resources that docs/http.md describes."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from hdcos.cluster.https import Parties
from hdcos.cluster.transport import Masks, ModelRecord, OpenFunction, Reply, RetryableError, Shares, Status
from hdcos.errors import HandshakeError, HdcosError, InputError, PeerLost, PolicyRefused
from hdcos.protocol.catalogue import Call

CHUNK_BYTES = 1 << 23
WAIT_S = 0.2
LOAD_S = 0.1


class HttpsTransport:
    """Carries a caller's requests over HTTPS, both parties at once."""

    keeps_checkpoints = True

    def __init__(self, parties: Parties) -> None:
        self.parties, self.has_dealer, self.timeout_s = parties, parties.has_dealer, parties.timeout_s

    # ---- models

    def keep_model(self, record: ModelRecord, shares: Shares) -> None:
        known = {"architecture": record.architecture, "phase_bits": record.phase_bits, "version": record.version}
        self.parties.ask("PUT", _path(record), {"parameters": known}, shares)
        self._await_version(record.name, lambda: record.version)

    def _await_version(self, name: str, wanted: Callable[[], str]) -> None:
        """Wait until both parties serve a version of a model that both hold; nothing wanted is any version."""
        deadline = time.monotonic() + self.timeout_s
        while True:
            zero, one = (answer.meta["version"] for answer in self.parties.patiently("GET", f"/v2/models/{name}/ready"))
            if zero == one and wanted() in ("", zero):
                return
            if time.monotonic() > deadline:
                raise InputError(f"the parties still serve another version of {name}")
            time.sleep(LOAD_S)

    def model(self, name: str, wanted: Callable[[], str] = str) -> ModelRecord:
        if wanted is not str:
            self._await_version(name, wanted)
        zero = self.parties.again(lambda: self._agreed(name))
        known = zero["parameters"]
        return ModelRecord(
            name,
            zero["versions"][0],
            known["architecture"],
            known["phase_bits"],
            int(known["most_rows"]),
            (known["scale_bits"], known["input_bits"]),
        )

    def _agreed(self, name: str) -> dict[str, Any]:
        zero, one = (answer.meta for answer in self.parties.ask("GET", f"/v2/models/{name}"))
        if _without_own(zero) != _without_own(one):  # one of them is replacing it just now
            raise RetryableError(HandshakeError(f"the parties hold different versions of {name}"))
        return zero

    def models(self) -> list[dict[str, Any]]:
        zero, one = (
            {item["name"]: item for item in answer.meta["models"]} for answer in self.parties.ask("GET", "/v2/models")
        )
        return [_both(item, one.get(name, {})) for name, item in zero.items()]

    def delete_model(self, name: str) -> None:
        self.parties.ask("DELETE", f"/v2/models/{name}")

    def order(self, record: ModelRecord, rows: int) -> None:
        """The parties keep a stock by themselves, and have what is missing made when rows come."""

    def prepare(self, record: ModelRecord, rows: int, wait: bool, mode: str = "masked") -> None:
        self.parties.ask("POST", f"{_path(record)}/prepare", {"rows": rows, "mode": mode})

    def keep_ahead(self, record: ModelRecord, rows: int) -> None:
        for mode in ("shares", "masked"):
            self.prepare(record, rows, False, mode)

    def masks(self, record: ModelRecord, rows: int) -> Masks:
        """Party 0 allots masks, party 1 gives its share of those."""
        path, (zero, one) = f"{_path(record)}/masks", self.parties.both
        first = zero.ask("POST", path, {"rows": rows}, None)
        second = one.ask("POST", path, {"mask_ids": first.meta["mask_ids"]}, None)
        shares = (first.tensors["mask"], second.tensors["mask"])
        return Masks(first.meta["mask_ids"], shares, float(first.meta["expires_s"]))

    def infer(self, record: ModelRecord, inputs: Shares, mask_ids: Sequence[Any] | None) -> list[Reply]:
        parameters: dict[str, Any] = {"request_id": secrets.token_hex(16), "mode": "shares", "version": record.version}
        if mask_ids is not None:
            parameters |= {"mode": "masked", "mask_ids": mask_ids}
        answers = self.parties.ask("POST", f"{_path(record)}/infer", {"parameters": parameters}, inputs)
        forms = [answer.meta["parameters"] for answer in answers]
        return [
            Reply(answer.tensors["output"], form["scale_bits"], form["bits"])
            for answer, form in zip(answers, forms, strict=True)
        ]

    def stock(self, record: ModelRecord) -> int:
        answers = self.parties.patiently("GET", _path(record))
        return min(int(sum(answer.meta["parameters"]["stock"].values())) for answer in answers)

    def reveal(self, record: ModelRecord, number: str, asked_before: bool, wait_s: float) -> Shares:
        path = f"/v2/reveals/{number}"
        if not asked_before:
            self.parties.ask("POST", "/v2/reveals", {"id": number, "model": record.name})
        deadline = time.monotonic() + wait_s
        while True:
            states = [answer.meta["state"] for answer in self.parties.patiently("GET", path)]
            if states == ["released", "released"]:
                return [answer.tensors for answer in self.parties.ask("GET", f"{path}/shares")]
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

    def upload(self, name: str, version: str, record: Mapping[str, Any], shares: Shares) -> None:
        """Chunk by chunk; a chunk that got lost is sent again."""
        path = f"/v2/datasets/{name}/{version}"
        try:
            self.parties.ask("POST", "/v2/datasets", {"name": name, "version": version, **record})
            digests, offset = [hashlib.sha256(), hashlib.sha256()], 0
            for chunks in _chunks(shares):
                for digest, chunk in zip(digests, chunks, strict=True):
                    digest.update(chunk)
                self.parties.again(_asking(self.parties, "PUT", f"{path}?offset={offset}", raw=chunks))
                offset += len(chunks[0])
            stated = [{"sha256": digest.hexdigest()} for digest in digests]
            self.parties.again(_asking(self.parties, "POST", f"{path}/complete", stated))
        except BaseException:
            with suppress(HdcosError):  # where that fails too, the parties forget it in their own time
                self.parties.ask("DELETE", path)
            raise

    def datasets(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.parties.ask("GET", "/v2/datasets")[0].meta["datasets"]
        return found

    def forget_data(self, name: str) -> None:
        self.parties.ask("DELETE", f"/v2/datasets/{name}")

    def allow_training(self, name: str, client: str) -> None:
        self.parties.ask("POST", "/v2/grants", {"dataset": name, "client": client})

    # ---- jobs

    def submit(self, spec: dict[str, Any], shares: Shares) -> None:
        self.parties.ask("POST", "/v2/jobs", {"parameters": spec}, shares)

    def job(self, number: str) -> list[Status]:
        return [answer.meta for answer in self.parties.patiently("GET", f"/v2/jobs/{number}")]

    def jobs(self) -> list[Status]:
        found: list[Status] = self.parties.ask("GET", "/v2/jobs")[0].meta["jobs"]
        return found

    def events(self, number: str) -> Iterator[Status]:
        with self.parties.both[0].follow(f"/v2/jobs/{number}/events") as pieces:
            buffer = b""
            for piece in pieces:
                buffer += piece
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    if line.startswith(b"data: "):
                        yield _status(line[6:])

    def looked(self, number: str, epoch: int) -> None:
        zero = self.parties.both[0]
        self.parties.again(lambda: zero.ask("POST", f"/v2/jobs/{number}/look", {"epoch": epoch}, None))

    def cancel(self, number: str, keep: bool) -> None:
        self.parties.ask("POST", f"/v2/jobs/{number}/cancel", {"keep": keep})

    # ---- the rest

    def function(self, call: Call, shapes: Sequence[tuple[int, ...]], scale: int, ahead: int) -> OpenFunction:
        raise InputError(f"{call.function}: parties elsewhere serve models; single functions run on hdcos.local()")

    def counts(self) -> list[dict[str, Any]]:
        return [answer.meta for answer in self.parties.patiently("GET", "/v2/cost")]

    def round_trip_s(self, rounds: int) -> float:
        """As the parties measured it last: they do that by themselves, every few seconds."""
        seen = [answer.meta["peer"]["rtt_ms"] for answer in self.parties.patiently("GET", "/v2/status")]
        if None in seen:
            raise PeerLost("the parties have not measured a round trip yet: ask again in a few seconds")
        return float(max(seen)) / 1e3

    def close(self) -> None:
        self.parties.close()


def _path(record: ModelRecord) -> str:
    return f"/v2/models/{record.name}"


def _asking(parties: Parties, *question: Any, **more: Any) -> Callable[[], object]:
    return lambda: parties.ask(*question, **more)


def _chunks(shares: Shares) -> Iterator[list[bytes]]:
    """The arrays of both parties, one after another, in pieces of the same length."""
    for name, array in shares[0].items():
        for first in range(0, array.size, CHUNK_BYTES // 8):
            parts = [share[name].reshape(-1)[first : first + CHUNK_BYTES // 8] for share in shares]
            yield [np.ascontiguousarray(part, dtype="<u8").tobytes() for part in parts]


def _status(text: bytes) -> Status:
    try:
        status: Status = json.loads(text)
    except ValueError:
        raise RetryableError(PeerLost("the events of the job stopped in the middle of one")) from None
    return status


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
