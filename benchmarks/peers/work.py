"""What is computed, by which system with which network, its inputs, and what plaintext says of the results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hdcos import nn

SEED = 20
SYSTEMS = ("hdcos", "CrypTen", "SPU")
ROWS = 128


@dataclass(frozen=True)
class Work:
    """One piece of work. `steps` are those of a training run of a peer and of hdcos; figures are given per step.

    A run of hdcos has more of them: it plans its material when it starts, which the peers do not.
    """

    key: str
    title: str
    kind: str
    network: str = ""
    rows: int = ROWS
    steps: tuple[int, int] = (1, 1)
    rate: float = 0.0


@dataclass(frozen=True)
class Way:
    """A system's way to do it: the activation that suits it, in a network of this structure."""

    system: str
    activation: str
    structure: str = ""

    @property
    def title(self) -> str:
        names = {"cos": "cosine", "relu": "ReLU"}
        structures = {"hadamard": "Hadamard-diagonal, ", "dense": "dense, "}
        return structures.get(self.structure, "") + names[self.activation]


WORK = (
    Work("cos", "cosine of 128 x 1024", "function"),
    Work("relu", "ReLU of 128 x 1024", "function"),
    Work("mlp-1", "4 x 1024 MLP, batch 1", "predict", "criteo_mlp", rows=1),
    Work("mlp-128", "4 x 1024 MLP, batch 128", "predict", "criteo_mlp"),
    Work("lenet-1", "LeNet-5, batch 1", "predict", "lenet5", rows=1),
    Work("lenet-128", "LeNet-5, batch 128", "predict", "lenet5"),
    Work("lenet-step", "LeNet-5 training step, batch 128", "train", "lenet5", steps=(1, 20), rate=0.1),
    Work("higgs-step", "Higgs training step, batch 128", "train", "higgs_mlp", steps=(5, 100), rate=0.1),
)


def steps_of(work: Work, way: Way) -> int:
    """How many steps the system takes in one run."""
    return work.steps[way.system == "hdcos"]


def ways(work: Work) -> list[Way]:
    """Every way that is measured. Peers take the cosine, which costs them more than ReLU, only where it is quick."""
    if work.kind == "function":
        return [Way(system, work.key) for system in SYSTEMS]
    mine = [Way("hdcos", "cos", "hadamard"), Way("hdcos", "cos", "dense"), Way("hdcos", "relu", "dense")]
    peers = [Way(system, "relu", "dense") for system in SYSTEMS[1:]]
    if work.rows == 1 or work.key == "higgs-step":
        peers += [Way(system, "cos", "dense") for system in SYSTEMS[1:]]
    return mine + peers


def model(network: str, activation: str, structure: str) -> nn.Sequential:
    return nn.models.READY[network](activation=activation, structure=structure, seed=SEED)


def job(work: Work, way: Way) -> dict[str, Any]:
    """What a worker is told, besides its files."""
    told: dict[str, Any] = {"kind": work.kind, "function": work.key}
    if work.network:
        layers = model(work.network, way.activation, way.structure).architecture()["layers"]
        told |= {"network": work.network, "activation": way.activation, "structure": way.structure, "layers": layers}
    if work.kind == "train":
        told |= {"steps": steps_of(work, way), "rate": work.rate}
    return told


def rows(work: Work) -> dict[str, np.ndarray]:
    """Inputs, and targets of a training run, drawn from the seed."""
    generator = np.random.default_rng(SEED)
    if work.kind == "function":
        return {"x": generator.uniform(-4, 4, (work.rows, 1024))}
    network = model(work.network, "cos", "dense")
    low = 0 if work.network == "lenet5" else -1
    found = {"x": generator.uniform(low, 1, (work.rows, *network.input_shape))}
    if work.kind == "train":
        outputs = network.output_shape[0]
        labels = generator.integers(0, max(2, outputs), work.rows)
        found["y"] = (labels[:, None] == np.arange(outputs) if outputs > 1 else labels[:, None]).astype(float)
    return found


def plaintext(work: Work, way: Way, given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The results in floating point: of the function, of the network, or its parameters after the steps."""
    if work.kind == "function":
        return {"result": np.cos(given["x"]) if work.key == "cos" else np.maximum(given["x"], 0)}
    network = model(work.network, way.activation, way.structure)
    if work.kind == "predict":
        return {"result": network(given["x"])}
    import torch

    torch.set_num_threads(1)

    module = network.to_torch(torch.float64)
    optimizer = torch.optim.SGD(module.parameters(), lr=work.rate)
    x, y = (torch.from_numpy(given[name]) for name in ("x", "y"))
    for _ in range(steps_of(work, way)):
        optimizer.zero_grad()
        loss = torch.nn.functional.binary_cross_entropy_with_logits(module(x), y, reduction="sum") / len(x)
        loss.backward()
        optimizer.step()
    return {name: values.detach().numpy() for name, values in module.state_dict().items()}
