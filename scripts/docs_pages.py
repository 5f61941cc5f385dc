"""Pages of the documentation site that are made from other files: the report and the notebooks.

mkdocs calls `on_files` before it reads the pages. Nothing is executed here: these files are committed with what they
show.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
NOTEBOOKS = ("first_steps", "two_tables")
RESULTS = ROOT / "results"


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    for name in NOTEBOOKS:
        notebook = json.loads((ROOT / "examples" / f"{name}.ipynb").read_text())
        files.append(File.generated(config, f"{name}.md", content=notebook_page(notebook)))
    files.append(File.generated(config, "report.md", content=(RESULTS / "paper.md").read_text()))
    for figure in sorted((RESULTS / "figures").glob("*.svg")):
        files.append(File.generated(config, f"figures/{figure.name}", content=figure.read_text()))
    return files


def notebook_page(notebook: dict[str, Any]) -> str:
    """A notebook as Markdown: text as it is, code in fences, behind it what was printed and drawn."""
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        shown = "".join("".join(output.get("text", [])) for output in cell["outputs"])
        if shown:
            parts.append(f"```text\n{shown.rstrip()}\n```")
        for output in cell["outputs"]:
            if "data" in output:
                parts.append(f"![a figure](data:image/png;base64,{output['data']['image/png']})")
    return "\n\n".join(parts) + "\n"
