"""What a release says of itself is true: version, changelog, Pythons, workflows."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import hdcos

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CHANGELOG = (ROOT / "CHANGELOG.md").read_text()
WORKFLOWS = {path.name: yaml.safe_load(path.read_text()) for path in (ROOT / ".github" / "workflows").glob("*.yml")}
PYTHONS = [
    match[1]
    for line in PROJECT["project"]["classifiers"]
    if (match := re.fullmatch(r"Programming Language :: Python :: (3\.\d+)", line))
]


def steps(workflow: dict[str, Any]) -> list[dict[str, Any]]:
    return [step for job in workflow["jobs"].values() for step in job.get("steps", [])]


def versions(workflow: dict[str, Any]) -> set[str]:
    """Every Python that the steps of a workflow set up."""
    said = [step["with"]["python-version"] for step in steps(workflow) if "setup-python" in step.get("uses", "")]
    return {version for text in said for version in text.split() if re.fullmatch(r"3\.\d+", version)}


def test_the_newest_entry_of_the_changelog_is_this_version_and_has_a_date() -> None:
    headings = [line for line in re.findall(r"^## (.*)$", CHANGELOG, re.MULTILINE) if line != "Unreleased"]
    assert re.fullmatch(rf"{re.escape(hdcos.__version__)} - \d{{4}}-\d\d-\d\d", headings[0])
    dates = [heading.split(" - ")[1] for heading in headings]
    assert dates == sorted(dates, reverse=True)


def test_the_version_is_written_once_and_supported() -> None:
    assert PROJECT["project"]["dynamic"] == ["version"]
    assert not re.search(r"^version:", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    minor = ".".join(hdcos.__version__.split(".")[:2])
    assert f"| {minor} | yes |" in (ROOT / "SECURITY.md").read_text()


def test_every_python_that_is_promised_is_tested_and_no_other() -> None:
    assert PROJECT["project"]["requires-python"] == f">={PYTHONS[0]}"
    assert WORKFLOWS["checks.yml"]["jobs"]["test"]["strategy"]["matrix"]["python"] == PYTHONS
    assert set(PYTHONS) <= versions(WORKFLOWS["wheels.yml"])


def test_every_python_has_a_wheel() -> None:
    stable = PROJECT["tool"]["scikit-build"]["wheel"]["py-api"]
    tags = ["cp" + version.replace(".", "") for version in PYTHONS]
    built = [pattern.split("-")[0] for pattern in PROJECT["tool"]["cibuildwheel"]["build"]]
    assert built == [*tags[: tags.index(stable)], stable]


def test_the_extension_keeps_to_the_stable_abi_where_there_is_one() -> None:
    from hdcos.ring import _native

    name = Path(_native.__file__).name
    assert (name == "_native.abi3.so") == (sys.version_info >= (3, 12)), name


def test_a_machine_with_a_gpu_needs_nothing_but_its_driver() -> None:
    """CuPy alone compiles nothing: its extra brings NVRTC and the headers of CUDA, where no toolkit is installed."""
    (cupy,) = PROJECT["project"]["optional-dependencies"]["gpu"]
    assert cupy == "cupy-cuda13x[ctk]>=14"
    pins = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines()[1:])
    assert int(pins["cupy-cuda13x"].split(".")[0]) >= 14
    guide = (ROOT / "docs" / "gpu.md").read_text()
    assert all(extra in guide for extra in ("'hdcos[server,gpu]'", "'cupy-cuda12x[ctk]'"))


def test_the_pure_wheel_is_for_any_python() -> None:
    (fallback,) = PROJECT["tool"]["scikit-build"]["overrides"]
    assert fallback["if"]["any"] == {"failed": True, "env": {"HDCOS_PURE": True}}
    assert fallback["wheel"] == {"cmake": False, "py-api": "py3"}
    assert any("HDCOS_PURE=1" in step.get("run", "") for step in steps(WORKFLOWS["wheels.yml"]))


@pytest.mark.parametrize("name", sorted(WORKFLOWS))
def test_a_workflow_runs_what_exists_with_little_power(name: str) -> None:
    workflow = WORKFLOWS[name]
    assert workflow["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for step in steps(workflow):
        assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step.get("uses", "a/b@v1"))
        run = step.get("run", "")
        assert set(re.findall(r"^make (\w+)", run, re.MULTILINE)) <= targets
        assert all((ROOT / path).is_file() for path in re.findall(r"\b(?:scripts|src)/[\w/]+\.py", run))


def test_publishing_keeps_no_secret_and_waits_for_wheels_that_were_tried() -> None:
    text = (ROOT / ".github" / "workflows" / "publish.yml").read_text()
    jobs = WORKFLOWS["publish.yml"]["jobs"]
    assert "secrets." not in text
    assert jobs["publish"]["permissions"] == {"id-token": "write"}
    assert jobs["publish"]["needs"] == "wheels"
    assert jobs["wheels"]["uses"] == "./.github/workflows/wheels.yml"
    assert WORKFLOWS["wheels.yml"]["jobs"]["try"]["needs"] == ["native", "pure"]
