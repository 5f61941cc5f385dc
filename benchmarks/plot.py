"""The plot of activations on shares: bytes and time of each, with its rounds."""

from __future__ import annotations

import io
from typing import Any

import matplotlib as mpl
from matplotlib.figure import Figure

GREY = "#7a828e"
"""Reads on white and on black: the plot has no background of its own."""
OURS, OTHERS = "#4f63e0", "#9aa5b8"
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
        drawn = io.StringIO()
        figure.savefig(drawn, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return "\n".join(line.rstrip() for line in drawn.getvalue().splitlines()) + "\n"


def _sent(record: dict[str, Any]) -> str:
    rounds = record["rounds"]
    return f"{record['bytes_per_element']:g} in {rounds} round{'s' * (rounds > 1)}"
