"""`python -m hdcos.paper NAME ...`: `hdcos paper run` for machines that have PyTorch and NumPy and nothing else."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from hdcos.paper.cells import LEARNING_RATES
from hdcos.paper.experiments import NAMES
from hdcos.paper.run import TRIALS, run


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m hdcos.paper", description="Run experiments of the paper.")
    parser.add_argument("names", nargs="+", choices=sorted(NAMES), metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--out", type=Path, default=Path("results/paper.jsonl"), help="file of results")
    parser.add_argument("--epochs", type=int, help="instead of the paper's")
    parser.add_argument("--trials", type=int, default=TRIALS, help="seeds per learning rate")
    parser.add_argument("--rates", type=float, nargs="*", default=LEARNING_RATES, help="only these learning rates")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--datasets", nargs="*", default=[], help="only these")
    parser.add_argument("--seconds", type=float, help="begin nothing that would end later than this")
    options = vars(parser.parse_args())
    for name in options.pop("names"):
        run(name, say=partial(print, flush=True), **options)


if __name__ == "__main__":
    main()
