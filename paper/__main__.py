"""`python -m paper run NAME ...` and `python -m paper report`: the paper's tables and figures, made again.

`python -m paper ready DATASET` trains the ready networks that ship with hdcos.

Needs NumPy and, to train, PyTorch; nothing else.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

from hdcos.errors import HdcosError
from paper.cells import IMAGES, LEARNING_RATES
from paper.experiments import NAMES, UNTRAINED

RESULTS = Path("results/paper.jsonl")


def main(arguments: list[str] | None = None) -> int:
    """The exit code of a command."""
    options = _parser().parse_args(arguments)
    try:
        return {"run": _run, "ready": _ready, "report": _report}[options.command](options)
    except (HdcosError, OSError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m paper", description="The paper's tables and figures, made again.")
    commands = parser.add_subparsers(dest="command", required=True)
    run = commands.add_parser("run", help="train the models of experiments")
    run.add_argument("names", nargs="+", choices=sorted(NAMES), metavar="NAME", help=", ".join(NAMES))
    run.add_argument("--out", type=Path, default=RESULTS, help="file of results; what is in it is not run again")
    run.add_argument("--epochs", type=_count, help="instead of the paper's")
    run.add_argument("--trials", type=_count, default=5, help="seeds per learning rate")
    run.add_argument("--rates", type=float, nargs="*", default=LEARNING_RATES, help="only these learning rates")
    run.add_argument("--device", default="cpu", help="cpu or cuda")
    run.add_argument("--datasets", nargs="*", default=[], help="only these data sets")
    run.add_argument("--seconds", type=float, help="begin nothing that would probably end later than this")
    ready = commands.add_parser("ready", help="train the ready network for images")
    ready.add_argument("dataset", choices=IMAGES)
    ready.add_argument("--out", type=Path, default=Path("build/ready"), help="folder of the trained networks")
    ready.add_argument("--epochs", type=_count, help="60 for Fashion-MNIST and 30 for MNIST unless given")
    ready.add_argument("--seeds", type=_count, default=3, help="networks per learning rate")
    ready.add_argument("--rates", type=float, nargs="*", default=[0.03], help="learning rates")
    ready.add_argument("--device", default="cpu", help="cpu or cuda")
    report = commands.add_parser("report", help="render the results beside the paper's")
    report.add_argument("--results", type=Path, default=RESULTS, help="file of results")
    report.add_argument("--out", type=Path, default=RESULTS.parent, help="folder of the report")
    report.add_argument("--check", action="store_true", help="write nothing; exit 1 if the files there are outdated")
    return parser


def _count(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not at least 1")
    return number


def _run(options: argparse.Namespace) -> int:
    try:
        from paper.run import run
    except ImportError:
        return _no_torch()
    chosen = {key: value for key, value in vars(options).items() if key not in ("command", "names", "out")}
    for name in options.names:
        done = run(name, options.out, say=partial(print, flush=True), **chosen)
        print(f"{done} {'rows written' if name in UNTRAINED else 'cells trained'}; results are in {options.out}.")
    return 0


def _ready(options: argparse.Namespace) -> int:
    try:
        from paper.ready import run
    except ImportError:
        return _no_torch()
    chosen = (options.dataset, options.out, options.rates, options.seeds, options.epochs, options.device)
    run(*chosen, say=partial(print, flush=True))
    print(f"The networks are in {options.out}.")
    return 0


def _no_torch() -> int:
    print("Experiments train with PyTorch. Install it: `pip install 'hdcos[torch]'`.", file=sys.stderr)
    return 1


def _report(options: argparse.Namespace) -> int:
    from paper.report.build import stale, write

    if not options.check:
        for path in write(options.results, options.out):
            print(path)
        return 0
    differing = stale(options.results, options.out)
    for name in differing:
        print(f"{options.out / name} is not what {options.results} renders to: run `python -m paper report`.")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
