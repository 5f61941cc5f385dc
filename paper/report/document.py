"""A document as a list of parts, written as Markdown or as one HTML page that needs no other file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Heading:
    text: str
    level: int = 2


@dataclass(frozen=True)
class Text:
    text: str


@dataclass(frozen=True)
class Table:
    """Columns of numbers are set to the right, the others to the left."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A drawing; in Markdown it is a file of that name beside the document."""

    name: str
    svg: str
    caption: str


Part = Heading | Text | Table | Figure

NUMBER = re.compile(r"[+-]?\d[\d,.]*( ± [\d.]+| \(\d+\))?$")
STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
p{max-width:52rem}h1,h2,h3{line-height:1.25}
table{border-collapse:collapse;margin:.5rem 0;font-size:.85rem}th,td{border:1px solid #d0d7de;padding:.2rem .5rem}
th{background:#f3f5f7;text-align:left;vertical-align:bottom}.n{text-align:right}td.n{white-space:nowrap}
figure{margin:1rem 0}figcaption{font-size:.9rem;color:#57606a}svg{max-width:100%;height:auto}.wide{overflow-x:auto}"""


def signed(number: float) -> str:
    """One decimal and a sign; nothing is -0.0."""
    return f"{round(number, 1) + 0.0:+.1f}"


def markdown(parts: Sequence[Part], figures: str) -> str:
    """The document; figures are linked in the folder of that name."""
    return "\n\n".join(_markdown(part, figures) for part in parts) + "\n"


def html(title: str, parts: Sequence[Part]) -> str:
    body = "\n".join(_html(part) for part in parts)
    head = (
        f'<meta charset="utf-8">\n<meta name="viewport" content="width=device-width">\n<title>{escape(title)}</title>'
    )
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n{head}\n<style>\n{STYLE}\n</style>\n</head>\n'
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _numeric(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[bool]:
    """For every column whether it has a number and nothing but numbers and words for missing ones."""
    columns = [[row[index] for row in rows] for index in range(len(head))]
    found = [[cell for cell in column if cell not in ("-", "not run")] for column in columns]
    return [
        index > 0 and bool(column) and all(NUMBER.match(c) for c in found[index])
        for index, column in enumerate(columns)
    ]


def _markdown(part: Part, figures: str) -> str:
    match part:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Table(head, rows):
            rule = ["---:" if right else "---" for right in _numeric(head, rows)]
            return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, rule, *rows))
        case Figure(name, _, caption):
            return f"![{caption}]({figures}/{name}.svg)\n\n{caption}"


def _html(part: Part) -> str:
    match part:
        case Heading(text, level):
            return f"<h{level}>{escape(text)}</h{level}>"
        case Text(text):
            return f"<p>{escape(text)}</p>"
        case Table(head, rows):
            marks = [' class="n"' if right else "" for right in _numeric(head, rows)]
            top = "".join(f"<th{mark}>{escape(cell)}</th>" for mark, cell in zip(marks, head, strict=True))
            lines = (
                "".join(f"<td{mark}>{escape(cell)}</td>" for mark, cell in zip(marks, row, strict=True)) for row in rows
            )
            body = "\n".join(f"<tr>{line}</tr>" for line in lines)
            return f'<div class="wide"><table>\n<tr>{top}</tr>\n{body}\n</table></div>'
        case Figure(_, svg, caption):
            return f"<figure>\n{svg}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"
