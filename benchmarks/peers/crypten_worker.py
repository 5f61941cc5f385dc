"""CrypTen: one party, or the trusted third party that makes its triples (rank 2). Run by CrypTen's own interpreter.

Party 0 holds weights and inputs in plaintext, shares them and gets the results. Times are those of party 0, from
plaintext inputs to plaintext results. Rounds are counted by CrypTen at party 1, which does not talk to the third
party.
"""

from __future__ import annotations

import os
import sys
import time
import types
import warnings
from threading import Thread
from typing import Any

warnings.filterwarnings("ignore")

# CrypTen's converter needs parts of torch.onnx that PyTorch has removed. Networks are built here layer by layer.
converter = types.ModuleType("crypten.nn.onnx_converter")
converter.from_onnx = converter.from_pytorch = converter.from_tensorflow = None  # type: ignore[attr-defined]
converter.TF_AND_TF2ONNX = False  # type: ignore[attr-defined]
sys.modules[converter.__name__] = converter

import crypten  # noqa: E402
import numpy as np  # noqa: E402
import torch  # noqa: E402
from crypten import communicator  # noqa: E402
from worker import serve, socket_bytes  # noqa: E402

PARTIES = 2
RANK = int(os.environ["RANK"])


class Cosine(crypten.nn.Module):
    """The cosine as a layer."""

    def forward(self, x: Any) -> Any:
        return x.cos()


def build(layers: list[dict[str, Any]], state: dict[str, np.ndarray]) -> crypten.nn.Module:
    """A network of CrypTen's own layers with these weights."""
    modules = []
    for index, layer in enumerate(layers):
        kind = layer["type"]
        if kind == "Conv2d":
            sizes = layer["in_channels"], layer["out_channels"], layer["kernel_size"]
            module = crypten.nn.Conv2d(*sizes, stride=layer["stride"], padding=layer["padding"])
        elif kind == "Dense":
            module = crypten.nn.Linear(layer["in_features"], layer["out_features"])
        else:
            module = {
                "AvgPool2d": lambda layer=layer: crypten.nn.AvgPool2d(layer["size"]),
                "Flatten": lambda: crypten.nn.Flatten(axis=1),
                "ReLU": crypten.nn.ReLU,
                "Cos": Cosine,
            }[kind]()
        for name in ("weight", "bias"):
            if f"{index}.{name}" in state:
                module.set_parameter(name, torch.from_numpy(state[f"{index}.{name}"]).float())
        modules.append(module)
    return crypten.nn.Sequential(*modules)


class Party:
    """What one party keeps between jobs."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.networks: dict[str, crypten.nn.Module] = {}

    def answer(self, job: dict[str, Any]) -> dict[str, Any]:
        if "prepare" in job:
            self.jobs[job["prepare"]] = job
            if "layers" in job:
                self.networks[job["prepare"]] = self.shared_network(job)
            return {"version": crypten.__version__, "torch": torch.__version__, "numpy": np.__version__}
        return self.run(job["run"])

    def shared_network(self, job: dict[str, Any]) -> crypten.nn.Module:
        """The network with shared weights; only party 0 has them in plaintext."""
        state = dict(np.load(job["inputs"]))
        if RANK != 0:
            state = {name: np.zeros_like(values) for name, values in state.items()}
        network = build(job["layers"], state)
        network.encrypt(src=0)
        return network

    def run(self, key: str) -> dict[str, Any]:
        job = self.jobs[key]
        arrays = np.load(job["inputs"])
        rows = [torch.from_numpy(arrays[name]).float() for name in ("x", "y") if name in arrays]
        if RANK != 0:
            rows = [torch.zeros_like(tensor) for tensor in rows]
        if job["kind"] == "train":
            self.networks[key] = self.shared_network(job)  # every turn starts from the same weights
        communicator.get().barrier()
        crypten.reset_communication_stats()
        before = socket_bytes()[0]
        started = time.perf_counter()
        results = getattr(self, job["kind"])(key, job, *(crypten.cryptensor(tensor, src=0) for tensor in rows))
        if job["kind"] != "train":
            results = opened(results)
        seconds = time.perf_counter() - started
        sent = socket_bytes()[0] - before
        rounds = communicator.get().get_communication_stats()["rounds"]
        if job["kind"] == "train":
            results = opened(results)
        if RANK == 0:
            np.savez(job["outputs"], **{name: tensor.numpy() for name, tensor in results.items()})
        return {"seconds": seconds, "rounds": rounds, "sent": sent}

    def function(self, key: str, job: dict[str, Any], x: Any) -> dict[str, Any]:
        return {"result": getattr(x, job["function"])()}

    def predict(self, key: str, job: dict[str, Any], x: Any) -> dict[str, Any]:
        network = self.networks[key]
        network.eval()
        with crypten.no_grad():
            return {"result": network(x)}

    def train(self, key: str, job: dict[str, Any], x: Any, y: Any) -> dict[str, Any]:
        """Steps of gradient descent; the results are the parameters."""
        network = self.networks[key]
        network.train()
        loss = crypten.nn.BCEWithLogitsLoss(skip_forward=True)
        # CrypTen's loss is the mean over the outputs too.
        optimizer = crypten.optim.SGD(network.parameters(), lr=job["rate"] * y.size()[1])
        for _ in range(job["steps"]):
            optimizer.zero_grad()
            loss(network(x), y).backward()
            optimizer.step()
        return dict(network.named_parameters())


def opened(results: dict[str, Any]) -> dict[str, Any]:
    """Results in plaintext, at party 0 alone."""
    return {name: value.get_plain_text(dst=0) for name, value in results.items()}


def count(job: dict[str, Any]) -> dict[str, Any]:
    """The third party tells what it has sent so far."""
    return {"sent_so_far": socket_bytes()[0]}


def main() -> None:
    crypten.cfg.mpc.provider = "TTP"
    crypten.cfg.communicator.verbose = True  # counts rounds
    if RANK == PARTIES:
        # TTPServer works in its constructor until party 0 ends it.
        Thread(target=crypten.mpc.provider.TTPServer, daemon=True).start()
        serve(count)
        return
    crypten.init()
    serve(Party().answer)
    crypten.uninit()


if __name__ == "__main__":
    main()
