"""Joins of two owners' tables: against the plain join, against openmined-psi, at a million rows, and transcripts.

`make prove SUITE=tables PART=million ROWS=100000` joins fewer rows, for a quick look.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.peers.__main__ import Peer, install
from benchmarks.record import Line, at_least, at_most, exactly
from hdcos.join import matching, oprf, reference
from hdcos.join.files import join_file
from hdcos.join.ids import Rules, read_ids
from hdcos.join.matching import match
from hdcos.join.rows import JoinedRows
from hdcos.link import Identity, Link, Listener, connect
from hdcos.ring import Array

ROWS = int(os.environ.get("ROWS") or 10**6)
PEER_ROWS = 10**5
TABLES = 20
RUNS, RUN_ROWS = 12, 1500
ALPHABET = ["a", "Z", "\u00e9", "e\u0301", "\u00df", "\u0130", "\ufb01", "\u03a9", "\u2126", "\u65e5", "\ud55c",
            "\u1112\u1161\u11ab", "\U0001f600", " ", "\u00a0", "'", ";"]  # fmt: skip
"""Letters that look alike or change length when they are normalised, and what confuses readers of CSV."""
OPENMINED = Peer("openmined-psi", ("3.11", "3.10", "3.12"), (("openmined-psi==2.0.6",),))


# ---- both owners in one process


@contextmanager
def _links() -> Iterator[tuple[Link, Link]]:
    """A TLS connection between two owners, both ends."""
    north, south = Identity.create("north"), Identity.create("south")
    with Listener(north, {south.certificate: "south"}) as listener, ThreadPoolExecutor(1) as threads:
        coming = threads.submit(connect, south, {north.certificate: "north"}, "127.0.0.1", listener.port)
        with listener.accept() as one, coming.result() as other:
            yield one, other


def _both(work: Callable[[int, Link], Any], wrap: Callable[[Link], Any] = lambda link: link) -> list[Any]:
    """What each owner's work gives, done at the same time."""
    with _links() as links, ThreadPoolExecutor(2) as threads:
        calls = [threads.submit(work, side, wrap(link)) for side, link in enumerate(links)]
        return [call.result() for call in calls]


def _write(path: Path, ids: Sequence[str]) -> Path:
    with path.open("w", newline="") as file:
        file.write("id,x\n")
        file.writelines(f'"{text}",{row}\n' for row, text in enumerate(ids))
    return path


# ---- the plain join


def prove_plain(seed: int) -> Iterator[Line]:
    """Random tables with duplicates, gaps and Unicode, joined from file to file."""
    wrong = shared = rows = 0
    with tempfile.TemporaryDirectory() as folder:
        for number in range(TABLES):
            generator, place = np.random.default_rng([seed, number]), Path(folder)
            people = [_name(generator) for _ in range(400)]
            files = [_write(place / f"{side}.csv", _some(people, generator)) for side in (0, 1)]
            options = {"ignore_case": bool(number % 2), "drop_empty": True, "first": True}
            outputs = [place / f"{side}.json" for side in (0, 1)]

            def one(side: int, link: Link, files: Any = files, outputs: Any = outputs, options: Any = options) -> Any:
                return join_file(files[side], ["id"], outputs[side], lambda: link, **options)

            _both(one)
            taken = [JoinedRows.read(path) for path in outputs]
            pairs = list(zip(*(np.asarray(each.take).tolist() for each in taken), strict=True))
            expected = _plain(files, options["ignore_case"])
            wrong += len(set(pairs) ^ expected) + (len(pairs) - len(set(pairs)))
            shared, rows = shared + len(expected), rows + sum(each.total for each in taken)
    what = f"{TABLES} pairs of random tables with duplicates, gaps and Unicode, {rows} rows, {shared} pairs shared"
    yield exactly(f"{what}: pairs of rows that differ from the plain join", wrong, 0)


def _name(generator: np.random.Generator) -> str:
    return "".join(generator.choice(ALPHABET, generator.integers(1, 6)))


def _some(people: Sequence[str], generator: np.random.Generator) -> list[str]:
    """A table of some people, some of them twice, some without a name."""
    chosen = [people[place] for place in generator.integers(0, len(people), generator.integers(50, 500))]
    return ["" if generator.random() < 0.05 else text + " " * int(generator.integers(0, 2)) for text in chosen]


def _plain(files: Sequence[Path], ignore_case: bool) -> set[tuple[int, int]]:
    """The pairs of rows by comparing texts, without a line of the code that is proven: pandas and unicodedata."""
    import unicodedata

    import pandas

    sides = []
    for file in files:
        table = pandas.read_csv(file, dtype=str, keep_default_na=False, skipinitialspace=False)
        texts = [unicodedata.normalize("NFC", text).strip() for text in table["id"]]
        if ignore_case:
            texts = [unicodedata.normalize("NFC", text.casefold()) for text in texts]
        side = pandas.DataFrame({"id": texts, "row": range(len(texts))})
        sides.append(side[side["id"] != ""].drop_duplicates("id"))
    joined = sides[0].merge(sides[1], on="id")
    return set(zip(joined["row_x"], joined["row_y"], strict=True))


