"""Both parties of a cluster, asked over HTTPS at the same time.

Security  each party gets its own share and a token made for it alone. A cluster file that names one party twice is
          refused, and each party must say that it is the one it should be: both shares must never go to one party.
          Certificates are pinned by fingerprint, or checked against the authority in the cluster file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import urllib3
from urllib3.exceptions import HTTPError

from hdcos import errors
from hdcos.api.tensors import LENGTH_HEADER, decode_body, encode_body
from hdcos.api.tokens import token
from hdcos.cluster.transport import OVER, RetryableError, ask_again
from hdcos.errors import FrameError, HandshakeError, HdcosError, InputError, PeerLost
from hdcos.reading import read_toml
from hdcos.ring import Array

Tensors = Mapping[str, Array]
T = TypeVar("T")


@dataclass(frozen=True)
class Answer:
    """What a party said."""

    meta: dict[str, Any]
    tensors: dict[str, Array]


class Party:
    """One party."""

    def __init__(self, rank: int, record: Mapping[str, Any], shown: str, timeout_s: float) -> None:
        self.rank = rank
        host, _, port = str(record.get("http", "") if isinstance(record, Mapping) else "").rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise InputError(f"the cluster file has no HTTPS address of party {rank}")
        self.address = f"{host}:{port}"
        try:
            der = ssl.PEM_cert_to_DER_cert(str(record.get("certificate", "")).strip())
        except ValueError:
            raise InputError(f"the cluster file has no certificate of party {rank}") from None
        self.fingerprint = hashlib.sha256(der).hexdigest()
        trust: dict[str, Any] = {"cert_reqs": "CERT_NONE", "assert_fingerprint": self.fingerprint}
        if record.get("authority"):
            trust = {"cert_reqs": "CERT_REQUIRED", "ca_cert_data": record["authority"]}
        self._headers = {"authorization": f"Bearer {shown}"}
        self._pool = urllib3.HTTPSConnectionPool(
            host.strip("[]"),
            int(port),
            timeout=urllib3.Timeout(connect=min(10.0, timeout_s), read=timeout_s),
            retries=False,
            maxsize=16,
            ssl_minimum_version=ssl.TLSVersion.TLSv1_3,
            **trust,
        )

    def ask(
        self, method: str, path: str, meta: Mapping[str, Any] | None, tensors: Tensors | None, raw: bytes | None = None
    ) -> Answer:
        headers, body = dict(self._headers), raw
        if tensors is not None:
            body, more = encode_body(meta or {}, tensors, "inputs")
            headers |= more
        elif meta is not None:
            body = json.dumps(meta).encode()
            headers["content-type"] = "application/json"
        try:
            answer = self._pool.urlopen(method, path, body=body, headers=headers, retries=False)
        except HTTPError as error:
            raise RetryableError(PeerLost(f"party {self.rank} at {self.address}: {_plainly(error)}")) from None
        if answer.status >= 400:
            raise self._error(answer.status, answer.data)
        length = answer.headers.get(LENGTH_HEADER)
        try:
            return (
                Answer(json.loads(answer.data), {})
                if length is None
                else Answer(*decode_body(answer.data, length, "outputs"))
            )
        except ValueError as error:  # InputError is one
            raise FrameError(f"party {self.rank} answered with something else than a result: {error}") from None

    def look(self, path: str) -> tuple[int, dict[str, Any]]:
        """What a resource says, whatever its status: for those who want to know how a party is."""
        try:
            answer = self._pool.urlopen("GET", path, headers=self._headers, retries=False)
            said = json.loads(answer.data)
        except HTTPError as error:
            raise PeerLost(f"party {self.rank} at {self.address}: {_plainly(error)}") from None
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise FrameError(f"party {self.rank} at {self.address} answers with something else than hdcos would")
        return answer.status, said

    @contextmanager
    def follow(self, path: str) -> Iterator[Iterator[bytes]]:
        """The bytes of a stream of server-sent events, as they come."""
        try:
            answer = self._pool.urlopen(
                "GET", path, headers=self._headers, retries=False, preload_content=False, timeout=30.0
            )
            with closing(answer):
                if answer.status != 200:
                    raise RetryableError(PeerLost(f"party {self.rank} answered with status {answer.status}"))
                yield answer.stream(1 << 12, decode_content=False)
        except (HTTPError, OSError) as error:
            raise RetryableError(PeerLost(f"party {self.rank} at {self.address}: {_plainly(error)}")) from None

    def close(self) -> None:
        self._pool.close()

    def _error(self, status: int, data: bytes) -> HdcosError:
        """The error that a party reported, as the same class here."""
        try:
            said = json.loads(data)
            name, text = str(said["name"]), str(said["error"]).partition(": ")[2]
            error = errors.remote(name, f"party {self.rank}: {text}")
        except (ValueError, KeyError, TypeError):
            return RetryableError(PeerLost(f"party {self.rank} answered with status {status}"))
        return RetryableError(error) if said.get("retryable") else error


def _plainly(error: Exception) -> str:
    text = str(error)
    if "ingerprints did not match" in text:
        return "its certificate is not the one in the cluster file"
    if "certificate verify failed" in text.lower():
        return "its certificate is not signed by the authority in the cluster file"
    return f"out of reach ({type(error).__name__})"


class Parties:
    """Asks both parties, each its own question, at once."""

    def __init__(self, cluster: str | os.PathLike[str], secret: str, timeout_s: float) -> None:
        record = _read(cluster)
        self.id = str(record.get("id", ""))
        self.has_dealer = record.get("dealer") != "none"
        self.timeout_s = timeout_s
        try:
            self.both = [
                Party(rank, record.get(f"party{rank}", {}), token(secret, self.id, rank), timeout_s) for rank in (0, 1)
            ]
        except InputError as error:
            raise InputError(f"{cluster}: {error}") from None
        zero, one = self.both
        if zero.address == one.address or zero.fingerprint == one.fingerprint:
            raise InputError("the cluster file names one party twice: both shares would go to the same place")
        self._threads = ThreadPoolExecutor(8, thread_name_prefix="party")
        self._ended = False
        try:
            self._greet()
        except BaseException:
            self.close()
            raise

    def _greet(self) -> None:
        """Each party must be the one that it should be."""
        for rank, answer in enumerate(self.patiently("GET", "/v2")):
            known = answer.meta.get("parameters", {})
            if (known.get("party"), known.get("cluster")) != (rank, self.id):
                raise HandshakeError(
                    f"{self.both[rank].address} is party {known.get('party')} of cluster {known.get('cluster')}, "
                    f"not party {rank} of {self.id}"
                )

    def ask(
        self,
        method: str,
        path: str,
        meta: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        tensors: Sequence[Tensors] | None = None,
        raw: Sequence[bytes] | None = None,
    ) -> list[Answer]:
        """One question to each party; if both fail, the error that explains more is raised."""
        if self._ended:
            raise PeerLost(OVER)
        metas = [meta, meta] if meta is None or isinstance(meta, Mapping) else list(meta)
        calls = [
            self._threads.submit(
                party.ask,
                method,
                path,
                metas[party.rank],
                None if tensors is None else tensors[party.rank],
                None if raw is None else raw[party.rank],
            )
            for party in self.both
        ]
        failures = [error for call in calls if (error := call.exception()) is not None]
        if failures:
            raise min(failures, key=lambda error: isinstance(error, RetryableError))
        return [call.result() for call in calls]

    def patiently(self, method: str, path: str, meta: Mapping[str, Any] | None = None) -> list[Answer]:
        """Ask something that may be asked twice, again and again while a party says that it is not ready."""
        return self.again(lambda: self.ask(method, path, meta))

    def again(self, work: Callable[[], T]) -> T:
        """Repeat work that failed in a way that may pass, until the time is up."""
        return ask_again(work, self.timeout_s)

    def close(self) -> None:
        self._ended = True
        self._threads.shutdown(cancel_futures=True)
        for party in self.both:
            party.close()


def _read(cluster: str | os.PathLike[str]) -> dict[str, Any]:
    record = read_toml(cluster, "a cluster file")
    if record.get("version") != 1:
        raise InputError(f"{cluster} is not a cluster file of version 1")
    if not re.fullmatch("[0-9a-f]{32}", str(record.get("id"))):
        raise InputError(f"{cluster} has no id of 32 hexadecimal digits")
    return record
