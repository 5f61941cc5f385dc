"""Running generators that talk: each yields what it says and is resumed with what it hears.

A protocol is such a generator, and so is whatever makes material without a dealer. Who answers is up to the driver: a
link, a plan that knows shapes only, a simulated peer.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from hdcos.errors import HandshakeError

P = ParamSpec("P")
Said = TypeVar("Said")
Heard = TypeVar("Heard")
T = TypeVar("T")


def advance(generator: Generator[Said, Heard, Any], heard: Heard | None, done: Callable[[Any], None]) -> list[Said]:
    """What a generator says next; nothing, and its result to `done`, if it ends."""
    try:
        return [generator.send(heard)]  # type: ignore[arg-type]
    except StopIteration as end:
        done(end.value)
        return []


def drive(generator: Generator[Said, Heard, T], answer: Callable[[Said], Heard]) -> T:
    """The result of a generator that hears what `answer` makes of everything it says."""
    heard: Heard | None = None
    results: list[T] = []
    while said := advance(generator, heard, results.append):
        heard = answer(said[0])
    return results[0]


def relay(
    generator: Generator[Said, Heard, T], answer: Callable[[Said], Generator[Any, Any, Heard]]
) -> Generator[Any, Any, T]:
    """The same where answers are made by talking to somebody else."""
    heard: Heard | None = None
    results: list[T] = []
    while said := advance(generator, heard, results.append):
        heard = yield from answer(said[0])
    return results[0]


def lockstep(
    pair: Sequence[Generator[Said, Heard, Any]], exchange: Callable[[Said, Said], Sequence[Heard]]
) -> tuple[Any, Any]:
    """The results of two generators that talk to each other through `exchange`, which has an answer for each."""
    heard: Sequence[Heard | None] = (None, None)
    while True:
        results: list[Any] = []
        said = [each for side, reply in zip(pair, heard, strict=True) for each in advance(side, reply, results.append)]
        if len(results) == 2:
            return results[0], results[1]
        if results:
            raise HandshakeError("one party ended while the other was still talking")
        heard = exchange(said[0], said[1])


def local(function: Callable[P, T]) -> Callable[P, Generator[Any, Any, T]]:
    """A protocol that says nothing: a function, where a protocol is expected."""

    @wraps(function)
    def protocol(*arguments: P.args, **options: P.kwargs) -> Generator[Any, Any, T]:
        return function(*arguments, **options)
        yield  # makes this a generator

    return protocol
