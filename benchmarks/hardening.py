"""Attacks, exhaustion and long runs: what a party, a client or a full disk can do."""

from __future__ import annotations

from benchmarks import hardening_leakage

PARTS = {
    "leakage": hardening_leakage.prove,
}
