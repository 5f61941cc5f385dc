"""One party of a cluster, asked over HTTPS.

Security  certificates are pinned by fingerprint, or checked against the authority in the cluster file. The token was
          made for this party alone.
"""

from __future__ import annotations

import hashlib
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from hdcos import errors
from hdcos.api.bodies import LENGTH_HEADER, decode_body, encode_body
from hdcos.cluster.transport import Reply, RetryableError
from hdcos.errors import FrameError, HdcosError, InputError, PeerLost
from hdcos.ring import Array

Tensors = Mapping[str, Array]
LOOK = "is its node running? `hdcos doctor` says more"
UNKNOWN = ": check HDCOS_TOKEN or --token-file, or ask its operator for `hdcos token allow`"
"""What to do about a secret that a party does not know."""


@dataclass(frozen=True)
class Answer:
    """What a party said."""

    meta: dict[str, Any]
    tensors: dict[str, Array]

    @property
    def reply(self) -> Reply:
        """What was said, as a share of a result."""
        known = self.meta["parameters"]
        return Reply(self.tensors["output"], known["scale_bits"], known["bits"])


class Party:
    """One party."""

    def __init__(self, rank: int, record: Mapping[str, Any], shown: str, timeout_s: float) -> None:
        self.rank = rank
        host, _, port = str(record.get("http", "") if isinstance(record, Mapping) else "").rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise InputError(f"the cluster file has no HTTPS address of party {rank}")
        self.address = f"{host}:{port}"
        self._name = f"party {rank} at {self.address}"
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
            raise self._again(error) from None
        if answer.status >= 400:
            raise self._error(answer.status, answer.data)
        length = answer.headers.get(LENGTH_HEADER)
        try:
            if length is None:
                return Answer(json.loads(answer.data), {})
            return Answer(*decode_body(answer.data, length))
        except ValueError as error:  # InputError is one
            raise FrameError(f"party {self.rank} answered with something else than a result: {error}") from None

    def meet(self, method: str, path: str, body: bytes | None = None) -> bytes:
        """The bytes of an answer, to bytes that are sent."""
        try:
            answer = self._pool.urlopen(method, path, body=body, headers=self._headers, retries=False)
        except HTTPError as error:
            raise self._again(error) from None
        if answer.status >= 400:
            raise self._error(answer.status, answer.data)
        return answer.data

    def look(self, path: str) -> tuple[int, dict[str, Any]]:
        """What a resource says, whatever its status: for those who want to know how a party is."""
        try:
            answer = self._pool.urlopen("GET", path, headers=self._headers, retries=False)
            said = json.loads(answer.data)
        except HTTPError as error:
            raise self._lost(error, "") from None
        except ValueError:
            said = None
        if not isinstance(said, dict):
            raise FrameError(f"{self._name} answers with something else than hdcos would")
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
            raise self._again(error) from None

    def close(self) -> None:
        self._pool.close()

    def _error(self, status: int, data: bytes) -> HdcosError:
        """The error that a party reported, as the same class here."""
        try:
            said = json.loads(data)
            name, text = str(said["name"]), str(said["error"]).partition(": ")[2]
            remedy = UNKNOWN if status == 401 else ""
            error = errors.remote(name, f"party {self.rank}: {text}{remedy}")
        except (ValueError, KeyError, TypeError):
            return RetryableError(PeerLost(f"party {self.rank} answered with status {status}"))
        return RetryableError(error) if said.get("retryable") else error

    def _again(self, error: Exception) -> RetryableError:
        """What became of a request that may be asked again; a party with another certificate has answered."""
        lost = self._lost(error)
        return RetryableError(lost, "" if "certificate" in str(lost) else self._name)

    def _lost(self, error: Exception, remedy: str = f": {LOOK}") -> PeerLost:
        """What became of a request, with a remedy unless that is what is being looked for."""
        text = str(error)
        if "ingerprints did not match" in text:
            return PeerLost(f"{self._name}: its certificate is not the one in the cluster file")
        if "certificate verify failed" in text.lower():
            return PeerLost(f"{self._name}: its certificate is not signed by the authority in the cluster file")
        if "Connection refused" in text:
            return PeerLost(f"{self._name} refuses connections{remedy}")
        return PeerLost(f"{self._name} is out of reach ({type(error).__name__}){remedy}")
