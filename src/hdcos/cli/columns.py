"""`hdcos columns FILE`: what the columns of a table seem to be, as TOML to save and edit; and finding preparations."""

from __future__ import annotations

from pathlib import Path

import click

from hdcos.cli import common
from hdcos.errors import InputError
from hdcos.tables.columns import Columns
from hdcos.tables.inference import LOOKED_AT, infer
from hdcos.tables.preparation import Preparation


@click.command(short_help="What the columns of a file seem to be.")
@click.argument("file", type=common.FILE)
@click.option("--label", default=None, help="The column that is to be learned.")
@click.option("--output", type=common.NEW_FILE, help="Where it is written; else the terminal.")
def columns(file: Path, label: str | None, output: Path | None) -> None:
    """Guess a declaration of the columns of FILE (CSV or Parquet) from its first rows, and show it as TOML: look at it,
    edit it, and pass it to `hdcos upload --columns` or `hdcos prepare --columns`. Nothing leaves this machine."""
    if output is not None:
        common.check_new(output)
    text = infer(file, label).to_toml()
    if output is None:
        click.echo(text, nl=False)
        return
    output.write_text(text)
    click.echo(f"{output}: guessed from at most {LOOKED_AT:,} rows; look at it before you use it", err=True)


def preparation_of(file: Path) -> Path:
    """Where the preparation of a file is written, unless another place is named."""
    return file.with_name(f"{file.name}.preparation.json")


def find_preparation(file: Path, columns: Path | None, named: Path | None) -> Preparation:
    """The preparation that is named; or one that is fitted to the rows of the file, and written there or beside it."""
    if columns is None:
        assert named is not None
        return Preparation.load(named)
    made = Preparation.fit(file, Columns.read(columns))
    return keep_preparation(made, named or preparation_of(file))


def keep_preparation(made: Preparation, place: Path) -> Preparation:
    """Write a preparation. One that is there and does the same is used as it is: models may know it by its digest."""
    if place.exists():
        known = Preparation.load(place)
        if not known.agrees(made):
            raise InputError(
                f"{place} holds another preparation, which models may need: name another file (--preparation), or "
                f"remove this one"
            )
        click.echo(f"{place}: the same preparation, {known.digest[:16]}, is used again", err=True)
        return known
    common.check_output(place)
    made.save(place)
    click.echo(f"{place}: {len(made.names)} features, preparation {made.digest[:16]}; predictions need it", err=True)
    return made
