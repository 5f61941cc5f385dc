"""The OpenAPI description of a party's HTTP interface."""

from __future__ import annotations

from functools import cache
from typing import Any

from hdcos._version import __version__
from hdcos.party.http.asked import ALLOWED_PHASE_BITS

Schema = dict[str, Any]

ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{32}$"}
NAME: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}$"}
TEXT: Schema = {"type": "string"}
TRUTH: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number"}
WHOLE: Schema = {"type": "integer"}
ANY: Schema = {"type": "object"}


def _object(required: dict[str, Schema], **optional: Schema) -> Schema:
    return {"type": "object", "required": list(required), "properties": {**required, **optional}}


def _list(items: Schema, **limits: int) -> Schema:
    return {"type": "array", "items": items, **limits}


def _whole(low: int, high: int) -> Schema:
    return {"type": "integer", "minimum": low, "maximum": high}


COLUMNS: Schema = {"type": ["array", "null"], "items": {"type": "string", "minLength": 1, "maxLength": 200}}
ERROR = _object({"error": TEXT, "name": TEXT, "retryable": TRUTH})
TENSOR = _object(
    {
        "name": TEXT,
        "datatype": {"type": "string", "enum": ["UINT64"]},
        "shape": _list(_whole(0, 2**32 - 1), maxItems=8),
    },
    data=_list(_whole(0, 2**64 - 1)),
    parameters=_object({"binary_data_size": WHOLE}),
)
PHASE_BITS: Schema = {"type": "integer", "enum": list(ALLOWED_PHASE_BITS)}
JOB = _object(
    {"id": ID, "model": NAME, "state": TEXT, "step": WHOLE, "total_steps": WHOLE, "epoch": WHOLE, "epochs": WHOLE},
    error=TEXT,
    version=TEXT,
    report=ANY,
    interim=ANY,
)
DATASET = _object(
    {"name": NAME, "version": ID, "rows": WHOLE, "features": WHOLE, "outputs": WHOLE, "complete": TRUTH},
    bytes=WHOLE,
    received=WHOLE,
    columns=COLUMNS,
)
REVEAL = _object({"id": ID, "model": NAME, "version": ID, "state": TEXT})
MODEL_REQUEST = _object(
    {"inputs": _list(TENSOR), "parameters": _object({"architecture": {}, "phase_bits": PHASE_BITS, "version": ID})}
)
INFER_REQUEST: Schema = {
    **_object(
        {"inputs": _list(TENSOR, minItems=1, maxItems=1)},
        parameters=_object(
            {},
            request_id=ID,
            mode={"type": "string", "enum": ["shares", "masked"]},
            mask_ids=_list(TEXT, minItems=1),
            scale_bits=_whole(0, 64),
            version=ID,
        ),
        id=TEXT,
        outputs=_list(ANY),
    ),
    "anyOf": [
        {"required": ["parameters"], "properties": {"parameters": {"required": ["request_id"]}}},
        {"required": ["id"], "properties": {"id": ID}},
    ],
}
"""The request id is a parameter, or the protocol's own `id`."""
JOB_REQUEST = _object(
    {
        "inputs": _list(TENSOR),
        "parameters": _object(
            {
                **{"id": ID, "model": NAME, "architecture": {}, "datasets": _list(NAME, minItems=1)},
                **{"batch_size": _whole(1, 2**24), "rates": _list(NUMBER, minItems=1), "seed": _whole(0, 2**63 - 1)},
            },
            phase_bits=PHASE_BITS,
            join={"type": "string", "enum": ["rows", "columns"]},
            loss={"type": "string", "enum": ["logistic", "softmax", "squared"]},
            momentum=NUMBER,
            weight_decay=NUMBER,
            checkpoint_every=_whole(1, 2**32),
            publish={"type": "string", "enum": ["end", "epoch"]},
        ),
    }
)
DATASET_REQUEST = _object(
    {
        **{"name": NAME, "version": ID, "rows": _whole(1, 2**32)},
        **{"features": _whole(1, 2**24), "outputs": _whole(0, 2**24)},
    },
    columns=COLUMNS,
)
MASKS_REQUEST: Schema = {
    "type": "object",
    "properties": {"rows": _whole(1, 2**20), "mask_ids": _list(TEXT, minItems=1)},
}
BINARY: Schema = {"type": "string", "format": "binary"}
REFUSALS = (400, 401, 403, 404, 405, 408, 409, 413, 429, 503, 507)


def _content(schema: Schema, kind: str) -> dict[str, Any]:
    return {kind: {"schema": schema}}


def _operation(
    summary: str,
    answer: Schema | None = None,
    body: Schema | None = None,
    *,
    status: int = 200,
    kind: str | tuple[str, ...] = "application/json",
    path: tuple[str, ...] = (),
    query: dict[str, Schema] | None = None,
    body_kind: str = "application/json",
    open_to_all: bool = False,
) -> dict[str, Any]:
    names = {"name": NAME, "id": ID, "version": ID}
    parameters = [{"name": name, "in": "path", "required": True, "schema": names[name]} for name in path]
    parameters += [
        {"name": name, "in": "query", "required": True, "schema": schema} for name, schema in (query or {}).items()
    ]
    refusal = {"description": "refused, by name", "content": _content(ERROR, "application/json")}
    kinds = (kind,) if isinstance(kind, str) else kind
    done: dict[str, Any] = {"description": "done", "content": {each: {"schema": answer or {}} for each in kinds}}
    operation: dict[str, Any] = {
        "summary": summary,
        "parameters": parameters,
        "responses": {str(status): done, **{str(code): refusal for code in REFUSALS}},
    }
    if body is not None:
        operation["requestBody"] = {"required": True, "content": _content(body, body_kind)}
    if open_to_all:
        operation["security"] = []
    return operation


