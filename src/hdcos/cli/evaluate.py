"""`hdcos evaluate MODEL FILE --label COLUMN`: how well a model does on rows whose labels are known.

Rows are read and predicted piece by piece, and what is kept of them is counts: a file may be larger than memory.

Security  the parties see predictions like any others and count their rows: labels and scores stay here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import numpy as np

from hdcos import nn
from hdcos.cli import common
from hdcos.cli.predict import find_model, follow
from hdcos.cli.remote import Reach, features_option, file_argument, reach_cluster
from hdcos.cli.rows import Preparations, check_class_names, class_names_option, leave_out_option, preparation_option
from hdcos.data.records import Records, read_records
from hdcos.errors import InputError
from hdcos.evaluation import ClassScores, NumberScores
from hdcos.files import full_disk_named
from hdcos.ring import Array

if TYPE_CHECKING:
    from rich.table import Table

Predicts = Callable[[Any], Array]
MODEL_FILES = (".safetensors", ".pt", ".pth", ".onnx")
"""What a file of a model is called, of one's own or of another library: that one is told what it is."""


@click.command(short_help="How well a model does on rows with labels.")
@click.argument("model")
@file_argument
@click.option("--label", metavar="COLUMN", help="Where the labels are: numbers, or names of classes.")
@click.option("--regression", is_flag=True, help="The labels are numbers to be guessed, not classes.")
@leave_out_option
@features_option
@class_names_option
@preparation_option
@click.option("--plot", type=common.NEW_FILE, help="A picture: a .png, .svg or .pdf file. Needs hdcos[plot].")
@common.json_option
@reach_cluster
def evaluate(
    reach: Reach,
    model: str,
    file: Path,
    label: str | None,
    regression: bool,
    leave_out: tuple[str, ...],
    features: str | None,
    class_names: str | None,
    preparation: tuple[Path, ...],
    plot: Path | None,
    as_json: bool,
) -> None:
    """Compare private predictions of MODEL with the labels of FILE (CSV, Parquet, NPZ or IDX): accuracy, confusion
    matrix, AUC, log loss and calibration, or the errors of a regression.

    MODEL is a name that the parties know, or the file of a model of your own, which is then computed here in plaintext.
    With --preparation, FILE has the columns that were prepared for training, the label among them.
    """
    if regression and class_names:
        raise click.UsageError("a regression has no classes to name")
    if plot is not None:
        from hdcos.evaluation.plot import check_plot

        check_plot(plot)
        common.check_output(plot)
    prepared = Preparations(preparation)
    if bool(prepared) == (label is not None):
        raise click.UsageError("say where the labels are: with --label, or with a --preparation that knows it")
    regression = regression or prepared.regression
    if label is None:
        pieces = prepared.read(file, (), leave_out, features, labels=True)
    else:
        pieces = read_records(file, (), leave_out, label, features)
    first = next(pieces)
    with _predicting(model, reach) as (predicts, outputs):
        known = prepared.class_names(class_names)
        names = None if known is None else check_class_names(known, max(2, outputs))
        scores: ClassScores | NumberScores = NumberScores() if regression else ClassScores(outputs)
        with common.about(file):
            for records in follow(chain([first], pieces), "Evaluating"):
                truth = records.table.y if label is None else _labels(records, label, names, scores.rows)
                guessed = predicts(records.table).reshape(len(records), -1)
                scores.add(prepared.unscale(guessed), prepared.unscale(truth))
    if plot is not None:
        from hdcos.evaluation.plot import draw

        with full_disk_named(plot):
            draw(scores, plot, f"{model} on {file.name}, {scores.rows:,} rows", names or _numbers(max(2, outputs)))
    if as_json:
        click.echo(json.dumps({"model": model, "file": str(file), "classes": names, **scores.report()}))
        return
    if isinstance(scores, NumberScores):
        _show_numbers(scores)
    else:
        _show_classes(scores, names or _numbers(scores.classes))
    if plot is not None:
        click.echo(f"the picture was saved as {plot}")


@contextmanager
def _predicting(model: str, reach: Reach) -> Iterator[tuple[Predicts, int]]:
    """How rows are predicted, and how many outputs there are."""
    if Path(model).suffix in MODEL_FILES and Path(model).is_file():
        known = nn.load(model)
        yield known, int(np.prod(known.output_shape))
        return
    with reach() as cluster:
        private = find_model(cluster, model)
        yield private.predict, int(np.prod(private.network.output_shape))


def _labels(records: Records, label: str, names: Sequence[str] | None, before: int) -> Array:
    """The labels of some rows as numbers: classes by their names, if they have names."""
    if label not in records.texts:
        raise InputError(f"there are no labels {label!r}")
    texts = records.texts[label]
    if names is not None:
        places = {name: float(number) for number, name in enumerate(names)}
        numbers = [places.get(text) for text in texts]
        wanted = f"none of the classes {list(names)}"
    else:
        numbers = [_number(text) for text in texts]
        wanted = "not a number; --class-names says what classes are called"
    if None in numbers:
        row = numbers.index(None)
        raise InputError(f"row {before + row} (from 0), label {label}: {texts[row]!r} is {wanted}")
    return np.array(numbers, np.float64)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


def _show_classes(scores: ClassScores, names: Sequence[str]) -> None:
    table = common.new_table("", "")
    table.show_header = False
    table.add_row("rows", f"{scores.rows:,}")
    table.add_row("accuracy", f"{scores.accuracy:.2%}")
    table.add_row("AUC", "- (all rows are of one class)" if scores.auc is None else f"{scores.auc:.4f}")
    table.add_row("log loss", f"{scores.log_loss:.4f}")
    table.add_row("calibration error", f"{scores.calibration_error:.4f}")
    common.show(table)
    click.echo()
    matrix = common.new_table("true \\ guessed", *names)
    for name, counts in zip(names, scores.confusion, strict=True):
        matrix.add_row(name, *(f"{count:,}" for count in counts))
    common.show(matrix if common.fits(matrix) else _list_guesses(scores, names))


def _list_guesses(scores: ClassScores, names: Sequence[str]) -> Table:
    """The same as a matrix of more classes than a terminal has room for, without what never happened."""
    table = common.new_table("true", "guessed", "rows", texts=2)
    for name, counts in zip(names, scores.confusion, strict=True):
        for guessed, count in zip(names, counts, strict=True):
            if count:
                table.add_row(name, guessed, f"{count:,}")
    return table


def _show_numbers(scores: NumberScores) -> None:
    report, table = scores.report(), common.new_table("", "")
    table.show_header = False
    table.add_row("rows", f"{scores.rows:,}")
    table.add_row("RMSE", f"{report['rmse']:.6g}")
    table.add_row("mean absolute error", f"{report['mae']:.6g}")
    table.add_row("R2", "- (all numbers are the same)" if report["r2"] is None else f"{report['r2']:.4f}")
    common.show(table)
