"""`hdcos predict MODEL FILE`: private predictions for the rows of a file, with their ids, of any length.

Rows are read, predicted and written piece by piece, so that a file may be larger than memory. The output is written
beside its place and renamed when its last row is in it: a run that is cut off leaves no file that looks complete.

Security  rows leave this machine as shares or masked, their ids and labels not at all. Answers are joined here.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import click
import numpy as np

from hdcos.cli import common
from hdcos.cli.remote import Reach, features_option, file_argument, reach_cluster
from hdcos.cli.rows import Preparations, check_class_names, class_names_option, leave_out_option, preparation_option
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.model import PrivateModel
from hdcos.data.answers import Column, CsvWriter, Writer, check_format, open_writer
from hdcos.data.records import Records
from hdcos.errors import DataMissing, InputError
from hdcos.ring import Array
from hdcos.secure.labels import LABEL, LOGITS, PROBA


@click.command(short_help="Private predictions for the rows of a file.")
@click.argument("model")
@file_argument
@click.option("--output", type=common.NEW_FILE, help="A .csv, .parquet or .npy file; else the terminal.")
@click.option("--id", "ids", metavar="COLUMN", multiple=True, help="A column to copy to the output; again for more.")
@click.option("--label", is_flag=True, help="Labels alone, found on shares: nobody sees a logit, nor do you.")
@click.option("--proba", is_flag=True, help="Labels and probabilities, made here of the logits.")
@leave_out_option
@features_option
@class_names_option
@click.option("--no-header", is_flag=True, help="No line with the names of columns in CSV.")
@click.option("--mode", type=click.Choice(["shares", "masked"]), help="How rows go out; masked takes a round less.")
@preparation_option
@reach_cluster
def predict(
    reach: Reach,
    model: str,
    file: Path,
    output: Path | None,
    ids: tuple[str, ...],
    label: bool,
    proba: bool,
    leave_out: tuple[str, ...],
    features: str | None,
    class_names: str | None,
    no_header: bool,
    mode: str | None,
    preparation: tuple[Path, ...],
) -> None:
    """Private predictions of MODEL for the rows of FILE (CSV, NPY, NPZ, IDX or Parquet), row by row: its outputs
    (logits), one column for each, or with --label one class, or with --proba a class and the probability of each.

    CSV, Parquet and NPY files may be larger than memory. With --id, columns of CSV and Parquet files go from the file
    to the output as they are, whatever they hold. With --preparation, FILE has the columns that were prepared for
    training; classes then have their names, and a regression answers in the unit of its label.
    """
    if label and proba:
        raise click.UsageError("--label and --proba are two answers: choose one")
    wanted = LABEL if label else PROBA if proba else LOGITS
    plain = output is not None and output.suffix.lower() == ".npy"
    if output is not None:
        check_format(output)
        common.check_output(output, file, *preparation)
        if plain and (ids or class_names):
            raise InputError(f"{output}: an NPY file holds numbers alone: write ids and names to .csv or .parquet")
    prepared = Preparations(preparation)
    pieces = prepared.read(file, ids, leave_out, features)
    first = next(pieces)  # what is wrong with all of it is said before anybody is asked
    with reach() as cluster:
        private = find_model(cluster, model)
        if class_names is not None:
            _check_naming(private, wanted, prepared.regression)
        answers = Answers(private, wanted, prepared.class_names(class_names), prepared.regression)
        names = [*ids, *answers.names]
        with _opened(output, names, not no_header) as writer, common.about(file):
            for records in follow(chain([first], pieces), "Predicting"):
                found = private.predict(records.table, mode=mode, output=wanted)
                texts: list[Column] = [records.texts[name] for name in ids]
                found = prepared.unscale(found)
                writer.write([found] if plain else [*texts, *answers.columns(found)])


def _check_naming(private: PrivateModel, wanted: str, regression: bool) -> None:
    """UsageError where an answer has no place for the names of classes."""
    if regression:
        raise click.UsageError("a regression has no classes to name: leave --class-names out")
    if wanted == LOGITS and np.prod(private.network.output_shape) == 1:
        raise click.UsageError("--class-names: one logit has no name of a class; ask for --label or --proba")


class Answers:
    """The columns of an answer, and what they are called."""

    def __init__(
        self, private: PrivateModel, wanted: str, class_names: Sequence[str] | None, regression: bool = False
    ) -> None:
        self._wanted, outputs = wanted, int(np.prod(private.network.output_shape))
        if regression and wanted != LOGITS:
            raise InputError("this model predicts a number, not a class: leave --label and --proba out")
        self._classes = check_class_names(class_names, max(2, outputs)) if class_names is not None else None
        known = self._classes or [str(number) for number in range(outputs)]
        several = [f"_{name}" for name in known] if outputs > 1 else [""]
        self.names = ["predicted"] if regression else [f"logit{name}" for name in several]
        if wanted == LABEL:
            self.names = ["label"]
        elif wanted == PROBA:
            self.names = ["label", *(f"probability{name}" for name in several)]

    def columns(self, found: Array) -> list[Column]:
        if self._wanted == LABEL:
            return [self._named(found)]
        rows = found.reshape(len(found), -1)
        numbers: list[Column] = list(rows.T)
        if self._wanted == LOGITS:
            return numbers
        return [self._named((rows[:, 0] > 0.5).astype(np.int64) if rows.shape[1] == 1 else rows.argmax(1)), *numbers]

    def _named(self, labels: Array) -> Column:
        return labels if self._classes is None else [self._classes[label] for label in labels.tolist()]


def find_model(cluster: Cluster, model: str) -> PrivateModel:
    """A model that the parties hold; a file of that name is no such model."""
    try:
        return cluster.model(model)
    except (DataMissing, InputError) as error:
        if not Path(model).is_file():
            raise
        advice = f"Share it first: `hdcos share-model {model} --name NAME`"
        raise type(error)(f"{model} is a file, and {error}. {advice}") from error


@contextmanager
def _opened(output: Path | None, names: Sequence[str], header: bool) -> Iterator[Writer]:
    if output is not None:
        with open_writer(output, names, header) as writer:
            yield writer
        return
    with click.open_file("-", "w") as terminal:
        lines = CsvWriter(terminal, names, header)
        yield lines
        lines.finish()


def follow(pieces: Iterable[Records], what: str) -> Iterator[Records]:
    """The pieces, with a bar on a terminal: how much of the file was read, and how many rows."""
    if not sys.stderr.isatty():
        yield from pieces
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    texts: list[Any] = [TextColumn(what), BarColumn(30), TextColumn("{task.fields[rows]:,} rows")]
    columns = [*texts, TimeElapsedColumn(), TimeRemainingColumn()]
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task, rows = bar.add_task(what, total=None, rows=0), 0
        for records in pieces:
            yield records
            rows += len(records)
            bar.update(task, total=None if records.done is None else 1.0, completed=records.done or 0.0, rows=rows)
