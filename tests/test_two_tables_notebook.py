"""The notebook of two tables: it holds the cells of its script, executed, and these cells do what its text says."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MAKE = script("make_notebook")
CELLS = MAKE.read_cells(MAKE.TWO_TABLES)


@pytest.fixture(scope="module")
def notebook() -> dict[str, Any]:
    return json.loads((ROOT / "examples" / "two_tables.ipynb").read_text())


def test_it_has_the_cells_of_its_script_and_what_they_showed(notebook: dict[str, Any]) -> None:
    cells = [(cell["cell_type"], "".join(cell["source"])) for cell in notebook["cells"]]
    assert cells == CELLS, "write it again: python scripts/make_notebook.py two_tables"
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [cell["execution_count"] for cell in code] == list(range(1, len(code) + 1))
    figures = [output for cell in code for output in cell["outputs"] if output["output_type"] == "display_data"]
    assert len(figures) == 2
    assert (ROOT / "examples" / "two_tables.ipynb").stat().st_size < 200_000


def test_it_becomes_a_page_with_its_figures(notebook: dict[str, Any]) -> None:
    page = script("docs_pages").notebook_page(notebook)
    assert page.startswith("# Two tables, one model")
    assert page.count("![a figure](data:image/png;base64,") == 2


def test_its_cells_run_and_two_owners_learn_more_than_one() -> None:
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = [MAKE.execute(source, names) for kind, source in CELLS if kind == "code"]
    assert len(MAKE.drawn()) == 2
    accuracy = names["accuracy"]
    assert accuracy["together, on shares"] > max(accuracy["bank alone"], accuracy["shop alone"])
    assert abs(accuracy["together, on shares"] - accuracy["pooled, in plaintext"]) < 0.02
    assert list(names["predictions"].index) == list(names["people"].index[3000:])
    assert printed[-1] == "[] []\n"
