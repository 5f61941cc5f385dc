"""Commands for what the parties keep: datasets, forget."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import click

from hdcos.cli import common
from hdcos.cli.remote import Reach, day, reach_cluster
from hdcos.cluster.connect import open_transport
from hdcos.cluster.forgetting import forget as forget_at_both
from hdcos.errors import DataMissing, InputError


@click.command(short_help="Data sets that you may train on.")
@click.argument("name", required=False)
@click.option("--allow", multiple=True, metavar="CLIENT", help="Let this client train on NAME, and so learn of it.")
@common.json_option
@reach_cluster
def datasets(reach: Reach, name: str | None, allow: tuple[str, ...], as_json: bool) -> None:
    """Data sets that you may train on, yours and others', or those called NAME; --allow lets others train on yours."""
    if allow and name is None:
        raise click.UsageError("which data set may they train on? `hdcos datasets NAME --allow CLIENT`")
    with reach() as cluster:
        for client in allow:
            cluster.allow_training(str(name), client)
        found = [item for item in cluster.datasets() if name in (None, item["name"], f"{item['owner']}/{item['name']}")]
    if name is not None and not found:
        raise InputError(f"no data set that you may train on is called {name}: `hdcos datasets` lists them")
    if as_json:
        click.echo(json.dumps(found))
        return
    table = common.new_table("name", "owner", "allowed", "version", "rows", "columns", "labels", "expires", texts=3)
    for item in found:
        rows = f"{item['rows']:,}" if item["complete"] else "incomplete"
        labels = "yes" if item["outputs"] else "no"
        allowed = ", ".join(item["allowed"]) or "-"
        sizes = (str(item["number"]), rows, str(item["features"]), labels)
        table.add_row(item["name"], item["owner"], allowed, *sizes, day(item["expires"]))
    common.show(table)


@click.command(short_help="Have both parties forget something.")
@click.argument("name")
@click.option("--data", "kind", flag_value="data set", help="NAME is a data set of yours, not a model.")
@click.option("--model", "kind", flag_value="model", help="NAME is a model.")
@click.option("--cluster", envvar="HDCOS_CLUSTER", help="The cluster file; $HDCOS_CLUSTER otherwise.")
@common.token_option
@click.option("--timeout-s", default=30.0, show_default=True, help="How long a party may take.")
def forget(name: str, kind: str | None, cluster: str | None, token_file: Path | None, timeout_s: float) -> None:
    """Have both parties forget a data set of yours, a model, or a job that has ended, and all that is left of it but
    ledgers. NAME is its name, or the id of a job.

    A party that is away is named: say it again when it is back. A name of which neither party has anything is an error.
    """
    secret = common.read_secret(token_file) if token_file else None
    with closing(open_transport(cluster, secret, timeout_s, greet=False)) as transport:
        done = forget_at_both(transport, name, kind)
    if not done.parties:
        what = "model" if kind == "model" else "data set of yours" if kind else "data set of yours, model or job"
        raise DataMissing(
            f"no {what} is called {name} at either party: `hdcos datasets`, `hdcos models` and `hdcos jobs` list them"
        )
    click.echo(done)
