"""What a party that is also a client learns of a ReLU network by asking for one row again and again, with logits and
with labels alone: the attack of `leakage.OpeningAttack`, at a coarser comparison, extended as docs/security.md says.
"""

from __future__ import annotations

from collections.abc import Iterator
from unittest import mock

from benchmarks.hardening_leakage import COMPARED, ROW, extended
from benchmarks.leakage import OpeningAttack, Queries, Setting
from benchmarks.record import Line, at_least
from hdcos import nn
from hdcos.secure.activations import COMPARED_SCALE

QUERIES, FEWER_BITS = {10: 100_000, 2: 400_000}, 4
"""Queries by the number of outputs: fewer tell less."""


def prove_attacks(seed: int) -> Iterator[Line]:
    for outputs, queries in QUERIES.items():
        model = nn.Sequential(
            [nn.HadamardDiagonal(256, 256), nn.ReLU(), nn.HadamardDiagonal(256, outputs)], seed=seed % 1000
        )
        needed = {}
        for labels in (False, True):
            with mock.patch(COMPARED, COMPARED_SCALE - FEWER_BITS):
                attack = OpeningAttack(Queries(model, Setting(), ROW), 0, 1, labels)
            attack.ask(queries)
            least, sure = attack.needed()
            needed[labels] = extended(least, FEWER_BITS)
            what = f"ReLU, {outputs} outputs of 256 units, {'labels alone' if labels else 'logits'}"
            told = f"{'' if sure else 'more than '}this many queries, extended from {COMPARED_SCALE - FEWER_BITS} bits"
            yield Line(f"{what}: {told}", needed[labels], "reported", True)
        line = f"ReLU, {outputs} outputs: queries for labels over those for logits"
        yield at_least(line, needed[True] / needed[False], 1.0)
