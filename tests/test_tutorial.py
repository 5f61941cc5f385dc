"""The walk of docs/tutorial.md, as it is printed: one shell runs its commands, two clinics end with predictions."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from hdcos.data.clinics import COLUMNS, write_clinics, write_people
from test_docs import DOCS, alike, fences, sections

STEP = "==== step"


def walk() -> str:
    """The numbered sections of the page."""
    text = (DOCS / "tutorial.md").read_text()
    return "\n".join(part for part in re.split(r"^(?=## )", text, flags=re.MULTILINE) if re.match(r"## \d", part))


def end(group: int) -> None:
    """Tell the shell and its nodes to stop, and wait until they have."""
    os.killpg(group, signal.SIGTERM)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("the nodes did not stop when they were told to")


def judged(folder: Path, asked: str, predicted: str, positive: tuple[str, ...], truth: np.ndarray) -> list[bool]:
    """Which predictions are right; they have the ids of the rows that were asked for, in their order."""
    rows = [line.split(",") for line in (folder / predicted).read_text().splitlines()[1:]]
    new = (folder / asked).read_text().splitlines()[1:]
    assert [row[0] for row in rows] == [line.split(",")[0] for line in new]
    return [(row[1] in positive) == sick for row, sick in zip(rows, truth, strict=True)]


def test_what_nodes_need_is_installed_before_they_are_started() -> None:
    for page, section in ((DOCS / "tutorial.md", "Install"), (DOCS.parent / "README.md", "Install")):
        ((_, _, content),) = fences(sections(page)[section])
        assert re.search(r"pip install '\.\[(demo,)?server\]'", content), page


@pytest.mark.timeout(240)
def test_two_clinics_train_and_predict_as_the_tutorial_says(tmp_path: Path) -> None:
    script, shown = ["set -e"], dict[int, str]()
    for language, title, content in fences(walk()):
        if language == "toml":
            place = tmp_path / title
            place.parent.mkdir(exist_ok=True)
            place.write_text(content)
        elif language == "sh":
            script.append(f"echo '{STEP}'\n{content}")
        elif language == "text":
            shown[len(script) - 1] = content
    output, log = tmp_path / "output", tmp_path / "log"
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HDCOS_")}
    with output.open("wb") as printing, log.open("wb") as logging:
        shell = subprocess.Popen(
            ["bash", "-c", "\n".join(script)],
            cwd=tmp_path,
            env={**environment, "PATH": path},
            stdout=printing,
            stderr=logging,
            start_new_session=True,  # with the nodes that it starts
        )
        try:
            code = shell.wait(200)
        finally:
            end(shell.pid)
    printed = output.read_text().split(f"{STEP}\n")
    assert code == 0, printed[-1] + log.read_text()
    for step, text in shown.items():
        assert alike(printed[step], text), printed[step]

    truth, right = write_clinics(tmp_path / "again"), []
    for clinic in COLUMNS:
        right += judged(tmp_path / clinic, "new.csv", "predictions.csv", ("1", "sick"), truth[clinic])
    assert np.mean(right) >= 0.85
    visitors = write_people(tmp_path / "again")
    assert np.mean(judged(tmp_path / "north", "visitors.csv", "visitors-predicted.csv", ("yes",), visitors)) >= 0.85
    files = [path for path in (tmp_path / "cluster").rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix in (".arrow", ".safetensors", ".part")]
    assert not [path for path in files if b"city=Bern" in path.read_bytes()], "the name of a feature that parties knew"
