"""Do the tests notice? Small faults, one at a time, in the modules where a fault would be a leak or a lie.

`make prove SUITE=mutation [PART=party.http.auth]` writes every mutant that no test killed. One that computes the same
as the original is named in EQUIVALENT with the reason; all others count. A fault is one change in the
syntax tree: another comparison or operator, a constant one larger, a condition negated, a statement left out.
"""

from __future__ import annotations

import ast
import copy
import os
import random
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from benchmarks.record import Line, at_least
from hdcos.errors import HdcosError

ROOT = Path(__file__).parents[1]
MUTANTS = Path(__file__).with_name("mutants")
MOST = 12
"""Mutants of each module, drawn at random: all of them take hours."""
PACKAGES = (
    "click", "cryptography.x509", "hypothesis", "msgspec", "prometheus_client", "rich.console", "rich.table",
    "safetensors.numpy", "scipy.stats", "starlette.applications", "urllib3", "uvicorn",
)  # fmt: skip
"""What tests import, and what is therefore imported once, before they are forked."""
TIMEOUT_S = 60.0
"""Of one test: a fault may make it wait for ever."""
LEAST_KILLED = 0.9

NETS: dict[str, tuple[str, ...]] = {
    "hdcos.protocol.opening": (
        "protocol/test_limits.py",
        "golden",
        "protocol/test_prices.py",
        "protocol/test_answers.py",
    ),
    "hdcos.protocol.masked": (
        "protocol/test_limits.py",
        "golden",
        "protocol/test_prices.py",
        "protocol/test_answers.py",
    ),
    "hdcos.sharing.share": ("sharing", "golden"),
    "hdcos.offline.pool": ("offline/test_pool.py",),
    "hdcos.party.allotment": ("party/test_allotment.py",),
    "hdcos.link.frame": ("link/test_frame.py", "link/test_exchange.py"),
    "hdcos.party.http.auth": ("party/test_auth.py",),
    "hdcos.party.checkpoint": ("party/test_checkpoints.py",),
    "hdcos.secure.labels": ("secure/test_labels.py",),
    "hdcos.secure.training.rule": ("secure/test_rule.py", "secure/test_rates.py", "golden"),
}
"""The modules, and the tests under tests/ that should notice, the quickest first."""


class Same(NamedTuple):
    """Mutants that compute the same: the module, how they begin, what the line has, and why."""

    module: str
    changes: tuple[str, ...]
    code: str
    why: str


EQUIVALENT = (
    Same("hdcos.sharing.share", ("64 -> 65",), "def join(", "a word of 64 bits is its own remainder"),
    Same(
        "hdcos.sharing.share",
        ("Eq -> NotEq", "condition negated", "0 -> 1"),
        "share.words + zero if rank == 0",
        "minus a sharing of zero is a sharing of zero",
    ),
    Same(
        "hdcos.protocol.masked",
        ("Eq -> NotEq", "condition negated"),
        "if party.rank == 0 else np.uint64(0) -",
        "it does not matter which of the two parties adds what is public",
    ),
    Same("hdcos.party.allotment", ("0",), "self._boost: tuple[int, float] =", "that time was long ago"),
    Same("hdcos.party.allotment", ("Gt -> GtE",), "if number > self._burnt", "burning again burns nothing"),
    Same("hdcos.party.http.auth", ("0.0",), "self._read = 0.0", "that time was long ago"),
    Same("hdcos.party.checkpoint", ("1 -> 2",), "default=-1", "no file has a negative descriptor"),
    Same("hdcos.party.checkpoint", ("1 -> 2",), "self._lock = -1", "no file has a negative descriptor"),
    Same("hdcos.party.checkpoint", ("GtE -> Gt",), "if self._lock >= 0", "descriptor 0 is the standard input"),
    Same("hdcos.party.checkpoint", ("False",), "repr=False", "the number of a descriptor is no secret"),
    Same("hdcos.party.checkpoint", ("True",), "sort_keys=True", "the order of keys means nothing"),
    Same("hdcos.party.checkpoint", ("True",), "missing_ok=True", "the file was seen just before, under a lock"),
    Same("hdcos.party.checkpoint", ("0 -> 1",), "last = 0", "the first attempt is 1"),
    Same("hdcos.offline.pool", ("Gt -> GtE",), "if capacity > executions", "a copy is as good"),
)


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
    line: int
    change: str
    source: str

    def __str__(self) -> str:
        return f"{self.module} line {self.line}: {self.change}"

    @property
    def equivalent(self) -> bool:
        return any(
            self.module == same.module and self.change.startswith(same.changes) and same.code in self.change
            for same in EQUIVALENT
        )


