"""Answers of the HTTP interface, errors among them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from hdcos import errors
from hdcos.api.tensors import encode_body
from hdcos.errors import HdcosError
from hdcos.party.batcher import Refused
from hdcos.ring import Array

STATUS: Mapping[type[HdcosError], int] = {
    errors.DataMissing: 404,
    errors.PolicyRefused: 403,
    errors.MaterialReused: 409,
    errors.StorageFull: 507,
    errors.CheckpointMismatch: 409,
    errors.MaterialExhausted: 503,
    errors.PeerLost: 503,
    errors.HandshakeError: 503,
}
RETRY_AFTER_S = 1
CAREFUL = {"x-content-type-options": "nosniff", "cache-control": "no-store"}


def reply(meta: Any, status: int = 200) -> Response:
    return Response(json.dumps(meta, separators=(",", ":")), status, CAREFUL, media_type="application/json")


def reply_tensors(meta: Mapping[str, Any], tensors: Mapping[str, Array]) -> Response:
    content, headers = encode_body(meta, tensors)
    return Response(content, 200, {**headers, **CAREFUL})


def reply_error(error: BaseException) -> Response:
    """An error by name. That of an unforeseen one stays here: it might quote data."""
    retryable, status = False, 500
    if isinstance(error, Refused):
        retryable, given, error = error.retryable, error.status, error.error
        status = given or _status(error)
    elif isinstance(error, HdcosError):
        status = _status(error)
    else:
        error = HdcosError(f"internal error ({type(error).__name__}), see this party's log")
    retryable = retryable or status == 503
    name = type(error).__name__
    answer = reply({"error": f"{name}: {error}", "name": name, "retryable": retryable}, status)
    if retryable:
        answer.headers["retry-after"] = str(RETRY_AFTER_S)
    if status in (408, 413):
        answer.headers["connection"] = "close"  # the rest of the request is not wanted
    if status == 401:
        answer.headers["www-authenticate"] = "Bearer"
    return answer


def _status(error: BaseException) -> int:
    for kind, status in STATUS.items():
        if isinstance(error, kind):
            return status
    return 400
