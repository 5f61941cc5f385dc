"""What material costs from either source: a dealer, or the two parties with oblivious transfer. For `hdcos cost`.

Bytes are exact, planned from shapes. Seconds are estimates for one core per party, from the rates below.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

import click

from hdcos import nn
from hdcos.cli.tables import new_table, show
from hdcos.link import Emulation
from hdcos.offline.ot import Traffic, traffic
from hdcos.secure.compile import compile_network
from hdcos.secure.estimate import DEALT_BYTE_S, ROUND_S, ot_traffic
from hdcos.secure.program import plan_inference
from hdcos.secure.training.step import plan_step

TRANSFER_S = 40e-9
TRANSFER_BYTE_S = 4e-9
"""Making, sending and using one transfer, and each byte of payload, in either direction."""


@dataclass(frozen=True)
class SourceCost:
    """Material from one source: payload bytes in all directions, exchanges one after the other, about how long."""

    source: str
    bytes: int
    exchanges: int
    seconds: float


def from_dealer(size: int, network: Emulation) -> SourceCost:
    return SourceCost("a dealer", size, 0, max(size * DEALT_BYTE_S, network.seconds(size)))


def from_parties(made: Traffic, network: Emulation) -> SourceCost:
    work = made.transfers * TRANSFER_S + made.bytes * TRANSFER_BYTE_S
    rounds = made.exchanges * max(ROUND_S, network.seconds(0))
    return SourceCost(
        "the two parties", made.bytes, made.exchanges, max(work, network.seconds(made.bytes // 2)) + rounds
    )


def inference_sources(model: nn.Sequential, rows: int, network: Emulation) -> list[SourceCost]:
    """The material of so many rows of inference."""
    dealt = plan_inference(compile_network(model)).material.dealt_bytes(rows)
    made = ot_traffic(compile_network(model, dealer=False), rows)
    return [from_dealer(dealt, network), from_parties(made, network)]


def show_sources(title: str, costs: list[SourceCost]) -> None:
    table = new_table("made by", "bytes in all", "exchanges", "seconds, about", title=title)
    for cost in costs:
        table.add_row(cost.source, f"{cost.bytes:,}", f"{cost.exchanges:,}", f"{cost.seconds:.3g}")
    show(table)


def show_training_cost(
    name: str, model: nn.Sequential, batch: int, rows: int, network: Emulation, as_json: bool
) -> None:
    """One step of training and one epoch: online, and the material from either source."""
    planned = plan_step(model, batch)
    steps = rows // batch
    made, material = traffic(planned.material, 1), planned.material
    step = [from_dealer(material.dealt_bytes(1), network), from_parties(made, network)]
    epoch = [SourceCost(cost.source, cost.bytes * steps, cost.exchanges * steps, cost.seconds * steps) for cost in step]
    if as_json:
        online = {"rounds": planned.rounds, "bytes_each_way": planned.online_bytes}
        record = {"online": online, "step": [asdict(cost) for cost in step], "epoch": [asdict(cost) for cost in epoch]}
        click.echo(json.dumps({"batch": batch, "steps": steps, **record}, indent=1))
        return
    click.echo(f"A step on {batch} rows: {planned.rounds} rounds, {planned.online_bytes:,} bytes online each way.")
    show_sources(f"Material of a step of {name}", step)
    show_sources(f"Material of an epoch of {rows:,} rows, {steps:,} steps", epoch)
