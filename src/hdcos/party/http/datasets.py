"""The HTTP endpoints of data sets: uploads in pieces that can be resumed, who may use them, and their end.

Names are their owners' own: a path names a data set of the client that asks. Only the list of what a client may train
on, and one name of it, tell of others' as well.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from typing import Any

from hdcos.api import answers, requests
from hdcos.errors import DataMissing, InputError, PolicyRefused
from hdcos.nn.columns import check_names
from hdcos.party.batcher import Refused
from hdcos.party.http.api import Api, Call, Endpoint, Handlers
from hdcos.party.store import StoredDataset

MOST_BYTES = 1 << 40
COMPLETE_S = 5.0
"""How long a client waits until it is told that its upload is not complete yet."""
ONE, VERSION = "/v2/datasets/{name}", "/v2/datasets/{name}/{version}"


class Datasets(Handlers):
    """Handlers of /v2/datasets and /v2/grants."""

    def __init__(self, api: Api) -> None:
        super().__init__(api)
        self._completing: dict[tuple[str, str], tuple[str, asyncio.Task[None]]] = {}
        """Uploads that are being written as data sets, or wait for that, and whose they are."""
        self._turn, self._turns = asyncio.Lock(), defaultdict[str, asyncio.Lock](asyncio.Lock)
        """One thread writes, clients take turns, and who waits holds none: others need the threads of this party."""

    @Endpoint("GET", "/v2/datasets", "upload or train", "all data sets that you may train on")
    async def all(self, call: Call[None]) -> answers.Datasets:
        return {"datasets": await self._list(call)}

    @Endpoint("GET", ONE, "upload or train", "the data sets of one name")
    async def one(self, call: Call[None]) -> answers.DatasetVersions:
        if not await asyncio.to_thread(self._store.records, call.name):
            raise DataMissing(f"no data set is named {call.name!r}")
        versions = await self._list(call, call.name)
        if not versions:
            raise PolicyRefused(f"{call.name} belongs to another client")
        return {"versions": versions}

    async def _list(self, call: Call[None], name: str | None = None) -> list[answers.Dataset]:
        """What a client may train on, all or of one name: the names of columns, which may be long, of these alone."""

        def look() -> list[answers.Dataset]:
            usable = [item for item in self._store.records(name) if self._store.may_train(item, call.client)]
            found = [self._store.dataset(*item.key) for item in usable]
            return [self._describe(item, call.client) for item in found if item is not None]

        described = await asyncio.to_thread(look)
        call.hold(sum(len(column) for item in described for column in item["columns"] or ()))
        return described

    @Endpoint("POST", "/v2/grants", "upload", "let another client train on a data set", status=201)
    async def grant(self, call: Call[requests.GrantRequest]) -> answers.Nothing:
        """The owner of a data set lets another client train on it: a client that trains on data learns of it."""
        body = await call.read()
        await self._owned(call, body.dataset)
        most = self._api.limits.grants
        await asyncio.to_thread(self._store.grant, call.client, body.dataset, body.client, most)
        self._api.audit(call.client, "allow training", body.dataset, body.client)
        return {}

    @Endpoint("POST", "/v2/datasets", "upload", "begin an upload", status=201)
    async def begin(self, call: Call[requests.DatasetRequest]) -> answers.Dataset:
        body = await call.read()
        columns = check_names(body.columns, body.features)
        expires = self._store.expires_after(body.keep_days, self._api.limits.keep_days)
        known = (body.name, body.version, body.rows or 0, body.features, body.outputs, False, call.client)
        told: dict[str, Any] = {
            "preparation": body.preparation or "",
            "join_id": body.join or "",
            "job": body.job or "",
        }
        dataset = StoredDataset(*known, columns, body.by_rows, **told, expires=expires)
        if dataset.preparation and columns is None:
            raise InputError("rows that were prepared have columns with names: send them along (columns)")
        if 8 * dataset.words > MOST_BYTES:
            raise InputError(f"a data set has at most {MOST_BYTES} bytes, not {8 * dataset.words}")
        begun = await asyncio.to_thread(self._store.begin_dataset, dataset, self._most_bytes, self._api.limits)
        self._api.audit(call.client, "upload", begun.name, f"{begun.rows or 'some'} rows, version {begun.number}")
        return self._describe(begun, call.client)

    @Endpoint("PUT", VERSION, "upload", "go on with an upload")
    async def add(self, call: Call[bytes], query: requests.UploadQuery) -> answers.Received:
        dataset, content = await self._upload(call), await call.bytes()
        if not content:
            raise InputError("the body holds no bytes of the data set")
        if query.offset + len(content) > MOST_BYTES:
            raise InputError(f"a data set has at most {MOST_BYTES} bytes, these would end later")
        received = await asyncio.to_thread(self._store.add_bytes, dataset, query.offset, content, self._most_bytes)
        return {"received": received, "bytes": 8 * dataset.words or received}

    @Endpoint("POST", f"{VERSION}/complete", "upload", "end an upload")
    async def complete(self, call: Call[requests.CompleteRequest]) -> answers.Dataset:
        """Check and keep what arrived. A large upload takes its time: until `complete` is true, ask again."""
        dataset, body = await self._upload(call), await call.read()
        if dataset.key not in self._completing:
            self._check_waiting(call.client)
            task = asyncio.create_task(self._complete(dataset, body))
            self._completing[dataset.key] = call.client, task
            task.add_done_callback(lambda ended: self._completed(dataset.key, ended))
        _, task = self._completing[dataset.key]
        await asyncio.wait([task], timeout=COMPLETE_S)
        if task.done():
            task.result()
        known = await asyncio.to_thread(self._store.dataset, *dataset.key)
        if known is None:
            raise DataMissing(f"{dataset.name} was forgotten before it was complete")
        return self._describe(known, call.client)

    def _check_waiting(self, client: str) -> None:
        """Forgotten ones still wait for their turn: of those the limit of uploads that are begun knows nothing."""
        waiting, most = sum(owner == client for owner, _ in self._completing.values()), self._api.limits.uploads
        if waiting >= most:
            text = f"{waiting} uploads of {client} wait until they are complete, and {most} may: wait for some of them"
            raise Refused(PolicyRefused(text), 429, retryable=True)

    async def _complete(self, dataset: StoredDataset, body: requests.CompleteRequest) -> None:
        async with self._turns[dataset.owner], self._turn:
            await asyncio.to_thread(self._store.complete_dataset, dataset, body.sha256, body.number)

    def _completed(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        """Who still waits is told how it ended; who asks later finds the data set, or has it tried again."""
        owner, _ = self._completing.pop(key)
        if all(other != owner for other, _ in self._completing.values()):
            self._turns.pop(owner, None)  # clients come and go
        if not task.cancelled():
            task.exception()  # looked at, though perhaps nobody waits any more

    @Endpoint("DELETE", ONE, "upload", "forget a data set")
    async def delete(self, call: Call[None]) -> answers.Nothing:
        """All versions of it; jobs that were begun with them and are not over fail when they need them again."""
        await asyncio.to_thread(self._store.finish_removing)  # what could not be removed the last time
        name = call.name
        if not self._store.expired_at(call.client, name):  # of which nothing is left but who may use it
            await self._owned(call, name)
        await asyncio.to_thread(self._store.forget_dataset, name, call.client)
        self._api.audit(call.client, "forget data set", name)
        return {}

    @Endpoint("DELETE", VERSION, "upload", "give an upload up")
    async def give_up(self, call: Call[None]) -> answers.Nothing:
        """An upload that will not be completed, or was completed here alone: its bytes go, other versions stay."""
        dataset = await self._upload(call)
        await asyncio.to_thread(self._store.remove, [dataset])
        self._api.audit(call.client, "give up upload", dataset.name)
        return {}

    async def _owned(self, call: Call[Any], name: str) -> list[StoredDataset]:
        """All versions of a data set of the client that asks, without the names of their columns."""
        named = await asyncio.to_thread(self._store.records, name)
        versions = [dataset for dataset in named if dataset.owner == call.client]
        if not versions:
            raise DataMissing(f"no data set of {call.client} is named {name!r}")
        return versions

    async def _upload(self, call: Call[Any]) -> StoredDataset:
        """The version of a data set that a path names."""
        for dataset in await self._owned(call, call.name):
            if dataset.version == call.version:
                return dataset
        raise DataMissing("no upload with this version was begun")

    @property
    def _most_bytes(self) -> float:
        """That a client may keep here."""
        return 1e9 * self._api.limits.dataset_gb

    def _describe(self, dataset: StoredDataset, client: str) -> answers.Dataset:
        received, own = self._store.received(dataset), dataset.owner == client
        return {
            "name": dataset.name,
            "version": dataset.version,
            "number": dataset.number,
            "owner": dataset.owner,
            "own": own,
            "allowed": self._store.allowed(dataset.owner, dataset.name) if own else [],
            "expires": dataset.expires,
            "rows": dataset.rows,
            "features": dataset.features,
            "outputs": dataset.outputs,
            "complete": dataset.complete,
            "bytes": 8 * dataset.words or received,
            "received": received,
            "columns": dataset.columns,
            "join": dataset.join_id,
            "preparation": dataset.preparation,
        }
