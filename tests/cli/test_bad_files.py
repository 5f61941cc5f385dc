"""No command ends in a traceback, whatever files it is given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from cli.mistakes import environment, mistakes, verdict
from hdcos.cli.main import PLACES, main

GROUPS = (
    "models",
    "tables",
    "columns",
    "options",
    "configurations",
    "clusters",
    "secrets",
    "nodes",
    "outputs",
    "values",
    "truncated",
    "separators",
)


@pytest.mark.parametrize("group", GROUPS)
def test_every_mistake_ends_in_one_line_that_names_it(tmp_path, group) -> None:
    wrong, count = [], 0
    for mistake in mistakes(tmp_path, group):
        if mistake.slow:  # the proof of this runs them all, each in a process of its own
            continue
        result = CliRunner(env=environment()).invoke(main, list(mistake.arguments))
        unforeseen = "" if result.exception is None or isinstance(result.exception, SystemExit) else "Traceback"
        fault = verdict(mistake, result.exit_code, result.stdout, result.stderr + unforeseen)
        wrong += [f"{mistake}\n    {fault}"] if fault else []
        count += 1
    assert not wrong, f"{len(wrong)} of {count}:\n" + "\n".join(wrong)


def test_every_command_is_called_with_bad_files(tmp_path) -> None:
    calls = [mistake for number, group in enumerate(GROUPS) for mistake in mistakes(tmp_path / str(number), group)]
    assert sum(not call.slow for call in calls) >= 300
    called = Counter(call.arguments[0] for call in calls)
    assert set(PLACES) <= set(called)


def _commands(found: click.Command, name: tuple[str, ...] = ()) -> Iterator[tuple[str, click.Command]]:
    if isinstance(found, click.Group):
        for word, command in found.commands.items():
            yield from _commands(command, (*name, word))
    yield " ".join(name), found


def test_every_command_that_reads_a_file_is_given_a_truncated_one(tmp_path) -> None:
    """A folder of a node counts as its files do."""
    reading = {
        name
        for name, command in _commands(main)
        for option in command.params
        if option.name == "cluster" or (isinstance(option.type, click.Path) and option.type.exists)
    }
    given = {" ".join(call.arguments[:2]) for call in mistakes(tmp_path, "truncated")}
    missing = {name for name in reading if not any(f"{call} ".startswith(f"{name} ") for call in given)}
    assert missing == set()
    assert len(reading) >= 25
