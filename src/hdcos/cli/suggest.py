"""`hdcos suggest FILE --output CONFIG.toml`: settings of training, tried in plaintext on your own rows.

Security  everything is computed here and nothing of the rows leaves: see `hdcos.suggest`. Where data sets of a cluster
          are named, its parties are asked for their list of those that the caller may train on.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np

from hdcos.checks import NAME, check_name, check_owned
from hdcos.cli import common
from hdcos.cli.remote import features_option, file_argument
from hdcos.cluster.connect import connect
from hdcos.data.tables import Table, read_pieces
from hdcos.errors import InputError
from hdcos.files import write_whole
from hdcos.ring import Array
from hdcos.secure.training.plan import LOSSES
from hdcos.suggest import DataSets, FileSource, Suggestion, find_settings, render
from hdcos.suggest.search import MOST_ROWS
from hdcos.suggest.sources import count_features, count_rows
from hdcos.tables.preparation import Preparation, PreparedRows

CAUTION = 3.0
"""Standard errors by which a costlier network must be better where others have rows or columns that cannot be tried:
the best of a dozen is lucky by one or two."""


@click.command(short_help="Try settings of training on your own rows.")
@file_argument
@click.option(
    "--label", metavar="COLUMN", help="The column with labels, or numbers to be guessed, of a file of numbers."
)
@click.option("--preparation", type=common.FILE, help="What makes features and labels of FILE, a table of any columns.")
@features_option
@click.option("--loss", type=click.Choice(LOSSES), help="squared for a regression; else as the labels are.")
@click.option("--name", help="What the parties call the rows of FILE, which you uploaded: train on them there.")
@click.option("--rows", metavar="NAME", multiple=True, help="A data set with more rows; again for more.")
@click.option("--beside", metavar="NAME", multiple=True, help="One with more columns of the same rows; again for more.")
@click.option(
    "--features-of-others",
    type=click.IntRange(1),
    help="How many features those beside have, where no cluster is named that could tell.",
)
@click.option("--model", help="What the parties are to call the trained model [as the configuration is called].")
@click.option("--output", type=common.NEW_FILE, help="The configuration; else the terminal.")
@click.option("--budget-s", default=60.0, show_default=True, help="How long it may take, about.")
@click.option("--seed", default=0, show_default=True, help="Of samples, networks and batches.")
@click.option("--cluster", envvar="HDCOS_CLUSTER", help="The cluster file, for data sets; $HDCOS_CLUSTER otherwise.")
@common.token_option
@common.json_option
def suggest(
    file: Path,
    label: str | None,
    preparation: Path | None,
    features: str | None,
    loss: str | None,
    name: str | None,
    rows: tuple[str, ...],
    beside: tuple[str, ...],
    features_of_others: int | None,
    model: str | None,
    output: Path | None,
    budget_s: float,
    seed: int,
    cluster: str | None,
    token_file: Path | None,
    as_json: bool,
) -> None:
    """Try networks and settings of training on the rows of FILE, in plaintext on this machine, and write the
    configuration of the one that suits: `hdcos train CONFIG` runs it as it is.

    FILE holds numbers, and --label says which column is to be learned; or it is a table of any columns, and
    --preparation names what `hdcos prepare` or `hdcos upload --columns` wrote. Of files with many rows a sample is
    taken. The configuration says which accuracy to expect, and what training and predictions cost on shares.

    With --rows, --beside or --name it trains on data sets of a cluster, NAME or OWNER/NAME: rows of several owners, or
    columns of the same rows. You try settings on what you have, and the cluster tells how much the others have.
    """
    if (label is None) == (preparation is None):
        raise click.UsageError("what is to be learned? Either --label, of a file of numbers, or --preparation")
    if preparation is not None and features is not None:
        raise click.UsageError("--preparation knows the columns: leave --features out")
    named = _named(name, rows, beside)
    if model is not None and not named:
        raise click.UsageError(
            "--model names what a cluster keeps, of data sets that are there: --name, --rows, --beside"
        )
    if features_of_others is not None and not beside:
        raise click.UsageError("--features-of-others is about data sets beside yours: --beside")
    if output is not None:
        common.check_new(output)
    own = _Own.of(file, label, preparation, features, seed)
    loss = own.check_loss(loss)
    place: FileSource | DataSets
    if named:
        listing = None
        if cluster is not None and not features_of_others:
            with connect(cluster, common.read_secret(token_file) if token_file else None) as reached:
                listing = reached.datasets()
        place = _data_sets(named, beside, own, listing, features_of_others, _model_name(model, output))
    else:
        train = file if output is None else Path(os.path.relpath(file, output.parent))
        place = FileSource(train, own.count, label, features, None if own.prepared is None else own.prepared.columns)
    known: dict[str, Any] = {}
    if isinstance(place, DataSets):
        known = {"scaled": True, "others": place.others or 0, "caution": CAUTION if len(named) > 1 else 1.0}
    known |= {} if own.prepared is None else {"scaled": True, "classes": own.classes}
    with common.about(file), _showing() as note:
        found = find_settings(own.x, own.y, loss, budget_s, seed, note, **known).in_unit(own.unit)
    text = render(found, place)
    if output is not None:
        write_whole(output, text.encode())
    if as_json:
        click.echo(json.dumps(_report(found, place.rows, output)))
    elif output is None:
        click.echo(text, nl=False)
    else:
        _show(found)
        there = f" --cluster {cluster or 'FILE'}" if named and "HDCOS_CLUSTER" not in os.environ else ""
        click.echo(f"the configuration was saved as {output}: run `hdcos train {output}{there}`")


def _named(name: str | None, rows: tuple[str, ...], beside: tuple[str, ...]) -> tuple[str, ...]:
    """The data sets that are trained on, the caller's first; none where FILE is."""
    if rows and beside:
        raise click.UsageError("--rows adds rows, --beside adds columns: take one of them")
    if beside and name is None:
        raise click.UsageError("what do the parties call the rows of FILE? --name says so, --beside what stands beside")
    if name is not None:
        check_name(name, "data set")
    found = dict.fromkeys([*([] if name is None else [name]), *rows, *beside])
    return tuple(check_owned(each) for each in found)


