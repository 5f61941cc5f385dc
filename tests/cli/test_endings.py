"""How real processes end: Ctrl-C, occupied ports, outputs that cannot be written, mistakes of our own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time

import click
import numpy as np
import pytest
from click.testing import CliRunner

from hdcos.cli import main
from hdcos.cli.common import if_interrupted

HDCOS = [sys.executable, "-m", "hdcos"]
CONFIG = """
[data]
train = "rows.npz"
label = "y"
[model]
sizes = [8, 16, 1]
[training]
epochs = 100000
batch_size = 10
lr = 0.01
"""


def start(*arguments, **options):
    return subprocess.Popen(
        [*HDCOS, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


def ended(process, timeout_s=30):
    stdout, stderr = process.communicate(timeout=timeout_s)
    assert "Traceback" not in stdout + stderr
    return process.returncode, stdout, stderr


@pytest.fixture
def config(tmp_path):
    generator = np.random.default_rng(0)
    np.savez(tmp_path / "rows.npz", x=generator.uniform(-1, 1, (100, 8)), y=generator.integers(0, 2, 100))
    (tmp_path / "config.toml").write_text(CONFIG + 'checkpoint = "kept"\ncheckpoint_every = 1\n')
    return tmp_path / "config.toml"


def test_an_interrupted_training_says_how_it_goes_on(config) -> None:
    process = start("train", config)
    deadline = time.monotonic() + 60
    while not list((config.parent).glob("kept/party*/step-*.safetensors")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    code, _, stderr = ended(process)
    assert code == 130, stderr
    assert stderr.splitlines() == [f"Interrupted. Go on from the last checkpoint with `hdcos train {config} --resume`."]
    code, _, stderr = ended(start("train", config))
    assert code == 1
    assert "--resume" in stderr
    assert "--new" in stderr


def test_a_server_that_is_interrupted_says_so_by_its_exit_code(tmp_path) -> None:
    assert CliRunner().invoke(main, ["init", "--single-machine", str(tmp_path / "home")]).exit_code == 0
    for role, command in (("dealer", "dealer"), ("party1", "party")):
        node = ("--node", tmp_path / "home" / role, "--cluster", tmp_path / "home" / "cluster.toml")
        process = start(command, *node)
        assert "listening on" in process.stderr.readline()
        process.send_signal(signal.SIGINT)
        code, _, stderr = ended(process)
        assert code == 130
        assert "Exception" not in stderr


def test_an_occupied_port_is_named_with_the_option_that_chooses_another(tmp_path) -> None:
    assert CliRunner().invoke(main, ["init", "--single-machine", str(tmp_path / "home")]).exit_code == 0
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        cluster = ("--cluster", tmp_path / "home" / "cluster.toml")
        for command, role, option in (
            ("dealer", "dealer", "--listen"),
            ("party", "party0", "--listen"),
            ("party", "party0", "--http-listen"),
        ):
            code, _, stderr = ended(start(command, *cluster, "--node", tmp_path / "home" / role, option, address))
            assert code == 1
            assert len(stderr.splitlines()) == 1
            for words in (address, "in use", option):
                assert words in stderr


def test_who_waits_for_a_party_is_told_so_once(tmp_path) -> None:
    assert CliRunner().invoke(main, ["init", "--single-machine", str(tmp_path / "home")]).exit_code == 0
    reach = ("--cluster", tmp_path / "home" / "cluster.toml", "--token-file", tmp_path / "home" / "token")
    code, _, stderr = ended(start("models", *reach, "--timeout-s", "4"))
    first, last = stderr.splitlines()
    assert (code, first.startswith("party 0 at 127.0.0.1:"), "refuses connections" in last) == (1, True, True)
    assert first.endswith(" does not answer yet, trying for 4 s (Ctrl-C ends it)")
    code, _, stderr = ended(start("models", *reach, "--timeout-s", "0.5"))
    assert (code, len(stderr.splitlines())) == (1, 1), "who hardly waits need not be told"


def test_what_cannot_be_written_is_said_once() -> None:
    with open("/dev/full", "w") as full:
        process = subprocess.run([*HDCOS, "cost", "digits"], stdout=full, stderr=subprocess.PIPE, text=True)
    assert process.returncode == 1
    assert process.stderr.splitlines() == ["Error: the output: No space left on device (free some space)"]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    process = subprocess.run([*HDCOS, "cost", "digits"], stdout=writing, stderr=subprocess.PIPE, text=True)
    os.close(writing)
    assert process.returncode == 1
    assert process.stderr == ""


def test_the_first_second_can_be_interrupted_too(tmp_path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import os, signal, sys\n"
        "class Interrupting:\n"
        "    def find_spec(self, name, *rest):\n"
        "        if name == 'hdcos.cli':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupting())\n"
    )
    code, _, stderr = ended(start("models", env={**os.environ, "PYTHONPATH": str(tmp_path)}))
    assert (code, stderr) == (130, "")


@pytest.fixture
def failing(monkeypatch):
    """A command that raises what it is told to."""

    def use(error):
        @click.command("fail")
        def fail() -> None:
            if_interrupted(lambda: "Try again.")
            raise error

        monkeypatch.setitem(main.commands, "fail", fail)
        return CliRunner().invoke(main, ["fail"])

    return use


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (KeyboardInterrupt(), 130, "Interrupted. Try again."),
        (PermissionError(13, "Permission denied", "/x/y"), 1, "Error: /x/y: Permission denied (change its permissions"),
        (MemoryError("Unable to allocate 9 TiB"), 1, "Error: there is not enough memory: Unable to allocate 9 TiB"),
        (KeyError("seed"), 1, "Error: a mistake in hdcos, please report it: KeyError: 'seed' at "),
    ],
)
def test_whatever_a_command_raises_becomes_one_line(failing, error, code, line) -> None:
    result = failing(error)
    assert result.exit_code == code
    assert result.stderr.startswith(line)
    assert len(result.stderr.splitlines()) == 1


def test_the_trace_of_an_error_can_be_asked_for(failing, monkeypatch) -> None:
    monkeypatch.setenv("HDCOS_DEBUG", "1")
    assert isinstance(failing(KeyError("seed")).exception, KeyError)
