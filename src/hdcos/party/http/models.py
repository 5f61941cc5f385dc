"""The HTTP endpoints of models: metadata, predictions, masks, material, upload."""

from __future__ import annotations

import asyncio
import time
from math import prod
from typing import Any

import numpy as np
from msgspec import UNSET

from hdcos.api import answers, requests
from hdcos.api.answers import AnswerScale, Inferred, LabelDetails, ModelDetails, ModelState, OutputScale, TensorShape
from hdcos.checks import check_id, check_name
from hdcos.errors import DataMissing, InputError, ModelError
from hdcos.nn import Network
from hdcos.party.allotment import Run, runs_of
from hdcos.party.batcher import Refused, Request
from hdcos.party.http.api import Call, Endpoint, Handlers, Tensors
from hdcos.party.opened import Loaded, check_shares
from hdcos.ring import Array
from hdcos.secure import compile_network
from hdcos.secure.compile import OUTPUT_SCALE
from hdcos.secure.labels import LABEL

ANSWER_COPIES = 2
"""An answer is there as it was computed and as it is sent."""
ONE = "/v2/models/{name}"
VERSION = "/v2/models/{name}/versions/{version}"


def outline_network(architecture: Any) -> Network:
    """The network that an architecture describes; whatever is wrong with it is a ModelError."""
    try:
        return Network.outline(architecture)
    except (ModelError, InputError):
        raise
    except (TypeError, ValueError, KeyError, AttributeError, OverflowError, RecursionError, MemoryError) as error:
        raise ModelError(f"not the architecture of a network: {type(error).__name__}") from None


