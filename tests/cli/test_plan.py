"""`hdcos plan` as people and programs use it, and a real measurement of a small network."""

from __future__ import annotations

import json

import msgspec
import pytest

from hdcos import nn
from hdcos.planning import measure
from hdcos.planning.figures import read_figures
from serve_nodes import command

pytestmark = pytest.mark.usefixtures("short_plans")
PRICES = 'currency = "EUR"\ncore_hour = 0.04\ngb_hour = 0.005\ngb_out = 0.05\n'


def test_a_load_is_planned_for_people_and_for_programs(tmp_path) -> None:
    (tmp_path / "prices.toml").write_text(PRICES)
    call = ("plan", "criteo_mlp", "--rows-per-second", "3000", "--rows-per-request", "32", "--rtt-ms", "10")
    code, shown = command(*call, "--prices", tmp_path / "prices.toml")
    assert code == 0, shown
    assert max(map(len, shown.splitlines())) <= 80
    for text in ("party 0", "dealer", "3,000 rows a second of criteo_mlp", "(p99)", "What limits:", "A million rows:"):
        assert text in shown
    assert "the figures that come with hdcos" in " ".join(shown.split())
    code, text = command(*call, "--json", "--prices", tmp_path / "prices.toml")
    made = json.loads(text)
    assert code == 0
    assert made["full_rows_per_s"] * 0.7 >= made["rows_per_s"] == 3000
    assert 0.05 < made["p50_s"] <= made["p99_s"], "five rounds and two ways before them, of 5 ms each"
    assert [need["organisation"] for need in made["needs"]] == ["party 0", "party 1", "dealer"]
    assert made["prices"]["total"] == pytest.approx(sum(made["prices"]["hour"].values()) * 1e6 / 3000 / 3600)
    assert read_figures().machine in made["figures"]


def test_a_run_of_training_is_planned(tmp_path) -> None:
    call = ("plan", "higgs_mlp", "--train", "1000000", "--epochs", "2", "--batch", "4096", "--rtt-ms", "2")
    code, shown = command(*call)
    assert code == 0, shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "488 steps of 4,096 rows of higgs_mlp: 1 pair of workers, 1 dealer." in shown
    one = json.loads(command(*call, "--json")[1])
    four = json.loads(command(*call, "--json", "--pairs", "4")[1])
    assert one["steps"] == four["steps"] == 488
    assert one["hours"] == pytest.approx(one["steps"] * one["step_s"] / 3600)
    assert four["step_s"] < one["step_s"]


@pytest.mark.timeout(300)
def test_a_network_of_ones_own_is_measured_once_and_planned_from_then_on(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(measure, "TURNS", 2)
    monkeypatch.setattr(measure, "STEPS", 6)
    monkeypatch.setattr(measure, "REQUESTS", {1: 16, 8: 8})
    model, file, figures = nn.models.mlp([3, 4, 1]), tmp_path / "own.safetensors", tmp_path / "figures.json"
    model.save(file)
    code, shown = command("plan", file, "--measure", "--figures", figures)
    assert code == 0, shown
    known = read_figures(figures)
    found = known.of(model)
    assert found.name == "own"
    assert known.request.of(1) > 0
    assert found.training is not None
    for measured in (found.inference, found.training):
        assert 1e-5 < measured.online.of(32) < 1, "seconds of a core"
        assert 0 < measured.dealer.of(32) < 1
        assert all(0 < work.of(32) < 1 for work in measured.material)
    assert 0 < found.inference.caller.of(32) < 1
    assert 20 < found.party_mb < 500
    code, shown = command("plan", file, "--rows-per-second", "50", "--figures", figures)
    assert code == 0, shown
    assert "figures.json" in shown
    msgspec.structs.replace(known, machine="another").write(figures)
    code, shown = command("plan", file, "--measure", "--figures", figures)
    assert code == 1
    assert "was measured on another, and this is" in shown
