"""The HTTP resources of data sets: chunked uploads that can be resumed."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from hdcos.api.names import check_id, check_name
from hdcos.errors import DataMissing, InputError, PolicyRefused
from hdcos.nn.columns import checked_names
from hdcos.party.http import asked
from hdcos.party.http.api import Api, Resource
from hdcos.party.http.replies import reply
from hdcos.party.store import StoredDataset

MOST_ROWS, MOST_COLUMNS = 1 << 32, 1 << 24
MOST_BYTES = 1 << 40


class Storing:
    """Handlers of /v2/datasets."""

    def __init__(self, api: Api) -> None:
        self._api, self._store = api, api.service.store

    def resources(self) -> list[Resource]:
        one, version = "/v2/datasets/{name}", "/v2/datasets/{name}/{version}"
        return [
            self._api.route("/v2/datasets", "GET", self.all, "upload"),
            self._api.route("/v2/datasets", "POST", self.begin, "upload"),
            self._api.route(one, "GET", self.one, "upload"),
            self._api.route(one, "DELETE", self.delete, "upload"),
            self._api.route("/v2/grants", "POST", self.allow, "upload"),
            self._api.route(version, "PUT", self.add, "upload"),
            self._api.route(version, "DELETE", self.give_up, "upload"),
            self._api.route(f"{version}/complete", "POST", self.complete, "upload"),
        ]

    async def all(self, request: Request, client: str) -> Response:
        mine = [item for item in self._store.datasets() if self._store.may_train(item.name, client)]
        return reply({"datasets": [self._described(dataset) for dataset in mine]})

    async def one(self, request: Request, client: str) -> Response:
        versions = self._versions(request)
        if not self._store.may_train(versions[0].name, client):
            raise PolicyRefused(f"{versions[0].name} belongs to another client")
        return reply({"versions": [self._described(dataset) for dataset in versions]})

    async def allow(self, request: Request, client: str) -> Response:
        """The owner of a data set lets another client train on it: whoever trains on data learns of it."""
        meta = asked.json_object(await self._api.gate.body(request))
        name, other = check_name(meta.get("dataset")), meta.get("client")
        if not isinstance(other, str) or not 1 <= len(other) <= 100:
            raise InputError("client is the name of a client of this party")
        versions = self._store.datasets(name)
        if not versions:
            raise DataMissing(f"no data set is named {name!r}")
        if any(dataset.owner != client for dataset in versions):
            raise PolicyRefused(f"{name} belongs to another client")
        await asyncio.to_thread(self._store.grant, name, other)
        self._api.audit(client, "allow training", name, other)
        return reply({}, 201)

    async def begin(self, request: Request, client: str) -> Response:
        meta = asked.json_object(await self._api.gate.body(request))
        dataset = StoredDataset(
            check_name(meta.get("name")),
            check_id(meta.get("version"), "version"),
            asked.whole(meta, "rows", 1, MOST_ROWS),
            asked.whole(meta, "features", 1, MOST_COLUMNS),
            asked.whole(meta, "outputs", 0, MOST_COLUMNS),
            False,
            client,
            checked_names(meta.get("columns"), asked.whole(meta, "features", 1, MOST_COLUMNS)),
        )
        if 8 * dataset.words > MOST_BYTES:
            raise InputError(f"a data set has at most {MOST_BYTES} bytes")
        await asyncio.to_thread(self._store.begin_dataset, dataset, 1e9 * self._api.limits.dataset_gb)
        self._api.audit(client, "upload", dataset.name, f"{dataset.rows} rows")
        return reply(self._described(dataset), 201)

    async def add(self, request: Request, client: str) -> Response:
        dataset = self._own(request, client)
        offset = request.query_params.get("offset", "")
        if not re.fullmatch("[0-9]{1,15}", offset):
            raise InputError("offset is the number of the first byte")
        content = await self._api.gate.body(request)
        if not content:
            raise InputError("the body holds no bytes of the data set")
        received = await asyncio.to_thread(self._store.add_bytes, dataset, int(offset), content)
        return reply({"received": received, "bytes": 8 * dataset.words})

    async def complete(self, request: Request, client: str) -> Response:
        dataset = self._own(request, client)
        digest = asked.json_object(await self._api.gate.body(request)).get("sha256")
        if not isinstance(digest, str):
            raise InputError("sha256 is the hash of all bytes, in hexadecimal digits")
        await asyncio.to_thread(self._store.complete_dataset, dataset, digest)
        return reply(self._described(self._own(request, client)))

    async def delete(self, request: Request, client: str) -> Response:
        versions = self._versions(request)
        if any(dataset.owner != client for dataset in versions):
            raise PolicyRefused(f"{versions[0].name} belongs to another client")
        await asyncio.to_thread(self._store.forget_dataset, versions[0].name)
        self._api.audit(client, "forget data set", versions[0].name)
        return reply({})

    async def give_up(self, request: Request, client: str) -> Response:
        """An upload that will not be completed: its bytes go, other versions stay."""
        dataset = self._own(request, client)
        await asyncio.to_thread(self._store.forget_upload, dataset)
        self._api.audit(client, "give up upload", dataset.name)
        return reply({})

    def _versions(self, request: Request) -> list[StoredDataset]:
        name = check_name(request.path_params["name"])
        versions = self._store.datasets(name)
        if not versions:
            raise DataMissing(f"no data set is named {name!r}")
        return versions

    def _own(self, request: Request, client: str) -> StoredDataset:
        version = check_id(request.path_params["version"], "version")
        for dataset in self._versions(request):
            if dataset.version == version:
                if dataset.owner != client:
                    raise PolicyRefused(f"{dataset.name} belongs to another client")
                return dataset
        raise DataMissing("no upload with this version was begun")

    def _described(self, dataset: StoredDataset) -> dict[str, Any]:
        return {
            **{"name": dataset.name, "version": dataset.version, "rows": dataset.rows, "features": dataset.features},
            **{"outputs": dataset.outputs, "complete": dataset.complete, "bytes": 8 * dataset.words},
            **{"received": self._store.received(dataset), "columns": dataset.columns},
        }
