"""The documents: their code runs and prints what they show, their names and commands exist, and the notebook holds what
its script would execute."""

from __future__ import annotations

import ast
import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import numpy as np
import pytest

from benchmarks.mutation import NETS
from benchmarks.service import Walk
from hdcos.cli import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = {"first_steps.md", "two_tables.md", "report.md"}


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    return json.loads((ROOT / "examples" / "first_steps.ipynb").read_text())


def test_the_notebook_has_the_cells_of_its_script(notebook: dict[str, Any]) -> None:
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert cells == script("make_notebook").CELLS, "write it again: python scripts/make_notebook.py"


def test_every_cell_was_executed_in_order_and_showed_something(notebook: dict[str, Any]) -> None:
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    assert all(cell["outputs"] for cell in code)
    assert {output["output_type"] for cell in code for output in cell["outputs"]} == {"stream"}
    assert (notebook["nbformat"], len({cell["id"] for cell in notebook["cells"]})) == (4, len(notebook["cells"]))


def test_cells_are_executed_with_what_earlier_ones_defined() -> None:
    execute, names = script("make_notebook").execute, {}
    assert execute("a = 2", names) == ""
    assert execute("print(a + 1)", names) == "3\n"


def test_the_notebook_becomes_a_page(notebook: dict[str, Any]) -> None:
    page = script("docs_pages").notebook_page(notebook)
    assert page.startswith("# First steps")
    assert page.count("```python") == page.count("```text") == sum(c["cell_type"] == "code" for c in notebook["cells"])


def test_every_page_of_the_documentation_is_there() -> None:
    pages = set(re.findall(r"[\w-]+\.md", (ROOT / "mkdocs.yml").read_text().split("nav:")[1]))
    assert pages == {path.name for path in DOCS.glob("*.md")} | GENERATED
    links = {link for path in DOCS.glob("*.md") for link in re.findall(r"\]\(([\w-]+\.md)", path.read_text())}
    assert links <= pages
    assert set(re.findall(r"\]\(([\w-]+\.md)", (DOCS / "index.md").read_text())) == pages - {"index.md"}


@pytest.mark.parametrize("name", re.findall(r"^::: (\S+)", (DOCS / "api.md").read_text(), re.MULTILINE))
def test_everything_in_the_reference_exists_and_says_what_it_is(name: str) -> None:
    if (
        importlib.util.find_spec(name.split(".")[0]) is not None
        and (ROOT / "src" / f"{name.replace('.', '/')}.py").exists()
    ):
        found = import_module(name)
    else:
        module, attribute = name.rsplit(".", 1)
        found = getattr(import_module(module), attribute)
    assert found.__doc__


PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]


def fences(text: str) -> list[tuple[str, str, str]]:
    """Language, title and content of every block of code."""
    found = re.findall(r'^```(\w+)(?: title="(.*?)")?\n(.*?)^```', text, re.DOTALL | re.MULTILINE)
    return [(language, title, content) for language, title, content in found]


def sections(page: Path) -> dict[str, str]:
    """The text below each heading of the second level; "" is what comes before the first."""
    parts = ["", *re.split(r"^## (.*)\n", page.read_text(), flags=re.MULTILINE)]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_files_of_the_walks_exist() -> None:
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / "CONTRIBUTING.md").read_text()))
    missing = {name for name in named if not (ROOT / "src" / "hdcos" / name).exists() and not (ROOT / name).exists()}
    assert len(named) > 25
    assert not missing


def test_files_that_documents_and_suites_name_exist() -> None:
    pages = [path.read_text() for path in PAGES]
    named = {
        name for text in pages for name in re.findall(r"`((?:tests|benchmarks|scripts|deploy|cpp)/[\w./-]+)`", text)
    }
    suites = [path.read_text() for path in (ROOT / "benchmarks").rglob("*.py")]
    named |= {name for text in suites for name in re.findall(r'"(tests/[\w./]+)"', text)}
    named |= {f"src/{module.replace('.', '/')}.py" for module in NETS}
    named |= {f"tests/{name}" for tests in NETS.values() for name in tests}
    assert len(named) > 20
    assert not {name for name in named if not (ROOT / name).exists() and not name.startswith("deploy/site")}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_code_in_documents_can_be_read(path: Path) -> None:
    for language, _, code in fences(path.read_text()):
        if language == "python":
            ast.parse(code)
        elif language == "toml":
            tomllib.loads(code)


def test_the_tables_of_requests_are_what_the_code_declares() -> None:
    page = (DOCS / "http.md").read_text()
    assert page == script("http_tables").with_tables(page), "write them again: python scripts/http_tables.py"


def commands(text: str) -> set[tuple[str, ...]]:
    """The words that follow `hdcos` wherever a text shows a command, in blocks and in single words of code."""
    shown = [content for language, _, content in fences(text) if language == "sh"]
    shown += re.findall(r"`(hdcos [^`\n]+)`", text)
    lines = [line.split("  #")[0].removeprefix("sudo -u hdcos ") for block in shown for line in block.splitlines()]
    return {tuple(line.split()[1:]) for line in lines if line.startswith("hdcos ")}


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_commands_in_documents_exist(path: Path) -> None:
    for words in commands(path.read_text()):
        command: click.Command = main
        rest = list(words)
        while isinstance(command, click.Group) and rest and not rest[0].startswith("-"):
            found = command.get_command(click.Context(command), rest.pop(0))
            assert found is not None, f"`hdcos {' '.join(words)}` in {path.name}"
            command = found
        known = {option for parameter in command.params for option in parameter.opts} | {"--version", "--help"}
        unknown = {word.split("=")[0] for word in rest if re.match(r"--\w", word)} - known
        assert not unknown, f"`hdcos {' '.join(words)}` in {path.name}"


