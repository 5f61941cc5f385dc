"""Steps of training one after the other, on processors or on a device that records and repeats them, hashed.

All randomness is drawn from a stream that anybody can compute, so two runs of the same steps differ only if something
was computed otherwise.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np

from hdcos.generators import lockstep
from hdcos.nn.network import Network
from hdcos.offline import Dealer, MaterialPool
from hdcos.protocol.plan import plan
from hdcos.protocol.repeated import Repeated
from hdcos.protocol.rounds import Packed
from hdcos.ring import Array, encode
from hdcos.ring.device import Device
from hdcos.secure.training import Rule, sgd_step, training_plan
from hdcos.secure.training.plan import INPUT_SCALE, TARGET_SCALE
from hdcos.secure.training.step import take_step
from hdcos.sharing import Share
from hdcos.testing.pair import share_pair

Hashes = tuple[str, ...]
Devices = tuple[Device | None, Device | None, Device | None]
"""Of party 0, party 1 and the dealer."""


@contextmanager
def public_randomness(label: str) -> Iterator[None]:
    """Every secret of this process comes from a stream that anybody can compute."""
    drawn = 0

    def draw(size: int) -> bytes:
        nonlocal drawn
        drawn += 1
        return hashlib.shake_256(f"{label} {drawn}".encode()).digest(size)

    with mock.patch.object(os, "urandom", draw), mock.patch.object(secrets, "token_hex", lambda size: draw(size).hex()):
        yield


def hash_steps(
    model: Network,
    devices: Devices,
    count: int = 4,
    loss: str = "logistic",
    rule: Rule | None = None,
    weighted: bool = False,
    chunk: int = 1,
    rows: int = 4,
    label: str = "steps",
) -> tuple[list[Hashes], list[Repeated[Any]]]:
    """For each step a hash of every message and of every share that the parties made of it; and the runs of both.

    Material comes for `chunk` steps at a time. On a device the second step is recorded, and later ones repeat it.
    """
    rule = rule or Rule(0.1)
    with public_randomness(label):
        return _hash_steps(model, devices, count, loss, rule, weighted, chunk, rows)


def _hash_steps(
    model: Network, devices: Devices, count: int, loss: str, rule: Rule, weighted: bool, chunk: int, rows: int
) -> tuple[list[Hashes], list[Repeated[Any]]]:
    chosen, values = training_plan(model, loss, weighted), model.state()
    state = {
        tensor.name: share_pair(tensor.words(values[tensor.name]), tensor.scale, tensor.bits)
        for tensor in chosen.tensors
    }
    runs: list[Repeated[Any]] = [Repeated(devices[rank]) for rank in (0, 1)]
    dealer, pools = Dealer(devices[2]), list[MaterialPool]()
    hashes = []
    for step in range(count):
        generator = np.random.default_rng(step)
        drawn = np.rint(generator.uniform(-1, 1, (rows, int(np.prod(model.input_shape)))) * 256) / 256
        x = share_pair(encode(drawn, INPUT_SCALE), INPUT_SCALE)
        wanted = np.eye(chosen.outputs)[np.arange(rows) % chosen.outputs]
        targets = share_pair(encode(wanted, TARGET_SCALE), TARGET_SCALE)
        weights = share_pair(encode(np.full((rows, 1), 0.5), TARGET_SCALE), TARGET_SCALE) if weighted else None
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

        if not pools:
            shares = {name: pair[0] for name, pair in state.items()}
            raised = targets[0].raised(chosen.target_scale)
            planned = plan(sgd_step, chosen, shares, x[0], raised, rule, weights[0] if weights else None)
            pools = [
                MaterialPool(
                    "steps",
                    planned.material,
                    rank,
                    dealer.open("steps", planned.material, rank),
                    planned.precompute,
                    True,
                    devices[rank],
                )
                for rank in (0, 1)
            ]
        for rank, pool in enumerate(pools):
            if step % chunk == 0:
                pool.fill(step, chunk, dealer.deal("steps", step, chunk, rank))
        allocations = [pool.begin(1) for pool in pools]
        talks = [run.run("the same", rank, body, inputs[rank], allocations[rank]) for rank, run in enumerate(runs)]
        said = list[str]()

        def exchange(mine: Packed, theirs: Packed, said: list[str] = said) -> list[Array]:
            payloads = [np.concatenate(each.buffers) for each in (mine, theirs)]
            said += map(_hash, payloads)
            return payloads[::-1]

        for moved, copies in lockstep((talks[0], talks[1]), exchange):
            said += [_hash(made.words) for made in (*moved.values(), *copies.values())]
        hashes.append(tuple(said))
    return hashes, runs


def _hash(words: Array) -> str:
    if type(words) is not np.ndarray:
        raise TypeError("what travels and what a step results in is of this machine")
    return hashlib.sha256(words.tobytes()).hexdigest()
