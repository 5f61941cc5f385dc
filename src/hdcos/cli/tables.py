"""Tables for people: they fit a terminal of 80 columns, and in a pipe every record is one whole line."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

LONGEST_LINE = 10_000


def new_table(*headings: str, title: str = "", texts: int = 1) -> Table:
    """A table without borders, of which the first columns are texts and the others numbers; no cell is ever cut."""
    table = Table(title=title or None, title_justify="left", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < texts else "right", overflow="fold")
    return table


def show(table: Table) -> None:
    """Print a table: folded to the width of a terminal, as wide as it is elsewhere."""
    console = Console(file=sys.stdout, highlight=False)
    if not console.is_terminal:
        options = console.options.update(max_width=LONGEST_LINE)
        whole = Measurement.get(console, options, table).maximum
        console = Console(file=sys.stdout, highlight=False, width=max(80, whole))
    console.print(table)
