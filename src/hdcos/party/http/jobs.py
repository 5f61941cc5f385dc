"""The HTTP endpoints of training jobs and of revealing models."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
from starlette.responses import Response, StreamingResponse

from hdcos.api import answers, requests
from hdcos.errors import DataMissing, InputError, PolicyRefused
from hdcos.party.http.api import Call, Endpoint, Handlers, Tensors
from hdcos.party.http.models import outline_network
from hdcos.party.opened import check_shares
from hdcos.party.store import ENDED, StoredJob, StoredReveal
from hdcos.secure import compile_network
from hdcos.secure.training import Rule, training_plan
from hdcos.secure.training.augment import Augment
from hdcos.secure.training.rule import first_averaged
from hdcos.secure.training.weights import class_weights

EVENT_S = 0.25
SILENCE_S = 10.0
ONE = "/v2/jobs/{id}"


class Jobs(Handlers):
    """Handlers of /v2/jobs."""

    @Endpoint("GET", "/v2/jobs", "train", "your jobs")
    async def all(self, call: Call[None]) -> answers.Jobs:
        return {"jobs": self._service.job_statuses(job for job in self._store.jobs() if job.owner == call.client)}

    @Endpoint("POST", "/v2/jobs", "train", "train", status=201)
    async def submit(self, call: Call[requests.JobRequest]) -> answers.Job:
        """Keep a job and this party's share of its first parameters; it begins when the other party has it too."""
        body, tensors = await call.read_tensors()
        await asyncio.to_thread(self._keep, body.parameters, tensors, call.client)
        self._api.audit(call.client, "train", body.parameters.id)
        return self._service.job_status(body.parameters.id)

    def _keep(self, given: requests.JobParameters, tensors: Tensors, client: str) -> None:
        model, budget = outline_network(given.architecture), self._service.budget
        for rate in given.rates:
            Rule(rate, given.momentum, given.weight_decay)
        if len(set(given.datasets)) != len(given.datasets):
            raise InputError("datasets: a data set is named twice")
        spec = msgspec.to_builtins(given) | {"architecture": model.architecture()}
        number = spec.pop("id")
        plan = training_plan(model, given.loss, given.weighted or bool(given.class_weight))
        _check_weights(given, plan.outputs)
        Augment.of(model, plan.front, given.flip, given.shift)
        first_averaged(given.average, len(given.rates))
        budget.another(
            given.model, budget.model(model, compile_network(model, given.phase_bits, self._service.node.has_dealer))
        )
        budget.job(model, spec, 0, 0)  # with its rows, when it begins
        check_shares(tensors, {tensor.name: tensor.shape for tensor in plan.tensors})
        self._store.check_owner(given.model, client)
        self._store.check_versions(given.model)
        for name in given.datasets:
            self._store.find_dataset(name, client)  # what cannot be used is refused, what is not here yet may come
        self._store.keep_job(number, spec, client, tensors)

    @Endpoint("GET", ONE, "train", "one job")
    async def job(self, call: Call[None]) -> answers.Job:
        return self._service.job_status(self._own(call).id)

    @Endpoint("POST", f"{ONE}/cancel", "train", "cancel a job")
    async def cancel(self, call: Call[requests.CancelRequest]) -> answers.Job:
        """End a job after the steps under way; its model so far is kept unless the client says otherwise."""
        job, body = self._own(call), await call.read()
        await asyncio.to_thread(self._store.cancel_job, job.id, body.keep)
        self._api.audit(call.client, "cancel", job.id)
        return self._service.job_status(job.id)

    @Endpoint("DELETE", ONE, "train", "forget a job that has ended")
    async def forget(self, call: Call[None]) -> answers.Nothing:
        """What it was, and whatever is left of it but its ledger of material; the model that it made stays."""
        job = self._own(call)
        running = self._service.progress(job.id) is not None
        if job.state not in ENDED and (running or not job.cancelled):
            raise InputError(f"job {job.id} has not ended: cancel it first (`hdcos jobs {job.id} --cancel`)")
        await asyncio.to_thread(self._store.forget_job, job.id)
        self._api.audit(call.client, "forget job", job.id)
        return {}

    @Endpoint("POST", f"{ONE}/look", "train", "go on after an epoch")
    async def look(self, call: Call[requests.LookRequest]) -> answers.Nothing:
        """The client has looked at the model of an epoch: the job need not wait for that any longer."""
        job, body = self._own(call), await call.read()
        self._service.look(job.id, body.epoch, body.best, body.stop)
        return {}

    @Endpoint("GET", f"{ONE}/events", "train", "follow a job", media=["text/event-stream"])
    async def events(self, call: Call[None]) -> Response:
        """The job's state whenever it changes, until it ends."""
        job = self._own(call)
        call.last()

        async def stream() -> AsyncIterator[str]:
            said, silent_s = "", 0.0
            while True:
                status = self._service.job_status(job.id)
                text = msgspec.json.encode(status).decode()
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

    def _own(self, call: Call[Any]) -> StoredJob:
        job = self._store.job_record(call.id)
        call.check_owner(job.owner, "this job")
        return job


def _check_weights(given: requests.JobParameters, outputs: int) -> None:
    if given.weighted and given.class_weight:
        raise InputError("weighted, class_weight: rows have weights of their own or of their classes, not both")
    class_weights(given.class_weight or None, outputs, given.loss)


class Reveals(Handlers):
    """Handlers of /v2/reveals."""

    @Endpoint("POST", "/v2/reveals", "reveal", "ask to reveal a model", status=202)
    async def ask(self, call: Call[requests.RevealRequest]) -> answers.Reveal:
        """Ask for a model in plaintext. The version that is loaded now is meant, whatever replaces it later."""
        body = await call.read()
        version = self._service.model(body.model).stored.version
        state = "approved" if self._service.config.policy.reveal else "waiting"
        reveal = StoredReveal(body.id, body.model, version, call.client, state)
        await asyncio.to_thread(self._store.keep_reveal, reveal)
        self._api.audit(call.client, "ask to reveal", body.model, body.id)
        return _describe(reveal)

    @Endpoint("GET", "/v2/reveals/{id}", "reveal", "how a reveal stands")
    async def reveal(self, call: Call[None]) -> answers.Reveal:
        return _describe(self._own(call))

    @Endpoint("GET", "/v2/reveals/{id}/shares", "reveal", "a share of a revealed model")
    async def shares(self, call: Call[None]) -> tuple[answers.Revealed, Tensors]:
        reveal = self._own(call)
        if reveal.state == "refused":
            raise PolicyRefused("the operator of this party or the other one refused to reveal the model")
        if reveal.state != "released":
            raise DataMissing(f"the reveal is {reveal.state}: both operators must approve it first")
        self._api.audit(call.client, "reveal", reveal.model, reveal.id)
        words = await asyncio.to_thread(self._store.released_words, reveal.id)
        return {"model": reveal.model, "version": reveal.version}, words

    def _own(self, call: Call[Any]) -> StoredReveal:
        reveal = self._store.reveal(call.id)
        call.check_owner(reveal.owner, "this reveal")
        return reveal


def _describe(reveal: StoredReveal) -> answers.Reveal:
    return {"id": reveal.id, "model": reveal.model, "version": reveal.version, "state": reveal.state}
