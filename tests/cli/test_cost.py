"""The command line as a person and as a program use it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

from hdcos import __version__, nn
from hdcos.protocol.catalogue import ACTIVATIONS
from hdcos.ring import backend
from hdcos.secure.calibrate import intervals
from hdcos.secure.estimate import estimate, total
from serve_nodes import command

PROGRAM = """
from hdcos.cli import cost, main
cost.REPEATS, cost.ROWS, cost.ELEMENTS = 1, 16, 16 * cost.COLUMNS  # what is counted does not depend on them
main()
"""
HDCOS = [sys.executable, "-c", PROGRAM]
FIELDS = {
    "activation",
    "paper_rounds",
    "rounds",
    "bytes_per_element",
    "offline_bytes_per_element",
    "parties_bytes_per_element",
    "max_abs_error",
    "interval",
    "ms",
}


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    known = {**os.environ, **environment}
    return subprocess.run([*HDCOS, *arguments], env=known, capture_output=True, text=True, timeout=100, check=False)


def test_the_activation_table_as_json_has_every_row_and_field() -> None:
    finished = run("cost", "activations", "--json")
    assert finished.returncode == 0, finished.stderr
    rows = {row["activation"]: row for row in json.loads(finished.stdout)}
    assert tuple(rows) == ACTIVATIONS
    assert all(set(row) == FIELDS for row in rows.values())
    assert {name: row["rounds"] for name, row in rows.items()} == {
        name: {"none": 0, "cos_paper": 2}.get(name, 1) for name in ACTIVATIONS
    }
    assert rows["cos"]["bytes_per_element"] == 2
    assert rows["cos"]["max_abs_error"] <= 2.5e-4
    assert rows["polyfit3"]["paper_rounds"] == 2
    assert finished.stderr == "", "quiet where nobody watches"


def test_the_table_is_printed_for_people_and_feels_an_emulated_network() -> None:
    finished = run("cost", "activations", "--rtt-ms", "20")
    assert finished.returncode == 0, finished.stderr
    assert "cos_paper" in finished.stdout
    assert "an empty exchange both ways took 1" in finished.stdout  # 10 ms and a little: half a round-trip time


def test_the_version_is_told_with_the_kernels_and_what_is_wrong_with_them() -> None:
    assert run("--version").stdout == f"hdcos {__version__}, kernels {backend()}\n"
    slow = run("--version", HDCOS_KERNELS="reference").stdout
    assert slow == f"hdcos {__version__}, kernels reference (nothing was compiled: many times slower)\n"


def test_an_error_is_shown_by_name_without_a_trace() -> None:
    finished = run("cost", "activations", "--mbps", "-3")
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr


def test_material_is_planned_from_both_sources_side_by_side() -> None:
    _, output = command("cost", "higgs_mlp", "--json")
    dealer, parties = json.loads(output)["sources"]
    assert (dealer["source"], parties["source"]) == ("a dealer", "the two parties")
    assert 0 < dealer["bytes"] < parties["bytes"]
    _, output = command("cost", "higgs_mlp", "--train", "--batch", "256", "--rows", "2560", "--json")
    planned = json.loads(output)
    assert planned["online"]["rounds"] == 11
    assert planned["steps"] == 10
    assert planned["epoch"][1]["bytes"] == 10 * planned["step"][1]["bytes"]
    _, output = command("cost", "lenet5", "--train", "--batch", "128")
    assert "the two parties" in output
    assert command("cost", "lenet5", "--rows", "5")[0] == 2
    assert command("cost", "lenet5", "--train", "--measure")[0] == 2


def test_labels_are_planned_too_and_only_a_dealer_makes_their_material() -> None:
    logits, labels = (json.loads(command("cost", "lenet5", *more, "--json")[1]) for more in ((), ("--label",)))
    assert labels["total"]["online"]["rounds"] == logits["total"]["online"]["rounds"] + 3
    assert labels["layers"][-1]["name"] == "label"
    (dealer,) = labels["sources"]
    assert dealer["bytes"] > logits["sources"][0]["bytes"]
    assert dealer["source"] == "a dealer"
    code, output = command("cost", "lenet5", "--activation", "relu", "--json")
    assert code == 0, output
    assert [each["source"] for each in json.loads(output)["sources"]] == ["a dealer"]
    assert command("cost", "lenet5", "--train", "--label")[0] == 2


def test_material_of_steps_that_compare_is_planned_from_a_dealer_alone() -> None:
    relu = ("cost", "lenet5", "--activation", "relu", "--json")
    planned = json.loads(command(*relu, "--train", "--batch", "16")[1])
    assert [cost["source"] for cost in planned["step"]] == ["a dealer"]
    assert planned["online"]["rounds"] == 28


def test_the_series_of_a_network_are_listed_with_their_intervals_and_cost(tmp_path) -> None:
    assumed = nn.models.mlp([12, 8, 2], "tanh")
    wide = nn.Sequential([nn.Dense(12, 8), nn.Tanh(interval=60), nn.Dense(8, 2)])
    for name, model in (("assumed", assumed), ("wide", wide)):
        model.save(tmp_path / name)
    code, shown = command("cost", tmp_path / "assumed")
    assert code == 0
    ((series,), _), ((wider,), _) = intervals(assumed), intervals(wide)
    assert f"Series of layer 1, Tanh: right for |x| <= 4, assumed; 7 harmonics, {series.material_bytes} bytes" in shown
    code, shown = command("cost", tmp_path / "wide", "--json")
    assert code == 0
    found = {"layer": 1, "kind": "Tanh", "interval": 60, "assumed": False, "harmonics": 56}
    assert json.loads(shown)["series"] == [{**found, "material_bytes": wider.material_bytes}]
    assert wider.material_bytes == 8 * series.material_bytes


def test_comparisons_are_priced_by_either_way_and_from_a_dealer_alone(tmp_path) -> None:
    model = nn.Sequential([nn.Dense(6, 8), nn.ReLU(), nn.Dense(8, 3)])
    model.save(tmp_path / "model")
    for more, rounds in (((), 4), (("--compare", "dcf"), 3)):
        code, shown = command("cost", tmp_path / "model", "--json", *more)
        assert code == 0, shown
        found = json.loads(shown)
        assert found["total"]["online"]["rounds"] == rounds
        (source,) = found["sources"]
        assert source["source"] == "a dealer"
        assert source["bytes"] == found["total"]["offline"]["bytes_sent"], "to both parties"
    code, shown = command("cost", tmp_path / "model", "--compare", "dcf")
    assert code == 0
    assert "a dealer" in shown
    assert "the two parties" not in shown
    assert command("cost", "networks", "--compare", "dcf")[0] == 2


def test_ready_networks_stand_side_by_side() -> None:
    code, shown = command("cost", "networks", "--json")
    assert code == 0
    costs = {cost.pop("network"): cost for cost in json.loads(shown)}
    assert {*nn.models.READY, "kernel_machine", "digits", "lenet5, dense"} < set(costs)
    machine, dense = costs["kernel_machine"], total(estimate(nn.models.lenet5(structure="dense")))
    assert (machine["rounds"], machine["online_bytes"], machine["row_bytes"]) == (0, 0, 8 * 4096)
    assert costs["lenet5, dense"]["online_bytes"] == dense.online.bytes_sent
    code, shown = command("cost", "networks")
    assert code == 0
    assert "comparisons would come on top" in shown
    code, shown = command("cost", "kernel_machine")
    assert code == 0
    assert "a row to each party in 32,768 bytes" in shown


def test_a_warning_is_shown_by_name_without_a_place(tmp_path) -> None:
    program = (
        "import click, warnings; from hdcos.cli import main; from hdcos.errors import HdcosWarning\n"
        "@main.command()\n"
        "def doubt():\n    warnings.warn('look here', HdcosWarning)\n    warnings.warn('python', RuntimeWarning)\n"
        "main()"
    )
    finished = subprocess.run([sys.executable, "-c", program, "doubt"], capture_output=True, text=True, timeout=60)
    assert finished.stderr.splitlines()[0] == "HdcosWarning: look here"
    assert "RuntimeWarning: python" in finished.stderr
