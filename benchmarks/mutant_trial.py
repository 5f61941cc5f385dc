"""Does a test notice a mutant? Tests run in forks of a process that has imported what they need.

The quick way imports everything once and replaces the code of functions. What it cannot change, and what no test
noticed that way, is tried again: there the module with the fault is imported, and all that depends on it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache
from importlib import import_module
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest

from benchmarks.mutant import ROOT, Mutant, source_of
from benchmarks.mutant_swap import Unswappable, swap

MUTANTS = Path(__file__).with_name("mutants")
VERDICTS = ROOT / "build" / "mutants"
"""Mutants that were killed, and the test that did it: a run that was stopped goes on where it was."""
LEAST_S, TIMES = 4.0, 10
"""A fault may make a test wait for ever: it gets this time, and as much more as the longest takes so many times."""


class Trial:
    """The tests of one module."""

    def __init__(self, module: str, tests: Sequence[str]) -> None:
        self.module, self.tests = module, tests
        self._place = tempfile.TemporaryDirectory(prefix="hdcos-mutants-")
        self._path, self._killer, self._longest = (Path(self._place.name) / each for each in ("mutant.py", "by", "s"))
        self._timeout_s = 0.0
        self._known = VERDICTS / f"{module}.json"
        self._verdicts = json.loads(self._known.read_text()) if self._known.exists() else {}

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *error: object) -> None:
        self._place.cleanup()

    def imported(self) -> list[str]:
        """What the tests import."""
        listed = Path(self._place.name) / "imported"
        self._require_pass(self._install, lambda: listed.write_text("\n".join(sys.modules)))
        return [name for name in listed.read_text().split() if not name.startswith("tests")]

    def warm(self, names: Iterable[str], whole: bool) -> None:
        """Import these here, for all tests to come: the whole, or what does not import the module of the faults."""
        barrier = _Barrier("" if whole else self.module)
        sys.meta_path.insert(0, barrier)
        for name in names:
            with suppress(ImportError, Barred):  # a module that a test made, or one that is barred
                import_module(name)
        sys.meta_path.remove(barrier)
        self._require_pass(self._install if not whole else lambda: None)
        self._timeout_s = LEAST_S + TIMES * float(self._longest.read_text())

    def _require_pass(self, place: Callable[[], object], after: Callable[[], object] = lambda: None) -> None:
        assert self._run(source_of(self.module), place, after) == 0, f"the tests of {self.module} fail without a fault"

    def kills(self, mutant: Mutant) -> bool:
        """Whether a test fails, or does not end, with this fault. If one did once, and is as it was, it still does."""
        key = hashlib.sha256(mutant.source.encode()).hexdigest()
        if (known := self._verdicts.get(key)) and known[1] == _fingerprint(known[0]):
            return True
        place = (lambda: swap(mutant)) if self.module in sys.modules else self._install
        if self._run(mutant.source, place) in (0, UNSWAPPABLE):
            return False
        if self._killer.exists():
            killer = self._killer.read_text()
            self._verdicts[key] = (killer, _fingerprint(killer))
            VERDICTS.mkdir(parents=True, exist_ok=True)
            self._known.write_text(json.dumps(self._verdicts, indent=0))
        return True

    def _install(self) -> None:
        """Have the module come from the file of the mutant when it is imported."""
        assert self.module not in sys.modules
        runpy.run_path(str(MUTANTS / "sitecustomize.py"))

    def _run(self, source: str, place: Callable[[], object], after: Callable[[], object] = lambda: None) -> int:
        self._path.write_text(source)
        self._killer.unlink(missing_ok=True)
        return _fork(lambda: self._test(place, after))

    def _test(self, place: Callable[[], object], after: Callable[[], object]) -> int:
        os.environ["HDCOS_MUTANT"] = f"{self.module}={self._path}"
        os.environ["PYTHONPATH"] = os.pathsep.join([str(MUTANTS), str(ROOT)])  # for processes that tests start
        os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
        sys.dont_write_bytecode = True
        try:
            place()
        except Unswappable:
            return UNSWAPPABLE
        options = ["-q", "-x", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-o", f"timeout={self._timeout_s:g}"]
        options += ["--rootdir", str(ROOT), "-W", "ignore::pytest.PytestAssertRewriteWarning"]
        witness = _Witness(self._killer)
        with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
            for tests in self.tests:  # one after another: the first often notices, and reading the others takes time
                code = pytest.main([*options, str(ROOT / "tests" / tests)], plugins=[witness])
                if code:
                    return int(code)
        self._longest.write_text(str(witness.longest_s))
        after()
        return 0


UNSWAPPABLE = 77
"""The exit status of a process that could not be given its fault."""


class Barred(Exception):
    """A module that must not be imported here would have been."""


class _Barrier(MetaPathFinder):
    """Keeps one module from being imported, and with it all that import it."""

    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self.module:
            raise Barred


class _Witness:
    """Notes which test failed, and how long the longest took."""

    def __init__(self, path: Path) -> None:
        self.path, self.longest_s = path, 0.0

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.longest_s = max(self.longest_s, report.duration)
        if report.failed:
            self.path.write_text(report.nodeid.split("[")[0])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.path.write_text(report.nodeid)


@cache
def _fingerprint(test: str) -> str:
    """Of the text of a test, or of a file of tests that could not be read."""
    file, _, name = test.partition("::")
    text = (ROOT / file).read_text() if (ROOT / file).exists() else ""
    if name:
        found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name]
        text = "".join(map(ast.unparse, found))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _fork(work: Callable[[], int]) -> int:
    """The exit status of a process that is a copy of this one and does this."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(work())
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
