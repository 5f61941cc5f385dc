"""Drawings as text: line charts, and grids of coloured numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from math import ceil, floor, log10

COLOURS = ("#0969da", "#cf222e", "#1a7f37", "#9a6700", "#8250df", "#57606a")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 560, 340, 50, 110, 50, 40
WIDEST = 4.0

Line = Sequence[tuple[float, float]]


def lines(title: str, series: Mapping[str, Line], x_name: str, y_name: str, x_ticks: Sequence[float]) -> str:
    """A chart of named lines; one with its name in brackets is dashed."""
    points = [point for line in series.values() for point in line]
    ticks = _round_ticks(min(y for _, y in points), max(y for _, y in points))
    low, high = ticks[0], ticks[-1]
    left, right = min(x for x, _ in points), max(x for x, _ in points)

    def place(x: float, y: float) -> tuple[float, float]:
        across = (x - left) / (right - left) * (WIDTH - LEFT - RIGHT)
        return LEFT + across, HEIGHT - BOTTOM - (y - low) / (high - low) * (HEIGHT - TOP - BOTTOM)

    drawn = []
    for y in ticks:
        _, at = place(left, y)
        drawn.append(f'<line x1="{LEFT}" y1="{at:.1f}" x2="{WIDTH - RIGHT}" y2="{at:.1f}" stroke="#d0d7de"/>')
        drawn.append(_label(LEFT - 6, at + 4, f"{y:g}", "end"))
    drawn += [_label(place(x, low)[0], HEIGHT - BOTTOM + 16, f"{x:g}", "middle") for x in x_ticks]
    names = sorted({name.strip("()") for name in series}, key=[n.strip("()") for n in series].index)
    for name, line in series.items():
        colour = COLOURS[names.index(name.strip("()")) % len(COLOURS)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line))
        dash = ' stroke-dasharray="5 4"' if name.startswith("(") else ""
        width = WIDEST - 0.5 * names.index(
            name.strip("()")
        )  # where lines coincide the wider one shows beside the other
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{width:g}"{dash}/>')
    for index, name in enumerate(names):
        drawn.append(_label(WIDTH - RIGHT + 10, TOP + 18 * index + 10, name, "start", COLOURS[index % len(COLOURS)]))
    drawn += [
        _label((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, x_name, "middle"),
        _label(6, TOP - 12, y_name, "start"),
    ]
    return _drawing(title, WIDTH, HEIGHT, drawn)


def _round_ticks(low: float, high: float) -> list[float]:
    """Four to eight round numbers that enclose all values."""
    span = high - low or 1.0
    size = 10.0 ** floor(log10(span / 4))
    step = next(size * factor for factor in (1, 2, 5, 10) if span / (size * factor) <= 6)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    return [round(number * step, 10) for number in range(first, max(last, first + 1) + 1)]


def grid(
    title: str, columns: Sequence[str], rows: Mapping[str, Sequence[float | None]], low: float, high: float
) -> str:
    """Numbers on fields between white (low) and blue (high); a missing one is an empty field."""
    cell, side, top = 56, 90, 46
    drawn = [_label(side + cell * (c + 0.5), top - 6, name, "middle") for c, name in enumerate(columns)]
    for r, (name, values) in enumerate(rows.items()):
        y = top + 26 * r
        drawn.append(_label(side - 8, y + 17, name, "end"))
        for c, value in enumerate(values):
            share = 0.0 if value is None else min(1.0, max(0.0, (value - low) / (high - low)))
            colour = f"rgb({round(255 - 246 * share)},{round(255 - 150 * share)},{round(255 - 37 * share)})"
            x = side + cell * c
            drawn.append(f'<rect x="{x}" y="{y}" width="{cell}" height="26" fill="{colour}" stroke="#d0d7de"/>')
            if value is not None:
                ink = "#fff" if share > 0.6 else "#1b1f24"
                drawn.append(_label(x + cell / 2, y + 17, f"{value:.1f}", "middle", ink))
    return _drawing(title, side + cell * len(columns) + 10, top + 26 * len(rows) + 10, drawn)


def _label(x: float, y: float, text: str, anchor: str, colour: str = "#1b1f24") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(text)}</text>'


def _drawing(title: str, width: int, height: int, drawn: Sequence[str]) -> str:
    inside = "\n".join(drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="sans-serif" font-size="12" role="img">\n<title>{escape(title)}</title>\n'
        f'<rect width="100%" height="100%" fill="#fff"/>\n{_label(width / 2, 16, title, "middle")}\n{inside}\n</svg>'
    )
