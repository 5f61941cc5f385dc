"""What private serving is compared with: one process that holds a plaintext network in PyTorch.

The same HTTP stack, tokens, binary tensors and merging of requests into batches as a party has, without the other
party: requests that arrive while a batch runs become the next one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from pathlib import Path
from threading import Condition, Thread

import numpy as np
import torch
import uvicorn
import uvloop
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from hdcos import nn
from hdcos.api.tokens import token_hash

MOST_ROWS = 4096


class Batcher:
    """Runs the network on its own thread, all waiting rows at once."""

    def __init__(self, model: torch.nn.Module, loop: asyncio.AbstractEventLoop) -> None:
        self._model, self._loop = model, loop
        self._waiting: list[tuple[np.ndarray, asyncio.Future[np.ndarray]]] = []
        self._changed = Condition()
        Thread(target=self._run, daemon=True).start()

    def add(self, rows: np.ndarray) -> asyncio.Future[np.ndarray]:
        future: asyncio.Future[np.ndarray] = self._loop.create_future()
        with self._changed:
            self._waiting.append((rows, future))
            self._changed.notify()
        return future

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: bool(self._waiting))
                batch, self._waiting = self._waiting, []
            with torch.inference_mode():
                outputs = self._model(torch.from_numpy(np.concatenate([rows for rows, _ in batch]))).numpy()
            results, first = [], 0
            for rows, future in batch:
                results.append((future, outputs[first : first + len(rows)]))
                first += len(rows)
            self._loop.call_soon_threadsafe(_resolve, results)


def _resolve(results: list[tuple[asyncio.Future[np.ndarray], np.ndarray]]) -> None:
    for future, value in results:
        if not future.done():
            future.set_result(value)


def make_app(model: nn.Sequential, hashed: str) -> Starlette:
    torch.set_num_threads(1)
    module, shape, state = model.to_torch(), model.input_shape, {}

    async def infer(request: Request) -> Response:
        scheme, _, shown = request.headers.get("authorization", "").partition(" ")
        if scheme != "Bearer" or token_hash(shown) != hashed:
            return Response(status_code=401)
        body = await request.body()
        length = int(request.headers["inference-header-content-length"])
        meta = json.loads(body[:length])
        entry = meta["inputs"][0]
        rows = np.frombuffer(body, np.uint8, -1, length).copy().view(np.float32).reshape(entry["shape"])
        if rows.shape[1:] != shape:
            return Response(status_code=400)
        if "batcher" not in state:
            state["batcher"] = Batcher(module, asyncio.get_running_loop())
        outputs = await state["batcher"].add(rows)
        listed = {"name": "output", "datatype": "FP32", "shape": list(outputs.shape)}
        head = json.dumps(
            {"id": meta["id"], "outputs": [{**listed, "parameters": {"binary_data_size": outputs.nbytes}}]}
        ).encode()
        headers = {"content-type": "application/octet-stream", "inference-header-content-length": str(len(head))}
        return Response(head + outputs.tobytes(), 200, headers)

    return Starlette(routes=[Route("/v2/models/plain/infer", infer, methods=["POST"])])


def main() -> None:
    """A model's file, a folder with key and certificate, the hash of the token; prints its port."""
    file, folder, hashed = sys.argv[1:]
    logging.disable(logging.WARNING)
    sock = socket.create_server(("127.0.0.1", 0), backlog=1024)
    print(sock.getsockname()[1], flush=True)
    place = Path(folder)
    settings = uvicorn.Config(
        make_app(nn.load(file), hashed),
        log_config=None,
        access_log=False,
        ssl_certfile=str(place / "certificate.pem"),
        ssl_keyfile=str(place / "key.pem"),
        server_header=False,
        date_header=False,
        ws="none",
    )
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(uvicorn.Server(settings).serve([sock]))


if __name__ == "__main__":
    main()
