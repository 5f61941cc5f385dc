"""`hdcos prepare FILE`: fit a preparation to a file's rows, or together with other owners of rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from hdcos.cli import common
from hdcos.cli.columns import keep_preparation, preparation_of
from hdcos.cli.remote import Reach, reach_cluster
from hdcos.cluster.contribution import NOT_WITHDRAWN, WAIT_S, Contribution
from hdcos.errors import InputError
from hdcos.tables.columns import Columns
from hdcos.tables.preparation import Preparation
from hdcos.tables.statistics import terms


@click.command(short_help="Fit a preparation, alone or with other owners of rows.")
@click.argument("file", type=common.FILE)
@click.option("--columns", required=True, type=common.FILE, help="What the columns are: the same file at all owners.")
@click.option("--with", "name", default=None, help="What the owners agreed to call it; alone, without.")
@click.option("--owners", type=click.IntRange(2), default=None, help="How many owners there are.")
@click.option("--client", "clients", multiple=True, help="Who they are, by the parties' names for them: no others.")
@click.option("--output", type=common.NEW_FILE, help="Where the preparation is written [FILE.preparation.json].")
@click.option("--wait-s", default=WAIT_S, show_default=True, help="How long to wait for the other owners.")
@click.option("--collect", is_flag=True, help="You contributed before: only wait for the result.")
@click.option("--withdraw", is_flag=True, help="You contributed before: take it back.")
@reach_cluster
def prepare(
    reach: Reach,
    file: Path,
    columns: Path,
    name: str | None,
    owners: int | None,
    clients: tuple[str, ...],
    output: Path | None,
    wait_s: float,
    collect: bool,
    withdraw: bool,
) -> None:
    """Fit a preparation to the rows of FILE (CSV or Parquet), and write it where `hdcos upload --preparation` and
    `hdcos predict --preparation` find it. Without --with nothing leaves this machine.

    With --with NAME --owners N several owners of rows do it together: each of them runs this command with the same
    columns. Sums over the rows go to the two parties as shares; who contributed is told the totals, when all have.
    Between two owners, the totals tell each the other one's means and deviations.
    """
    place = output or preparation_of(file)
    common.check_output(place, file, columns)
    declared = Columns.read(columns)
    if name is None:
        if owners or clients or collect or withdraw:
            raise click.UsageError("--owners, --client, --collect and --withdraw are for a common preparation: --with")
        keep_preparation(Preparation.fit(file, declared), place)
        return
    if place.exists():
        raise InputError(f"{place} is there already, and models may need it: name another (--output), or remove it")
    owners = owners or len(clients) or None
    if owners is None and not (collect or withdraw):
        raise click.UsageError("how many owners are there? --owners N, or --client for each")
    made_part: list[Contribution] = []
    common.if_interrupted(lambda: _next_steps(made_part))
    with reach() as cluster:
        if collect or withdraw:
            part = Contribution.made_before(cluster.transport, declared, name)
            if withdraw:
                part.withdraw()
                click.echo(f"your contribution to {name} was withdrawn")
                return
        else:
            with common.about(file):
                part = cluster.contribute(file, declared, name=name, owners=owners or 0, clients=clients)
            told = len(terms(declared))
            click.echo(f"{name}: {told} sums over your rows went out as shares; waiting for {owners} owners", err=True)
        made_part.append(part)
        with _waiting(name):
            made = part.preparation(wait_s)
    keep_preparation(made, place)


def _next_steps(parts: list[Contribution]) -> str:
    """What to do after Ctrl-C."""
    if parts and not parts[0].withdrawn:
        return f"Your contribution could not be withdrawn: {NOT_WITHDRAWN}."
    return "Nothing of your rows is left at the parties: run the command again."


@contextmanager
def _waiting(name: str) -> Iterator[None]:
    """Something that moves on a terminal while others are waited for."""
    from rich.console import Console

    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(f"waiting for the other owners of {name}"):
        yield