# ---- transcripts


class Recorded:
    """A link of which everything that arrives is kept."""

    def __init__(self, link: Link, heard: list[bytes]) -> None:
        self._link, self._heard = link, heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._link, name)

    def receive(self, *arguments: Any, **options: Any) -> Any:
        kind, content = self._link.receive(*arguments, **options)
        self._heard.append(content.tobytes())
        return kind, content


def prove_transcripts(seed: int) -> Iterator[Line]:
    """What each owner hears from the other of two quite different tables of one size, of which it shares nothing.

    Bytes must be uniform and the same of both. And with the salt of the session fixed, so that all that is left to hide
    the ids is what the protocol draws, two transcripts of one table must be as far apart as those of two tables; that
    this can fail is shown by rows without their masks.
    """
    generator = np.random.default_rng(seed)
    others = [_digests(range(RUN_ROWS)), generator.integers(0, 256, (RUN_ROWS, 16), np.uint8)]
    for kernels in ("compiled", "reference"):
        for hearer, rows in (("sender", 2 * RUN_ROWS), ("receiver", RUN_ROWS // 2)):
            mine, slow = _digests(range(10**9, 10**9 + rows)), kernels == "reference"
            heard = [[_hear(mine, table, slow) for _ in range(RUNS)] for table in others]
            lengths = {tuple(len(message) for message in run) for runs in heard for run in runs}
            what = f"transcripts of two tables of {RUN_ROWS} rows as the {hearer} hears them, {kernels} loops"
            yield exactly(f"{what}: different sequences of lengths", len(lengths), 1)
            counts = np.array([np.bincount(np.concatenate([_content(run) for run in runs])) for runs in heard])
            p = float(stats.chi2_contingency(counts).pvalue)
            yield at_least(f"{what}: p of {counts.sum():,} bytes having one distribution", p, 1e-4)
            p = min(float(stats.chisquare(each).pvalue) for each in counts)
            yield at_least(f"{what}: p of their being uniform, the lesser", p, 1e-4)
            width = 64 if hearer == "sender" else 12
            yield at_least(f"{what}: p of one table twice looking as two tables do", _apart(heard, width), 1e-4)
    mine = _digests(range(10**9, 10**9 + 2 * RUN_ROWS))
    with _patched(oprf.Receiver, "rows", _bare_rows):
        heard = [[_hear(mine, table, True) for _ in range(2)] for table in others]
    yield at_most("the same p of rows that are sent without their masks", _apart(heard, 64), 1e-9)


def _digests(numbers: Sequence[int]) -> Array:
    words = np.zeros((len(numbers), 2), np.uint64)
    words[:, 0] = numbers
    return words.view(np.uint8)


def _hear(mine: Array, theirs: Array, slow: bool) -> list[bytes]:
    """Messages of a match that finds nothing, as the owner of `mine` hears them, behind the greeting."""
    heard: list[bytes] = []
    tables, greet = (mine, theirs), matching._greet

    def one(side: int, link: Link) -> None:
        found = match(Recorded(link, heard) if side == 0 else link, Rules(1), tables[side])  # type: ignore[arg-type]
        assert not len(found.places), "two tables without a common id share one"

    with ExitStack() as stack:
        fixed = lambda *told: replace(greet(*told), salt=bytes(32))  # noqa: E731
        stack.enter_context(_patched(matching, "_greet", fixed))
        if slow:  # the reference takes keys as they are
            stack.enter_context(_patched(oprf, "loops", lambda: reference))
            stack.enter_context(_patched(oprf, "_schedules", lambda keys: _keys(keys)))
        _both(one)
    return heard[1:]


def _keys(keys: Sequence[bytes]) -> Array:
    return np.frombuffer(b"".join(keys), np.uint8).reshape(-1, 16)


def _bare_rows(side: Any, items: Array, first: int) -> tuple[Array, Array]:
    """What the receiver must not send: code words as they are."""
    return reference.code_words(side._code, items), np.zeros((len(items), 12), np.uint8)


@contextmanager
def _patched(place: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(place, name)
    setattr(place, name, value)
    try:
        yield
    finally:
        setattr(place, name, before)


def _content(run: Sequence[bytes]) -> Array:
    """What is said about a table: neither points of a curve, which come first, nor the empty list at the end."""
    return np.frombuffer(b"".join(message for message in run[1:] if len(message) > 8 and any(message)), np.uint8)


def _apart(heard: Sequence[Sequence[Sequence[bytes]]], width: int) -> float:
    """How likely distances between transcripts of one table and between those of two have one distribution."""
    bits = [[np.unpackbits(_content(run)).reshape(-1, 8 * width) for run in runs] for runs in heard]
    same = [(one ^ other).sum(1) for runs in bits for one, other in pairwise(runs)]
    others = [(one ^ other).sum(1) for one, other in zip(*bits, strict=True)]
    middle = 4 * width
    edges = [-1, *(middle + step * np.sqrt(2 * width) for step in (-2, -1, 0, 1, 2)), 8 * width]
    counts = [np.histogram(np.concatenate(each), edges)[0] for each in (same, others)]
    return float(stats.chi2_contingency(counts).pvalue)


# ---- a million rows


def prove_million(seed: int) -> Iterator[Line]:
    """Two processes of `hdcos join` on this machine, from CSV files to joined rows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shared = _tables(folder, seed, ROWS)
        taken, seconds, memory = _commands(folder)
        what = f"join of {ROWS:,} with {ROWS:,} ids from CSV files, two processes on {os.cpu_count()} cores"
        yield at_most(f"{what}: seconds, from the start of both to the end of both", seconds, 60)
        yield at_most(f"{what}: GB of memory of both together", memory / 1e9, 1.5)
        yield exactly(f"{what}: rows that are shared", len(taken[0]), shared)
        yield exactly(f"{what}: rows that are joined with another's", _wrong(folder, taken), 0)


def _tables(folder: Path, seed: int, rows: int) -> int:
    """Two tables that share every second id, in random orders."""
    for side in (0, 1):
        numbers = np.random.default_rng([seed, side]).permutation(rows) + side * (rows // 2)
        _write(folder / f"{side}.csv", [f"customer-{number:012d}" for number in numbers.tolist()])
        Identity.create(f"owner{side}", folder / f"key{side}")
    return rows - rows // 2


def _hdcos() -> list[str]:
    return [sys.executable, "-m", "hdcos"]


def _commands(folder: Path) -> tuple[list[JoinedRows], float, int]:
    """Both owners' joined rows, the time they took, and the most memory that both had."""
    with Listener(Identity.create("nobody"), {Identity.create("other").certificate: "other"}) as listener:
        address = f"127.0.0.1:{listener.port}"
    start, children = time.perf_counter(), []
    for side, way in ((0, "--listen"), (1, "--connect")):
        known = ("--identity", folder / f"key{side}", "--peer", folder / f"key{1 - side}" / "certificate.pem")
        call = [*_hdcos(), "join", folder / f"{side}.csv", "--id", "id", *known, way, address]
        children.append(subprocess.Popen(call, stdout=subprocess.DEVNULL))
    memory = 0
    for child in children:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode:
            raise AssertionError(f"`hdcos join` ended with {child.returncode}")
        memory += 1024 * used.ru_maxrss
    seconds = time.perf_counter() - start
    return [JoinedRows.read(folder / f"{side}.csv.joined.json") for side in (0, 1)], seconds, memory


def _wrong(folder: Path, taken: Sequence[JoinedRows]) -> int:
    """Rows whose ids differ between the owners."""
    ids = [read_ids(folder / f"{side}.csv", ["id"]).digests[np.asarray(each.take)] for side, each in enumerate(taken)]
    return int((ids[0] != ids[1]).any(1).sum())


# ---- a peer


def prove_peer(seed: int) -> Iterator[Line]:
    """openmined-psi in the same run, its two sides counted as if they worked at once wherever they could."""
    python = install(OPENMINED)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        shared = _tables(folder, seed, PEER_ROWS)
        for side in (0, 1):
            lines = (folder / f"{side}.csv").read_text().splitlines()[1:]
            (folder / f"{side}.txt").write_text("\n".join(line.split('"')[1] for line in lines))
        worker = Path(__file__).parent / "peers" / "openmined_worker.py"
        call = [python, worker, folder / "0.txt", folder / "1.txt"]
        answer = json.loads(subprocess.run(call, check=True, capture_output=True, text=True).stdout)
        steps = answer["seconds"]
        theirs = max(steps["setup"], steps["request"]) + steps["response"] + steps["result"]
        taken, whole, _ = _commands(folder)
        start = time.perf_counter()
        found = _both(lambda side, link: _match(folder / f"{side}.csv", link))
        seconds = time.perf_counter() - start
        what = f"join of {PEER_ROWS:,} with {PEER_ROWS:,} ids"
        yield exactly(f"{what} by openmined-psi: ids that are shared", answer["found"], shared)
        yield exactly(f"{what} by hdcos: rows that are shared", [found[0], len(taken[0])], [shared, shared])
        told = f"{what}, openmined-psi {theirs:.1f} s, hdcos {seconds:.2f} s between two threads"
        yield at_least(f"{told}, reading files included: times faster", theirs / seconds, 10)
        told = f"{what}, two processes of `hdcos join`, {whole:.2f} s with their start"
        yield at_least(f"{told}: times faster", theirs / whole, 5)


def _match(file: Path, link: Link) -> int:
    ids = read_ids(file, ["id"])
    return len(match(link, ids.rules, ids.digests).places)


PARTS = {"plain": prove_plain, "transcripts": prove_transcripts, "million": prove_million, "peer": prove_peer}