class Models(Handlers):
    """Handlers of /v2/models."""

    def _model(self, call: Call[Any]) -> Loaded:
        """The model that a path names, in the version that it names if it does."""
        loaded = self._service.model(call.name)
        version, stored = call.request.path_params.get("version"), loaded.stored
        if version is not None and check_name(version, "version") != stored.version:
            raise DataMissing(
                f"{stored.name} has no version {version!r} here: its version is {stored.version}, as its metadata say"
            )
        return loaded

    @Endpoint("GET", "/v2/models", "predict", "all models")
    async def all(self, call: Call[None]) -> answers.Models:
        shown = ModelState.__annotations__
        models: Any = [{key: model[key] for key in shown} for model in map(dict, self._service.status()["models"])]
        return {"models": models, "queries_per_model": self._service.config.policy.queries_per_model}

    @Endpoint("GET", ONE, "predict", "one model")
    @Endpoint("GET", VERSION, "predict", "one version of a model")
    async def metadata(self, call: Call[None]) -> answers.ModelMetadata:
        loaded = self._model(call)
        stored, chosen, allotments = loaded.stored, loaded.network, loaded.allotments
        return {
            "name": stored.name,
            "versions": [stored.version],
            "platform": "hdcos",
            "inputs": [TensorShape(name="input", datatype="UINT64", shape=[-1, *chosen.input_shape])],
            "outputs": [TensorShape(name="output", datatype="UINT64", shape=[-1, *chosen.output_shape])],
            "parameters": ModelDetails(
                party=self._service.rank,
                phase_bits=stored.phase_bits,
                has_dealer=self._service.node.has_dealer,
                architecture=stored.architecture,
                scale_bits=chosen.input_scale,
                most_rows=min(self._api.limits.rows, *(allotment.most_rows for allotment in allotments.values())),
                input_bits=chosen.input_bits,
                modes=list(allotments),
                rounds=loaded.rounds,
                stock={mode: allotment.free for mode, allotment in allotments.items()},
                output=OutputScale(scale_bits=OUTPUT_SCALE, gain=chosen.output_gain),
                labels=self._labels(loaded),
            ),
        }

    @Endpoint("GET", f"{ONE}/ready", "predict", "whether a model is ready")
    @Endpoint("GET", f"{VERSION}/ready", "predict", "whether this version is ready")
    async def ready(self, call: Call[None]) -> answers.ModelReady:
        stored = self._model(call).stored
        return {"name": stored.name, "ready": True, "version": stored.version}

    @Endpoint("POST", f"{ONE}/infer", "predict", "predict")
    @Endpoint("POST", f"{VERSION}/infer", "predict", "predict with this version")
    async def infer(self, call: Call[requests.InferRequest]) -> tuple[Inferred, Tensors]:
        """One client's rows: checked here, answered when the batch they become part of has run."""
        service, started = self._service, time.perf_counter()
        service.requests += 1
        loaded = self._model(call)
        wanted = self._wanted(loaded, *await call.read_tensors())
        name, rows = loaded.counted, wanted.rows
        call.hold(ANSWER_COPIES * 8 * rows * prod(loaded.network.output_shape))
        if service.quota.covers(name, rows):
            service.quota.take(name, rows, loaded.allowed)
        else:
            await asyncio.to_thread(service.quota.take, name, rows, loaded.allowed)
        try:
            if wanted.mode == "masked":
                numbers = [first + i for first, count in wanted.runs for i in range(count)]
                loaded.allotments["masked"].claim(numbers, call.client)
            answer = await service.batcher.add(wanted)
        finally:
            if not wanted.begun:
                service.quota.give_back(name, rows)
        service.latencies.append(time.perf_counter() - started)
        self._api.metrics.latency.observe(time.perf_counter() - started)
        gain = 1.0 if wanted.output == LABEL else loaded.network.output_gain
        scale = AnswerScale(scale_bits=answer.scale, bits=answer.bits, gain=gain)
        stored = loaded.stored
        head = Inferred(model_name=stored.name, model_version=stored.version, id=wanted.id, parameters=scale)
        return head, {"output": answer.words}

    def _labels(self, loaded: Loaded) -> LabelDetails | None:
        if loaded.label_plan is None:
            return None
        return LabelDetails(rounds=loaded.label_plan.rounds, most_rows=loaded.label_rows)

    def _most_rows(self, loaded: Loaded, mode: str, output: str) -> int:
        """Of one request."""
        most = min(self._api.limits.rows, loaded.allotments[mode].most_rows)
        if output == LABEL:
            loaded.require_labels(self._service.node.has_dealer)
            return min(most, loaded.label_rows)
        return most

    def _wanted(self, loaded: Loaded, body: requests.InferRequest, tensors: dict[str, Array]) -> Request:
        """What a body asks for, checked. Nothing else of it is kept: JSON takes far more memory than its text."""
        asked, stored, scale = body.parameters, loaded.stored, loaded.network.input_scale
        number = check_id(body.id if asked.request_id is UNSET else asked.request_id, "request id")
        allotment = loaded.allotments[asked.mode]
        if asked.version not in (UNSET, stored.version):
            raise Refused(InputError(f"{stored.name} has another version now: ask for it again"), 409, retryable=True)
        words = self._rows(loaded, tensors, self._most_rows(loaded, asked.mode, asked.output))
        if asked.scale_bits not in (UNSET, scale):
            raise InputError(f"rows come with {scale} fraction bits, not {asked.scale_bits}")
        runs: tuple[Run, ...] = ()
        if asked.mode == "masked":
            numbers = allotment.numbers(self._mask_ids(asked.mask_ids))
            if len(numbers) != len(words):
                raise InputError(f"{len(words)} rows need as many masks, got {len(numbers)}")
            runs = runs_of(numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        return Request(number, stored.name, stored.version, asked.mode, runs, words, future, output=asked.output)

    @staticmethod
    def _rows(loaded: Loaded, tensors: dict[str, Array], most: int) -> Array:
        if set(tensors) != {"input"}:
            raise InputError(f"a prediction takes one tensor, 'input', got {sorted(tensors)}")
        words, shape = tensors["input"], loaded.network.input_shape
        if words.shape[1:] != shape or not 1 <= len(words) <= most:
            raise InputError(
                f"{loaded.stored.name} takes 1 to {most} rows of shape {list(shape)}, "
                f"got a tensor of shape {list(words.shape)}"
            )
        return words

    def _mask_ids(self, mask_ids: Any) -> list[str]:
        """The ids of masks in a request, as many as the operator allows."""
        if mask_ids is UNSET or len(mask_ids) > self._api.limits.rows:
            found = "none" if mask_ids is UNSET else len(mask_ids)
            raise InputError(f"mask_ids is a list of 1 to {self._api.limits.rows} masks here, got {found}")
        return list(mask_ids)

    @Endpoint("POST", f"{ONE}/masks", "predict", "fetch masks")
    async def masks(self, call: Call[requests.MasksRequest]) -> tuple[answers.Masks, Tensors]:
        """Masks of rows to come: party 0 allots them, party 1 gives its share of those that party 0 allotted."""
        loaded, body = self._service.model(call.name), await call.read()
        if (body.rows is UNSET, body.mask_ids is UNSET) != (self._service.rank == 1, self._service.rank == 0):
            raise InputError("party 0 is asked for {rows}, party 1 for the {mask_ids} that party 0 gave")
        most, valid_s, allotment = self._api.limits.rows, self._api.limits.mask_s, loaded.allotments["masked"]
        rows = len(self._mask_ids(body.mask_ids)) if body.rows is UNSET else body.rows
        if rows > most:
            raise InputError(f"rows is a whole number from 1 to {most} here, got {rows}")
        call.hold(ANSWER_COPIES * 8 * rows * prod(loaded.network.input_shape))

        def issue() -> tuple[list[str], Array]:
            if body.mask_ids is UNSET:
                numbers, share = allotment.hand_out(rows, call.client, valid_s)
                return [allotment.mask_id(number) for number in numbers], share
            return body.mask_ids, allotment.issue(allotment.numbers(body.mask_ids), call.client, valid_s)

        mask_ids, share = await asyncio.to_thread(issue)
        return {"mask_ids": mask_ids, "expires_s": valid_s}, {"mask": share.astype(np.uint64)}

    @Endpoint("POST", f"{ONE}/prepare", "predict", "have material made")
    async def prepare(self, call: Call[requests.PrepareRequest]) -> answers.Prepared:
        """Keep at least this much material available for a model from now on, within reason."""
        loaded, body = self._service.model(call.name), await call.read()
        allotment = loaded.allotments[body.mode]
        room = await asyncio.to_thread(self._service.room, allotment)
        most = allotment.most_rows + room // loaded.row_bytes
        if body.output == LABEL:
            loaded.require_labels(self._service.node.has_dealer)
            most = min(most, loaded.label_rows, room // loaded.label_bytes)
        if body.rows > most:
            raise InputError(f"this party keeps material for at most {most} rows: prepare fewer at a time")
        allotment.boost(body.rows)
        if body.output == LABEL:
            loaded.labels_asked = body.rows
            self._service.wake()
        return {"stock": allotment.free, "ahead": allotment.ahead}

    @Endpoint("PUT", ONE, "upload", "share a model", status=201)
    async def put(self, call: Call[requests.ModelRequest]) -> answers.ModelKept:
        """Keep this party's share of a model."""
        name, (body, tensors) = call.name, await call.read_tensors()
        given, service = body.parameters, self._service

        def keep() -> None:
            model = outline_network(given.architecture)
            chosen = compile_network(model, given.phase_bits, service.node.has_dealer)
            demand = service.budget.model(model, chosen)
            check_shares(tensors, {tensor.name: tensor.shape for tensor in chosen.tensors})
            service.budget.another(name, demand)
            kept = (model.architecture(), given.phase_bits, call.client, tensors)
            service.store.keep_model(name, given.version, *kept)

        await asyncio.to_thread(keep)
        self._api.audit(call.client, "share model", name, given.version)
        return {"name": name, "version": given.version}

    @Endpoint("DELETE", ONE, "upload", "forget a model")
    async def delete(self, call: Call[None]) -> answers.Nothing:
        name, versions = call.name, self._store.models(call.name)
        if not versions:
            raise DataMissing(f"no model is named {name!r}")
        for known in versions:
            call.check_owner(known.owner, name)
        await asyncio.to_thread(self._store.forget_model, name)
        session = self._service.session
        if session is not None and name in session.worker.models:
            session.worker.models[name].forgotten = True
        self._api.audit(call.client, "forget model", name)
        return {}