def _model_name(given: str | None, output: Path | None) -> str:
    if given is not None:
        return check_name(given, "model name")
    return output.stem if output is not None and re.match(NAME, output.stem) else "model"


def _data_sets(
    names: tuple[str, ...],
    beside: Sequence[str],
    own: _Own,
    listing: list[dict[str, Any]] | None,
    others: int | None,
    model: str,
) -> DataSets:
    """What is trained on, as large as the parties say, or as far as one knows without them."""
    features = own.x.shape[1]
    if not beside:
        if listing is None:
            return DataSets(names, len(names) * own.count, model, counted=False)
        return DataSets(names, count_rows(names, listing, features), model)
    if listing is None:
        if others is None:
            raise InputError(
                f"how many features have {' and '.join(names[1:])}? Name the cluster that tells, with --cluster or "
                f"HDCOS_CLUSTER, or say --features-of-others"
            )
        return DataSets(names, own.count, model, others)
    digest = None if own.prepared is None else own.prepared.digest
    count, others = count_features(names[0], names[1:], listing, features, digest)
    return DataSets(names, count, model, others)


@dataclass(frozen=True)
class _Own:
    """Some rows of the caller's file and their labels, how many rows there are, and what prepared them."""

    x: Array
    y: Array
    count: int
    prepared: Preparation | None = None

    @classmethod
    def of(cls, file: Path, label: str | None, preparation: Path | None, features: str | None, seed: int) -> _Own:
        if preparation is None:
            return cls(*_sample(file, label, read_pieces(file, label, features), seed))
        made = Preparation.load(preparation)
        if made.columns.label is None:
            raise InputError(
                f"{preparation} declares no label: the owner who has the labels tries settings, on rows of its own"
            )
        return cls(*_sample(file, made.columns.label.name, made.pieces(file, labels=True), seed), made)

    @property
    def regression(self) -> bool:
        return self.prepared is not None and self.prepared.regression

    @property
    def classes(self) -> int | None:
        """As many as are declared, though these rows may lack some."""
        known = None if self.prepared is None else self.prepared.classes
        return None if known is None else len(known)

    def check_loss(self, loss: str | None) -> str | None:
        """That of a regression; UsageError for one that prepared labels are not uploaded for."""
        if self.prepared is None:
            return loss
        binary = self.prepared.outputs == 1
        fitting = ["squared"] if self.regression else ["logistic", "squared"] if binary else ["logistic", "softmax"]
        if loss is not None and loss not in fitting:
            raise click.UsageError(f"the label of the preparation takes the loss {' or '.join(fitting)}, not {loss}")
        return "squared" if self.regression else loss

    @property
    def unit(self) -> float:
        """What numbers to be guessed were divided by."""
        if self.prepared is None or not self.regression:
            return 1.0
        zero, one = self.prepared.unscale(np.array([0.0, 1.0]))
        return float(one - zero)


def _sample(
    file: Path, label: str | None, pieces: Iterator[Table] | Iterator[PreparedRows], seed: int
) -> tuple[Array, Array, int]:
    """Some rows of a file, each as likely as any other, their labels, and how many rows there are in all.

    Every row gets a random number, and those with the smallest are kept: one pass, in memory for a sample.
    """
    generator, count = np.random.default_rng(seed), 0
    keys, rows, labels = np.empty(0), None, np.empty(0)
    for piece in pieces:
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


def _report(found: Suggestion, rows: int, output: Path | None) -> dict[str, object]:
    def one(number: int) -> dict[str, object]:
        result = found.results[number]
        settings = {key: value for key, value in asdict(result.candidate).items() if key != "others"}
        return {"score": result.score, "standard_error": result.error, "loss": result.loss, "settings": settings}

    chosen = found.results.index(found.chosen)
    return {
        **{"chosen": one(chosen), "score": "rmse" if found.regression else "accuracy", "rows": found.rows},
        **{"folds": found.folds, "tried": found.tried, "skipped": found.skipped},
        **{"trains": {key: value for key, value in asdict(found.settings(rows)).items() if key != "others"}},
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
