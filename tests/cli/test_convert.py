"""`hdcos convert`: the report, the file, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from click.testing import CliRunner, Result

from hdcos import nn
from hdcos.cli import main


def convert(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["convert", *map(str, arguments)])


@pytest.fixture
def path(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    module = torch.nn.Sequential(
        torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(72, 3)
    )
    torch.save(module, tmp_path / "net.pt")
    return tmp_path / "net.pt"


def test_the_report_is_printed_and_nothing_is_written_without_a_place(path: Path) -> None:
    result = convert(path, "--trust", "--input-shape", "1,8,8")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "net.pt: one row on shares" in lines[0]
    assert [line.split()[1] for line in lines if " exact " in line] == [
        "Conv2d", "BatchNorm2d", "ReLU", "Flatten", "Linear",
    ]  # fmt: skip
    assert lines[-1].split()[0] == "total"
    assert [each.name for each in path.parent.iterdir()] == ["net.pt"]


def test_a_network_is_saved_for_sharing(path: Path) -> None:
    out = path.with_name("model.safetensors")
    result = convert(path, "--trust", "--input-shape", "1,8,8", "--out", out)
    assert result.exit_code == 0, result.stderr
    assert result.stdout == f"{path} is saved as {out}: 239 parameters\n"
    assert nn.load(out)(np.zeros((1, 1, 8, 8))).shape == (1, 3)
    report = convert(path, "--trust", "--input-shape", "1,8,8", "--json")
    record = json.loads(report.stdout)
    assert record["operations"][1]["note"] == "folded into 0"
    assert record["operations"][2]["price"]["rounds"] == 3
    assert record["total"]["online_bytes"] > 0


def test_rows_that_do_not_fit_are_refused_in_words_of_the_network(path: Path) -> None:
    result = convert(path, "--trust", "--input-shape", "5")
    assert result.exit_code == 1
    assert "cannot be run on 2 rows of shape (5,)" in result.stderr
    assert "input_shape" in result.stderr
    for internal in ("While executing", "call_module", "GraphModule", "Original traceback"):
        assert internal not in result.stderr


def test_refusals_are_shown_and_end_with_an_error(tmp_path: Path) -> None:
    path, out = tmp_path / "net.pt", tmp_path / "model.safetensors"
    torch.save(torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.LayerNorm(4), torch.nn.ELU()), path)
    result = convert(path, "--trust", "--out", out)
    assert result.exit_code == 1
    assert [line.split()[1] for line in result.stdout.splitlines() if " refused " in line] == ["LayerNorm", "ELU"]
    assert result.stderr.startswith(f"ModelError: {path}: 2 of 3 parts cannot be imported: layer 1 (LayerNorm)")
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--input-shape", "1,8,8"], "may hold a module, and loading one runs the code"),
        (["--trust"], "needs input_shape"),
        (["--trust", "--input-shape", "1,x"], "--input-shape is a list of whole numbers"),
        (["--trust", "--input-shape", "1,8,8", "--out", "/nowhere/m"], "cannot be written"),
    ],
)
def test_mistakes_are_named(path: Path, arguments: list[str], message: str) -> None:
    result = convert(path, *arguments)
    assert result.exit_code == 1
    assert message in result.stderr
