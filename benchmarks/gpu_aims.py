"""What a GPU was to reach and what it reached, for docs/gpu.md: targets, aims beyond them, what it missed."""

from __future__ import annotations

from typing import Any

AIMS = {"MLP 784-128-128-10": 4.0, "LeNet-5": 40.0, "P-LeNet": 50.0}
"""Milliseconds a step, better than what was required."""
CRITEO = "criteo_mlp, batch 4096, "
KINDS = ("material made ahead", "the dealer live")


def rows(records: list[dict[str, Any]]) -> list[list[str]]:
    """Steps by network, then predictions a second by one pair of workers and by two: each with its target and aim."""
    made = []
    for network, aim in AIMS.items():
        record = _find(records, f"{network}, batch 128, logistic loss, cuda:0: milliseconds a step")
        reached = f"{aim:g}" if record["value"] <= aim else f"{aim:g}, missed"
        made.append([f"{network}, batch 128: milliseconds a step", f"{record['value']:.1f}", record["limit"], reached])
    for kind in KINDS:
        two = _find(records, f"{CRITEO}2 pairs", kind)
        least = float(two["limit"].removeprefix(">= "))
        for pairs, said in (("1 pair", "one pair of workers"), ("2 pairs", "two (`workers=2`)")):
            value = _find(records, f"{CRITEO}{pairs}", kind)["value"]
            target = f">= {least:,.0f}{'' if value >= least else ', missed'}"
            made.append([f"criteo_mlp, {kind}, {said}: rows a second", f"{value:,.0f}", target, "-"])
    return made


def _find(records: list[dict[str, Any]], start: str, kind: str = "") -> dict[str, Any]:
    (found,) = [record for record in records if record["line"].startswith(start) and kind in record["line"]]
    return found
