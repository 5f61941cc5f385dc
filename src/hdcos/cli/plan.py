"""`hdcos plan`: what a load of predictions, or a run of training, needs of each organisation.

It simulates clusters over costs that were measured (hdcos.planning); the output says where.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from hdcos import nn
from hdcos._version import __version__
from hdcos.cli.common import FILE, NEW_FILE, check_output, json_option, new_table, show
from hdcos.cli.cost import find_model
from hdcos.errors import InputError
from hdcos.link import Emulation
from hdcos.planning.figures import Figures, read_figures
from hdcos.planning.measure import check_machine, describe_machine, measure_network, measure_requests
from hdcos.planning.needs import Need
from hdcos.planning.prices import Prices
from hdcos.planning.serving import Load
from hdcos.planning.serving_plan import ServingPlan, plan_serving
from hdcos.planning.training_plan import Run, TrainingPlan, plan_training

OF_SERVING = ("rows_per_request", "models", "p99_ms")
OF_TRAINING = ("epochs", "batch", "hours")
WRITTEN = Path("hdcos-figures.json")
WHOLE, POSITIVE = click.IntRange(1), click.FloatRange(min=0, min_open=True, max=1e9)


@click.command(short_help="What a load of predictions or a run of training needs.")
@click.argument("model")
@click.option("--rows-per-second", type=POSITIVE, help="Predictions to serve.")
@click.option("--rows-per-request", type=WHOLE, default=1, show_default=True, help="Rows of a request.")
@click.option("--models", type=click.IntRange(1, 1000), default=1, show_default=True, help="Such models.")
@click.option("--p99-ms", type=POSITIVE, help="How long 99 of 100 requests may take at most.")
@click.option("--train", "train_rows", type=WHOLE, metavar="ROWS", help="Plan training on this many rows instead.")
@click.option("--epochs", type=WHOLE, default=1, show_default=True, help="Epochs of training.")
@click.option("--batch", type=WHOLE, default=2048, show_default=True, help="Rows of a step of training.")
@click.option("--hours", type=POSITIVE, help="How long training may take.")
@click.option("--pairs", type=click.IntRange(1, 65536), help="Plan for this many pairs of workers, not for the fewest.")
@click.option("--rtt-ms", type=click.FloatRange(0, 1e6), default=0.0, help="Round-trip time between organisations.")
@click.option("--mbps", type=POSITIVE, help="Rate of each line between them, in Mbit/s; unlimited otherwise.")
@click.option("--prices", "prices_file", type=FILE, help="A TOML file of prices: core_hour, gb_hour, gb_out, currency.")
@click.option("--figures", "figures_file", type=NEW_FILE, help="The file of measured figures to use, or to write.")
@click.option("--measure", is_flag=True, help="Measure this model on this machine first, for about a minute.")
@json_option
def plan(
    model: str,
    rows_per_second: float | None,
    rows_per_request: int,
    models: int,
    p99_ms: float | None,
    train_rows: int | None,
    epochs: int,
    batch: int,
    hours: float | None,
    pairs: int | None,
    rtt_ms: float,
    mbps: float | None,
    prices_file: Path | None,
    figures_file: Path | None,
    measure: bool,
    as_json: bool,
) -> None:
    """What MODEL, a ready model or a model file, needs of each organisation: pairs of workers, dealers, cores, memory
    and Gbit/s, with the latency to expect and what limits it.

    It simulates arrivals, batches, rounds and material over costs that were measured: those that come with hdcos, for
    ready models, or your own (--measure, --figures).
    """
    _check_options(rows_per_second, train_rows, measure)
    network, chosen = find_model(model, "cos", "hadamard"), Emulation(rtt_ms, mbps)
    prices = None if prices_file is None else Prices.read(prices_file)
    if measure:
        figures_file = figures_file or WRITTEN
        figures = _measure(model, network, figures_file)
    else:
        figures = read_figures(figures_file)
    source = f"measured on {figures.machine} ({figures_file or 'the figures that come with hdcos'})"
    made: ServingPlan | TrainingPlan
    if train_rows is not None:
        made = plan_training(network, figures, Run(train_rows, epochs, batch), chosen, hours=hours, pairs=pairs)
        told, units = _tell_training(model, made), made.hours
    elif rows_per_second is not None:
        load = Load(rows_per_second / rows_per_request, rows_per_request, models)
        limit_s = None if p99_ms is None else p99_ms / 1e3
        made = plan_serving(network, figures, load, chosen, p99_s=limit_s, pairs=pairs)
        told, units = _tell_serving(model, made, load), 1e6 / rows_per_second / 3600
    else:
        click.echo(f"Costs of {model} were {source}.")
        return
    if as_json:
        priced = {} if prices is None else {"prices": _priced(prices, made.needs, units)}
        click.echo(json.dumps({**asdict(made), **priced, "figures": source}, indent=1))
        return
    _show_needs(made.needs, prices)
    for text in told:
        click.echo(click.wrap_text(text, 80))
    if prices is not None:
        total = _priced(prices, made.needs, units)["total"]
        what = "The run" if train_rows is not None else "A million rows"
        click.echo(f"{what}: {total:,.2f} {prices.currency}".rstrip() + ".")
    click.echo(click.wrap_text(f"Costs were {source}.", 80))


def _check_options(rows_per_second: float | None, train_rows: int | None, measure: bool) -> None:
    """What belongs to predictions is not said of training, and the other way round."""
    context = click.get_current_context()
    given = {name for name in context.params if context.get_parameter_source(name) is not ParameterSource.DEFAULT}
    if rows_per_second is None and train_rows is None and not measure:
        raise click.UsageError("say what to plan for: --rows-per-second, --train ROWS, or --measure to measure alone")
    if rows_per_second is not None and train_rows is not None:
        raise click.UsageError("--rows-per-second and --train are plans of their own: ask for one, then for the other")
    for needed, names in (("rows_per_second", OF_SERVING), ("train_rows", OF_TRAINING)):
        if context.params[needed] is None and (wrong := [_option(name) for name in names if name in given]):
            raise click.UsageError(f"{', '.join(wrong)}: use it with {_option(needed)}")


def _option(name: str) -> str:
    return "--train" if name == "train_rows" else f"--{name.replace('_', '-')}"


def _measure(name: str, network: nn.Network, path: Path) -> Figures:
    """Measure a network and keep its figures in a file, beside those of others that it has."""
    check_output(path)
    check_machine()
    machine, known = describe_machine(), read_figures(path) if path.exists() else None
    if known is not None and known.machine != machine:
        raise InputError(f"{path} was measured on {known.machine}, and this is {machine}: name another file")

    def say(text: str) -> None:
        click.echo(f"measuring {text} ...", err=True)

    if known is None:
        known = Figures(machine, __version__, measure_requests(say), {})
    figures = known.with_network(network, measure_network(Path(name).stem, network, say))
    figures.write(path)
    click.echo(f"the figures are in {path}: use them again with --figures {path}", err=True)
    return figures


# ---- tables


def _show_needs(needs: Sequence[Need], prices: Prices | None) -> None:
    priced = [] if prices is None else [f"{prices.currency}\nan hour".strip()]
    disk = any(need.disk_gb for need in needs)
    table = new_table(
        *("\norganisation", "\nworkers", "\ncores", "memory\nGB", "Gbit/s\nin", "Gbit/s\nout"),
        *(["disk\nGB"] if disk else []),
        *priced,
    )
    for need in needs:
        table.add_row(
            *(need.organisation, f"{need.workers:,}", f"{need.cores:,}", f"{need.memory_gb:,.1f}"),
            *(f"{need.gbit_in:,.3g}", f"{need.gbit_out:,.3g}"),
            *([f"{need.disk_gb:,.1f}"] if disk else []),
            *([] if prices is None else [f"{prices.hour(need):,.2f}"]),
        )
    show(table)


def _tell_serving(name: str, made: ServingPlan, load: Load) -> list[str]:
    pairs = f"{made.pairs:,} pair{'s' if made.pairs > 1 else ''}"
    dealers = f"{made.dealers:,} dealer{'s' if made.dealers > 1 else ''}"
    told = [
        f"{made.rows_per_s:,.0f} rows a second of {name}: {pairs} of workers, {dealers}.",
        f"Latency {made.p50_s * 1e3:,.3g} ms (p50), {made.p99_s * 1e3:,.3g} ms (p99); "
        f"{made.batch_rows:,.1f} rows in a batch.",
        f"At full load {made.full_rows_per_s:,.0f} rows a second. What limits: {made.limit}.",
        _time_goes_to(made.spent),
    ]
    if made.fronts > 1:
        told.append(
            f"Requests are {made.fronts} processes' work at each party; one takes them in at a time: "
            f"divide clients among {made.fronts} clusters, or ask for more rows at once."
        )
    return told


def _tell_training(name: str, made: TrainingPlan) -> list[str]:
    pairs = f"{made.pairs:,} pair{'s' if made.pairs > 1 else ''}"
    dealers = f"{made.dealers:,} dealer{'s' if made.dealers > 1 else ''}"
    return [
        f"{made.steps:,} steps of {made.batch:,} rows of {name}: {pairs} of workers, {dealers}.",
        f"{made.step_s * 1e3:,.3g} ms a step, {made.rows_per_s:,.0f} rows a second, {made.hours:,.3g} hours in all.",
        f"What limits: {made.limit}.",
        _time_goes_to(made.spent),
    ]


def _time_goes_to(spent: dict[str, float]) -> str:
    shown = ", ".join(f"{part} {share:.0%}" for part, share in spent.items() if share >= 0.005)
    return f"The time of a pair then goes to: {shown}."


def _priced(prices: Prices, needs: Sequence[Need], hours: float) -> dict[str, Any]:
    """What each organisation pays for an hour, and what all pay for this many."""
    by_hour = {need.organisation: prices.hour(need) for need in needs}
    return {"currency": prices.currency, "hour": by_hour, "total": hours * sum(by_hour.values())}
