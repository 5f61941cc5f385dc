"""`hdcos cost`: what private computation costs, measured by running it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median

import click
import numpy as np
from click.core import ParameterSource
from rich.console import Console
from rich.progress import track

from hdcos import nn
from hdcos.cli.model_cost import find_model, show_model_cost
from hdcos.cli.sources import show_training_cost
from hdcos.cli.tables import new_table, show
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.local import local
from hdcos.link import Emulation
from hdcos.offline.ot import traffic
from hdcos.protocol.catalogue import ACTIVATIONS, find

ROWS, COLUMNS = 128, 1024
ELEMENTS = ROWS * COLUMNS


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


def measure_activation(cluster: Cluster, name: str, repeats: int = 5, seed: int = 0) -> ActivationCost:
    """Run one activation on 131,072 shared values; the time is the median of the online phases."""
    function = find(name)
    assert function.interval is not None
    generator = np.random.default_rng(seed)
    errors, times = [], []
    cluster.reset_cost()
    with cluster.function(name, (ROWS, COLUMNS)) as private:
        private.prepare(repeats)
        total = cluster.cost
        offline = sum(total.offline.bytes_sent)
        rounds = online = 0
        for _ in range(repeats):
            x = generator.uniform(*function.interval, size=(ROWS, COLUMNS))
            cluster.reset_cost()
            y = private(x)
            spent = cluster.cost.online
            errors.append(float(np.abs(y - function.meaning(x)).max()))
            times.append(spent.seconds * 1e3)
            rounds, online = rounds + spent.rounds, online + spent.bytes_sent[0]
    return ActivationCost(
        name,
        function.paper_rounds,
        rounds // repeats,
        online / (repeats * ELEMENTS),
        offline / (repeats * ELEMENTS),
        traffic(private.planned.material).bytes / ELEMENTS,
        max(errors),
        function.interval,
        median(times),
    )


def measure_activations(cluster: Cluster, show_progress: bool = False) -> Iterator[ActivationCost]:
    console = Console(stderr=True)
    for name in track(ACTIVATIONS, "Measuring", transient=True, console=console, disable=not show_progress):
        yield measure_activation(cluster, name)


@click.command(short_help="What private inference or training costs.")
@click.argument("name")
@click.option("--activation", default="cos", show_default=True, help="Activation of a ready model.")
@click.option("--structure", default="hadamard", show_default=True, help="Structure of its dense layers.")
@click.option("--batch", type=click.IntRange(1, 65536), default=1, show_default=True, help="Rows of a batch.")
@click.option("--train", is_flag=True, help="Plan training instead: a step on a batch, and an epoch.")
@click.option("--rows", type=click.IntRange(1), default=60_000, show_default=True, help="Rows of an epoch of training.")
@click.option("--measure", is_flag=True, help="Run it, too, and print what the meters saw.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
@click.option("--rtt-ms", type=click.FloatRange(min=0), default=0.0, help="Emulate this round-trip time.")
@click.option("--mbps", type=click.FloatRange(min=0, min_open=True), help="Emulate this rate, in Mbit/s.")
def cost(
    name: str,
    activation: str,
    structure: str,
    batch: int,
    train: bool,
    rows: int,
    measure: bool,
    as_json: bool,
    rtt_ms: float,
    mbps: float | None,
) -> None:
    """What private inference with NAME costs: a ready model, a model file, or `activations` for their table.

    Material is planned for both sources side by side: from a dealer, and made by the two parties themselves.
    """
    context = click.get_current_context()
    given = [
        f"--{option}"
        for option in ("activation", "structure", "batch", "train", "rows", "measure")
        if context.get_parameter_source(option) is not ParameterSource.DEFAULT
    ]
    fixed = [option for option in given if option in ("--activation", "--structure")]
    if name == "activations" and given:
        raise click.UsageError(f"`hdcos cost activations` has no {', '.join(given)}")
    if fixed and name not in nn.models.READY:
        raise click.UsageError(f"{', '.join(fixed)} only apply to ready models: {', '.join(nn.models.READY)}")
    if train and measure:
        raise click.UsageError("--train plans, it does not --measure")
    if "--rows" in given and not train:
        raise click.UsageError("--rows are those of an epoch: use it with --train")
    if name == "activations":
        show_activations(as_json, rtt_ms, mbps)
    elif train:
        network = Emulation(rtt_ms, mbps)
        show_training_cost(name, find_model(name, activation, structure), batch, rows, network, as_json)
    else:
        show_model_cost(name, activation, structure, batch, Emulation(rtt_ms, mbps), as_json, measure)


def show_activations(as_json: bool, rtt_ms: float, mbps: float | None) -> None:
    """Run every activation on shared inputs: rounds, bytes, error and time."""
    with local(rtt_ms=rtt_ms, mbps=mbps) as cluster:
        rows = list(measure_activations(cluster, show_progress=sys.stderr.isatty()))
        round_trip_ms = cluster.round_trip_s() * 1e3
    if as_json:
        click.echo(json.dumps([asdict(row) for row in rows], indent=1))
    else:
        _print_table(rows, round_trip_ms)


def _print_table(rows: list[ActivationCost], round_trip_ms: float) -> None:
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
        "Errors are against float64. Times are online phases, material in stock;\n"
        f"an empty exchange both ways took {round_trip_ms:.3f} ms."
    )
