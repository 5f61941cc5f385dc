"""What people read: tables fit a terminal of 80 columns, pipes get whole lines, and help is not cut."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections import OrderedDict

import click
import numpy as np
import pytest
from click.testing import CliRunner

import hdcos
from hdcos import nn
from hdcos.api.tokens import ROLES
from hdcos.cli import main, remote
from hdcos.party.store import StoredReveal, state

JOBS = [
    {"id": f"{number:032x}", "model": "trained-" + "x" * 40, "state": "cancelled", "step": 120_000, "error": ""}
    | {"total_steps": 400_000, "epoch": 1, "epochs": 2}
    for number in range(2)
]
COUNTED = {"queries": 999_999, "queries_allowed": 1_000_000, "error": ""}
MODELS = [{"name": "m" * 100, "version": f"{number:032x}", "ready": True, **COUNTED} for number in range(2)]


DATASETS = [
    {"name": "n" * 60, "owner": "hospital-of-the-north", "number": 12, "rows": 10**9, "features": 1024, "outputs": 10}
    | {"complete": True, "allowed": [f"client-{number}" for number in range(12)], "expires": 1.8e9},
    {"name": "short", "owner": "acme", "number": 1, "rows": 600, "features": 64, "outputs": 0}
    | {"complete": True, "allowed": [], "expires": 0.0},
]
FAR = """
import sys; sys.path.insert(0, 'tests')
from cli.test_tables import FakeCluster
from hdcos.cli import remote
remote.connect = lambda *a, **o: FakeCluster()
"""


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

    def datasets(self):
        return DATASETS


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


SHORT_PLANS = "from hdcos.planning import serving_plan; serving_plan.BATCHES = serving_plan.FULL_BATCHES = 400"


def on_a_terminal(*arguments: str, before: str = "", code: int = 0) -> list[str]:
    """The lines of a command on a terminal of 80 columns."""
    return printed(f"{before}\nfrom hdcos.cli import main\nmain({list(arguments)!r})", code)


def printed(program: str, code: int = 0) -> list[str]:
    """What a program prints on a terminal of 80 columns; its errors go elsewhere."""
    terminal, follower = pty.openpty()
    environment = {
        **os.environ,
        "COLUMNS": "80",
        "TERM": "xterm",
        "NO_COLOR": "1",
        "HDCOS_TOKEN": "",
        "HDCOS_CLUSTER": "",
    }
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=follower, stderr=subprocess.PIPE, env=environment
    )
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
    with process.stderr:
        errors = process.stderr.read()
    assert process.wait(60) == code, (said + errors).decode()
    return re.sub(r"\x1b\[[0-9;]*m|\r", "", said.decode()).splitlines()


def test_whole_ids_fit_a_terminal_of_80_columns() -> None:
    for command, ids in (("jobs", [j["id"] for j in JOBS]), ("models", [m["version"] for m in MODELS])):
        lines = on_a_terminal(command, before=FAR)
        assert max(map(len, lines)) <= 80
        assert all(any(whole in line.split() for line in lines) for whole in ids)


def test_tables_of_costs_fit_a_terminal_of_80_columns() -> None:
    for arguments in (("cost", "criteo_mlp", "--batch", "4096"), ("cost", "lenet5", "--train", "--batch", "128")):
        lines = on_a_terminal(*arguments)
        assert max(map(len, lines)) <= 80
        assert not any("…" in line for line in lines)
        piped = CliRunner().invoke(main, list(arguments)).output
        assert [line.split() for line in piped.splitlines()] == [line.split() for line in lines]


def test_data_sets_fit_a_terminal_and_a_pipe(far) -> None:
    lines = on_a_terminal("datasets", before=FAR)
    assert max(map(len, lines)) <= 80
    assert "1,000,000,000" in lines[1].split()
    assert [line.split()[-1] for line in lines if "600" in line.split()] == ["-"]
    whole = CliRunner().invoke(main, ["datasets"]).output.splitlines()
    assert len(whole) == 1 + len(DATASETS)
    for line, item in zip(whole[1:], DATASETS, strict=True):
        assert line.startswith(f"{item['name']} ")
        assert (", ".join(item["allowed"]) or "-") in line


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """The folder of a party that knows clients, reveals and counts with long names."""
    home = tmp_path_factory.mktemp("node") / "home"
    assert CliRunner().invoke(main, ["init", "--single-machine", str(home)]).exit_code == 0
    with state(home / "party0") as store:
        for number in range(2):
            store.allow(f"client-{number}-" + "x" * 60, f"{number + 1:064x}", ROLES)
            store.keep_reveal(StoredReveal(f"{number:032x}", "m" * 100, "v", "hospital-of-the-north", "waiting"))
            store.set_aside(f"{number}" * 100, 123_456, 1_000_000)
    return home / "party0"


@pytest.mark.parametrize(
    ("call", "ids", "heads"),
    [
        (("token", "list"), [f"{number + 1:064x}" for number in range(2)], 2),  # init let one in
        (("approve", "list"), [f"{number:032x}" for number in range(2)], 1),
        (("quota",), [f"{number}" * 100 for number in range(2)], 1),
        (("workers", "2"), ["workers;"], 0),
    ],
)
def test_what_operators_list_fits_a_terminal_and_a_pipe(node, call, ids, heads) -> None:
    lines = on_a_terminal(*call, "--node", str(node))
    assert max(map(len, lines)) <= 80
    assert not any("…" in line for line in lines)
    whole = CliRunner().invoke(main, [*call, "--node", str(node)]).output.splitlines()
    shown = [line for line in whole if any(word in line.split() for word in ids)]
    assert len(shown) == len(ids) == len(whole) - heads


def test_what_the_doctor_finds_fits_a_terminal_and_a_pipe(node) -> None:
    """Nobody is reached, and each finding is a line."""
    call = ("doctor", "--cluster", str(node.parent / "cluster.toml"))
    lines, whole = on_a_terminal(*call, code=1), CliRunner().invoke(main, list(call)).output.splitlines()
    assert all(len(line) <= 80 or len(line.split()) == 1 for line in lines)  # a long path is not broken
    assert all(line.startswith(("ok   ", "BAD  ")) for line in whole)
    assert max(map(len, whole)) > 80
    assert " ".join(" ".join(lines).split()).startswith(" ".join(whole[0].split()))


def test_a_confusion_matrix_fits_a_terminal_or_is_a_list(tmp_path) -> None:
    generator = np.random.default_rng(0)
    x, names = generator.normal(size=(60, 4)), [f"class-number-{number}" for number in range(12)]
    nn.models.mlp([4, 8, 12], seed=1).save(tmp_path / "m.safetensors")
    rows = [",".join([*map(str, row), names[generator.integers(12)]]) for row in x]
    (tmp_path / "rows.csv").write_text("\n".join(["a,b,c,d,y", *rows]) + "\n")
    call = ("evaluate", str(tmp_path / "m.safetensors"), str(tmp_path / "rows.csv"), "--label", "y")
    call += ("--class-names", ",".join(names))
    lines, whole = on_a_terminal(*call), CliRunner().invoke(main, list(call)).output.splitlines()
    assert max(map(len, lines)) <= 80
    listed = [line.split() for line in lines[lines.index("") + 2 :]]
    assert sum(int(count) for _, _, count in listed) == 60
    assert all({true, guessed} <= set(names) for true, guessed, _ in listed)
    matrix = [line.split() for line in whole[whole.index("") + 2 :]]
    assert [row[0] for row in matrix] == names
    assert sum(int(count) for row in matrix for count in row[1:]) == 60


def test_a_history_of_training_fits_a_terminal() -> None:
    program = """
