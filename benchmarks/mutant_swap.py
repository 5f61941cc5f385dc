"""A fault without importing anything again: the code of functions that live in this process is replaced.

Most faults are inside a function, and importing what depends on a module costs more than the test that notices.
"""

from __future__ import annotations

import gc
import inspect
from collections.abc import Iterator
from types import CodeType, FunctionType

from benchmarks.mutant import Mutant, source_of


class Unswappable(Exception):
    """The fault is in what runs when the module is imported."""


def swap(mutant: Mutant) -> None:
    """Give the module of a fault, as it was imported here, this fault."""
    whole = [compile(each, "", "exec", dont_inherit=True) for each in (source_of(mutant.module), mutant.tree())]
    changed = dict(_functions(*whole))
    living = [each for each in gc.get_objects() if type(each) is FunctionType and each.__module__ == mutant.module]
    found = [function for function in living if function.__code__ in changed]
    if not found:
        raise Unswappable
    for function in found:
        function.__code__ = changed[function.__code__]


def _functions(before: CodeType, after: CodeType) -> Iterator[tuple[CodeType, CodeType]]:
    """The functions of a module or a class that a fault changed, before and after."""
    if before.co_code != after.co_code or len(before.co_consts) != len(after.co_consts):
        raise Unswappable
    for one, other in zip(before.co_consts, after.co_consts, strict=True):
        if not (isinstance(one, CodeType) and isinstance(other, CodeType)):
            if (type(one), one) != (type(other), other):
                raise Unswappable
        elif one != other:
            if one.co_flags & inspect.CO_OPTIMIZED:
                yield one, other
            else:
                yield from _functions(one, other)
