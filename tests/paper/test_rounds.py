"""Table 1 from the planner: what the protocols declare, written once."""

from __future__ import annotations

from pathlib import Path

from hdcos.paper import results, rounds
from hdcos.protocol.catalogue import ACTIVATIONS, find


def test_every_activation_has_the_rounds_and_bytes_that_its_protocol_declares(tmp_path: Path) -> None:
    out = tmp_path / "paper.jsonl"
    assert rounds.run(out) == len(ACTIVATIONS)
    assert rounds.run(out) == 0
    for row in results.read(out):
        function = find(row["activation"])
        price = function.price((rounds.ELEMENTS,), **function.parameters)
        assert row["value"] == price.rounds
        assert row["bytes_per_element"] == price.online_bytes / rounds.ELEMENTS
        assert not results.is_training(row)
