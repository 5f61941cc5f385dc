"""The HTTP resources of training jobs and of revealing models."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from hdcos.api.names import check_id, check_name
from hdcos.api.tensors import LENGTH_HEADER, decode_body
from hdcos.errors import DataMissing, InputError, PolicyRefused
from hdcos.party.http import asked
from hdcos.party.http.api import Api, Resource
from hdcos.party.http.replies import reply, reply_tensors
from hdcos.party.store import ENDED, StoredJob, StoredReveal
from hdcos.party.worker import check_halves
from hdcos.secure import layout
from hdcos.secure.training import Rule, training_form

MOST_EPOCHS = 10_000
EVENT_S = 0.25
SILENCE_S = 10.0


class Teaching:
    """Handlers of /v2/jobs and /v2/reveals."""

    def __init__(self, api: Api) -> None:
        self._api, self._service, self._store = api, api.service, api.service.store

    def resources(self) -> list[Resource]:
        job, reveal = "/v2/jobs/{id}", "/v2/reveals/{id}"
        return [
            self._api.route("/v2/jobs", "GET", self.jobs, "train"),
            self._api.route("/v2/jobs", "POST", self.submit, "train"),
            self._api.route(job, "GET", self.job, "train"),
            self._api.route(f"{job}/events", "GET", self.events, "train"),
            self._api.route(f"{job}/cancel", "POST", self.cancel, "train"),
            self._api.route(f"{job}/look", "POST", self.look, "train"),
            self._api.route("/v2/reveals", "POST", self.ask_reveal, "reveal"),
            self._api.route(reveal, "GET", self.reveal, "reveal"),
            self._api.route(f"{reveal}/shares", "GET", self.shares, "reveal"),
        ]

    # ---- jobs

    async def jobs(self, request: Request, client: str) -> Response:
        return reply({"jobs": [self._service.job_status(job.id) for job in self._store.jobs() if job.owner == client]})

    async def submit(self, request: Request, client: str) -> Response:
        """Keep a job and this party's half of its first parameters; it begins when the other party has it too."""
        body = await self._api.gate.body(request)
        meta, tensors = decode_body(body, request.headers.get(LENGTH_HEADER))
        given = asked.parameters(meta)
        number = check_id(given.get("id"), "job id")

        def keep() -> None:
            model, spec = asked.network(given), job_spec(given)
            form = training_form(model, spec["loss"])
            budget = self._service.budget
            budget.another(
                spec["model"], budget.model(model, layout(model, spec["phase_bits"], self._service.node.dealt))
            )
            budget.job(model, spec, 0)  # with its rows, when it begins
            check_halves(tensors, {tensor.name: tensor.shape for tensor in form.tensors})
            if any(known.owner != client for known in self._store.models(spec["model"])):
                raise PolicyRefused(f"a model named {spec['model']!r} belongs to another client: choose another name")
            for name in spec["datasets"]:
                if self._store.datasets(name) and not self._store.may_train(name, client):
                    raise PolicyRefused(f"the owner of the data set {name!r} did not allow {client} to train on it")
            self._store.keep_job(number, spec, client, tensors)

        await asyncio.to_thread(keep)
        self._api.audit(client, "train", number)
        return reply(self._service.job_status(number), 201)

    async def job(self, request: Request, client: str) -> Response:
        return reply(self._service.job_status(self._own(request, client).id))

    async def cancel(self, request: Request, client: str) -> Response:
        """End a job after the steps under way; its model so far is kept unless the client says otherwise."""
        job = self._own(request, client)
        keep = asked.json_object(await self._api.gate.body(request) or b"{}").get("keep", True)
        if not isinstance(keep, bool):
            raise InputError("keep is true or false: whether the model so far is kept")
        await asyncio.to_thread(self._store.cancel_job, job.id, keep)
        self._api.audit(client, "cancel", job.id)
        return reply(self._service.job_status(job.id))

    async def look(self, request: Request, client: str) -> Response:
        """The client has looked at the model of an epoch: the job need not wait for that any longer."""
        job = self._own(request, client)
        meta = asked.json_object(await self._api.gate.body(request))
        self._service.look(job.id, asked.whole(meta, "epoch", 1, MOST_EPOCHS))
        return reply({})

    async def events(self, request: Request, client: str) -> Response:
        """The job's state whenever it changes, until it ends."""
        job = self._own(request, client)

        async def stream() -> AsyncIterator[str]:
            said, silent_s = "", 0.0
            while True:
                status = self._service.job_status(job.id)
                text = json.dumps(status)
                if text != said:
                    yield f"event: {status['state']}\ndata: {text}\n\n"
                    said, silent_s = text, 0.0
                elif silent_s > SILENCE_S:
                    yield ": still here\n\n"
                    silent_s = 0.0
                if status["state"] in ENDED:
                    return
                await asyncio.sleep(EVENT_S)
                silent_s += EVENT_S

        return StreamingResponse(stream(), media_type="text/event-stream", headers={"cache-control": "no-store"})

    def _own(self, request: Request, client: str) -> StoredJob:
        job = self._store.job(check_id(request.path_params["id"], "job id"))
        if job.owner != client:
            raise PolicyRefused("this job belongs to another client")
        return job

    # ---- reveals

    async def ask_reveal(self, request: Request, client: str) -> Response:
        """Ask for a model in the clear. The version that is loaded now is meant, whatever replaces it later."""
        meta = asked.json_object(await self._api.gate.body(request))
        number, name = check_id(meta.get("id"), "reveal id"), check_name(meta.get("model"))
        loaded = self._service.model(name)
        state = "approved" if self._service.config.policy.reveal else "waiting"
        reveal = StoredReveal(number, name, loaded.stored.version, client, state)
        await asyncio.to_thread(self._store.keep_reveal, reveal)
        self._api.audit(client, "ask to reveal", name, number)
        return reply(self._said(reveal), 202)

    async def reveal(self, request: Request, client: str) -> Response:
        return reply(self._said(self._asked(request, client)))

    async def shares(self, request: Request, client: str) -> Response:
        reveal = self._asked(request, client)
        if reveal.state == "refused":
            raise PolicyRefused("the operator of this party refused to reveal the model")
        if reveal.state != "released":
            raise DataMissing(f"the reveal is {reveal.state}: both operators must approve it first")
        self._api.audit(client, "reveal", reveal.model, reveal.id)
        words = await asyncio.to_thread(self._store.released_words, reveal.id)
        return reply_tensors({"model": reveal.model, "version": reveal.version}, words)

    def _asked(self, request: Request, client: str) -> StoredReveal:
        reveal = self._store.reveal(check_id(request.path_params["id"], "reveal id"))
        if reveal.owner != client:
            raise PolicyRefused("this reveal was asked for by another client")
        return reveal

    @staticmethod
    def _said(reveal: StoredReveal) -> dict[str, Any]:
        return {"id": reveal.id, "model": reveal.model, "version": reveal.version, "state": reveal.state}


