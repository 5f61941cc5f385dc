"""Mistakes people make, and what they are told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import hdcos
from hdcos import nn
from hdcos.errors import InputError, ModelError, PeerLost

MODEL = nn.models.mlp([4, 4, 2], "cos", "hadamard")


@pytest.fixture(scope="module")
def cluster():
    with hdcos.local(timeout_s=20) as running:
        yield running


@pytest.mark.parametrize("thing", ["model.safetensors", None, [nn.Cos()], torch.nn.Sequential(torch.nn.Linear(2, 2))])
def test_what_is_not_a_network_is_not_shared(cluster, thing) -> None:
    with pytest.raises(ModelError, match=r"share takes an hdcos\.nn\.Sequential.*from_torch"):
        cluster.share(thing)


@pytest.mark.parametrize("rows", [0, -1, "10", 1e3, True, None])
def test_material_is_prepared_for_whole_numbers(cluster, rows) -> None:
    private = cluster.share(MODEL)
    with pytest.raises(InputError, match="whole number of at least 1"):
        private.prepare(rows)


def test_more_material_than_a_party_can_keep_is_refused_before_it_is_made(cluster) -> None:
    private = cluster.share(MODEL)
    with pytest.raises(InputError, match="prepare fewer at a time"):
        private.prepare(10**12)
    assert np.abs(private.predict(np.zeros((1, 4))) - MODEL(np.zeros((1, 4)))).max() < 1e-2


def test_shapes_that_are_none_are_an_input_error(cluster) -> None:
    with pytest.raises(InputError, match="tuples of whole numbers"):
        cluster.function("cos", "x")


def test_rows_of_unequal_length_are_an_input_error(cluster) -> None:
    with pytest.raises(InputError, match="same shape"):
        cluster.share(MODEL).predict([[1, 2, 3, 4], [1, 2]])


def test_layers_that_are_not_in_a_list_are_explained() -> None:
    with pytest.raises(ModelError, match="as a list"):
        nn.Sequential(nn.Dense(4, 2), nn.Cos())


@pytest.mark.parametrize("bits", [7, 29, 16.0, "16"])
def test_impossible_phase_bits_are_refused_at_once(bits) -> None:
    with pytest.raises(InputError, match="8 to 28 bits"), hdcos.local(phase_bits=bits):
        raise AssertionError("unreachable")


def test_what_a_cluster_made_cannot_be_used_after_it_ended() -> None:
    with hdcos.local() as ended:
        private = ended.share(MODEL)
    for use in (
        lambda: private.predict(np.zeros((1, 4))),
        lambda: ended.share(MODEL),
        lambda: ended.evaluate("cos", [[1.0]]),
        lambda: ended.cost,
    ):
        with pytest.raises(PeerLost, match="inside its `with` block"):
            use()


def test_no_private_key_is_ever_written_down(tmp_path: Path) -> None:
    program = "import hdcos, os; c = hdcos.local(); c.__enter__(); os.kill(os.getpid(), 9)"
    environment = {"PATH": "/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    subprocess.run([sys.executable, "-c", program], env=environment, check=False, timeout=60)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files, "the cluster was started"
    assert not any(b"PRIVATE KEY" in path.read_bytes() for path in files)


@pytest.mark.parametrize(
    "arguments",
    [
        ["activations", "--batch", "8"],
        ["networks", "--train"],
        ["kernel_machine", "--structure", "dense"],
        ["digits", "--structure", "dense"],
        ["lenet5", "--batch", "100000000"],
        [],
    ],
)
def test_options_that_would_be_ignored_are_a_usage_error(arguments) -> None:
    command = [sys.executable, "-c", "from hdcos.cli import main; main()", "cost", *arguments]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert finished.returncode == 2
    assert "Usage" in finished.stderr
