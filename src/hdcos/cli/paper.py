"""`hdcos paper`: the experiments of the paper, run by name."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from hdcos.errors import InputError
from hdcos.paper.cells import LEARNING_RATES
from hdcos.paper.experiments import NAMES, UNTRAINED

RESULTS = Path("results/paper.jsonl")


@click.group()
def paper() -> None:
    """The paper's tables and figures, made again."""


@paper.command("run", short_help="Train the models of an experiment.", epilog=f"NAME is one of {', '.join(NAMES)}.")
@click.argument("name")
@click.option("--epochs", type=click.IntRange(min=1), help="Epochs of training; the paper's unless given.")
@click.option("--trials", type=click.IntRange(min=1), default=5, show_default=True, help="Seeds per learning rate.")
@click.option("--rate", "rates", type=float, multiple=True, help="Only this learning rate; may be given several times.")
@click.option("--device", default="cpu", show_default=True, help="cpu or cuda.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=RESULTS,
    show_default=True,
    help="File of results; what is in it is not run again.",
)
@click.option("--dataset", "datasets", multiple=True, help="Only this data set; may be given several times.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Begin nothing that would probably end later than this.")
def run_experiment(
    name: str,
    epochs: int | None,
    trials: int,
    rates: tuple[float, ...],
    device: str,
    out: Path,
    datasets: tuple[str, ...],
    seconds: float | None,
) -> None:
    """Train every model of the experiment NAME that the file of results lacks."""
    try:
        from hdcos.paper.run import run
    except ImportError as error:
        raise InputError("experiments train with PyTorch.\nInstall it: `pip install 'hdcos[torch]'`.") from error
    chosen = rates or LEARNING_RATES
    done = run(
        name,
        out,
        epochs=epochs,
        trials=trials,
        rates=chosen,
        device=device,
        datasets=datasets,
        seconds=seconds,
        say=click.echo,
    )
    click.echo(f"{done} {'rows written' if name in UNTRAINED else 'cells trained'}; results are in {out}.")


@paper.command(short_help="Render the results beside the paper's.")
@click.option(
    "--results",
    "source",
    type=click.Path(dir_okay=False, path_type=Path),
    default=RESULTS,
    show_default=True,
    help="File of results.",
)
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=RESULTS.parent,
    show_default=True,
    help="Folder of the report.",
)
@click.option("--check", is_flag=True, help="Write nothing; exit 1 if the files there are not what this would write.")
def report(source: Path, out: Path, check: bool) -> None:
    """Render the results beside the paper's: paper.html, paper.md and its figures."""
    from hdcos.paper.report.build import stale, write

    if not check:
        for path in write(source, out):
            click.echo(path)
        return
    differing = stale(source, out)
    for name in differing:
        click.echo(f"{out / name} is not what {source} renders to; write it with `hdcos paper report`.", err=True)
    if differing:
        sys.exit(1)