def job_spec(given: dict[str, Any]) -> dict[str, Any]:
    """What a job is, checked: everything that both parties must have been told alike."""
    rates = given.get("rates")
    if not isinstance(rates, list) or not 1 <= len(rates) <= MOST_EPOCHS:
        raise InputError(f"rates has one learning rate per epoch, 1 to {MOST_EPOCHS} of them")
    momentum, decay = asked.number(given, "momentum", 0.0), asked.number(given, "weight_decay", 0.0)
    for position in range(len(rates)):
        Rule(asked.number({"rate": rates[position]}, "rate", 0.0), momentum, decay)
    model, phase_bits = asked.network(given), asked.phase_bits(given)
    datasets = [check_name(name) for name in asked.texts(given, "datasets", 100)]
    if len(set(datasets)) != len(datasets):
        raise InputError("a data set is named twice")
    return {
        "model": check_name(given.get("model"), "model name"),
        "architecture": model.architecture(),
        "phase_bits": phase_bits,
        "datasets": datasets,
        "join": asked.choice(given, "join", ("rows", "columns")),
        "loss": asked.choice(given, "loss", ("logistic", "softmax", "squared")),
        "batch_size": asked.whole(given, "batch_size", 1, 1 << 24),
        "rates": [float(rate) for rate in rates],
        "momentum": momentum,
        "weight_decay": decay,
        "seed": asked.whole(given, "seed", 0, (1 << 63) - 1),
        "checkpoint_every": asked.whole(given, "checkpoint_every", 1, 1 << 32, 100),
        "publish": asked.choice(given, "publish", ("end", "epoch")),
    }
