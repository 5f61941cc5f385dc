"""Write the notebooks of examples/: cells executed in order, with what they printed and drew.

    python scripts/make_notebook.py [NAME]

first_steps.ipynb has the cells below, two_tables.ipynb those of scripts/notebooks/two_tables.py, where "# %%" begins a
cell. Takes less than a minute. Needs scikit-learn, pandas and matplotlib, and no Jupyter: a cell is executed as Python,
and what it prints is kept, and the figures that it leaves.
"""

from __future__ import annotations

import base64
import contextlib
import io
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
TWO_TABLES = ROOT / "scripts" / "notebooks" / "two_tables.py"
Cell = tuple[str, str]

CELLS: list[Cell] = [
    (
        "markdown",
        """# First steps

Two parties are going to classify and learn images that neither of them can see. Everything runs on this machine: a
dealer and two parties as three processes that talk over TLS, just as three servers would.""",
    ),
    (
        "code",
        """import numpy as np

import hdcos
from hdcos import nn

model = nn.models.digits()
images, labels = hdcos.data.digits("test")
print(model)
print(f"{model.parameter_count:,} parameters; {np.mean(model(images).argmax(1) == labels):.1%} right in plaintext")""",
    ),
    (
        "markdown",
        """## What a share looks like

A number becomes a word of 64 bits, and the word the sum of two uniform ones. Either share alone is noise; together they
are the number, exactly.""",
    ),
    (
        "code",
        """from hdcos.ring import decode, encode
from hdcos.sharing import Stream, join, split

pixels = encode(images[0, 2:5], 16)
seed, one = split(pixels)  # party 0's share travels as a seed of 32 bytes
zero = Stream(seed).words(pixels.shape)
print("party 0 holds", zero)
print("party 1 holds", one)
print("together     ", decode(join(zero, one), 16), "which was", images[0, 2:5])""",
    ),
    (
        "markdown",
        """## A private prediction

`share` splits the weights, `prepare` has the dealer make correlated randomness before any image exists, and `predict`
sends the images masked. The parties exchange one message per cosine layer, and only you see the scores.""",
    ),
    (
        "code",
        """with hdcos.local() as cluster:
    private = cluster.share(model)
    private.prepare(len(images))
    cluster.reset_cost()
    scores = private.predict(images)
    cost = cluster.cost.online

print(f"{np.mean(scores.argmax(1) == labels):.1%} right on shares")
print(f"largest difference of a score: {np.abs(scores - model(images)).max():.1e}")
print(f"{cost.rounds} rounds, {cost.bytes_sent[0] / len(images):.0f} bytes an image each way")""",
    ),
    (
        "markdown",
        """## What other networks would cost

The planner drives the programs over shapes, so this needs no parties and no data. Compare the same network with other
activations and with dense layers.""",
    ),
    (
        "code",
        """from hdcos.secure.estimate import estimate, total

for structure in ("hadamard", "dense"):
    for activation in ("cos", "square", "expm1"):
        whole = total(estimate(nn.models.mlp([64, 256, 256, 10], activation, structure), batch=1))
        print(
            f"{structure:9} {activation:7} {whole.online.rounds} rounds, {whole.online.bytes_sent:6,} bytes online, "
            f"{whole.offline.bytes_sent:9,} offline, {whole.multiplications:7,} secure products"
        )""",
    ),
    (
        "markdown",
        """## Private training

Now the network, the images and their labels are all shared. Gradients are computed on shares and nothing is revealed
on the way; the trained network stays in shares too, until somebody asks to reveal it.""",
    ),
    (
        "code",
        """x, y = hdcos.data.digits("train")
fresh = nn.Sequential([nn.HadamardDiagonal(64, 128, bandwidth=3.0), nn.Cos(), nn.Dense(128, 10)])

with hdcos.local() as cluster:
    rates = {"lr": 0.2, "momentum": 0.9}
    learnt = cluster.fit(fresh, x, y, epochs=10, batch_size=50, seed=0, progress=False, **rates)
    after = np.mean(learnt.predict(images).argmax(1) == labels)
    cost = cluster.cost.online

print(f"{np.mean(fresh(images).argmax(1) == labels):.1%} right before, {after:.1%} after 10 epochs")
print(f"{cost.rounds:,} rounds, {cost.bytes_sent[0] / 1e6:.0f} MB each way")""",
    ),
    (
        "markdown",
        """## Where to go on

The tutorial trains on files of several owners. The report of the paper's experiments says which activations and
structures learn what, and at which price.""",
    ),
]


def execute(source: str, names: dict[str, Any]) -> str:
    """What the cell prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(source, "<cell>", "exec"), names)
    return printed.getvalue()


def drawn() -> list[dict[str, Any]]:
    """The figures that are open now, as outputs of a cell; they are closed."""
    if "matplotlib.pyplot" not in sys.modules:
        return []
    import matplotlib.pyplot as plt

    outputs = []
    for number in plt.get_fignums():
        figure, image = plt.figure(number), io.BytesIO()
        figure.savefig(image, format="png", dpi=80, metadata={"Software": None})
        data = {"image/png": base64.b64encode(image.getvalue()).decode(), "text/plain": ["a figure"]}
        outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
        plt.close(figure)
    return outputs


def read_cells(path: Path) -> list[Cell]:
    """The cells of a Python file in which "# %%" begins one, "# %% [markdown]" one of text in comments."""
    cells = []
    for part in re.split(r"^# %%", path.read_text(), flags=re.MULTILINE)[1:]:
        head, _, source = part.partition("\n")
        if head.strip() == "[markdown]":
            cells.append(("markdown", re.sub(r"^# ?", "", source.strip(), flags=re.MULTILINE)))
        else:
            cells.append(("code", source.strip()))
    return cells


def notebook(written: Sequence[Cell]) -> dict[str, Any]:
    """The executed notebook, in the format of Jupyter."""
    names: dict[str, Any] = {"__name__": "__main__"}
    cells: list[dict[str, Any]] = []
    count = 0
    for number, (kind, source) in enumerate(written):
        cell: dict[str, Any] = {"cell_type": kind, "id": f"cell-{number}", "metadata": {}, "source": _lines(source)}
        if kind == "code":
            count += 1
            text = execute(source, names)
            output = {"name": "stdout", "output_type": "stream", "text": _lines(text)}
            cell |= {"execution_count": count, "outputs": [*([output] if text else []), *drawn()]}
        cells.append(cell)
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    language = {"name": "python", "version": ".".join(map(str, sys.version_info[:3]))}
    metadata = {"kernelspec": kernel, "language_info": language}
    return {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}


def _lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    for name, cells in {"first_steps": CELLS, "two_tables": read_cells(TWO_TABLES)}.items():
        if name in sys.argv[1:] or not sys.argv[1:]:
            (ROOT / "examples" / f"{name}.ipynb").write_text(json.dumps(notebook(cells), indent=1) + "\n")