def mutants(module: str) -> Iterator[Mutant]:
    """Every mutant of a module."""
    text = _text(module)
    whole = ast.parse(text)
    for number, (node, _, _) in enumerate(list(_faults(whole))):
        changed = copy.deepcopy(whole)
        _, what, apply = list(_faults(changed))[number]
        apply()
        line = getattr(node, "lineno", 0)
        yield Mutant(module, line, f"{what} in `{text.splitlines()[line - 1].strip()}`", ast.unparse(changed))


def _text(module: str) -> str:
    return (ROOT / "src" / Path(*module.split("."))).with_suffix(".py").read_text()


def _faults(tree: ast.AST) -> Iterator[tuple[ast.AST, str, Callable[[], None]]]:
    """Each place where a fault can be made: the node, what is done, and a function that does it."""
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
        if isinstance(tree, ast.keyword) and tree.arg == "copy":
            continue  # a copy is as good
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _meant(child)


def _setter(items: list[Any], index: int, value: object) -> Callable[[], None]:
    def change() -> None:
        items[index] = value

    return change


def _assigner(node: ast.AST, name: str, value: object) -> Callable[[], None]:
    return lambda: setattr(node, name, value)


def killed(mutant: Mutant, tests: Sequence[str], folder: Path) -> bool:
    """Whether a test fails, or does not end, with this fault, in a fork of this process: packages are imported once."""
    path = folder / "mutant.py"
    path.write_text(mutant.source)
    assert mutant.module not in sys.modules
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(_test(f"{mutant.module}={path}", tests))
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) != 0


def _test(mutant: str, tests: Sequence[str]) -> int:
    os.environ["HDCOS_MUTANT"] = mutant
    os.environ["PYTHONPATH"] = os.pathsep.join([str(MUTANTS), str(ROOT)])  # for processes that tests start
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    runpy.run_path(str(MUTANTS / "sitecustomize.py"))
    options = ["-q", "-x", "-p", "no:cacheprovider", "-o", f"timeout={TIMEOUT_S:g}", "--rootdir", str(ROOT)]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return pytest.main([*options, *(str(ROOT / "tests" / each) for each in tests)])


def prove_module(module: str, seed: int) -> Iterator[Line]:
    """Faults of one module, all of them or MOST that are drawn."""
    made = [mutant for mutant in mutants(module) if not mutant.equivalent]
    drawn = random.Random(f"{seed} {module}").sample(made, min(MOST, len(made)))
    survivors = []
    for package in PACKAGES:
        import_module(package)
    with tempfile.TemporaryDirectory(prefix="hdcos-mutants-") as folder:
        if killed(Mutant(module, 0, "nothing", _text(module)), NETS[module], Path(folder)):
            raise HdcosError(f"the tests of {module} fail without a fault")
        for mutant in sorted(drawn, key=lambda mutant: mutant.line):
            if not killed(mutant, NETS[module], Path(folder)):
                survivors.append(mutant)
                print(f"survived: {mutant}", flush=True)
    named = f"{module}: {len(drawn)} of {len(made)} faults, part that tests notice"
    yield at_least(named, 1 - len(survivors) / len(drawn), LEAST_KILLED)
    for survivor in survivors:
        yield Line(f"not noticed: {survivor}", 1, "reported", True)


PARTS = {module.removeprefix("hdcos."): partial(prove_module, module) for module in NETS}
