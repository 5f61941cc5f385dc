"""Attacks, exhaustion, bad input and long runs: what a party, a client, a full disk or a hurried user can do."""

from __future__ import annotations

from benchmarks import (
    hardening_bombs,
    hardening_cli,
    hardening_exhaust,
    hardening_layers,
    hardening_leakage,
    hardening_series,
)

PARTS = {
    "leakage": hardening_leakage.prove,
    "layers": hardening_layers.prove,
    "bombs": hardening_bombs.prove,
    "disk": hardening_exhaust.disk,
    "strangers": hardening_exhaust.strangers,
    "soak": hardening_exhaust.soak,
    "series": hardening_series.prove,
    "cli": hardening_cli.prove,
}
