"""Experiments that train nothing: Table 1 from the planner, and the functions of the figure."""

from __future__ import annotations

from pathlib import Path

from hdcos.protocol.catalogue import ACTIVATIONS, find
from paper import activations, results, rounds
from paper.report.figures import figures
from paper.report.scores import Scores


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


def test_the_figure_of_activations_is_drawn_from_its_rows(tmp_path: Path) -> None:
    out = tmp_path / "paper.jsonl"
    assert activations.run(out) == len(activations.SHOWN)
    assert activations.run(out) == 0
    rows = results.read(out)
    cosine = next(row for row in rows if row["activation"] == "cos")
    assert [0.0, 1.0] in cosine["points"]
    assert [part.name for part in figures(Scores([]), rows)[1:]] == ["activations"]  # type: ignore[union-attr]
    assert len(figures(Scores([]), [])) == 1
