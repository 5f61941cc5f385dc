"""Steps of training one after the other, on processors or on a device that records and repeats them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from golden.cases import public_randomness
from hdcos import nn
from hdcos.generators import lockstep
from hdcos.offline import Dealer, MaterialPool
from hdcos.protocol.plan import plan
from hdcos.protocol.repeated import Repeated
from hdcos.protocol.rounds import Packed
from hdcos.ring import encode
from hdcos.secure.training import Rule, sgd_step, training_plan
from hdcos.secure.training.plan import INPUT_SCALE, TARGET_SCALE
from hdcos.secure.training.step import take_step
from hdcos.sharing import Share
from hdcos.testing.pair import share_pair

MODELS = {
    **{
        structure: lambda structure=structure: nn.models.mlp([12, 16, 16, 3], "cos", structure)
        for structure in nn.models.STRUCTURES
    },
    "series": lambda: nn.models.mlp([12, 16, 3], "tanh", "dense"),
    "square": lambda: nn.models.mlp([12, 16, 3], "square", "hadamard"),
    "terms": lambda: nn.Sequential(
        [nn.HadamardDiagonal(12, 16, terms=3), nn.Cos(), nn.HadamardDiagonal(16, 3, terms=2)], input_shape=(12,)
    ),
    "lenet5": nn.models.lenet5,
    "convolution": lambda: nn.Sequential(
        [nn.Conv2d(1, 2, 3), nn.Cos(), nn.AvgPool2d(2), nn.Flatten(), nn.Dense(18, 3)], input_shape=(1, 8, 8)
    ),
    "relu": lambda: nn.models.mlp([12, 16, 3], "relu", "dense"),
    "largest": lambda: nn.Sequential(
        [nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Flatten(), nn.Dense(18, 3)], input_shape=(1, 8, 8)
    ),
}


def steps(
    name: str,
    device: Any,
    count: int = 4,
    loss: str = "logistic",
    momentum: float = 0.0,
    weighted: bool = False,
    chunk: int = 1,
) -> tuple[list[str], list[Repeated[Any]]]:
    """A hash of what the parties said in each step and of what they made of it, and the runs of both.

    Material comes for `chunk` steps at a time.
    """
    with public_randomness(f"{name} {loss}"):
        return _steps(MODELS[name](), device, count, loss, Rule(0.1, momentum), weighted, chunk)


def _steps(
    model: nn.Network, device: Any, count: int, loss: str, rule: Rule, weighted: bool, chunk: int
) -> tuple[list[str], list[Repeated[Any]]]:
    chosen = training_plan(model, loss, weighted)
    state = {
        tensor.name: share_pair(tensor.words(model.state()[tensor.name]), tensor.scale) for tensor in chosen.tensors
    }
    state = {
        tensor.name: tuple(replace(share, bits=tensor.bits) for share in state[tensor.name])
        for tensor in chosen.tensors
    }
    runs: list[Repeated[Any]] = [Repeated(device), Repeated(device)]
    dealer, pools, hashes = Dealer(device), [], []
    for step in range(count):
        generator = np.random.default_rng(step)
        rows = np.rint(generator.uniform(-1, 1, (4, int(np.prod(model.input_shape)))) * 256) / 256
        x = share_pair(encode(rows, INPUT_SCALE), INPUT_SCALE)
        targets = share_pair(encode(np.eye(chosen.outputs)[np.arange(4) % chosen.outputs], TARGET_SCALE), TARGET_SCALE)
        weights = share_pair(encode(np.full((4, 1), 0.5), TARGET_SCALE), TARGET_SCALE) if weighted else None
        inputs = [
            {name: pair[rank].words for name, pair in state.items()}
            | {" x": x[rank].words, " y": targets[rank].words}
            | ({} if weights is None else {" w": weights[rank].words})
            for rank in (0, 1)
        ]

        def body(party: Any, words: Mapping[str, Any]) -> Any:
            placed = {name: replace(pair[party.rank], words=words[name]) for name, pair in state.items()}
            weight = Share(words[" w"], TARGET_SCALE) if weighted else None
            y = Share(words[" y"], TARGET_SCALE).raised(chosen.target_scale)
            return take_step(party, chosen, placed, Share(words[" x"], INPUT_SCALE), y, rule, weight)

        shares = [{name: pair[rank] for name, pair in state.items()} for rank in (0, 1)]
        raised = targets[0].raised(chosen.target_scale)
        planned = plan(sgd_step, chosen, shares[0], x[0], raised, rule, weights[0] if weights else None)
        if not pools:
            roots = [dealer.open("steps", planned.material, rank) for rank in (0, 1)]
            pools = [
                MaterialPool("steps", planned.material, rank, roots[rank], planned.precompute, True, device)
                for rank in (0, 1)
            ]
        for rank, pool in enumerate(pools):
            if step % chunk == 0:
                pool.fill(step, chunk, dealer.deal("steps", step, chunk, rank))
        allocations = [pool.begin(1) for pool in pools]
        talks = [run.run("the same", rank, body, inputs[rank], allocations[rank]) for rank, run in enumerate(runs)]
        said = hashlib.sha256()

        def exchange(mine: Packed, theirs: Packed, said: Any = said) -> list[np.ndarray]:
            payloads = [np.concatenate(each.buffers) for each in (mine, theirs)]
            for payload in payloads:
                said.update(payload)
            return payloads[::-1]

        for moved, copies in lockstep((talks[0], talks[1]), exchange):
            for words in (made.words for made in (*moved.values(), *copies.values())):
                assert type(words) is np.ndarray
                said.update(np.ascontiguousarray(words))
        hashes.append(said.hexdigest())
    return hashes, runs
