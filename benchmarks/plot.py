"""Plots of results: activations on shares, and what more pairs of workers make of a machine."""

from __future__ import annotations

import io
import re
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

GREY = "#7a828e"
"""Reads on white and on black: the plot has no background of its own."""
OURS, OTHERS, THIRD = "#4f63e0", "#9aa5b8", "#c77d2e"
# Text stays text and identifiers do not change from run to run, so that the same results give the same file.
STYLE = {"svg.fonttype": "none", "svg.hashsalt": "hdcos", "font.family": "sans-serif", "font.size": 10}


def activations(records: list[dict[str, Any]]) -> str:
    """An SVG of two panels, one bar for each activation; those that hdcos is named after stand out."""
    records = [record for record in records if record["rounds"]][::-1]
    names = [record["activation"] for record in records]
    colours = [OURS if name in ("cos", "sin") else OTHERS for name in names]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        left, right = figure.subplots(1, 2, sharey=True)
        sent = left.barh(names, [record["bytes_per_element"] for record in records], color=colours)
        left.bar_label(sent, [_sent(record) for record in records], padding=4, color=GREY)
        left.set_title("bytes sent per value, each way", color=GREY)
        left.margins(x=0.4)
        spent = right.barh(names, [record["ms"] for record in records], color=colours)
        right.bar_label(spent, [f"{record['ms']:.1f} ms" for record in records], padding=4, color=GREY)
        right.set_title("online time for 131,072 values", color=GREY)
        right.margins(x=0.2)
        for axes in (left, right):
            axes.tick_params(colors=GREY, length=0)
            axes.spines[:].set_visible(False)
            axes.xaxis.set_visible(False)
        return _svg(figure)


def pairs(records: list[dict[str, Any]]) -> str:
    """An SVG of rows a second over those of one pair, as the lines of scale.json have them: "(1: 672, 2: 1327)"."""
    lines = [
        record["line"] for record in records if record["command"].endswith("PART=pairs") and "(1: " in record["line"]
    ]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(8, 3.4), layout="constrained")
        axes = figure.subplots()
        for line, colour in zip(lines, (OURS, OTHERS, THIRD), strict=True):
            rates = {int(count): float(rate) for count, rate in re.findall(r"(\d+): (\d+)", line)}
            counts, gained = list(rates), [rate / rates[1] for rate in rates.values()]
            axes.plot(
                counts, gained, "o-", color=colour, label=line.partition(", ")[0].removeprefix("rows a second of ")
            )
        axes.plot(counts, counts, ":", color=GREY, label="pairs")
        axes.set_xticks(counts)
        axes.set_xlabel("pairs of workers", color=GREY)
        axes.set_title("rows a second over those of one pair", color=GREY)
        axes.tick_params(colors=GREY, length=0)
        axes.spines[:].set_visible(False)
        axes.grid(color=GREY, alpha=0.2)
        axes.legend(frameon=False, labelcolor=GREY)
        return _svg(figure)


def _svg(figure: Figure) -> str:
    drawn = io.StringIO()
    figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in drawn.getvalue().splitlines()) + "\n"


def _sent(record: dict[str, Any]) -> str:
    rounds = record["rounds"]
    return f"{record['bytes_per_element']:g} in {rounds} round{'s' * (rounds > 1)}"
