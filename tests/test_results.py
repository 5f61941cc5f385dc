"""What is recorded in benchmarks/results can be measured again: the history has the commits, the code the limits."""

from __future__ import annotations

import importlib
import json
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from benchmarks.history import lost_commits
from benchmarks.prove import MODULES, SUITES
from benchmarks.record import RESULTS


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", "-C", str(folder), *who, *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Two commits, and figures of the first one and of a third that is in no branch."""
    place = tmp_path / "whole"
    (place / "results").mkdir(parents=True)
    git(place, "init", "--quiet", "-b", "main")
    commits = []
    for name in ("one", "two", "squashed"):
        (place / name).write_text(name)
        git(place, "add", name)
        git(place, "commit", "--quiet", "-m", name)
        commits.append(git(place, "rev-parse", "--short=12", "HEAD"))
    git(place, "reset", "--quiet", "--hard", commits[1])
    record(place, commits[0], f"{commits[1]}+", commits[2])
    git(place, "add", "results")
    git(place, "commit", "--quiet", "-m", "figures")
    return place


def record(place: Path, *commits: str) -> None:
    records = [{"line": "a line", "commit": commit} for commit in commits]
    (place / "results" / "scale.json").write_text(json.dumps(records))
    (place / "results" / "peers.json").write_text(json.dumps({"commit": commits[0]}))


def test_a_commit_that_a_squashed_branch_took_away_is_found(repository: Path) -> None:
    kept, _, squashed = (item["commit"] for item in json.loads((repository / "results" / "scale.json").read_text()))
    assert lost_commits(repository / "results") == [squashed]
    record(repository, kept, f"{squashed}?")
    assert lost_commits(repository / "results") == []


def test_without_the_whole_history_nothing_is_said(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", "shallow")
    assert lost_commits(tmp_path / "shallow" / "results") == []
    copy = tmp_path / "copy" / "results"
    copy.mkdir(parents=True)
    (copy / "scale.json").write_text((repository / "results" / "scale.json").read_text())
    assert lost_commits(copy) == []


def says_reported(module: ModuleType) -> bool:
    """Whether code of a part has figures without a limit: its own module, or another benchmark that it takes from."""
    used = {getattr(value, "__module__", None) or getattr(value, "__name__", "") for value in vars(module).values()}
    names = {module.__name__, *(name for name in used if str(name).startswith("benchmarks."))}
    files = [importlib.import_module(name).__file__ for name in names]
    return any('"reported"' in Path(file).read_text() for file in files if file)


def test_what_is_recorded_without_a_limit_has_none_in_the_code() -> None:
    """A limit that was set later would be shown as met by what nobody compared with it."""
    stale = set()
    for suite in SUITES:
        path = RESULTS / f"{suite}.json"
        records = json.loads(path.read_text()) if path.exists() else []
        reported = {record["command"] for record in records if record["limit"] == "reported"}
        if not reported:
            continue
        module = importlib.import_module(f"benchmarks.{MODULES.get(suite, suite)}")
        for command in reported:
            part = command.partition(" PART=")[2]
            prove = module.PARTS[part] if part else module.prove
            if not says_reported(importlib.import_module(prove.__module__)):
                stale.add(command)
    assert not stale
