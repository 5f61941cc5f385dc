"""Pages of the documentation site that are made from other files: the report and the notebook.

mkdocs calls `on_files` before it reads the pages. Nothing is executed here: both files are committed with what they
show.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
NOTEBOOK = ROOT / "examples" / "first_steps.ipynb"
RESULTS = ROOT / "results"


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    files.append(File.generated(config, "first_steps.md", content=notebook_page(json.loads(NOTEBOOK.read_text()))))
    files.append(File.generated(config, "report.md", content=(RESULTS / "paper.md").read_text()))
    for figure in sorted((RESULTS / "figures").glob("*.svg")):
        files.append(File.generated(config, f"figures/{figure.name}", content=figure.read_text()))
    return files


def notebook_page(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: text as it is, code in fences, printed output behind it."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        shown = "".join("".join(output["text"]) for output in cell["outputs"])
        if shown:
            parts.append(f"```text\n{shown.rstrip()}\n```")
    return "\n\n".join(parts) + "\n"
