"""What is recorded in benchmarks/results can be measured again: the history has the commits."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from benchmarks.history import lost_commits


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
