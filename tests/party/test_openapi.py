"""The HTTP interface as it is described: valid OpenAPI, with the limits that requests are checked by."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from openapi_spec_validator import OpenAPIV31SpecValidator

from hdcos.api import requests
from hdcos.api.bodies import MOST_JSON, read_json, read_query
from hdcos.api.tokens import ROLES
from hdcos.errors import InputError
from hdcos.party.http.api import STATUS
from hdcos.party.http.app import REFUSALS, all_endpoints, describe_interface

DOCS = Path(__file__).parents[2] / "docs"
ID = "0123456789abcdef" * 2
TENSOR = {"name": "input", "datatype": "UINT64", "shape": [1, 2], "data": [0, 2**64 - 1]}
SERIES = {"period_bits": 3, "harmonics": [1, 2], "constant": -5, "cos": [0, 1], "sin": [10**15, 2]}
JOB = {
    **{"id": ID, "model": "m", "architecture": [], "datasets": ["a", "b"], "batch_size": 5, "rates": [0.1, 1]},
    **{"seed": 2**63 - 1, "phase_bits": 64, "join": "columns", "loss": "softmax", "momentum": 0.9},
}
GOOD = {
    requests.InferRequest: {"inputs": [TENSOR], "parameters": {"request_id": ID, "mode": "shares", "priority": 1}},
    requests.MasksRequest: {"rows": 1},
    requests.PrepareRequest: {"rows": 2**40, "mode": "shares"},
    requests.ModelRequest: {"inputs": [TENSOR], "parameters": {"architecture": [], "version": ID, "phase_bits": 8}},
    requests.FunctionRequest: {
        **{"function": "tanh", "shapes": [[1, 2], [2**24]], "ahead": 3},
        "parameters": {"phase_bits": 40, "drop": 0, "coefficients": [1, 0.5, -2], "series": SERIES},
    },
    requests.PrepareFunctionRequest: {"executions": 2**53, "wait": False},
    requests.EvaluateRequest: {"inputs": [TENSOR], "parameters": {"request_id": ID}},
    requests.DatasetRequest: {
        **{"name": "d.1-x", "version": ID, "rows": 2**32, "features": 2**24, "outputs": 0, "columns": ["a"]},
    },
    requests.CompleteRequest: {"sha256": "0" * 64},
    requests.StatisticsRequest: {
        "inputs": [TENSOR],
        "parameters": {"name": "adult", "id": ID, "agreement": "0" * 64, "numbers": 7, "owners": 2, "clients": ["a"]},
    },
    requests.GrantRequest: {"dataset": "d", "client": "somebody else"},
    requests.JobRequest: {"inputs": [], "parameters": JOB},
    requests.LookRequest: {"epoch": 10_000},
    requests.CancelRequest: {"keep": False},
    requests.RevealRequest: {"id": ID, "model": "m"},
}
WRONG = [
    (requests.InferRequest, "inputs", 7),
    (requests.InferRequest, "inputs.0.name", None),
    (requests.InferRequest, "inputs.0.datatype", "FP32"),
    (requests.InferRequest, "inputs.0.shape", [1] * 9),
    (requests.InferRequest, "inputs.0.shape.1", 2**32),
    (requests.InferRequest, "inputs.0.data.0", -1),
    (requests.InferRequest, "parameters", []),
    (requests.InferRequest, "parameters.request_id", ID + "\n"),
    (requests.InferRequest, "parameters.mode", "open"),
    (requests.InferRequest, "parameters.mask_ids", []),
    (requests.InferRequest, "parameters.scale_bits", 65),
    (requests.MasksRequest, "rows", 0),
    (requests.MasksRequest, "row", 1),
    (requests.PrepareRequest, "rows", 2**40 + 1),
    (requests.PrepareRequest, "rows", True),
    (requests.ModelRequest, "parameters.phase_bits", 7),
    (requests.ModelRequest, "parameters.phase_bits", 29),
    (requests.ModelRequest, "parameters.version", ID.upper()),
    (requests.FunctionRequest, "shapes", []),
    (requests.FunctionRequest, "shapes.0", []),
    (requests.FunctionRequest, "shapes.0.1", 0),
    (requests.FunctionRequest, "ahead", -1),
    (requests.FunctionRequest, "parameters.phase_bits", 0),
    (requests.FunctionRequest, "parameters.coefficients", [1, 2]),
    (requests.FunctionRequest, "parameters.series.harmonics", [1] * 65),
    (requests.FunctionRequest, "parameters.series.cos.1", 0.5),
    (requests.PrepareFunctionRequest, "executions", 0),
    (requests.EvaluateRequest, "parameters.request_id", "x"),
    (requests.DatasetRequest, "name", "../evil"),
    (requests.DatasetRequest, "name", "-a"),
    (requests.DatasetRequest, "name", "a" * 101),
    (requests.DatasetRequest, "name", "a\n"),
    (requests.DatasetRequest, "rows", 2**32 + 1),
    (requests.DatasetRequest, "features", 0),
    (requests.DatasetRequest, "columns.0", ""),
    (requests.CompleteRequest, "sha256", 1),
    (requests.StatisticsRequest, "parameters.owners", 1),
    (requests.StatisticsRequest, "parameters.numbers", 2**16 + 1),
    (requests.StatisticsRequest, "parameters.agreement", "0" * 63),
    (requests.DatasetRequest, "preparation", "x"),
    (requests.GrantRequest, "client", ""),
    (requests.GrantRequest, "client", "a" * 101),
    (requests.JobRequest, "parameters.datasets", []),
    (requests.JobRequest, "parameters.batch_size", 2**24 + 1),
    (requests.JobRequest, "parameters.rates", []),
    (requests.JobRequest, "parameters.rates", [0.1] * 10_001),
    (requests.JobRequest, "parameters.rates.1", "fast"),
    (requests.JobRequest, "parameters.seed", -1),
    (requests.JobRequest, "parameters.loss", "hinge"),
    (requests.LookRequest, "epoch", 10_001),
    (requests.CancelRequest, "keep", "perhaps"),
    (requests.RevealRequest, "id", "x"),
]


def allowed(kind, body) -> bool:
    """Whether the description allows a body."""
    schemas = describe_interface()["components"]["schemas"]
    wanted = {"$ref": f"#/components/schemas/{kind.__name__}", "components": {"schemas": schemas}}
    return Draft202012Validator(wanted).is_valid(body)


def test_the_description_is_valid_openapi() -> None:
    OpenAPIV31SpecValidator(json.loads(json.dumps(describe_interface()))).validate()


def test_every_body_has_an_example_here() -> None:
    assert {endpoint.body for endpoint in all_endpoints()} - {None, bytes} == set(GOOD)


def test_what_needs_a_token_says_which_role() -> None:
    paths = describe_interface()["paths"]
    for endpoint in all_endpoints():
        roles = [] if endpoint.role is None else endpoint.role.split(" or ")
        assert set(roles) <= set(ROLES)
        security = paths[endpoint.path][endpoint.method.lower()]["security"]
        assert security == [{"token": [role]} for role in roles]
    assert {endpoint.path for endpoint in all_endpoints() if endpoint.role is None} == {
        *("/", "/digit", "/openapi.json", "/v2", "/v2/health/live", "/v2/health/ready"),
    }


@pytest.mark.parametrize("kind", GOOD)
def test_what_is_described_is_taken(kind) -> None:
    assert allowed(kind, GOOD[kind])
    read_json(kind, json.dumps(GOOD[kind]).encode())


@pytest.mark.parametrize(("kind", "field", "value"), WRONG)
def test_what_is_not_described_is_refused_by_the_name_of_its_field(kind, field, value) -> None:
    body = json.loads(json.dumps(GOOD[kind]))
    *way, last = (int(part) if part.isdigit() else part for part in field.split("."))
    place = body
    for part in way:
        place = place[part]
    place[last] = value
    assert not allowed(kind, body)
    with pytest.raises(InputError) as refused:
        read_json(kind, json.dumps(body).encode())
    name = "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in field.split("."))[1:]
    assert str(refused.value).startswith(f"{name} is ")
    assert len(str(refused.value)) < 250


@pytest.mark.parametrize("kind", GOOD)
def test_a_missing_field_is_named(kind) -> None:
    schema = describe_interface()["components"]["schemas"][kind.__name__]
    for field in schema.get("required", []):
        body = {name: value for name, value in GOOD[kind].items() if name != field}
        with pytest.raises(InputError, match=rf"^{field} is missing: it is \w"):
            read_json(kind, json.dumps(body).encode())


@pytest.mark.parametrize("kind", GOOD)
def test_a_field_that_is_not_known_is_refused_by_name_except_in_predictions(kind) -> None:
    bodies = {"surprise": {**GOOD[kind], "surprise": 1}}
    if "parameters" in GOOD[kind]:
        bodies["parameters.surprise"] = {**GOOD[kind], "parameters": {**GOOD[kind]["parameters"], "surprise": 1}}
    for name, body in bodies.items():
        assert allowed(kind, body) == (kind is requests.InferRequest)
        if kind is requests.InferRequest:
            read_json(kind, json.dumps(body).encode())
            continue
        with pytest.raises(InputError, match=rf"^{name} is not known here: the fields are \w"):
            read_json(kind, json.dumps(body).encode())


@pytest.mark.parametrize("text", [b"[]", b"{", b"[" * 100_000, b'{"rows": NaN}', b"\xff", b'{"x":' * 100_000, b"7"])
def test_what_is_no_json_object_is_refused(text) -> None:
    with pytest.raises(InputError, match=r"JSON object|is an object|is not known"):
        read_json(requests.PrepareRequest, text)


def test_json_has_a_largest_size() -> None:
    with pytest.raises(InputError, match="at most"):
        read_json(requests.PrepareRequest, b" " * (MOST_JSON + 1))


@pytest.mark.parametrize("limit", ["", "x", "0", "1001", " 1", "+1", "1_0", "\u0661"])
def test_a_query_is_checked_like_a_body(limit) -> None:
    with pytest.raises(InputError, match="limit is a whole number from 1 to 1000, got"):
        read_query(requests.AuditQuery, {"limit": limit})
    assert read_query(requests.AuditQuery, {"limit": "1000"}).limit == 1000
    assert read_query(requests.AuditQuery, {}).limit == 100
    with pytest.raises(InputError, match="last is not known here: the fields are limit"):
        read_query(requests.AuditQuery, {"last": "3"})


def test_every_refusal_is_in_the_table_of_errors_under_its_status() -> None:
    rows = re.findall(r"^\| ([\d, ]+) \| ([\w, ]+) \|", (DOCS / "http.md").read_text(), re.MULTILINE)
    listed = {int(status): names.split(", ") for statuses, names in rows for status in statuses.split(", ")}
    assert set(listed) == {*REFUSALS, 500}
    assert [error for error, status in STATUS.items() if error.__name__ not in listed[status]] == []
