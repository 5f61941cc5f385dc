"""Does a test notice a mutant? Every mutant is tried in a fork of a process that has imported what tests need.

The quick way is one session of pytest, which reads the tests once; in each fork the code of functions is replaced. What
it cannot change, and what no test noticed that way, is tried again: there the module with the fault is imported, and
all that depends on it.
"""

from __future__ import annotations

import ast
import hashlib
import json
import os
import runpy
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from functools import cache, partial
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
"""A fault may make a test wait for ever: it gets this time, and TIMES as long as the longest takes."""
UNSWAPPABLE = 77
"""The exit status of a process that could not be given its fault."""
OPTIONS = (
    *("-q", "-x", "-p", "no:cacheprovider", "-p", "pytest_timeout", "-o", "timeout=0", "--rootdir", str(ROOT)),
    *("-W", "ignore::pytest.PytestAssertRewriteWarning"),
)


class Trial:
    """The tests of one module."""

    def __init__(self, module: str, tests: Sequence[str]) -> None:
        self.module, self.tests = module, [str(ROOT / "tests" / each) for each in tests]
        self._place = tempfile.TemporaryDirectory(prefix="hdcos-mutants-")
        self._path, self._current, self._longest = (Path(self._place.name) / each for each in ("m.py", "test", "s"))
        self._limit_s = 0.0
        self._known = VERDICTS / f"{module}.json"
        self._verdicts = json.loads(self._known.read_text()) if self._known.exists() else {}

    def __enter__(self) -> Trial:
        return self

    def __exit__(self, *error: object) -> None:
        self._place.cleanup()

    # ---- the quick way

    def kill_quickly(self, made: Iterable[Mutant]) -> list[str]:
        """Note which of these are killed, as far as the quick way can tell; returns what the tests import."""
        _run_pytest(self.tests, lambda session: self._kill_in(session, made))
        return [name for name in sys.modules if not name.startswith("tests")]

    def _kill_in(self, session: pytest.Session, made: Iterable[Mutant]) -> int:
        self._require_pass(lambda: self._run_items(session))
        for mutant in made:
            if not self.kills(mutant, partial(self._swap_and_run, mutant, session)):
                print(f"to be tried again: {mutant}", file=sys.__stdout__, flush=True)
        return 0

    def _swap_and_run(self, mutant: Mutant, session: pytest.Session) -> int:
        swap(mutant)
        return self._run_items(session)

    def _run_items(self, session: pytest.Session) -> int:
        longest_s = 0.0
        for item, after in zip(session.items, [*session.items[1:], None], strict=True):
            self._current.write_text(item.nodeid.split("[")[0])
            signal.setitimer(signal.ITIMER_REAL, self._limit_s)
            began = time.monotonic()
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
            longest_s = max(longest_s, time.monotonic() - began)
            if session.shouldfail:
                return 1
        self._longest.write_text(str(longest_s))
        return 0

    # ---- the other way

    def warm(self, names: Iterable[str]) -> None:
        """Import these here, for all tests to come, but for what imports the module of the faults."""
        barrier = _Barrier(self.module)
        sys.meta_path.insert(0, barrier)
        for name in names:
            with suppress(ImportError, Barred):  # a module that a test made, or one that is barred
                import_module(name)
        sys.meta_path.remove(barrier)
        self._require_pass(self._import_and_run)

    def survives(self, mutant: Mutant) -> bool:
        return not self.kills(mutant, self._import_and_run)

    def _import_and_run(self) -> int:
        """Have the module come from the file of the mutant when it is imported."""
        assert self.module not in sys.modules
        runpy.run_path(str(MUTANTS / "sitecustomize.py"))
        # One after another: the first often notices, and reading the others takes time.
        return int(any(_run_pytest([tests], self._run_items) for tests in self.tests))

    # ---- verdicts

    def kills(self, mutant: Mutant, work: Callable[[], int]) -> bool:
        """Whether a test fails, or does not end, with this fault. If one did once, and is as it was, it still does."""
        key = hashlib.sha256(mutant.source.encode()).hexdigest()
        if (known := self._verdicts.get(key)) and known[1] == _fingerprint(known[0]):
            return True
        if self._run(mutant.source, work) in (0, UNSWAPPABLE):
            return False
        killer = self._current.read_text()
        self._verdicts[key] = (killer, _fingerprint(killer))
        VERDICTS.mkdir(parents=True, exist_ok=True)
        self._known.write_text(json.dumps(self._verdicts, indent=0))
        return True

    def _require_pass(self, work: Callable[[], int]) -> None:
        self._limit_s = 0.0
        assert self._run(source_of(self.module), work) == 0, f"the tests of {self.module} fail without a fault"
        self._limit_s = LEAST_S + TIMES * float(self._longest.read_text())

    def _run(self, source: str, work: Callable[[], int]) -> int:
        """The exit status of a process that is a copy of this one and does this, with that source for all it starts."""
        self._path.write_text(source)
        self._current.write_text("")
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.environ["HDCOS_MUTANT"] = f"{self.module}={self._path}"  # for processes that tests start
                code = work()
            except Unswappable:
                code = UNSWAPPABLE
            finally:
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _run_pytest(tests: Sequence[str], work: Callable[[pytest.Session], int]) -> int:
    """What becomes of a session that has read these tests and does this with them; not 0 if they cannot be read."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(MUTANTS), str(ROOT)])
    os.environ["PYTHONDONTWRITEBYTECODE"] = os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    sys.dont_write_bytecode = True
    loop = _Loop(work)
    with open(os.devnull, "w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        return int(pytest.main([*OPTIONS, *tests], plugins=[loop])) or loop.code


class _Loop:
    """Does something else with the tests that were read than to run them."""

    def __init__(self, work: Callable[[pytest.Session], int]) -> None:
        self.work, self.code = work, 0

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if session.testsfailed:  # some could not be read
            self.code = 1
        else:
            self.code = self.work(session)
        return True


class Barred(Exception):
    """A module that must not be imported here would have been."""


class _Barrier(MetaPathFinder):
    """Keeps one module from being imported, and with it all that import it."""

    def __init__(self, module: str) -> None:
        self.module = module

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self.module:
            raise Barred


@cache
def _fingerprint(test: str) -> str:
    """Of the text of a test, or of a file of tests that could not be read."""
    file, _, name = test.partition("::")
    text = (ROOT / file).read_text() if (ROOT / file).is_file() else ""
    if name:
        found = [node for node in ast.parse(text).body if isinstance(node, ast.FunctionDef) and node.name == name]
        text = "".join(map(ast.unparse, found))
    return hashlib.sha256(text.encode()).hexdigest()[:16]
