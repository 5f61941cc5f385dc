"""`hdcos cost networks`: what one row costs with every ready network, side by side, from the planner alone.

LeNet-5 with dense layers stands for the network that others evaluate with ReLU. Its price is that of the same linear
layers with a cosine for each ReLU; comparisons would come on top. Features that the parties compute themselves stand
beside those of the kernel machine, which the owner of a row computes.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from math import prod, sqrt

import click

from hdcos import nn
from hdcos.cli.common import new_table, show
from hdcos.secure.compile import compile_network
from hdcos.secure.estimate import estimate, total

WORD_BYTES = 8
KERNEL = "kernel_machine"
DENSE, ON_SHARES = "lenet5, dense", f"{KERNEL}, features on shares"


@dataclass(frozen=True)
class NetworkCost:
    """One row through a network, whose rows come masked."""

    network: str
    parameters: int
    products: int
    """Of two secrets."""
    rounds: int
    online_bytes: int
    """From each party to the other."""
    row_bytes: int
    """From the owner of the row to each party."""
    offline_bytes: int
    """From the dealer."""


def networks() -> dict[str, nn.Network]:
    """The ready networks, the digits that the tutorial classifies, and two to compare them with."""
    ready = {name: make() for name, make in (*nn.models.READY.items(), (KERNEL, nn.models.kernel_machine))}
    inputs, features = 784, 4096
    on_shares = [nn.HadamardDiagonal(inputs, features, bandwidth=sqrt(2 * inputs)), nn.Cos(), nn.Dense(features, 10)]
    beside = {DENSE: nn.models.lenet5(structure="dense"), ON_SHARES: nn.Sequential(on_shares)}
    return {**ready, "digits": nn.models.digits(), **beside}


def row_bytes(model: nn.Network) -> int:
    """What the owner of a row sends to each party: a word for every number behind the layers that it computes."""
    return WORD_BYTES * prod(compile_network(model).input_shape)


def network_cost(name: str, model: nn.Network) -> NetworkCost:
    whole = total(estimate(model))
    online, offline = whole.online, whole.offline
    return NetworkCost(
        *(name, model.parameter_count, whole.multiplications),
        *(online.rounds, online.bytes_sent, row_bytes(model), offline.bytes_sent),
    )


def show_networks(as_json: bool) -> None:
    costs = [network_cost(name, model) for name, model in networks().items()]
    if as_json:
        click.echo(json.dumps([asdict(cost) for cost in costs], indent=1))
        return
    headings = ["\nnetwork", "\nparameters", "secure\nproducts", "\nrounds", "online\nbytes", "row\nbytes"]
    table = new_table(*headings, "offline\nbytes", title="One row through the ready networks")
    for cost in costs:
        table.add_row(cost.network, *(f"{number:,}" for number in list(asdict(cost).values())[1:]))
    show(table)
    click.echo(
        "Online bytes are sent by each party to the other, row bytes by the owner of the row to each party.\n"
        f"{DENSE!r} has a cosine for each ReLU, whose comparisons would come on top."
    )