from types import SimpleNamespace as Some
from hdcos.cli import train
from hdcos.secure.training.watch import VALIDATION, Epoch
history = [Epoch(10_000 + number, 12345.6, 0.98765, 1.234e-5, VALIDATION) for number in range(3)]
cost = Some(online=Some(rounds=10**9, bytes_sent=(10**15, 0)), offline=Some(bytes_sent=(10**15, 10**15)))
train._show(Some(history=history, cost=cost, best_epoch=10_001), "trained.safetensors", "n" * 40, False)
"""
    lines = printed(program)
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines if line.startswith("10002")] == [["10002", "12345.6", "1.234e-05", "98.77%"]]


def test_reports_of_plans_and_of_networks_from_elsewhere_fit_a_terminal(tmp_path) -> None:
    import torch

    named = [(f"a_block_with_a_long_name_{number}", torch.nn.Linear(4, 4)) for number in range(3)]
    torch.save(torch.nn.Sequential(OrderedDict([*named, ("last", torch.nn.Hardswish())])), tmp_path / "net.pt")
    for call, code in (
        (("plan", "criteo_mlp", "--rows-per-second", "3000", "--rtt-ms", "10"), 0),
        (("convert", str(tmp_path / "net.pt"), "--trust", "--input-shape", "4"), 1),
    ):
        lines = on_a_terminal(*call, before=SHORT_PLANS, code=code)
        assert max(map(len, lines)) <= 80, max(lines, key=len)
        assert not any("…" in line for line in lines)


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
