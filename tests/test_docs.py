"""The documents: their code can be read, their names exist, and the notebook holds what its script would execute."""

from __future__ import annotations

import ast
import importlib.util
import json
import re
import tomllib
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = {"first_steps.md", "report.md"}


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
    assert cells == script("make_notebook").CELLS, "write it anew: python scripts/make_notebook.py"


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


def test_every_page_of_the_site_is_there() -> None:
    pages = set(re.findall(r"\S+\.md", (ROOT / "mkdocs.yml").read_text().split("nav:")[1]))
    assert pages == {path.name for path in DOCS.glob("*.md")} | GENERATED
    links = {link for path in DOCS.glob("*.md") for link in re.findall(r"\]\((\w+\.md)", path.read_text())}
    assert links <= pages


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


@pytest.mark.parametrize("path", [ROOT / "README.md", *sorted(DOCS.glob("*.md"))], ids=lambda path: path.name)
def test_code_in_documents_can_be_read(path: Path) -> None:
    for language, code in re.findall(r"```(\w+)\n(.*?)```", path.read_text(), re.DOTALL):
        if language == "python":
            ast.parse(code)
        elif language == "toml":
            tomllib.loads(code)


def test_the_tables_of_requests_are_what_the_code_declares() -> None:
    page = (DOCS / "http.md").read_text()
    assert page == script("http_tables").with_tables(page), "write them anew: python scripts/http_tables.py"
