"""Whether the history has the commits that figures were recorded at.

A proof is recorded at the commit that is checked out. If its branch is rebased or squashed before it is merged, no
clone ever has that commit, and nobody can measure again what was measured. Such figures are measured again, or their
commits are marked, and the tables say so.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from benchmarks.record import RESULTS

MARK = "?"
"""Behind a commit that the history does not have."""


def lost_commits(results: Path = RESULTS) -> list[str]:
    """Recorded commits that are neither in the history nor marked; none where there is no whole history to look in."""
    recorded = set[str]()
    for path in sorted(results.glob("*.json")):
        found = json.loads(path.read_text())
        records = found if isinstance(found, list) else [found]
        recorded |= {record["commit"] for record in records if "commit" in record}
    history = _history(results)
    return [
        commit
        for commit in sorted(recorded)
        if history and not commit.endswith(MARK) and commit.rstrip("+") not in history
    ]


def _history(place: Path) -> set[str]:
    """All commits up to the one that is checked out, as they are recorded; none if git does not know all of them."""
    try:
        if _git(place, "rev-parse", "--is-shallow-repository") != "false" or not _git(place, "ls-files"):
            return set()
        return {commit[:12] for commit in _git(place, "rev-list", "HEAD").splitlines()}
    except (FileNotFoundError, subprocess.CalledProcessError):  # no git, or a copy of the files alone
        return set()


def _git(place: Path, *arguments: str) -> str:
    done = subprocess.run(["git", "-C", str(place), *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()