@cache
def description() -> dict[str, Any]:
    """The whole description. Tensors may also travel in binary behind the JSON, see docs/http.md."""
    binary, metrics = "application/octet-stream", ("text/plain", "application/openmetrics-text")
    one, two, number = ("name",), ("name", "version"), ("id",)
    live = _object({"live": TRUTH})
    paths = {
        "/v2": {"get": _operation("this server", _object({"name": TEXT, "version": TEXT}), open_to_all=True)},
        "/v2/health/live": {"get": _operation("whether it lives", live, open_to_all=True)},
        "/v2/health/ready": {
            "get": _operation("whether it is ready", _object({"ready": TRUTH, "reason": TEXT}), open_to_all=True)
        },
        "/v2/models": {"get": _operation("all models", _object({"models": _list(ANY)}))},
        "/v2/models/{name}": {
            "get": _operation("one model", ANY, path=one),
            "put": _operation("share a model", ANY, MODEL_REQUEST, status=201, path=one),
            "delete": _operation("forget a model", ANY, path=one),
        },
        "/v2/models/{name}/ready": {"get": _operation("whether a model is ready", ANY, path=one)},
        "/v2/models/{name}/infer": {"post": _operation("predict", BINARY, INFER_REQUEST, path=one, kind=binary)},
        "/v2/models/{name}/versions/{version}": {"get": _operation("one version of a model", ANY, path=two)},
        "/v2/models/{name}/versions/{version}/ready": {
            "get": _operation("whether this version is ready", ANY, path=two)
        },
        "/v2/models/{name}/versions/{version}/infer": {
            "post": _operation("predict with this version", BINARY, INFER_REQUEST, path=two, kind=binary)
        },
        "/v2/models/{name}/masks": {"post": _operation("fetch masks", BINARY, MASKS_REQUEST, path=one, kind=binary)},
        "/v2/models/{name}/prepare": {
            "post": _operation(
                "have material made",
                _object({"stock": WHOLE, "ahead": WHOLE}),
                _object({"rows": _whole(1, 2**40)}, mode={"type": "string", "enum": ["shares", "masked"]}),
                path=one,
            )
        },
        "/v2/datasets": {
            "get": _operation("all data sets", _object({"datasets": _list(DATASET)})),
            "post": _operation("begin an upload", DATASET, DATASET_REQUEST, status=201),
        },
        "/v2/datasets/{name}": {
            "get": _operation("one data set", _object({"versions": _list(DATASET)}), path=one),
            "delete": _operation("forget a data set", ANY, path=one),
        },
        "/v2/grants": {
            "post": _operation(
                "let another client train on a data set",
                ANY,
                _object({"dataset": NAME, "client": {"type": "string", "minLength": 1, "maxLength": 100}}),
                status=201,
            )
        },
        "/v2/datasets/{name}/{version}": {
            "put": _operation(
                "go on with an upload",
                _object({"received": WHOLE, "bytes": WHOLE}),
                BINARY,
                path=two,
                query={"offset": _whole(0, 10**15 - 1)},
                body_kind=binary,
            ),
            "delete": _operation("give an upload up", ANY, path=two),
        },
        "/v2/datasets/{name}/{version}/complete": {
            "post": _operation("end an upload", DATASET, _object({"sha256": TEXT}), path=two)
        },
        "/v2/jobs": {
            "get": _operation("your jobs", _object({"jobs": _list(JOB)})),
            "post": _operation("train", JOB, JOB_REQUEST, status=201),
        },
        "/v2/jobs/{id}": {"get": _operation("one job", JOB, path=number)},
        "/v2/jobs/{id}/events": {"get": _operation("follow a job", TEXT, path=number, kind="text/event-stream")},
        "/v2/jobs/{id}/look": {
            "post": _operation("go on after an epoch", ANY, _object({"epoch": _whole(1, 10_000)}), path=number)
        },
        "/v2/jobs/{id}/cancel": {
            "post": _operation("cancel a job; its model so far is kept unless keep is false", JOB, path=number)
        },
        "/v2/reveals": {
            "post": _operation("ask to reveal a model", REVEAL, _object({"id": ID, "model": NAME}), status=202)
        },
        "/v2/reveals/{id}": {"get": _operation("how a reveal stands", REVEAL, path=number)},
        "/v2/reveals/{id}/shares": {"get": _operation("a revealed half", BINARY, path=number, kind=binary)},
        "/v2/status": {"get": _operation("how this party is", ANY)},
        "/v2/status/history": {
            "get": _operation("the last ten minutes, oldest first", _object({"every_s": NUMBER, "samples": _list(ANY)}))
        },
        "/v2/cost": {"get": _operation("rounds and bytes so far", ANY)},
        "/v2/audit": {"get": _operation("who did what", ANY)},
        "/metrics": {"get": _operation("metrics for Prometheus", TEXT, kind=metrics)},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "hdcos party",
            "version": __version__,
            "description": "One of two parties. Send each party its own share, never both shares to one party.",
            "license": {"name": "Apache-2.0"},
        },
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }
