"""A document as a list of parts, written as Markdown or as one HTML page that needs no other file."""

from __future__ import annotations

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
    """The first column is text, the others are numbers or short words."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]


@dataclass(frozen=True)
class Figure:
    """A drawing; in Markdown it is a file of that name beside the document."""

    name: str
    svg: str
    caption: str


Part = Heading | Text | Table | Figure

STYLE = """body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#1b1f24}
table{border-collapse:collapse;margin:1rem 0;font-size:.9rem}th,td{border:1px solid #d0d7de;padding:.25rem .6rem}
th{background:#f3f5f7}td+td,th+th{text-align:right}figure{margin:1rem 0}figcaption{font-size:.9rem;color:#57606a}
.wide{overflow-x:auto}"""


def signed(number: float) -> str:
    """One decimal and a sign; nothing is -0.0."""
    return f"{round(number, 1) + 0.0:+.1f}"


def markdown(parts: Sequence[Part], figures: str) -> str:
    """The document; figures are linked in the folder of that name."""
    return "\n\n".join(_markdown(part, figures) for part in parts) + "\n"


def html(title: str, parts: Sequence[Part]) -> str:
    body = "\n".join(_html(part) for part in parts)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f"<style>\n{STYLE}\n</style>\n</head>\n<body>\n{body}\n</body>\n</html>\n"
    )


def _markdown(part: Part, figures: str) -> str:
    match part:
        case Heading(text, level):
            return f"{'#' * level} {text}"
        case Text(text):
            return text
        case Table(head, rows):
            rule = ["---", *["---:"] * (len(head) - 1)]
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
            top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
            lines = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
            body = "\n".join(f"<tr>{line}</tr>" for line in lines)
            return f'<div class="wide"><table>\n<tr>{top}</tr>\n{body}\n</table></div>'
        case Figure(_, svg, caption):
            return f"<figure>\n{svg}\n<figcaption>{escape(caption)}</figcaption>\n</figure>"
