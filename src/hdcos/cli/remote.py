"""Commands for clients of a cluster: share-model, upload, reveal, deal, models, jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Any

import click

from hdcos import nn
from hdcos.cli import common
from hdcos.cli.columns import find_preparation
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.connect import connect
from hdcos.data.tables import Table, read_pieces, read_table
from hdcos.errors import InputError
from hdcos.join.rows import JoinedRows
from hdcos.secure.labels import LABEL, LOGITS
from hdcos.secure.training.plan import LOSSES
from hdcos.tables.preparation import PreparedRows

file_argument = click.argument("file", type=common.FILE)
features_option = click.option("--features", default=None, help="The array of an NPZ file that holds the rows.")
Reach = Callable[[], Cluster]


def reach_cluster(command: Callable[..., None]) -> Callable[..., None]:
    """A command that talks to a cluster. It gets a way to reach it, to be used when its own files have been read."""

    @click.option("--cluster", envvar="HDCOS_CLUSTER", help="The cluster file; $HDCOS_CLUSTER otherwise.")
    @common.token_option
    @click.option("--timeout-s", default=30.0, show_default=True, help="How long a party may take.")
    @wraps(command)
    def wrapped(cluster: str | None, token_file: Path | None, timeout_s: float, **options: Any) -> None:
        secret = common.read_secret(token_file) if token_file else None  # connect looks into $HDCOS_TOKEN
        command(lambda: connect(cluster, secret, timeout_s=timeout_s), **options)

    return wrapped


@click.command("share-model", short_help="Split a model between the parties.")
@file_argument
@click.option("--name", required=True, help="What the parties call the model.")
@click.option(
    "--calibrate",
    type=common.FILE,
    help="Rows of the kind it will meet: here, in plaintext, they show which intervals its series need.",
)
@click.option("--label", default=None, help="A column of those rows to leave out.")
@features_option
@common.compare_option
@reach_cluster
def share_model(
    reach: Reach,
    file: Path,
    name: str,
    calibrate: Path | None,
    label: str | None,
    features: str | None,
    compare: str | None,
) -> None:
    """Split the model in FILE (saved by `model.save`) between the parties. An older one of that name is replaced.

    tanh, sigmoid, expm1, GELU, SiLU and Softplus are computed as series, right on an interval alone; --calibrate
    chooses the intervals, which are public, by what the rows bring, and shows what they cost.
    """
    model = nn.load(file)
    rows = None
    if calibrate is not None:
        table = read_table(calibrate, label, features)
        with common.about(calibrate):
            rows = model.rows(table)
    with reach() as cluster:
        private = cluster.share(model, name, rows, compare=compare)
        held = next(item for item in cluster.models() if item["name"] == name)
    if private.calibration is not None and not sys.stderr.isatty():
        click.echo(private.calibration)
    ahead, used = private.rounds["masked"], f", {held['queries']:,} are answered" if held["queries"] else ""
    click.echo(f"{name} is ready, {_rounds(private.rounds['shares'])} per prediction ({ahead} for rows masked ahead)")
    click.echo(
        f"The parties answer {held['queries_allowed']:,} rows of it in all, for all clients together{used}; operators "
        f"can change that (`hdcos quota`)"
    )


def _rounds(number: int) -> str:
    return f"{number} round{'s' if number != 1 else ''}"


@click.command(short_help="Split the rows of a file between the parties.")
@file_argument
@click.option("--name", required=True, help="What the parties call the rows.")
@click.option("--label", default=None, help="The column with the labels, if this owner has them.")
@features_option
@click.option("--outputs", type=int, help="Of the network to be trained: 1 for two classes, which is the default.")
@click.option("--loss", type=click.Choice(LOSSES), help="Of the training to come: squared for a regression.")
@click.option("--allow", multiple=True, help="Another client that may train on it, and so find out any row.")
@click.option("--join", "joined", type=common.FILE, help="What `hdcos join` wrote: upload those rows, in that order.")
@click.option("--keep-days", type=click.FloatRange(0, min_open=True), help="Then it is removed; else as operators say.")
@click.option("--columns", type=common.FILE, help="What the columns are: a TOML file (`hdcos columns FILE` shows one).")
@click.option(
    "--preparation",
    type=common.NEW_FILE,
    help="What `hdcos prepare` made; with --columns, where what is fitted here is written [FILE.preparation.json].",
)
@reach_cluster
def upload(
    reach: Reach,
    file: Path,
    name: str,
    label: str | None,
    features: str | None,
    outputs: int | None,
    loss: str | None,
    allow: tuple[str, ...],
    joined: Path | None,
    keep_days: float | None,
    columns: Path | None,
    preparation: Path | None,
) -> None:
    """Split the rows of FILE between the parties, who keep their shares under a NAME. A NAME that you used before gets
    a new version.

    CSV, Parquet and NPY files are read piece by piece and may be larger than memory.

    With --columns or --preparation FILE is a table of any columns, CSV or Parquet. Features are made of it here, by
    what its own rows say, or by what several owners prepared together; the label is the one that is declared. Keep the
    file of the preparation: predictions need it.
    """
    taken = None if joined is None else JoinedRows.read(joined)
    prepared = None
    if columns is not None or preparation is not None:
        if label is not None or features is not None:
            raise click.UsageError("the declaration of columns says which one is the label: leave --label out")
        prepared = find_preparation(file, columns, preparation)

    def pieces() -> Iterator[Table | PreparedRows]:
        if prepared is not None:
            return prepared.pieces(file, labels=True)
        return read_pieces(file, label, features, () if taken is None else taken.columns)

    labelled = next(pieces()).y is not None  # what is wrong with all of it is said before anybody is asked
    if taken is not None:
        taken.check(file)
    known: dict[str, Any] = {"outputs": outputs, "loss": loss, "keep_days": keep_days, "preparation": prepared}
    with reach() as cluster:
        with common.about(file):
            if taken is None:
                rows = cluster.upload(file, name=name, label=label, features=features, **known)
            else:
                rows = cluster.upload(taken.pieces(pieces()), name=name, join=taken.join, **known)
        for client in allow:
            cluster.allow_training(name, client)
        kept = next(item for item in reversed(cluster.datasets()) if item["own"] and item["name"] == name)
    click.echo(f"{name}: {rows} rows{' with labels' if labelled else ''}")
    if (number := kept["number"]) > 1:
        click.echo(f"This is version {number}: jobs that began with version {number - 1} keep it until they end.")
    if kept["expires"]:
        click.echo(f"It is removed on {day(kept['expires'])}.")


def day(moment: float) -> str:
    """A time in seconds since 1970, for people; "-" for none."""
    return datetime.fromtimestamp(moment, UTC).strftime("%Y-%m-%d") if moment else "-"


@click.command(short_help="Ask for a model in plaintext.")
@click.argument("model")
@click.option("--output", required=True, type=common.NEW_FILE, help="Where it is saved.")
@click.option("--request", default=None, help="A reveal that was asked for before.")
@click.option("--wait-s", default=2.0, show_default=True, help="How long to wait for the operators.")
@reach_cluster
def reveal(reach: Reach, model: str, output: Path, request: str | None, wait_s: float) -> None:
    """Ask both operators for MODEL in plaintext, and save it."""
    common.check_output(output)
    with reach() as cluster:
        cluster.model(model).reveal(wait_s, request).save(output)
    click.echo(f"{model} was revealed to you and saved as {output}")


@click.command(short_help="Have material made ahead.")
@click.argument("model")
@click.option("--rows", required=True, type=click.IntRange(1), help="How many.")
@click.option("--label", is_flag=True, help="Also what finds their labels.")
@reach_cluster
def deal(reach: Reach, model: str, rows: int, label: bool) -> None:
    """Have material for a number of rows of MODEL kept available."""
    with reach() as cluster:
        private = cluster.model(model)
        private.keep_ahead(rows, LABEL if label else LOGITS)
        click.echo(f"{model}: material for {private.stock} rows now")


@click.command()
@common.json_option
@reach_cluster
def models(reach: Reach, as_json: bool) -> None:
    """Models that the parties hold."""
    with reach() as cluster:
        found = cluster.models()
    if as_json:
        click.echo(json.dumps(found))
        return
    table = common.new_table("name", "version", "ready", "rows answered", "error", texts=5)
    table.columns[1].no_wrap = True
    for item in found:
        answered = f"{item['queries']} of {item['queries_allowed']}"
        table.add_row(item["name"], item["version"], str(item["ready"]), answered, item["error"])
    common.show(table)


@click.command()
@click.argument("job", required=False)
@click.option("--cancel", is_flag=True, help="End the job.")
@common.json_option
@reach_cluster
def jobs(reach: Reach, job: str | None, cancel: bool, as_json: bool) -> None:
    """Your training jobs, or one of them."""
    if cancel and job is None:
        raise click.UsageError("which job is to be cancelled? `hdcos jobs` lists them")
    with reach() as cluster:
        if cancel:
            cluster.job(str(job)).cancel()
        found = [item for item in cluster.jobs() if job in (None, item["id"])]
    if job is not None and not found:
        raise InputError(f"you have no job {job}: `hdcos jobs` lists them")
    if as_json:
        click.echo(json.dumps(found))
        return
    table = common.new_table("id", "model", "state", "steps", texts=3)
    table.columns[0].no_wrap = True
    for item in found:
        table.add_row(item["id"], item["model"], item["state"], f"{item['step']}/{item['total_steps']}")
    common.show(table)
    for item in found:
        if item["error"]:
            common.say(f"{item['id']}: {item['error']}")
