"""The HTTP resources of models: metadata, predictions, masks, material, upload."""

from __future__ import annotations

import asyncio
import time
from math import prod
from typing import Any

import numpy as np
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from hdcos.api.names import check_id, check_name
from hdcos.api.tensors import LENGTH_HEADER, decode_body
from hdcos.errors import DataMissing, InputError, PolicyRefused
from hdcos.party.allotment import Lane, runs_of
from hdcos.party.batcher import Refused, Request
from hdcos.party.http import asked
from hdcos.party.http.api import Api, Resource
from hdcos.party.http.replies import reply, reply_tensors
from hdcos.party.http.waiting import HELD
from hdcos.party.shelf import Run
from hdcos.party.worker import Loaded, check_halves
from hdcos.secure import layout
from hdcos.secure.layout import OUTPUT_SCALE

ANSWER_COPIES = 2
"""An answer is there as it was computed and as it is sent."""
SHOWN = ("name", "version", "ready", "queries", "queries_allowed", "error")


class Predicting:
    """Handlers of /v2/models."""

    def __init__(self, api: Api) -> None:
        self._api, self._service = api, api.service

    def resources(self) -> list[Resource]:
        one = "/v2/models/{name}"
        resources = [
            self._api.route("/v2/models", "GET", self.all, "predict"),
            self._api.route(one, "PUT", self.put, "upload"),
            self._api.route(one, "DELETE", self.delete, "upload"),
            self._api.route(f"{one}/masks", "POST", self.masks, "predict"),
            self._api.route(f"{one}/prepare", "POST", self.prepare, "predict"),
        ]
        for model in (one, f"{one}/versions/{{version}}"):
            resources += [
                self._api.route(model, "GET", self.metadata, "predict"),
                self._api.route(f"{model}/ready", "GET", self.ready, "predict"),
                self._api.route(f"{model}/infer", "POST", self.infer, "predict"),
            ]
        return resources

    def _model(self, request: HttpRequest) -> Loaded:
        """The model that a path names, in the version that it names if it does."""
        loaded = self._service.model(check_name(request.path_params["name"]))
        version, stored = request.path_params.get("version"), loaded.stored
        if version is not None and check_name(version, "version") != stored.version:
            raise DataMissing(
                f"{stored.name} has no version {version!r} here: its version is {stored.version}, as its metadata say"
            )
        return loaded

    async def all(self, request: HttpRequest, client: str) -> Response:
        models = self._service.status()["models"]
        return reply({"models": [{key: model[key] for key in SHOWN} for model in models]})

    async def metadata(self, request: HttpRequest, client: str) -> Response:
        loaded = self._model(request)
        work, stored = loaded.work, loaded.stored
        shape = [-1, *work.layout.input_shape]
        return reply(
            {
                **{"name": stored.name, "versions": [stored.version], "platform": "hdcos"},
                "inputs": [{"name": "input", "datatype": "UINT64", "shape": shape}],
                "outputs": [{"name": "output", "datatype": "UINT64", "shape": [-1, *work.layout.output_shape]}],
                "parameters": {
                    **{"party": self._service.rank, "phase_bits": stored.phase_bits},
                    "has_dealer": self._service.node.dealt,
                    **{"architecture": stored.architecture, "scale_bits": work.layout.input_scale},
                    "most_rows": min(self._api.limits.rows, *(lane.most_rows for lane in loaded.lanes.values())),
                    **{"input_bits": work.layout.input_bits, "modes": list(loaded.lanes), "rounds": loaded.rounds},
                    "stock": {mode: lane.free for mode, lane in loaded.lanes.items()},
                    "output": {"scale_bits": OUTPUT_SCALE, "gain": work.layout.output_gain},
                },
            }
        )

    async def ready(self, request: HttpRequest, client: str) -> Response:
        loaded = self._model(request)
        return reply({"name": loaded.stored.name, "ready": True, "version": loaded.stored.version})

    async def infer(self, request: HttpRequest, client: str) -> Response:
        """One client's rows: checked here, answered when the batch they become part of has run."""
        service, started = self._service, time.perf_counter()
        service.requests += 1
        loaded = self._model(request)
        wanted = self._wanted(loaded, request, await self._api.gate.body(request))
        name, rows = loaded.counted, wanted.rows
        request.scope[HELD].more(ANSWER_COPIES * 8 * rows * prod(loaded.work.layout.output_shape))
        if service.quota.covers(name, rows):
            service.quota.take(name, rows, loaded.allowed)
        else:
            await asyncio.to_thread(service.quota.take, name, rows, loaded.allowed)
        try:
            if wanted.mode == "masked":
                loaded.lanes["masked"].claim([first + i for first, count in wanted.runs for i in range(count)], client)
            service.desk.add(wanted)
            answer = await wanted.future
        finally:
            if not wanted.begun:
                service.quota.give_back(name, rows)
        service.latencies.append(time.perf_counter() - started)
        self._api.metrics.latency.observe(time.perf_counter() - started)
        described = {"scale_bits": answer.scale, "bits": answer.bits, "gain": loaded.work.layout.output_gain}
        head = {"model_name": loaded.stored.name, "model_version": loaded.stored.version, "id": wanted.id}
        return reply_tensors({**head, "parameters": described}, {"output": answer.words})

    def _wanted(self, loaded: Loaded, request: HttpRequest, body: bytes) -> Request:
        """What a body asks for, checked. Nothing else of it is kept: JSON takes far more memory than its text."""
        meta, tensors = decode_body(body, request.headers.get(LENGTH_HEADER))
        asked_for = asked.parameters(meta)
        mode = asked.choice(asked_for, "mode", ("shares", "masked"))
        number = check_id(asked_for.get("request_id", meta.get("id")), "request id")
        stored, lane = loaded.stored, loaded.lanes[mode]
        if asked_for.get("version", stored.version) != stored.version:
            raise Refused(InputError(f"{stored.name} has another version now: ask for it again"), 409, retryable=True)
        words = self._rows(loaded, tensors, min(self._api.limits.rows, lane.most_rows))
        scale = asked.whole(asked_for, "scale_bits", 0, 64, loaded.work.layout.input_scale)
        if scale != loaded.work.layout.input_scale:
            raise InputError(f"rows come with {loaded.work.layout.input_scale} fraction bits, not {scale}")
        runs: tuple[Run, ...] = ()
        if mode == "masked":
            numbers = lane.numbers(asked.texts(asked_for, "mask_ids", self._api.limits.rows))
            if len(numbers) != len(words):
                raise InputError(f"{len(words)} rows need as many masks, got {len(numbers)}")
            runs = runs_of(numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        return Request(number, stored.name, stored.version, mode, runs, words, future)

    @staticmethod
    def _rows(loaded: Loaded, tensors: dict[str, Any], most: int) -> Any:
        if set(tensors) != {"input"}:
            raise InputError(f"a prediction takes one tensor, 'input', got {sorted(tensors)}")
        words, shape = tensors["input"], loaded.work.layout.input_shape
        if words.shape[1:] != shape or not 1 <= len(words) <= most:
            raise InputError(
                f"{loaded.stored.name} takes 1 to {most} rows of shape {list(shape)}, "
                f"got a tensor of shape {list(words.shape)}"
            )
        return words

    async def masks(self, request: HttpRequest, client: str) -> Response:
        """Masks of rows to come: party 0 allots them, party 1 gives its half of those that party 0 allotted."""
        loaded = self._service.model(check_name(request.path_params["name"]))
        meta = asked.json_object(await self._api.gate.body(request))
        lane, valid_s = loaded.lanes["masked"], self._api.limits.mask_s
        asked_rows = meta.get("rows", len(meta.get("mask_ids", ()) if isinstance(meta.get("mask_ids"), list) else ()))
        if type(asked_rows) is int and 0 < asked_rows <= self._api.limits.rows:
            request.scope[HELD].more(ANSWER_COPIES * 8 * asked_rows * prod(loaded.work.layout.input_shape))

        def issue() -> tuple[list[str], Any]:
            if set(meta) != ({"rows"} if self._service.rank == 0 else {"mask_ids"}):
                raise InputError("party 0 is asked for {rows}, party 1 for the {mask_ids} that party 0 gave")
            if self._service.rank == 0:
                rows = asked.whole(meta, "rows", 1, self._api.limits.rows)
                handed_out, half = lane.hand_out(rows, client, valid_s)
                return [lane.mask_id(number) for number in handed_out], half
            numbers = lane.numbers(asked.texts(meta, "mask_ids", self._api.limits.rows))
            return [lane.mask_id(number) for number in numbers], lane.issue(numbers, client, valid_s)

        mask_ids, half = await asyncio.to_thread(issue)
        return reply_tensors({"mask_ids": mask_ids, "expires_s": valid_s}, {"mask": half.astype(np.uint64)})

    async def prepare(self, request: HttpRequest, client: str) -> Response:
        """Keep at least so many rows of material in stock for a model from now on, within reason."""
        loaded = self._service.model(check_name(request.path_params["name"]))
        meta = asked.json_object(await self._api.gate.body(request))
        rows = asked.whole(meta, "rows", 1, 1 << 40)
        lane = loaded.lanes[asked.choice(meta, "mode", ("masked", "shares"))]
        most = await asyncio.to_thread(self._most_prepared, loaded, lane)
        if rows > most:
            raise InputError(f"this party keeps material for at most {most} rows: prepare fewer at a time")
        lane.boost(rows)
        return reply({"stock": lane.free, "ahead": lane.ahead})

    def _most_prepared(self, loaded: Loaded, lane: Lane) -> int:
        """Rows that a lane may have in stock: what the models leave of their memory is for whoever asks first."""
        session = self._service.session
        models = [] if session is None else list(session.worker.models.values())
        taken = sum(item.row_bytes * other.boosted for item in models for other in item.lanes.values() if other != lane)
        return lane.most_rows + max(0, self._service.budget.free() - taken) // loaded.row_bytes

    async def put(self, request: HttpRequest, client: str) -> Response:
        """Keep this party's half of a model."""
        name = check_name(request.path_params["name"])
        body = await self._api.gate.body(request)
        meta, tensors = decode_body(body, request.headers.get(LENGTH_HEADER))
        given = asked.parameters(meta)
        version, phase_bits = check_id(given.get("version"), "version"), asked.phase_bits(given)

        def keep() -> None:
            model = asked.network(given)
            chosen = layout(model, phase_bits, self._service.node.dealt)
            demand = self._service.budget.model(model, chosen)
            check_halves(tensors, {tensor.name: tensor.shape for tensor in chosen.tensors})
            self._service.budget.another(name, demand)
            self._service.store.keep_model(name, version, model.architecture(), phase_bits, client, tensors)

        await asyncio.to_thread(keep)
        self._api.audit(client, "share model", name, version)
        return reply({"name": name, "version": version}, 201)

    async def delete(self, request: HttpRequest, client: str) -> Response:
        name = check_name(request.path_params["name"])
        versions = self._service.store.models(name)
        if not versions:
            raise DataMissing(f"no model is named {name!r}")
        if any(known.owner != client for known in versions):
            raise PolicyRefused(f"{name} belongs to another client")
        await asyncio.to_thread(self._service.store.forget_model, name)
        session = self._service.session
        if session is not None and name in session.worker.models:
            session.worker.models[name].forgotten = True
        self._api.audit(client, "forget model", name)
        return reply({})
