"""What people read: tables fit a terminal of 80 columns, pipes get whole lines, and help is not cut."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner

import hdcos
from hdcos.cli import main, remote

JOBS = [
    {"id": f"{number:032x}", "model": "trained-" + "x" * 40, "state": "cancelled", "step": 120_000, "error": ""}
    | {"total_steps": 400_000, "epoch": 1, "epochs": 2}
    for number in range(2)
]
COUNTED = {"queries": 999_999, "queries_allowed": 1_000_000, "error": ""}
MODELS = [{"name": "m" * 100, "version": f"{number:032x}", "ready": True, **COUNTED} for number in range(2)]


class FakeCluster:
    """A cluster that holds much: its answers are what is shown."""

    def __enter__(self):
        return self

    def __exit__(self, *rest):
        return None

    def jobs(self):
        return JOBS

    def models(self):
        return MODELS


@pytest.fixture
def far(monkeypatch):
    monkeypatch.setattr(remote, "connect", lambda *arguments, **options: FakeCluster())


@pytest.mark.parametrize(
    ("command", "ids"), [("jobs", [j["id"] for j in JOBS]), ("models", [m["version"] for m in MODELS])]
)
def test_a_pipe_gets_every_record_on_a_line_of_its_own(far, command, ids) -> None:
    result = CliRunner().invoke(main, [command])
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert len(lines) == 1 + len(ids)
    for line, whole, name in zip(lines[1:], ids, (JOBS if command == "jobs" else MODELS), strict=True):
        assert whole in line.split()
        assert (name.get("model") or name.get("name")) in line.split()


def on_a_terminal(*arguments: str, before: str = "") -> list[str]:
    """The lines of a command on a terminal of 80 columns."""
    program = f"{before}\nfrom hdcos.cli import main\nmain({list(arguments)!r})"
    terminal, follower = pty.openpty()
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm", "NO_COLOR": "1"}
    process = subprocess.Popen([sys.executable, "-c", program], stdout=follower, stderr=follower, env=environment)
    os.close(follower)
    said = b""
    while True:
        try:
            piece = os.read(terminal, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        said += piece
    os.close(terminal)
    assert process.wait(60) == 0, said.decode()
    return re.sub(r"\x1b\[[0-9;]*m|\r", "", said.decode()).splitlines()


def test_whole_ids_fit_a_terminal_of_80_columns() -> None:
    before = "import sys; sys.path.insert(0, 'tests')\nfrom cli.test_tables import FakeCluster\n"
    before += "from hdcos.cli import remote\nremote.connect = lambda *a, **o: FakeCluster()"
    for command, ids in (("jobs", [j["id"] for j in JOBS]), ("models", [m["version"] for m in MODELS])):
        lines = on_a_terminal(command, before=before)
        assert max(map(len, lines)) <= 80
        assert all(any(whole in line.split() for line in lines) for whole in ids)


def test_tables_of_costs_fit_a_terminal_of_80_columns() -> None:
    for arguments in (("cost", "criteo_mlp", "--batch", "4096"), ("cost", "lenet5", "--train", "--batch", "128")):
        lines = on_a_terminal(*arguments)
        assert max(map(len, lines)) <= 80
        assert not any("…" in line for line in lines)
        piped = CliRunner().invoke(main, list(arguments)).output
        assert [line.split() for line in piped.splitlines()] == [line.split() for line in lines]


def commands(group: click.Group, *names: str):
    yield names, group
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from commands(command, *names, name)
        else:
            yield (*names, name), command


@pytest.mark.parametrize("names", [names for names, _ in commands(main)], ids=" ".join)
def test_help_fits_80_columns_and_is_not_cut(names) -> None:
    result = CliRunner().invoke(main, [*names, "--help"], terminal_width=80)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert max(map(len, lines)) <= 80
    listed = lines[lines.index("Commands:") :] if "Commands:" in lines else []
    assert not any(line.endswith("...") for line in listed)


def test_every_option_says_what_it_is_for() -> None:
    silent = [
        f"{' '.join(names)} {option.opts[0]}"
        for names, command in commands(main)
        for option in command.params
        if isinstance(option, click.Option) and not option.help
    ]
    assert silent == []


def test_the_package_shows_its_public_names_and_no_others() -> None:
    assert dir(hdcos) == sorted(hdcos.__all__)
    program = "import hdcos, hdcos.cli, hdcos.cluster; print(*dir(hdcos))"
    shown = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert shown == ["__version__", "connect", "data", "local", "nn", "sklearn", "tables"]
