"""`hdcos cost MODEL`: what private inference with a network costs, planned and, if asked, measured beside."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np

from hdcos import nn
from hdcos.cli.sources import SourceCost, inference_sources, show_sources
from hdcos.cli.tables import new_table, show
from hdcos.cluster.local import local
from hdcos.errors import ModelError
from hdcos.link import Emulation
from hdcos.secure.calibrate import Interval, intervals, state_intervals
from hdcos.secure.estimate import Cost, LayerCost, densify, estimate, total

REPEATS = 5


@dataclass(frozen=True)
class Measured:
    """A batch as the meters saw it: by step online, in all offline."""

    steps: dict[str, Cost]
    online: Cost
    offline: Cost


def find_model(name: str, activation: str, structure: str) -> nn.Sequential:
    """A ready model by name, or a saved one by its file."""
    if name in nn.models.READY:
        return nn.models.READY[name](activation=activation, structure=structure)
    if name in nn.models.PRETRAINED:
        return nn.models.pretrained(name)
    if Path(name).exists():
        return nn.load(name)
    known = ", ".join([*nn.models.READY, *nn.models.PRETRAINED])
    raise ModelError(f"no ready model or file is called {name!r}: choose from {known}, or activations")


def measure(model: nn.Sequential, batch: int, network: Emulation, masked: bool = True, dealer: bool = True) -> Measured:
    """Run a batch for real on three processes, or two without a dealer; times are medians."""
    x = np.random.default_rng(0).uniform(0, 1, (batch, *model.input_shape))
    with local(dealer, rtt_ms=network.rtt_ms, mbps=network.mbps) as cluster:
        private = cluster.share(state_intervals(model))  # nobody looks at the results
        cluster.reset_cost()
        private.prepare(batch * REPEATS)
        offline = cluster.cost.offline
        costs = []
        for _ in range(REPEATS):
            cluster.reset_cost()
            private.predict(x, batch_rows=batch, mode="masked" if masked else "shares")
            costs.append(cluster.cost)
    last = costs[-1]
    steps = {
        step.name: Cost(
            step.online.rounds,
            step.online.bytes_sent[0],
            step.online.wire_bytes_sent[0],
            median(cost.layers[index].online.seconds for cost in costs),
        )
        for index, step in enumerate(last.layers)
    }
    online = last.online
    seconds = median(cost.online.seconds for cost in costs)
    return Measured(
        steps,
        Cost(online.rounds, online.bytes_sent[0], online.wire_bytes_sent[0], seconds),
        Cost(
            0,
            sum(offline.bytes_sent) // REPEATS,
            sum(offline.wire_bytes_sent) // REPEATS,
            offline.seconds / REPEATS,
        ),
    )


def show_model_cost(
    name: str, activation: str, structure: str, batch: int, network: Emulation, as_json: bool, measured: bool
) -> None:
    model = find_model(name, activation, structure)
    layers = estimate(model, batch, network=network)
    seen = measure(model, batch, network) if measured else None
    sources = inference_sources(model, batch, network)
    series, _ = intervals(model)
    if as_json:
        click.echo(json.dumps(_record(layers, seen, sources, series), indent=1))
        return
    dense = total(estimate(densify(model), batch, network=network))
    title = f"{name}, batch of {batch}, {model.parameter_count:,} parameters"
    _print(title, layers, seen, dense)
    for each in series:
        click.echo(f"Series of {each}.")
    show_sources(f"Material of {batch} row{'s' if batch > 1 else ''}", sources)
    if measured:
        made = measure(model, batch, network, dealer=False).offline
        several = inference_sources(model, REPEATS * batch, network)[1].bytes // REPEATS
        click.echo(
            f"Made by the two parties for {REPEATS} batches at once: {made.bytes_sent:,} bytes a batch, "
            f"{several:,} planned, and {made.seconds * 1e3:.2f} ms."
        )


def _record(
    layers: list[LayerCost], seen: Measured | None, sources: list[SourceCost], series: tuple[Interval, ...]
) -> dict[str, Any]:
    record: dict[str, Any] = {
        "layers": [asdict(layer) for layer in layers],
        "total": {"online": asdict(total(layers).online), "offline": asdict(total(layers).offline)},
        "sources": [asdict(cost) for cost in sources],
        "series": [asdict(each) for each in series],
    }
    if seen is not None:
        record["measured"] = asdict(seen)
    return record


def _print(title: str, layers: list[LayerCost], seen: Measured | None, dense: LayerCost) -> None:
    headings = ["\nlayer", "secure\nproducts", "\nrounds", "online\nbytes", "\n~ms", "offline\nbytes", "\n~ms"]
    table, whole = new_table(*headings, title=title), total(layers)
    for layer in [*layers, whole, dense]:
        name = "the same, dense" if layer is dense else layer.name
        row = [name, f"{layer.multiplications:,}", str(layer.online.rounds), f"{layer.online.bytes_sent:,}"]
        table.add_row(*row, _ms(layer.online), f"{layer.offline.bytes_sent:,}", _ms(layer.offline))
    show(table)
    click.echo("Online bytes are sent by each party to the other; times are estimates.")
    if seen is not None:
        _print_measured(seen)


def _print_measured(seen: Measured) -> None:
    table = new_table("layer", "rounds", "online bytes", "ms", title="Measured between two processes")
    for name, amount in [*seen.steps.items(), ("total", seen.online)]:
        table.add_row(name, str(amount.rounds), f"{amount.bytes_sent:,}", _ms(amount))
    show(table)
    click.echo(f"Offline: {seen.offline.bytes_sent:,} bytes and {seen.offline.seconds * 1e3:.2f} ms a batch.")


def _ms(amount: Cost) -> str:
    return f"{amount.seconds * 1e3:.2f}"
