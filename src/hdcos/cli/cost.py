"""`hdcos cost`: what private computation costs, planned and, where asked, measured by running it.

Bytes and rounds are exact, planned from shapes. Seconds are estimates for one core per party, from the rates below.
Material comes from either of two sources: a dealer, or the two parties with oblivious transfer.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import click
import numpy as np
from click.core import ParameterSource
from rich.console import Console
from rich.progress import track

from hdcos import nn
from hdcos.api.cost import PhaseCost
from hdcos.cli.common import compare_option, json_option, new_table, say, show
from hdcos.cli.networks import KERNEL, row_bytes, show_networks
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.local import local
from hdcos.errors import ModelError
from hdcos.link import Emulation
from hdcos.offline.ot import Traffic, traffic
from hdcos.protocol.catalogue import ACTIVATIONS, find
from hdcos.secure.calibrate import compare_by, intervals, state_intervals
from hdcos.secure.compile import compile_network
from hdcos.secure.estimate import DEALT_BYTE_S, ROUND_S, Cost, LayerCost, densify, estimate, ot_traffic, total
from hdcos.secure.labels import LABEL, LOGITS, plan_label
from hdcos.secure.program import plan_inference
from hdcos.secure.training.step import plan_step

REPEATS = 5
ROWS, COLUMNS = 128, 1024
ELEMENTS = ROWS * COLUMNS
TRANSFER_S = 40e-9
TRANSFER_BYTE_S = 4e-9
"""Making, sending and using one transfer, and each byte of payload, in either direction."""


@click.command(short_help="What private inference or training costs.")
@click.argument("name")
@click.option("--activation", default="cos", show_default=True, help="Activation of a ready model.")
@click.option("--structure", default="hadamard", show_default=True, help="Structure of its dense layers.")
@click.option("--batch", type=click.IntRange(1, 65536), default=1, show_default=True, help="Rows of a batch.")
@click.option("--train", is_flag=True, help="Plan training instead: a step on a batch, and an epoch.")
@click.option("--rows", type=click.IntRange(1), default=60_000, show_default=True, help="Rows of an epoch of training.")
@click.option("--label", is_flag=True, help="Of labels, found on shares, instead of logits.")
@click.option("--measure", is_flag=True, help="Run it, too, and print what the meters saw.")
@compare_option
@json_option
@click.option("--rtt-ms", type=click.FloatRange(min=0), default=0.0, help="Emulate this round-trip time.")
@click.option("--mbps", type=click.FloatRange(min=0, min_open=True), help="Emulate this rate, in Mbit/s.")
def cost(
    name: str,
    activation: str,
    structure: str,
    batch: int,
    train: bool,
    rows: int,
    label: bool,
    measure: bool,
    compare: str | None,
    as_json: bool,
    rtt_ms: float,
    mbps: float | None,
) -> None:
    """What private inference with NAME costs: a ready model or a model file. `networks` compares the ready
    models, `activations` the activations.

    Material is planned for both sources side by side: from a dealer, and made by the two parties themselves. That of
    comparisons comes from a dealer alone.
    """
    context = click.get_current_context()
    given = [
        f"--{option}"
        for option in ("activation", "structure", "batch", "train", "rows", "label", "measure", "compare")
        if context.get_parameter_source(option) is not ParameterSource.DEFAULT
    ]
    fixed = [option for option in given if option in ("--activation", "--structure")]
    if name in ("activations", "networks") and given:
        raise click.UsageError(f"`hdcos cost {name}` has no {', '.join(given)}")
    if fixed and name not in nn.models.READY:
        raise click.UsageError(f"{', '.join(fixed)}: only for ready models ({', '.join(nn.models.READY)})")
    if train and measure:
        raise click.UsageError("--train plans, it does not --measure")
    if train and label:
        raise click.UsageError("--label is about predictions: use it without --train")
    if "--rows" in given and not train:
        raise click.UsageError("--rows are those of an epoch: use it with --train")
    network = Emulation(rtt_ms, mbps)
    if name == "activations":
        show_activations(network, as_json)
        return
    if name == "networks":
        show_networks(as_json)
        return
    model = compare_by(find_model(name, activation, structure, ("networks", "activations")), compare)
    if train:
        show_training_cost(name, model, batch, rows, network, as_json)
    else:
        show_model_cost(name, model, batch, network, as_json, measure, LABEL if label else LOGITS)


def find_model(name: str, activation: str, structure: str, others: Sequence[str] = ()) -> nn.Network:
    """A ready model by name, or a saved one by its file; an error also lists what else a command takes."""
    if name in nn.models.READY:
        return nn.models.READY[name](activation=activation, structure=structure)
    if name == KERNEL:
        return nn.models.kernel_machine()
    if name in nn.models.PRETRAINED:
        return nn.models.pretrained(name)
    if Path(name).exists():
        return nn.load(name)
    known = ", ".join([*nn.models.READY, KERNEL, *nn.models.PRETRAINED])
    raise ModelError(f"no ready model or file is called {name!r}: choose from {', '.join([known, *others])}")


# ---- activations


@dataclass(frozen=True)
class ActivationCost:
    """One activation, run for real on shared inputs."""

    activation: str
    paper_rounds: int | None
    rounds: int
    bytes_per_element: float
    offline_bytes_per_element: float
    parties_bytes_per_element: float
    """Traffic of material that the parties make themselves, both directions together; planned."""
    max_abs_error: float
    interval: tuple[float, float]
    ms: float


def measure_activation(cluster: Cluster, name: str) -> ActivationCost:
    """Run one activation on 131,072 shared values; the time is the median of the online phases."""
    function = find(name)
    assert function.interval is not None
    generator, costs, errors = np.random.default_rng(0), [], []
    cluster.reset_cost()
    with cluster.function(name, (ROWS, COLUMNS)) as private:
        private.prepare(REPEATS)
        offline = sum(cluster.cost.offline.bytes_sent)
        for _ in range(REPEATS):
            x = generator.uniform(*function.interval, size=(ROWS, COLUMNS))
            cluster.reset_cost()
            y = private(x)
            costs.append(cluster.cost.online)
            errors.append(float(np.abs(y - function.meaning(x)).max()))
    return ActivationCost(
        name,
        function.paper_rounds,
        sum(cost.rounds for cost in costs) // REPEATS,
        sum(cost.bytes_sent[0] for cost in costs) / (REPEATS * ELEMENTS),
        offline / (REPEATS * ELEMENTS),
        traffic(private.planned.material).bytes / ELEMENTS,
        max(errors),
        function.interval,
        1e3 * median(cost.seconds for cost in costs),
    )


def measure_activations(cluster: Cluster, show_progress: bool = False) -> Iterator[ActivationCost]:
    console = Console(stderr=True)
    for name in track(ACTIVATIONS, "Measuring", transient=True, console=console, disable=not show_progress):
        yield measure_activation(cluster, name)


def show_activations(network: Emulation, as_json: bool) -> None:
    """Run every activation on shared inputs: rounds, bytes, error and time."""
    with local(rtt_ms=network.rtt_ms, mbps=network.mbps) as cluster:
        rows = list(measure_activations(cluster, show_progress=sys.stderr.isatty()))
        round_trip_ms = cluster.round_trip_s() * 1e3
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=1))
        return
    table = new_table(
        *("\nactivation", "paper's\nrounds", "\nrounds", "online\nbytes", "offline\nbytes", "without\ndealer"),
        *("largest\nerror", "\non", "\nms"),
        title=f"Activations on secret shares, between two processes over TLS: bytes per element, ms for {ELEMENTS:,}",
    )
    for row in rows:
        low, high = row.interval
        table.add_row(
            row.activation,
            "-" if row.paper_rounds is None else str(row.paper_rounds),
            str(row.rounds),
            f"{row.bytes_per_element:.4g}",
            f"{row.offline_bytes_per_element:.4g}",
            f"{row.parties_bytes_per_element:.4g}",
            f"{row.max_abs_error:.1e}",
            f"[{low:g}, {high:g}]",
            f"{row.ms:.2f}",
        )
    show(table)
    click.echo(
        "Online bytes are sent by each party to the other, offline bytes by the dealer;\n"
        "without a dealer they are what the parties say to each other in all, as planned.\n"
        "Errors are against float64. Times are online phases, with material made before;\n"
        f"an empty exchange both ways took {round_trip_ms:.3f} ms."
    )


# ---- inference


@dataclass(frozen=True)
class Measured:
    """A batch as the meters saw it: by step online, in all offline."""

    steps: dict[str, Cost]
    online: Cost
    offline: Cost


def measure_model(
    model: nn.Network, batch: int, network: Emulation, dealer: bool = True, output: str = LOGITS
) -> Measured:
    """Run a batch for real on three processes, or two without a dealer; times are medians."""
    x = np.random.default_rng(0).uniform(0, 1, (batch, *model.input_shape))
    with local(dealer, rtt_ms=network.rtt_ms, mbps=network.mbps) as cluster:
        private = cluster.share(state_intervals(model))  # nobody looks at the results
        cluster.reset_cost()
        private.prepare(batch * REPEATS, output=output)
        offline = cluster.cost.offline
        costs = []
        for _ in range(REPEATS):
            cluster.reset_cost()
            private.predict(x, batch_rows=batch, mode="masked", output=output)
            costs.append(cluster.cost)
    last = costs[-1]
    steps = {
        step.name: _amount(step.online, median(cost.layers[index].online.seconds for cost in costs))
        for index, step in enumerate(last.layers)
    }
    received, on_wire = sum(offline.bytes_sent) // REPEATS, sum(offline.wire_bytes_sent) // REPEATS
    return Measured(
        steps,
        _amount(last.online, median(cost.online.seconds for cost in costs)),
        Cost(0, received, on_wire, offline.seconds / REPEATS),
    )


def _amount(phase: PhaseCost, seconds: float) -> Cost:
    return Cost(phase.rounds, phase.bytes_sent[0], phase.wire_bytes_sent[0], seconds)


def show_model_cost(
    name: str,
    model: nn.Network,
    batch: int,
    network: Emulation,
    as_json: bool = False,
    measured: bool = False,
    output: str = LOGITS,
) -> None:
    """What inference costs, layer by layer, beside the same network with dense layers, and its material."""
    layers, (series, _) = estimate(model, batch, network=network, output=output), intervals(model)
    seen = measure_model(model, batch, network, output=output) if measured else None
    sources, whole = inference_sources(model, batch, network, output), total(layers)
    if as_json:
        record: dict[str, Any] = {
            "layers": [asdict(layer) for layer in layers],
            "total": {"online": asdict(whole.online), "offline": asdict(whole.offline)},
            "sources": [asdict(cost) for cost in sources],
            "series": [asdict(each) for each in series],
        }
        click.echo(json.dumps(record if seen is None else {**record, "measured": asdict(seen)}, indent=1))
        return
    dense = total(estimate(densify(model), batch, network=network, output=output))
    _print_layers(f"{name}, batch of {batch}, {model.parameter_count:,} parameters", [*layers, whole], dense)
    click.echo(f"Its owner sends a row to each party in {row_bytes(model):,} bytes.")
    if seen is not None:
        _print_measured(seen)
    for each in series:
        say(f"Series of {each}.")
    show_sources(f"Material of {batch} row{'s' if batch > 1 else ''}", sources)
    if measured and len(sources) > 1:
        made = measure_model(model, batch, network, dealer=False).offline
        several = inference_sources(model, REPEATS * batch, network)[1].bytes // REPEATS
        say(
            f"Made by the two parties for {REPEATS} batches at once: {made.bytes_sent:,} bytes a batch, "
            f"{several:,} planned, and {made.seconds * 1e3:.2f} ms."
        )


def _print_layers(title: str, layers: list[LayerCost], dense: LayerCost) -> None:
    headings = ["\nlayer", "secure\nproducts", "\nrounds", "online\nbytes", "\n~ms", "offline\nbytes", "\n~ms"]
    table = new_table(*headings, title=title)
    for name, layer in [*((layer.name, layer) for layer in layers), ("the same, dense", dense)]:
        row = [name, f"{layer.multiplications:,}", str(layer.online.rounds), f"{layer.online.bytes_sent:,}"]
        table.add_row(*row, _ms(layer.online), f"{layer.offline.bytes_sent:,}", _ms(layer.offline))
    show(table)
    click.echo("Online bytes are sent by each party to the other; times are estimates.")


def _print_measured(seen: Measured) -> None:
    table = new_table("layer", "rounds", "online bytes", "ms", title="Measured between two processes")
    for name, amount in [*seen.steps.items(), ("total", seen.online)]:
        table.add_row(name, str(amount.rounds), f"{amount.bytes_sent:,}", _ms(amount))
    show(table)
    click.echo(f"Offline: {seen.offline.bytes_sent:,} bytes and {seen.offline.seconds * 1e3:.2f} ms a batch.")


def _ms(amount: Cost) -> str:
    return f"{amount.seconds * 1e3:.2f}"


# ---- material, and training


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


def inference_sources(model: nn.Network, rows: int, network: Emulation, output: str = LOGITS) -> list[SourceCost]:
    """The material of some rows of inference; only a dealer makes that of comparisons."""
    planned = plan_inference(compile_network(model))
    plans = [planned.material]
    if output == LABEL and (compared := plan_label(planned.result, has_dealer=True)) is not None:
        plans.append(compared.material)
    sources = [from_dealer(sum(plan.sent_bytes(rows) for plan in plans), network)]
    if not any(need.kind.dealer_only for plan in plans for need in plan.needs):
        sources.append(from_parties(ot_traffic(compile_network(model, dealer=False), rows), network))
    return sources


def show_sources(title: str, costs: list[SourceCost]) -> None:
    table = new_table("made by", "bytes in all", "exchanges", "seconds, about", title=title)
    for cost in costs:
        table.add_row(cost.source, f"{cost.bytes:,}", f"{cost.exchanges:,}", f"{cost.seconds:.3g}")
    show(table)


def show_training_cost(name: str, model: nn.Network, batch: int, rows: int, network: Emulation, as_json: bool) -> None:
    """One step of training and one epoch: online, and the material from either source."""
    planned = plan_step(model, batch)
    steps, material = rows // batch, planned.material
    step = [from_dealer(material.sent_bytes(1), network)]
    if not any(need.kind.dealer_only for need in material.needs):
        step.append(from_parties(traffic(material, 1), network))
    epoch = [SourceCost(cost.source, cost.bytes * steps, cost.exchanges * steps, cost.seconds * steps) for cost in step]
    if as_json:
        online = {"rounds": planned.rounds, "bytes_each_way": planned.online_bytes}
        record = {"online": online, "step": [asdict(cost) for cost in step], "epoch": [asdict(cost) for cost in epoch]}
        click.echo(json.dumps({"batch": batch, "steps": steps, **record}, indent=1))
        return
    click.echo(f"A step on {batch} rows: {planned.rounds} rounds, {planned.online_bytes:,} bytes online each way.")
    show_sources(f"Material of a step of {name}", step)
    show_sources(f"Material of an epoch of {rows:,} rows, {steps:,} steps", epoch)
