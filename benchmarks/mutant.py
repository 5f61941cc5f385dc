"""Small faults in the syntax tree of a module: another comparison or operator, a constant one larger, a condition
negated, a statement left out."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]

COMPARISONS = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
OPERATORS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult,
    ast.Mod: ast.Mult, ast.LShift: ast.RShift, ast.RShift: ast.LShift, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
    ast.Pow: ast.Mult,
}  # fmt: skip


@dataclass(frozen=True)
class Mutant:
    """A module with one fault."""

    module: str
    number: int
    """Among all faults of the module."""
    line: int
    change: str
    source: str

    def tree(self) -> ast.Module:
        """Its syntax tree, with every node where it was."""
        whole = ast.parse(source_of(self.module))
        list(_faults(whole))[self.number][2]()
        return ast.fix_missing_locations(whole)

    def __str__(self) -> str:
        return f"{self.module} line {self.line}: {self.change}"


def mutants(module: str) -> Iterator[Mutant]:
    """Every mutant of a module."""
    text = source_of(module)
    whole = ast.parse(text)
    for number, (node, what, toggle) in enumerate(list(_faults(whole))):
        line = getattr(node, "lineno", 0)
        toggle()
        yield Mutant(module, number, line, f"{what} in `{text.splitlines()[line - 1].strip()}`", ast.unparse(whole))
        toggle()


def source_of(module: str) -> str:
    return (ROOT / "src" / Path(*module.split("."))).with_suffix(".py").read_text()


def _faults(tree: ast.AST) -> Iterator[tuple[ast.AST, str, Callable[[], None]]]:
    """Each place where a fault can be made: the node, what is done, and a function that does it, and then undoes it."""
    for node in _meant(tree):
        if isinstance(node, ast.Compare):
            for index, operator in enumerate(node.ops):
                other = COMPARISONS[type(operator)]
                yield node, f"{type(operator).__name__} -> {other.__name__}", _setter(node.ops, index, other())
        elif isinstance(node, ast.BinOp | ast.AugAssign) and type(node.op) in OPERATORS:
            other = OPERATORS[type(node.op)]
            yield node, f"{type(node.op).__name__} -> {other.__name__}", _assigner(node, "op", other())
        elif isinstance(node, ast.BoolOp):
            other = ast.Or if isinstance(node.op, ast.And) else ast.And
            yield node, f"{type(node.op).__name__} -> {other.__name__}", _assigner(node, "op", other())
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
            yield node, f"without {type(node.op).__name__}", _assigner(node, "op", ast.UAdd())
        elif isinstance(node, ast.Constant) and isinstance(node.value, bool):
            yield node, f"{node.value} -> {not node.value}", _assigner(node, "value", not node.value)
        elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            yield node, f"{node.value} -> {node.value + 1}", _assigner(node, "value", node.value + 1)
        elif isinstance(node, ast.If | ast.While | ast.IfExp):
            negated = ast.UnaryOp(ast.Not(), node.test)
            yield node, "condition negated", _assigner(node, "test", negated)
        for name in ("body", "orelse", "finalbody"):
            block = getattr(node, name, None)
            if isinstance(block, list):
                for index, statement in enumerate(block):
                    if isinstance(statement, ast.Raise) or (
                        isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
                    ):
                        yield statement, "left out", _setter(block, index, ast.Pass())


def _meant(tree: ast.AST) -> Iterator[ast.AST]:
    """Nodes that decide what a module does: no annotations, no imports, no texts of errors."""
    yield tree
    for name, value in ast.iter_fields(tree):
        if name in ("annotation", "returns", "decorator_list") or isinstance(tree, ast.JoinedStr):
            continue
        if isinstance(tree, ast.keyword) and tree.arg in ("copy", "strict"):
            continue  # a copy is as good; what is zipped strictly is as long by construction, and `strict` asserts it
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _meant(child)


def _setter(items: list[Any], index: int, value: object) -> Callable[[], None]:
    def toggle() -> None:
        nonlocal value
        items[index], value = value, items[index]

    return toggle


def _assigner(node: ast.AST, name: str, value: object) -> Callable[[], None]:
    def toggle() -> None:
        nonlocal value
        before = getattr(node, name)
        setattr(node, name, value)
        value = before

    return toggle
