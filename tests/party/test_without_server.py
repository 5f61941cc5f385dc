"""Without the extra `hdcos[server]` everything works but `hdcos party`, which says what to install."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from hdcos import nn
from party.conftest import connected, make_home, secret

ROOT = Path(__file__).parents[2]
EXTRA = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["server"]
SERVER = [requirement.partition(">=")[0].replace("-", "_") for requirement in EXTRA]
# Python imports a module of this name at its start: in the processes that a process starts, too.
BLOCK = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {SERVER!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
"""
IMPORT = "import hdcos.cli, hdcos.cli.doctor, hdcos.party.__main__, hdcos.cluster.local, hdcos.cluster.connect"
LOCAL = """
import hdcos, numpy as np
model = hdcos.nn.models.mlp([6, 8, 3])
x = np.random.default_rng(0).uniform(-1, 1, (4, 6))
with hdcos.local() as cluster:
    print(np.abs(cluster.share(model).predict(x) - model(x)).max() < 1e-2)
    rows = cluster.upload(iter([(x, [0, 1, 2, 0])] * 3), name="rows", outputs=3)
    print(rows, cluster.fit(model, "rows", epochs=1, batch_size=4, lr=0.1, progress=False).predict(x).shape)
"""


@pytest.fixture
def python(tmp_path):
    """Run Python in an environment in which the packages of the extra are not there."""
    (tmp_path / "blocked").mkdir()
    (tmp_path / "blocked" / "sitecustomize.py").write_text(BLOCK)

    def run(*arguments, **environment):
        return subprocess.run(
            [sys.executable, "-W", "error", *map(str, arguments)],
            env={**os.environ, "PYTHONPATH": str(tmp_path / "blocked"), **environment},
            capture_output=True,
            text=True,
            timeout=110,
            check=False,
        )

    return run


@pytest.mark.parametrize("name", [*SERVER, "hdcos.party.http.server"])
def test_the_packages_of_the_extra_are_missing_here(python, name) -> None:
    done = python("-c", f"import {name}")
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named" in done.stderr


def test_no_client_command_dealer_or_local_party_imports_the_server(python) -> None:
    done = python("-c", IMPORT)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_local_cluster_predicts(python) -> None:
    done = python("-c", LOCAL)
    assert (done.stdout, done.stderr) == ("True\n12 (4, 3)\n", "")


def test_a_client_predicts_with_a_cluster(python, home, tmp_path) -> None:
    model = nn.models.mlp([6, 8, 3])
    x = np.random.default_rng(0).uniform(-1, 1, (4, 6))
    np.save(tmp_path / "x.npy", x)
    with connected(home) as cluster:
        cluster.share(model, "tiny")
    program = f"""
import hdcos, numpy as np
with hdcos.connect({str(home / "cluster.toml")!r}) as cluster:
    np.save({str(tmp_path / "api.npy")!r}, cluster.model("tiny").predict(np.load({str(tmp_path / "x.npy")!r})))
"""
    done = python("-c", program, HDCOS_TOKEN=secret(home))
    assert (done.returncode, done.stderr) == (0, "")
    output = ("--output", tmp_path / "command.npy", "--cluster", home / "cluster.toml", "--token-file", home / "token")
    done = python("-m", "hdcos", "predict", "tiny", tmp_path / "x.npy", *output)
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("api.npy", "command.npy"):
        assert np.abs(np.load(tmp_path / name) - model(x)).max() < 1e-2


def test_a_store_of_data_sets_says_what_to_install(python, tmp_path) -> None:
    program = f"""
import hashlib, pathlib
from hdcos.party.store import Store, StoredDataset
store = Store(pathlib.Path({str(tmp_path / "state")!r}))
dataset = StoredDataset("d", "0" * 32, 1, 1, 0, False, "me")
store.begin_dataset(dataset, 1e9)
store.add_bytes(dataset, 0, bytes(8))
store.complete_dataset(dataset, hashlib.sha256(bytes(8)).hexdigest())
"""
    done = python("-c", program)
    assert done.returncode == 1
    assert "InputError: a party keeps data sets with pyarrow: pip install 'hdcos[server]'" in done.stderr


def test_a_party_says_in_one_line_what_to_install(python, tmp_path) -> None:
    folder = make_home(tmp_path / "home")
    done = python("-m", "hdcos", "party", "--node", folder / "party0", "--cluster", folder / "cluster.toml")
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (1, "", 1)
    assert "pip install 'hdcos[server]'" in done.stderr


def test_who_makes_a_cluster_of_one_machine_is_told_at_once(python, tmp_path) -> None:
    done = python("-m", "hdcos", "init", "--single-machine", tmp_path / "home")
    assert (done.returncode, (tmp_path / "home" / "cluster.toml").exists()) == (0, True)
    assert "Note: a party needs its server" in done.stderr
    assert "pip install '.[server]'" in done.stderr


def test_a_mistake_of_our_own_is_not_taken_for_a_missing_package(python, tmp_path) -> None:
    folder = make_home(tmp_path / "home")
    broken = "import sys; sys.modules['hdcos.party.http.server'] = None; from hdcos.cli import main; main()"
    done = python("-c", broken, "party", "--node", folder / "party0", "--cluster", folder / "cluster.toml")
    assert done.returncode == 1
    assert "a mistake in hdcos, please report it" in done.stderr
