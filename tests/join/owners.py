"""Two owners in one process, each in a thread of its own, over a real TLS connection on loopback."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from hdcos.join.files import Joined, join_file
from hdcos.join.ids import Rules, read_ids
from hdcos.join.matching import Match, match
from hdcos.link import Identity, Link
from tls_pair import tls_pair


@cache
def identities() -> tuple[Identity, Identity]:
    return Identity.create("north"), Identity.create("south")


def outcomes(*works: Callable[[], Any]) -> list[Any]:
    """What each of some calls at once returned, or raised."""
    with ThreadPoolExecutor(len(works)) as threads:
        calls = [threads.submit(work) for work in works]
        return [call.exception() or call.result() for call in calls]


def write_table(path: Path, ids: Sequence[str], first: int = 0) -> Path:
    """A CSV file with an id and a number for each row."""
    lines = ["id,number", *(f'"{text}",{first + row}' for row, text in enumerate(ids))]
    path.write_text("\n".join(lines) + "\n")
    return path


ONE = Rules(1)


def tried(
    tables: Sequence[np.ndarray],
    rules: Sequence[Rules] = (ONE, ONE),
    timeout_s: float = 20.0,
    at_most: Sequence[int | None] = (None, None),
) -> list[Any]:
    """Both owners' ends of a match of digests, or how they failed. As owners do, they tell the other what fails."""

    def one(link: Link, rules: Rules, table: np.ndarray, at_most: int | None) -> Match:
        with link:
            return match(link, rules, table, at_most=at_most)

    with tls_pair(timeout_s) as links:
        return outcomes(*(partial(one, *each) for each in zip(links, rules, tables, at_most, strict=True)))


def matched(tables: Sequence[np.ndarray]) -> list[Match]:
    found = tried(tables)
    for each in found:
        if isinstance(each, Exception):
            raise each
    return found


def joined(files: Sequence[Path], outputs: Sequence[Path], **options: Any) -> list[Joined | Exception]:
    """Both owners' ends of a join of files, or how they failed."""
    with tls_pair(20.0) as links:

        def one(i: int) -> Joined:
            @contextmanager
            def meeting():
                with links[i] as link:
                    yield link

            return join_file(files[i], ["id"], outputs[i], meeting, **options)

        return outcomes(lambda: one(0), lambda: one(1))


def plain_join(files: Sequence[Path], **options: Any) -> set[tuple[int, int]]:
    """The pairs of rows that a join must find, by their ids in plaintext."""
    places = []
    for file in files:
        ids = read_ids(file, ["id"], **options)
        places.append({digest.tobytes(): int(row) for digest, row in zip(ids.digests, ids.rows, strict=True)})
    return {(places[0][digest], places[1][digest]) for digest in places[0].keys() & places[1].keys()}
