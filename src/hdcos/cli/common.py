"""What commands share: options, files that errors name, tables, and what Ctrl-C says."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from hdcos.errors import InputError
from hdcos.files import read_text
from hdcos.protocol.sign import WAYS

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Column, Table

INTERRUPTED = 130
HINT = "hdcos.if_interrupted"
LONGEST_LINE = 10_000
LEAST_TEXT = 8
"""Columns of a terminal that a text is folded to at least."""
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)
token_option = click.option("--token-file", type=FILE, help="The file of your secret; $HDCOS_TOKEN otherwise.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print the answer as JSON.")
compare_option = click.option(
    "--compare",
    type=click.Choice(WAYS),
    help="How ReLU, MaxPool2d and the like compare: tables take less material, dcf fewer rounds.",
)


def if_interrupted(advice: Callable[[], str]) -> None:
    """What to say if Ctrl-C is pressed from now on."""
    click.get_current_context().meta[HINT] = advice


# ---- files


def read_secret(path: Path) -> str:
    """The secret in a client's file."""
    secret = read_text(path, "the file of a client's secret").strip()
    if not secret or not secret.isascii() or not secret.isprintable() or " " in secret:
        raise InputError(f"{path} holds no client's secret, which is one word: `hdcos token new` makes one")
    return secret


@contextmanager
def about(file: str | Path) -> Iterator[None]:
    """Rows of this file are used here: what is wrong with them is said of the file."""
    try:
        yield
    except InputError as error:
        raise type(error)(f"{file}: {error}") from error


def check_output(path: Path, *read: Path) -> None:
    """Before anything is computed: a file can be written there, and is none of those that are read."""
    if path.is_dir():
        raise InputError(f"{path} is a folder: name a file in it for the output")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise InputError(f"{path} cannot be written: {path.parent} is not a folder in which files can be made")
    for source in read:
        if path.exists() and source.exists() and path.samefile(source):
            raise InputError(f"{path} is a file that is read here: name another one for the output")


def check_new(path: Path) -> None:
    """The same of a file that people edit: one that is there is theirs, and is not overwritten."""
    check_output(path)
    if path.exists():
        raise InputError(f"{path} is there already, perhaps with changes of yours: name another file, or delete it")


# ---- tables and texts: they fit a terminal of 80 columns, and in a pipe every record is one whole line


def say(text: str, indent: str = "") -> None:
    """Print a line: wrapped between words on a terminal, whole elsewhere."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = textwrap.fill(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    click.echo(text)


def new_table(*headings: str, title: str = "", texts: int = 1) -> Table:
    """A table without borders, of which the first columns are texts, which are folded where a terminal is narrow, and
    the others numbers, which are not; no cell is ever cut."""
    from rich.table import Table  # a node that is started prints none

    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        text = number < texts
        table.add_column(heading, justify="left" if text else "right", overflow="fold", no_wrap=not text)
    return table


def show(table: Table) -> None:
    """Print a table: folded to the width of a terminal, as wide as it is elsewhere."""
    from rich.console import Console

    console = Console(file=sys.stdout, highlight=False)
    width = max(80, _width(table)) if not console.is_terminal else max(console.width, _width(table, LEAST_TEXT))
    Console(file=sys.stdout, highlight=False, width=width).print(table)


def fits(table: Table) -> bool:
    """Whether a terminal is wide enough for a table; elsewhere any is."""
    return not sys.stdout.isatty() or _width(table, LEAST_TEXT) <= shutil.get_terminal_size().columns


def _width(table: Table, text: int = LONGEST_LINE) -> int:
    """The columns that a table needs, if texts are folded to this many."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console(file=sys.stdout, width=LONGEST_LINE)
    cells = [max(Measurement.get(console, console.options, cell).maximum for cell in _cells(c)) for c in table.columns]
    widths = (size if column.no_wrap else min(size, text) for column, size in zip(table.columns, cells, strict=True))
    return sum(widths) + len(cells)


def _cells(column: Column) -> list[RenderableType]:
    return [column.header, *column.cells]


def describe_kernels() -> str:
    """Which kernels are in use: an installation whose compilation failed works, too, and should not go unnoticed."""
    from hdcos.ring import backend

    slow = " (nothing was compiled: many times slower)" if backend() == "reference" else ""
    return f"kernels {backend()}{slow}"