def test_commands_are_found_where_they_are_shown() -> None:
    text = "Say `hdcos cost lenet5`.\n```sh\n# hdcos no\nsudo -u hdcos hdcos doctor --json  # why\nhdcos party &\n```\n"
    assert commands(text) == {("cost", "lenet5"), ("doctor", "--json"), ("party", "&")}


NUMBER = re.compile(r"\d+(?:\.\d+)?")


def alike(printed: str, shown: str) -> bool:
    """The same words and whole numbers; numbers with a point within 5 %, since answers carry noise."""
    both = [NUMBER.findall(text) for text in (printed, shown)]
    if NUMBER.sub("#", printed).split() != NUMBER.sub("#", shown).split() or len(both[0]) != len(both[1]):
        return False
    return all(
        abs(float(one) - float(other)) <= 0.05 * float(other) if "." in other else one == other
        for one, other in zip(*both, strict=True)
    )


def test_what_is_printed_is_compared() -> None:
    assert alike("2 rounds, 0.91\n", "2 rounds, 0.89")
    assert not alike("3 rounds, 0.89", "2 rounds, 0.89")
    assert not alike("2 rounds, 0.80", "2 rounds, 0.89")
    assert not alike("2 rounds", "2 rounds, 0.89")
    assert not alike("2 bytes, 0.89", "2 rounds, 0.89")


RUN_S = 280.0
"""Three processes start, train and stop in seconds; a busy machine may need many times that."""


def run(arguments: list[str], folder: Path) -> str:
    """What a command prints; it finds the `hdcos` command of this environment."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    finished = subprocess.run(
        arguments,
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert finished.returncode == 0, finished.stderr
    return finished.stdout


def write_rows(folder: Path) -> None:
    """The files that the recipe for several owners names: 30 columns, and whether somebody is sick."""
    random = np.random.default_rng(0)
    header = ",".join([*(f"x{number}" for number in range(30)), "sick"])
    for name in ("north", "south", "mine"):
        rows = random.uniform(-1, 1, (256, 30))
        table = np.column_stack([rows, rows[:, 0] > 0])
        np.savetxt(folder / f"{name}.csv", table, delimiter=",", header=header, comments="")


RUN = [
    (ROOT / "README.md", "Predict"),
    (ROOT / "README.md", "Train"),
    (DOCS / "index.md", ""),
    (DOCS / "recipes.md", "Predict with a network you have"),
    (DOCS / "recipes.md", "Train on files of several owners"),
    (DOCS / "recipes.md", "Train on more rows than fit into memory"),
    (DOCS / "recipes.md", "Train on columns of two owners"),
    (DOCS / "recipes.md", "Train and predict as with scikit-learn"),
    (DOCS / "recipes.md", "Know the cost before you start"),
    (DOCS / "tables.md", "In Python"),
    (DOCS / "networks.md", "From PyTorch"),
    (DOCS / "networks.md", "Cosine instead of ReLU"),
]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("page", "section"), RUN, ids=lambda value: value if isinstance(value, str) else value.stem)
def test_code_in_documents_runs_and_prints_what_is_shown(page: Path, section: str, tmp_path: Path) -> None:
    write_rows(tmp_path)
    printed = ""
    for language, title, content in fences(sections(page)[section]):
        if language == "toml":
            (tmp_path / title).write_text(content)
        elif language == "python":
            printed = run([sys.executable, "-c", content], tmp_path)
        elif language == "sh":
            printed = run(["bash", "-e", "-c", content], tmp_path)
        elif language == "text":
            assert alike(printed, content), printed
    assert printed.strip()


def test_every_recipe_is_run() -> None:
    recipes = list(sections(DOCS / "recipes.md"))[1:]
    assert recipes == [section for page, section in RUN if page.stem == "recipes"] + ["Run it between organisations"]


@pytest.mark.timeout(400)  # fourteen commands, each a process
def test_the_walk_between_organisations_works_as_written(tmp_path: Path) -> None:
    written = ["dealer.example:7100", "party0.example:7101", "party0.example:8443"]
    written += ["party1.example:7102", "party1.example:8443"]
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in written]
    free = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    walk = Walk(tmp_path, [[], []], dict(zip(written, free, strict=True)))
    try:
        walk.run()
    finally:
        walk.stop()
    assert np.abs(walk.logits() - walk.expected).max() < 0.05
    assert (walk.logits().argmax(axis=1) == walk.expected.argmax(axis=1)).all()


def test_the_front_page_is_short_and_its_pictures_are_there() -> None:
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 120
    assert "semi-honest" in text.split("\n## ")[0]
    for path in PAGES:
        for target in re.findall(r"(?:\]\(|src=\")((?!https?:)[^)#\" ]+)", path.read_text()):
            made = path.parent == DOCS and target in GENERATED
            assert made or (path.parent / target).exists(), f"{target} in {path.name}"
