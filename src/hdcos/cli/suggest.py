"""`hdcos suggest FILE --label COLUMN --output CONFIG.toml`: settings of training, tried in plaintext on your own rows.

Security  everything is computed here and nothing leaves: see `hdcos.suggest`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import click
import numpy as np

from hdcos.cli import common
from hdcos.cli.remote import features_option, file_argument
from hdcos.data.tables import read_pieces
from hdcos.errors import InputError
from hdcos.files import write_whole
from hdcos.ring import Array
from hdcos.secure.training.plan import LOSSES
from hdcos.suggest import Suggestion, find_settings, render
from hdcos.suggest.search import MOST_ROWS


@click.command(short_help="Try settings of training on your own rows.")
@file_argument
@click.option("--label", metavar="COLUMN", required=True, help="The column with labels, or numbers to be guessed.")
@features_option
@click.option("--loss", type=click.Choice(LOSSES), help="squared for a regression; else as the labels are.")
@click.option("--output", type=common.NEW_FILE, help="The configuration; else the terminal.")
@click.option("--budget-s", default=60.0, show_default=True, help="How long it may take, about.")
@click.option("--seed", default=0, show_default=True, help="Of samples, networks and batches.")
@common.json_option
def suggest(
    file: Path,
    label: str,
    features: str | None,
    loss: str | None,
    output: Path | None,
    budget_s: float,
    seed: int,
    as_json: bool,
) -> None:
    """Try networks and settings of training on the rows of FILE, in plaintext on this machine, and write the
    configuration of the one that suits: `hdcos train CONFIG` runs it as it is.

    Of files with many rows a sample is taken. The configuration says which accuracy to expect, and what training and
    predictions cost on shares.
    """
    if output is not None:
        common.check_output(output)
    x, y, rows = _sample(file, label, features, seed)
    with common.about(file), _showing() as note:
        found = find_settings(x, y, loss, budget_s, seed, note)
    place = file if output is None else Path(os.path.relpath(file, output.parent))
    text = render(found, place, label, rows, features)
    if output is not None:
        write_whole(output, text.encode())
    if as_json:
        click.echo(json.dumps(_report(found, output)))
    elif output is None:
        click.echo(text, nl=False)
    else:
        _show(found)
        click.echo(f"the configuration was saved as {output}: run `hdcos train {output}`")


def _sample(file: Path, label: str, features: str | None, seed: int) -> tuple[Array, Array, int]:
    """Some rows of a file, each as likely as any other, their labels, and how many rows there are in all.

    Every row gets a random number, and those with the smallest are kept: one pass, in memory for a sample.
    """
    generator, count = np.random.default_rng(seed), 0
    keys, rows, labels = np.empty(0), None, np.empty(0)
    for piece in read_pieces(file, label, features):
        if piece.y is None:
            raise InputError(f"{file} has no labels {label!r}")
        if piece.x.ndim != 2:
            raise InputError(f"{file} holds rows of shape {piece.x.shape[1:]}: settings are tried on tables")
        keys = np.concatenate([keys, generator.random(len(piece))])
        rows = piece.x if rows is None else np.concatenate([rows, piece.x])
        labels, count = np.concatenate([labels, piece.y]), count + len(piece)
        if len(keys) > MOST_ROWS:
            kept = np.sort(np.argpartition(keys, MOST_ROWS)[:MOST_ROWS])
            keys, rows, labels = keys[kept], rows[kept], labels[kept]
    assert rows is not None  # a file without rows was refused
    return rows, labels, count


@contextmanager
def _showing() -> Iterator[Callable[[int, int, str], None]]:
    """A bar on a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, of, what: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(30),
        TextColumn("{task.completed}/{task.total}"),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("")
        yield lambda done, of, what: bar.update(task, completed=done, total=of, description=what)


def _report(found: Suggestion, output: Path | None) -> dict[str, object]:
    def one(number: int) -> dict[str, object]:
        result = found.results[number]
        settings = {key: value for key, value in vars(result.candidate).items() if key != "price"}
        return {"score": result.score, "standard_error": result.error, "loss": result.loss, "settings": settings}

    chosen = found.results.index(found.chosen)
    return {
        **{"chosen": one(chosen), "score": "rmse" if found.regression else "accuracy", "rows": found.rows},
        **{"folds": found.folds, "tried": found.tried, "skipped": found.skipped},
        **{"results": [one(number) for number in range(len(found.results))], "config": output and str(output)},
    }


def _show(found: Suggestion) -> None:
    what = "RMSE" if found.regression else "accuracy"
    table = common.new_table("network", what, "std. error", "rate", "decay", "epochs", "rounds")
    for result in found.results:
        known = result.candidate
        score = f"{result.score:.4g}" if found.regression else f"{result.score:.2%}"
        error = f"{result.error:.2g}" if found.regression else f"{result.error:.2%}"
        mark = " (chosen)" if result is found.chosen else ""
        settings = (f"{known.lr:g}", f"{known.weight_decay:g}", str(known.epochs), str(known.price.online.rounds))
        table.add_row(known.kind + mark, score, error, *settings)
    common.show(table)
