"""`hdcos convert`: a network of PyTorch or ONNX as a network of hdcos, and the report on it."""

from __future__ import annotations

import json
from pathlib import Path

import click

from hdcos import nn
from hdcos.cli.common import FILE, NEW_FILE, check_output, json_option, new_table, show
from hdcos.errors import InputError, ModelError
from hdcos.nn.importing.conversion import Conversion


@click.command(short_help="Make a network of hdcos of one of PyTorch or ONNX.")
@click.argument("model", type=FILE)
@click.option("--input-shape", metavar="SHAPE", help="Shape of one row, such as 1,28,28, where the file does not tell.")
@click.option("--output", "--out", type=NEW_FILE, help="Where the network is saved, for `hdcos share-model`.")
@click.option("--report", is_flag=True, help="Print the report too when the network is saved.")
@click.option("--output-name", metavar="NAME", help="The output to take of an ONNX file that has several.")
@click.option("--trust", is_flag=True, help="Load a module from a PyTorch file, which runs code that the file names.")
@json_option
def convert(
    model: Path,
    input_shape: str | None,
    output: Path | None,
    report: bool,
    output_name: str | None,
    trust: bool,
    as_json: bool,
) -> None:
    """Make a network of hdcos of MODEL, an ONNX file (.onnx) or a PyTorch module (.pt, .pth, .pt2).

    The report has a line for each part of the network: exact, approximated with its error, or refused with a reason
    and a remedy; and what its layer costs for one row: rounds, bytes between the parties, bytes of material. Without
    --output nothing is written. Everything happens on this machine.
    """
    if output is not None:
        check_output(output, model)
    made = nn.convert(model, input_shape=_shape(input_shape), output=output_name, trust=trust)
    if as_json:
        click.echo(json.dumps(made.report.to_json(), indent=1))
    elif report or output is None or made.network is None:
        _print(model, made)
    refused = made.report.refused
    if refused:
        raise ModelError(f"{model}: {len(refused)} of {len(made.fates)} parts cannot be imported: {refused[0]}")
    if made.report.obstacle:
        raise ModelError(f"{model}: {made.report.obstacle}")
    if output is not None:
        made.model.save(output)
        if not as_json:
            click.echo(f"{model} is saved as {output}: {made.model.parameter_count:,} parameters")


def _shape(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    sides = [side.strip() for side in text.split(",")]
    if not all(side.isascii() and side.isdecimal() and 0 < int(side) < 10**9 for side in sides):
        raise InputError(f"--input-shape is a list of whole numbers such as 1,28,28, not {text!r}")
    return tuple(map(int, sides))


def _print(path: Path, made: Conversion) -> None:
    texts, numbers = ("operation", "type", "result", "layer", "note"), ("rounds", "online\nbytes", "material\nbytes")
    table = new_table(*texts, *numbers, title=f"{path.name}: one row on shares", texts=len(texts))
    for row in made.report.cells():
        table.add_row(*row[:4], row[-1], *row[4:-1])
    show(table)
