"""Folders and files of state, and of the backup that is documented, are private whatever the umask."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from hdcos.api.tokens import fingerprint, new_secret, token, token_hash
from hdcos.link.cluster_file import ClusterFile
from hdcos.party.checkpoint import Checkpoints
from hdcos.party.store import Store, StoredDataset
from party.conftest import command, make_home

WORDS = {"w": np.arange(6, dtype=np.uint64)}
OPERATIONS = (Path(__file__).parents[2] / "docs" / "operations.md").read_text()


@contextmanager
def umask(mode):
    before = os.umask(mode)
    try:
        yield
    finally:
        os.umask(before)


def open_to_others(folder):
    return [path for path in [folder, *folder.rglob("*")] if path.stat().st_mode & 0o077]


def kept(folder):
    """A state with one of everything in it; the database is open, so its log is there."""
    store = Store(folder)
    store.tidy()
    store.keep_model("m", "0" * 32, {"layers": []}, 16, "me", WORDS)
    dataset = StoredDataset("d", "1" * 32, 2, 3, 0, False, "me")
    store.begin_dataset(dataset, 1e9)
    store.add_bytes(dataset, 0, bytes(8))
    store.keep_job("2" * 32, {"model": "x"}, "me", WORDS)
    checkpoints = Checkpoints.of(store.job_folder("2" * 32), 0)
    checkpoints.lock()
    checkpoints.begin(1, "scope")
    checkpoints.save(1, WORDS, {})
    checkpoints.unlock()
    return store


@pytest.mark.parametrize("mask", [0, 0o022, 0o277])
def test_everything_in_a_state_is_private(tmp_path, mask) -> None:
    with umask(mask):
        store = kept(tmp_path / "above" / "node" / "state")
        store._folder("reveals")
    assert {"hdcos.sqlite", "hdcos.sqlite-wal", "hdcos.sqlite-shm", "reserve"} <= {
        path.name for path in store.folder.iterdir()
    }
    assert open_to_others(tmp_path / "above") == []
    assert np.array_equal(store.model_words("m", "0" * 32)["w"], WORDS["w"])
    store.close()


def test_a_node_and_a_cluster_made_for_trying_are_private(tmp_path) -> None:
    with umask(0):
        make_home(tmp_path / "home")
    assert tmp_path.joinpath("home").stat().st_mode & 0o777 == 0o700
    for role in ("party0", "party1"):
        assert open_to_others(tmp_path / "home" / role / "state") == []
        assert tmp_path.joinpath("home", role).stat().st_mode & 0o777 == 0o700


def test_what_was_left_open_is_made_private_at_the_start(tmp_path) -> None:
    kept(tmp_path / "state").close()
    for path in [tmp_path / "state", *(tmp_path / "state").rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    store = Store(tmp_path / "state")
    store.sweep()
    assert open_to_others(tmp_path / "state") == []
    store.close()


def documented(heading, root):
    """The commands of a block of the page, for a folder that is not /var/lib/hdcos and without another user."""
    section = OPERATIONS.split(f"## {heading}")[1].split("\n## ")[0]
    blocks = [re.sub(r"sudo (-u hdcos )?", "", block) for block in re.findall(r"```sh\n(.*?)```", section, re.DOTALL)]
    lines = [[line for line in block.splitlines() if "systemctl" not in line] for block in blocks]
    return ["\n".join(block).replace("/var/lib/hdcos", str(root)) for block in lines]


@pytest.mark.skipif(shutil.which("sqlite3") is None, reason="the page's commands use sqlite3")
@pytest.mark.parametrize("mask", [0, 0o022])
def test_the_documented_backup_and_what_is_restored_from_it_are_private(tmp_path, mask) -> None:
    store = kept(tmp_path / "node" / "state")
    (tmp_path / "node" / "state" / "models").chmod(0o755)  # as older releases left it
    backup, restore = documented("Backup and restore", tmp_path)
    with umask(mask):
        subprocess.run(["sh", "-e", "-c", backup], check=True)
        assert open_to_others(tmp_path / "backup") == []
        assert {path.name for path in (tmp_path / "backup").iterdir()} == {"hdcos.sqlite", "state.tar"}
        store.close()
        subprocess.run(["sh", "-e", "-c", restore], check=True)
    assert open_to_others(tmp_path / "node" / "state") == []
    again = Store(tmp_path / "node" / "state")
    again.sweep()
    assert np.array_equal(again.model_words("m", "0" * 32)["w"], WORDS["w"])
    assert again.received(again.datasets("d")[0]) == 8
    again.close()


def test_a_fingerprint_for_the_other_party_is_refused(folder) -> None:
    secret, cluster_file = new_secret(), ClusterFile.read(folder / "cluster.toml")
    for rank in (0, 1):
        arguments = ("--node", folder / f"party{rank}", "--role", "predict")
        code, output = command("token", "allow", "me too", fingerprint(secret, cluster_file.id, 1 - rank), *arguments)
        assert code == 1
        assert f"this fingerprint is for party{1 - rank}, and this node is party{rank}" in output
        code, output = command("token", "allow", "me too", token_hash(token(secret, cluster_file.id, rank)), *arguments)
        assert code == 1
        assert "party0- or party1- and 64 hexadecimal digits" in output
        assert command("token", "allow", "me too", fingerprint(secret, cluster_file.id, rank), *arguments)[0] == 0
    store = Store(folder / "party1" / "state")
    assert [hashed for name, hashed, _ in store.clients() if name == "me too"] == [
        token_hash(token(secret, cluster_file.id, 1))
    ]
    store.close()
