"""Every command with every kind of file that it cannot use: how it is called, and how it must end.

A *spoilt* file is one of a kind below, at a place where a command expects something else. `mistakes(folder)` writes all
of them into a folder and lists the calls. `verdict` says what is wrong with how one of them ended.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import random
import shutil
import struct
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from click.testing import CliRunner

from hdcos import nn
from hdcos.cli import main
from hdcos.join.files import read_ids
from hdcos.join.rows import JoinedRows
from hdcos.link import Identity
from hdcos.tables import Columns, Preparation

USAGE = 2
PORT = "127.0.0.1:1"
CONFIG = """
[data]
train = "rows.csv"
label = "y"
[model]
sizes = [3, 4, 1]
[training]
epochs = 1
batch_size = 2
lr = 0.1
"""


@dataclass(frozen=True)
class Mistake:
    """A call that cannot succeed: its exit code, and what its one line must name."""

    arguments: tuple[str, ...]
    code: int
    names: str = ""
    found: bool = False
    """`hdcos doctor` says what it found on stdout: that is its answer, not its failure."""

    slow: bool = False
    """It is noticed only when the processes of a cluster have been started."""

    def __str__(self) -> str:
        return " ".join(self.arguments)


# ---- files that are something else


def _link(path: Path, target: str | Path) -> None:
    path.symlink_to(target)


def _torch_like(path: Path) -> None:
    """What torch.save writes: an archive with a pickle in it."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("model/data.pkl", pickle.dumps({"weight": [1.0, 2.0]}))
        archive.writestr("model/version", "3\n")


def _onnx_like(path: Path) -> None:
    """The first fields of an ONNX model: ir_version 8, producer "pytorch", an empty graph."""
    path.write_bytes(b"\x08\x08\x12\x07pytorch\x1a\x052.1.0:\x00B\x02\x10\x11")


PLACES: dict[str, Callable[[Path], None]] = {
    "missing": lambda path: None,
    "folder": lambda path: path.mkdir(),
    "dangling": lambda path: _link(path, "nowhere"),
    "loop": lambda path: _link(path, path.name),
}
"""There is no file at all: click refuses these where an argument must be a file."""

CONTENTS: dict[str, Callable[[Path], None]] = {
    "unreadable": lambda path: _link(path, "/proc/self/mem"),  # even for root: reading at 0 is an input/output error
    "empty": lambda path: path.write_bytes(b"") and None,
    "binary": lambda path: path.write_bytes(random.Random(1).randbytes(3000)) and None,
    "zeros": lambda path: path.write_bytes(bytes(1000)) and None,
    "utf16": lambda path: path.write_text("a,b\n1,2\n", encoding="utf-16") and None,
    "png": lambda path: path.write_bytes(b"\x89PNG\r\n\x1a\n" + bytes(range(256))) and None,
    "html": lambda path: path.write_text("<!doctype html>\n<title>404</title>\n") and None,
    "json": lambda path: path.write_text('{"a": [1, 2, {"b": null}]}') and None,
    "torch": _torch_like,
    "onnx": _onnx_like,
}


FOREIGN = {
    "torch": "is no model of hdcos, it is a PyTorch file (torch.save). Convert it",
    "onnx": "is no model of hdcos, it is an ONNX model. Convert it",
}
"""What is said of models of other libraries, whatever their name ends in."""


class Workshop:
    """Good files, spoilt ones, and calls with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._number = 0
        self.home = folder / "home"
        for arguments in (
            ("init", "--single-machine", self.home),
            ("token", "new", "--cluster", self.home / "cluster.toml", "--output", folder / "secret"),
        ):
            result = CliRunner().invoke(main, [str(item) for item in arguments])
            assert result.exit_code == 0, result.output
        x, y = np.arange(12.0).reshape(4, 3) / 4, np.array([0.0, 1, 1, 0])
        table = np.column_stack([x, y])
        np.savetxt(folder / "rows.csv", table, delimiter=",", header="a,b,c,y", comments="", fmt="%g")
        (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes()))
        np.save(folder / "rows.npy", x)
        np.savez(folder / "rows.npz", x=x, y=y)
        np.savez_compressed(folder / "packed.npz", x=np.random.default_rng(0).normal(size=(500, 3)), y=np.zeros(500))
        import pyarrow
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"a": x[:, 0], "b": x[:, 1], "y": y}), folder / "rows.parquet")
        words = pyarrow.table({"a": ["x", "y"], "b": [[1.0], [2.0]], "y": [0, None]})
        parquet.write_table(words, folder / "words.parquet")
        (folder / "rows.idx").write_bytes(struct.pack(">BBBBII", 0, 0, 8, 2, 4, 3) + bytes(12))
        nn.models.mlp([3, 4, 1]).save(folder / "model.safetensors")
        for name in ("north", "south"):
            Identity.create(name, folder / name)
        (folder / "config.toml").write_text(CONFIG)
        (folder / "columns.toml").write_text('[columns]\na = "numeric"\nb = "numeric"\nc = "numeric"\ny = "label"\n')
        self.reach = ("--cluster", str(self.home / "cluster.toml"), "--token-file", str(folder / "secret"))
        self.reach += ("--timeout-s", "0.2")  # no cluster runs: a command that tries to reach it should not wait long

    def place(self, name: str) -> Path:
        """A new folder, and a path in it of this name."""
        self._number += 1
        place = self.folder / "spoilt" / str(self._number)
        place.mkdir(parents=True)
        return place / name

    def spoilt(self, name: str, kinds: dict[str, Callable[[Path], None]]) -> Iterator[tuple[str, Path]]:
        for kind, make in kinds.items():
            path = self.place(name)
            make(path)
            yield kind, path

    def truncated(self, name: str) -> Iterator[Path]:
        """A good file with its end, or almost everything, cut off."""
        whole = (self.folder / name).read_bytes()
        for length in (len(whole) // 2, 10):
            path = self.place(name)
            path.write_bytes(whole[:length])
            yield path

    def node(self, role: str = "party0") -> Path:
        """A copy of a node's folder that may be spoilt."""
        place = self.place(role)
        shutil.copytree(self.home / role, place)
        return place


def mistakes(folder: Path, group: str = "") -> list[Mistake]:
    """All mistakes, or those of one group; their files are written into a folder."""
    shop = Workshop(folder)
    functions = (_models, _tables, _columns, _options, _configurations, _clusters, _secrets, _nodes, _outputs, _values)
    functions += (_truncated, _tables_as_models, _separators)
    return [mistake for function in functions if group in function.__name__ for mistake in function(shop)]


def _file_argument(shop: Workshop, name: str, *call: str) -> Iterator[Mistake]:
    """Calls in which {} stands for a file that click looks for before the command runs."""
    for kinds, code in ((PLACES, USAGE), (CONTENTS, 1)):
        for _, path in shop.spoilt(name, kinds):
            yield Mistake(tuple(part.replace("{}", str(path)) for part in call), code, path.name)


def _models(shop: Workshop) -> Iterator[Mistake]:
    share = ("share-model", "{}", "--name", "m", *shop.reach)
    yield from _file_argument(shop, "model.safetensors", *share)
    yield from _file_argument(shop, "net.onnx", "convert", "{}")
    yield from _file_argument(shop, "net.pt", "convert", "{}", "--trust")
    for name in ("net.pt", "net.pth", "net.onnx", "net.safetensors"):
        for kind, path in shop.spoilt(name, PLACES | CONTENTS):
            what_it_is = FOREIGN.get(kind, "")
            yield Mistake(("cost", str(path)), 1, f"{path.name} {what_it_is}".strip())
    rows = str(shop.folder / "rows.csv")
    for call in (share, ("plan", "{}", "--rows-per-second", "5"), ("evaluate", "{}", rows, "--label", "y")):
        for name in ("net.pt", "net.pth", "net.onnx", "model.safetensors"):
            for kind, path in shop.spoilt(name, {kind: CONTENTS[kind] for kind in FOREIGN}):
                named = tuple(part.replace("{}", str(path)) for part in call)
                yield Mistake(named, 1, f"{path.name} {FOREIGN[kind]}")


def _tables_as_models(shop: Workshop) -> Iterator[Mistake]:
    for name, what in (("rows.csv", "a text"), ("rows.parquet", "a Parquet table"), ("rows.npy", "an array of NumPy")):
        said = f"{name} is no model of hdcos, it is {what}"
        yield Mistake(("share-model", str(shop.folder / name), "--name", "m", *shop.reach), 1, said)
        yield Mistake(("cost", str(shop.folder / name)), 1, said)


def _separators(shop: Workshop) -> Iterator[Mistake]:
    """Tables whose cells stand between something else than commas."""
    for separator in (";", "\t", "|"):
        for point in (".", ","):
            path = shop.place("german.csv")
            lines = ("age bmi y", f"0{point}3 -0{point}5 1", f"0{point}1 0{point}5 0")
            path.write_text("\n".join(line.replace(" ", separator) for line in lines) + "\n")
            said = f"the file seems to be separated by {separator!r}"
            for call in (
                ("predict", "m", str(path), *shop.reach),
                ("predict", "m", str(path), "--id", "age", *shop.reach),
                ("upload", str(path), "--name", "d", "--label", "y", *shop.reach),
                ("suggest", str(path), "--label", "y"),
                ("columns", str(path)),
                ("prepare", str(path), "--columns", str(shop.folder / "columns.toml")),
            ):
                yield Mistake(call, 1, said)


def _columns(shop: Workshop) -> Iterator[Mistake]:
    rows, declared, output = (str(shop.folder / name) for name in ("rows.csv", "columns.toml", "made.json"))
    for kinds, code in ((PLACES, USAGE), (CONTENTS, 1)):
        for kind, path in shop.spoilt("rows.csv", kinds):
            if kind != "html":  # a line of names, and a row
                yield Mistake(("columns", str(path)), code, path.name)
    yield Mistake(("columns", rows, "--label", "z"), 1, "rows.csv")
    for name in ("rows.csv", "rows.parquet"):
        yield from _file_argument(shop, name, "prepare", "{}", "--columns", declared, "--output", output)
    for path in (*shop.truncated("rows.csv.gz"), *shop.truncated("rows.parquet")):
        yield Mistake(("prepare", str(path), "--columns", declared, "--output", output), 1, path.name)
    yield from _file_argument(shop, "columns.toml", "prepare", rows, "--columns", "{}", "--output", output)
    yield from _file_argument(shop, "p.json", "predict", "m", rows, "--preparation", "{}", *shop.reach)
    for _, path in shop.spoilt("p.json", CONTENTS):
        yield Mistake(("upload", rows, "--name", "d", "--preparation", str(path), *shop.reach), 1, path.name)
    yield Mistake(("prepare", rows, "--columns", declared, "--output", "/nowhere/made.json"), 1, "/nowhere/made.json")
    yield Mistake(("prepare", rows, "--columns", declared, "--with", "w", "--owners", "1", *shop.reach), USAGE)
    yield Mistake(("prepare", rows, "--columns", declared, "--owners", "2", *shop.reach), USAGE)


def _options(shop: Workshop) -> Iterator[Mistake]:
    """Files that options name, beside arguments that are good."""
    rows, model = str(shop.folder / "rows.csv"), str(shop.folder / "model.safetensors")
    share, upload = ("share-model", model, "--name", "m", *shop.reach), ("upload", rows, "--name", "d", *shop.reach)
    for name in ("rows.csv", "rows.csv.gz", "rows.npy", "rows.npz", "rows.parquet", "rows.idx"):
        yield from _file_argument(shop, name, *share, "--calibrate", "{}")
        for path in shop.truncated(name) if name != "rows.csv" else ():
            yield Mistake((*share, "--calibrate", str(path)), 1, path.name)
    yield Mistake((*share, "--calibrate", rows), 1, "rows.csv")  # four columns for a network that takes three
    yield Mistake((*share, "--calibrate", rows, "--label", "z"), 1, "rows.csv")
    yield Mistake((*share, "--calibrate", str(shop.folder / "words.parquet")), 1, "words.parquet")
    yield Mistake((*share, "--calibrate", str(shop.folder / "rows.npz"), "--features", "z"), 1, "rows.npz")
    yield from _file_argument(shop, "columns.toml", *upload, "--columns", "{}")
    for text, names in (
        ("[columns]\n", "columns"),
        ('[columns]\na = "numeric"\n', "'b'"),
        ('[columns]\na = "number"\n', "number"),
        ("[columns]\na = 3\n", "columns"),
        ("columns = 3\n", "columns"),
    ):
        path = shop.place("columns.toml")
        path.write_text(text)
        yield Mistake((*upload, "--columns", str(path)), 1, names)
    columns = ("--columns", str(shop.folder / "columns.toml"))
    yield Mistake((*upload, *columns, "--label", "y"), USAGE, "--label")
    for target, code in ((shop.place("folder"), USAGE), (shop.place("none") / "p.json", 1)):
        if code == USAGE:
            target.mkdir()
        yield Mistake((*upload, *columns, "--preparation", str(target)), code, target.name)
    yield from _file_argument(shop, "p.json", "suggest", rows, "--preparation", "{}")
    yield Mistake(("suggest", rows, "--label", "y", "--preparation", rows), USAGE, "--preparation")
    yield from _file_argument(shop, "joined.json", *upload, "--join", "{}")
    for path, names in _damaged_joins(shop):
        yield Mistake((*upload, "--join", str(path)), 1, names)
    yield from _pictures(shop, ("evaluate", model, rows, "--label", "y", "--plot"))


def _damaged_joins(shop: Workshop) -> Iterator[tuple[Path, str]]:
    """What `hdcos join` makes, cut, changed, or of another table; and what must be named of each."""
    ids = read_ids(shop.folder / "rows.csv", ("a",), False, drop_empty=True, first=True)
    record = json.loads(JoinedRows.of(ids, "ab" * 16, np.arange(3)).encode())
    changes: dict[str, tuple[dict[str, object], str]] = {
        "format": ({"format": "hdcos joined rows 9"}, "changed.json"),
        "fewer": ({"rows": 2}, "join again"),
        "none": ({"rows": 0, "take": []}, "join again"),
        "beyond": ({"take": [0, 1, 4]}, "join again"),
        "twice": ({"take": [0, 1, 1]}, "join again"),
        "before": ({"take": [0, 1, -1]}, "join again"),
        "texts": ({"take": ["a", "b", "c"]}, "join again"),
        "nested": ({"take": [[0], [1, 2]]}, "join again"),
        "huge": ({"take": [0, 1, 10**30]}, "join again"),
        "id": ({"join": "../x"}, "join again"),
        "columns": ({"columns": [1]}, "join again"),
        "other": ({"ids": "0" * 64}, "rows.csv"),
        "unknown": ({"columns": ["z"]}, "'z'"),
    }
    for change, names in changes.values():
        path = shop.place("changed.json")
        path.write_text(json.dumps(record | change))
        yield path, names
    for key in record:
        path = shop.place("changed.json")
        path.write_text(json.dumps({name: value for name, value in record.items() if name != key}))
        yield path, path.name


def _pictures(shop: Workshop, call: tuple[str, ...]) -> Iterator[Mistake]:
    """Pictures where none can be written."""
    for target, names in (("loop.png", "loop.png"), ("/dev/full", "is full"), ("/nowhere/far.png", "loop.png")):
        path = shop.place("loop.png")
        _link(path, target)
        yield Mistake((*call, str(path)), 1, names)
    for path, code in (
        (shop.place("none") / "picture.png", 1),
        (shop.folder / "rows.csv" / "picture.png", 1),
        (shop.place("picture.txt"), 1),
        (shop.place("picture"), 1),
        (shop.home, USAGE),
    ):
        yield Mistake((*call, str(path)), code, path.name)


DATA = ("rows.csv", "rows.csv.gz", "rows.npy", "rows.npz", "packed.npz", "rows.parquet", "rows.idx")


def _joins(shop: Workshop) -> Iterator[Mistake]:
    """Ids, identities and joined rows; nobody is ever reached."""
    rows, mine, other = (str(shop.folder / name) for name in ("rows.csv", "north", "south/certificate.pem"))
    known = ("--identity", mine, "--peer", other, "--connect", PORT)
    for name in ("rows.csv", "rows.parquet"):
        yield from _file_argument(shop, name, "join", "{}", "--id", "a", *known)
    yield from _file_argument(
        shop, "certificate.pem", "join", rows, "--id", "a", "--identity", mine, "--peer", "{}", "--connect", PORT
    )
    for column, words in (("z", "'z'"), ("y", "--first")):
        yield Mistake(("join", rows, "--id", column, *known), 1, words)
    yield Mistake(("join", str(shop.folder / "rows.npy"), "--id", "a", *known), 1, "rows.npy")
    yield Mistake(("join", rows, "--id", "a", *known, "--meet", "m"), USAGE, "--listen")
    yield Mistake(("join", rows, "--id", "a", *known[:4], "--meet", "m"), USAGE, "--with")
    yield Mistake(("join", rows, "--id", "a", *known[:4]), USAGE, "--connect")
    yield Mistake(("join", rows, "--id", "a", *known[:4], "--connect", "nowhere"), 1, "nowhere")
    yield Mistake(("join", rows, "--id", "a", *known, "--wait-s", "0.01"), 1, PORT)
    yield Mistake(("join", rows, "--id", "a", *known[:2], "--peer", f"{mine}/certificate.pem", *known[4:]), 1, "own")
    yield Mistake(("join", rows, "--id", "a", *known, "--output", str(shop.folder)), USAGE, "--output")
    yield Mistake(("upload", rows, "--name", "d", "--join", rows, *shop.reach), 1, "rows.csv")
    yield Mistake(("identity", str(shop.folder / "nobody")), 1, "--name")
    yield Mistake(("identity", mine, "--name", "north"), 1, "already")
    yield Mistake(("identity", str(shop.folder / "x"), "--name", "../x"), 1, "name")


def _truncated(shop: Workshop) -> Iterator[Mistake]:
    """Every command that reads a file, with a good one whose end, or almost everything, was cut off."""
    rows, model, declared = (str(shop.folder / name) for name in ("rows.csv", "model.safetensors", "columns.toml"))
    mine, other = str(shop.folder / "north"), str(shop.folder / "south" / "certificate.pem")
    known = ("--id", "a", "--identity", mine, "--peer", other, "--connect", PORT)
    secret = ("--token-file", str(shop.folder / "secret"), "--timeout-s", "0.2")
    _torch_like(shop.folder / "net.pt")
    (shop.folder / "net.onnx").write_bytes(b"\x08\x08\x12\x07pytorch\x1a\x052.1.0:\x80\x04" + bytes(300))
    Preparation.fit(rows, Columns.read(Path(declared))).save(shop.folder / "p.json")
    ids = read_ids(shop.folder / "rows.csv", ("a",), False, drop_empty=True, first=True)
    (shop.folder / "joined.json").write_bytes(JoinedRows.of(ids, "ab" * 16, np.arange(3)).encode())
    shutil.copy(shop.home / "cluster.toml", shop.folder)
    for role in ("party0", "party1", "dealer"):
        shutil.copy(shop.home / role / "card.toml", shop.folder / f"{role}.toml")
    shutil.copy(shop.home / "party0" / "certificate.pem", shop.folder / "authority.pem")
    cards = tuple(str(shop.folder / f"{role}.toml") for role in ("dealer", "party1"))
    node = ("--role", "party0", "--address", PORT, "--http", PORT)
    calls: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
        (("net.pt",), ("convert", "{}", "--trust", "--input-shape", "3")),
        (("net.onnx",), ("convert", "{}", "--input-shape", "3")),
        (("model.safetensors",), ("evaluate", "{}", rows, "--label", "y")),
        (("model.safetensors",), ("share-model", "{}", "--name", "m", *shop.reach)),
        (("model.safetensors",), ("cost", "{}")),
        (("model.safetensors",), ("plan", "{}", "--rows-per-second", "5")),
        (("p.json",), ("upload", rows, "--name", "d", "--preparation", "{}", *shop.reach)),
        (("p.json",), ("predict", "m", rows, "--preparation", "{}", *shop.reach)),
        (("p.json",), ("suggest", rows, "--preparation", "{}")),
        (("p.json",), ("evaluate", model, rows, "--preparation", "{}")),
        (("joined.json",), ("upload", rows, "--name", "d", "--join", "{}", *shop.reach)),
        (("columns.toml",), ("upload", rows, "--name", "d", "--columns", "{}", *shop.reach)),
        (("columns.toml",), ("prepare", rows, "--columns", "{}", "--output", str(shop.place("made.json")))),
        (("config.toml",), ("train", "{}")),
        (("cluster.toml",), ("train", str(shop.folder / "config.toml"), *secret[:2], "--cluster", "{}")),
        (("party0.toml",), ("init", str(shop.place("c.toml")), *cards, "{}")),
        (
            ("cluster.toml",),
            ("init", str(shop.place("c.toml")), *cards, str(shop.folder / "party0.toml"), "--replaces", "{}"),
        ),
        (("authority.pem",), ("node", "init", str(shop.place("n")), *node, "--authority", "{}")),
        (("cluster.toml",), ("token", "new", "--output", str(shop.place("new")), "--cluster", "{}")),
        (("cluster.toml",), ("token", "show", *secret[:2], "--party", "0", "--cluster", "{}")),
        (("cluster.toml",), ("dealer", "--node", str(shop.home / "dealer"), "--cluster", "{}")),
        (("cluster.toml",), ("party", "--node", str(shop.home / "party1"), "--cluster", "{}")),
        (("authority.pem",), ("join", rows, "--id", "a", "--identity", mine, "--peer", "{}", "--connect", PORT)),
    ]
    calls += [((name,), ("columns", "{}")) for name in ("rows.csv.gz", "rows.parquet")]
    calls += [((name,), ("join", "{}", *known)) for name in ("rows.csv.gz", "rows.parquet")]
    for call in (("predict", "m", "{}"), ("evaluate", model, "{}", "--label", "y"), ("suggest", "{}", "--label", "y")):
        reach = shop.reach if call[0] == "predict" else ()
        calls.append((("rows.csv.gz", "rows.npz", "rows.parquet"), (*call, *reach)))
    for call in (
        *CLUSTERED,
        ("predict", "m", rows),
        ("upload", rows, "--name", "d"),
        ("share-model", model, "--name", "m"),
    ):
        calls.append((("cluster.toml",), (*call, *secret, "--cluster", "{}")))
    for names, call in calls:
        for name in names:
            for path in shop.truncated(name):
                yield Mistake(tuple(part.replace("{}", str(path)) for part in call), 1, path.name)
    for path in shop.truncated("cluster.toml"):
        yield Mistake(("doctor", "--cluster", str(path)), 1, path.name, True)
    cluster = ("--cluster", str(shop.home / "cluster.toml"))
    for call in (("party", *cluster), *NODE_CALLS, ("node", "renew")):
        for file in ("card.toml", "state/hdcos.sqlite") if call[:1] != ("node",) else ("card.toml", "certificate.pem"):
            for part in (2, 100):
                spoilt = shop.node()
                content = (spoilt / file).read_bytes()
                (spoilt / file).write_bytes(content[: len(content) // part])
                for left in ("hdcos.sqlite-wal", "hdcos.sqlite-shm"):
                    (spoilt / "state" / left).unlink(missing_ok=True)
                place = (str(spoilt),) if call[0] == "node" else ("--node", str(spoilt))
                yield Mistake((*call, *place), 1, Path(file).name)


def _tables(shop: Workshop) -> Iterator[Mistake]:
    cluster = shop.reach
    for name in DATA:
        yield from _file_argument(shop, name, "predict", "m", "{}", *cluster)
        if name in ("rows.csv", "rows.parquet", "rows.npz"):
            yield from _file_argument(shop, name, "suggest", "{}", "--label", "y")
            yield from _file_argument(shop, name, "evaluate", "m", "{}", "--label", "y", *cluster)
        for path in shop.truncated(name):
            if name != "rows.csv":  # half a CSV file of numbers is a CSV file
                yield Mistake(("upload", str(path), "--name", "d", *cluster), 1, path.name)
    for name in ("rows.csv", "rows.npz"):
        yield from _file_argument(shop, name, "upload", "{}", "--name", "d", *cluster)
    yield Mistake(("upload", str(shop.folder / "words.parquet"), "--name", "d", *cluster), 1, "words.parquet")
    yield from _joins(shop)
    for text, names in (
        ("a,b\n1,two\n", "line 2, column b"),
        ("a,b\n1,2\n\n3,4,5\n", "line 4"),
        ("a,b\n1,\n", "line 2, column b"),
        ("a,b\n", "rows.csv"),
        ("1;2\n3;4\n", "rows.csv"),
        ("a,b\n1,nan\n", "line 2, column b"),
        ("a,b\n1,1e400\n", "line 2, column b"),
        ("x" * 200_000, "rows.csv"),
        ('"a\n1,2\n', "rows.csv"),
    ):
        path = shop.place("rows.csv")
        path.write_text(text)
        yield Mistake(("upload", str(path), "--name", "d", *cluster), 1, names)
    for label, source in (
        ("z", "rows.csv"),
        ("9", "rows.npz"),
        ("z", "rows.parquet"),
        ("z", "rows.npy"),
        ("z", "rows.idx"),
    ):
        yield Mistake(("upload", str(shop.folder / source), "--name", "d", "--label", label, *cluster), 1, source)
    arrays: dict[str, dict[str, object]] = {
        "text": {"x": np.array([["a", "b"]])},
        "number": {"x": np.array(3.0)},
        "objects": {"x": np.array([None, 1], dtype=object)},
        "line": {"x": np.arange(3.0)},
        "complex": {"x": np.ones((2, 2)) * 1j},
        "none": {"x": np.ones((0, 3))},
        "labels": {"x": np.ones((3, 2)), "y": np.array(["a", "b", "c"])},
        "uneven": {"x": np.ones((3, 2)), "y": np.zeros(2)},
        "infinite": {"x": np.full((2, 2), np.inf), "y": np.zeros(2)},
        "other": {"z": np.ones((2, 2))},
    }
    for name, content in arrays.items():
        path = shop.place(f"{name}.npz")
        np.savez(path, **content)  # type: ignore[arg-type]
        yield Mistake(("upload", str(path), "--name", "d", *cluster), 1, path.name)
        if "x" in content and name not in ("labels", "uneven"):
            path = shop.place(f"{name}.npy")
            np.save(path, np.asarray(content["x"]))
            yield Mistake(("upload", str(path), "--name", "d", *cluster), 1, path.name)
    huge = shop.place("huge.npy")
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "<f8", "fortran_order": False, "shape": (10**9, 10**6)})
    huge.write_bytes(header.getvalue() + bytes(100))
    yield Mistake(("upload", str(huge), "--name", "d", *cluster), 1, huge.name)
    with gzip.open(shop.place("bomb.idx.gz"), "wb") as file:
        file.write(struct.pack(">BBBBII", 0, 0, 8, 2, 1 << 31, 1 << 31))
    yield Mistake(("upload", str(file.name), "--name", "d", *cluster), 1, "bomb.idx")


def _configurations(shop: Workshop) -> Iterator[Mistake]:
    yield from _file_argument(shop, "config.toml", "train", "{}")
    plan = ("plan", "higgs_mlp", "--rows-per-second", "5")
    yield from _file_argument(shop, "prices.toml", *plan, "--prices", "{}")
    for kind, path in shop.spoilt("figures.json", PLACES | CONTENTS):
        yield Mistake((*plan, "--figures", str(path)), USAGE if kind == "folder" else 1, path.name)

    def changed(old: str, new: str, names: str) -> Mistake:
        path = shop.place("config.toml")
        for name in (*DATA, "words.parquet", "model.safetensors"):
            shutil.copy(shop.folder / name, path.parent)
        path.write_text(CONFIG.replace(old, new, 1))
        return Mistake(("train", str(path)), 1, names, slow=old in ("epochs = 1", "batch_size = 2", "lr = 0.1"))

    for kind, make in (PLACES | CONTENTS).items():
        for name in ("bad.csv", "bad.npz"):
            yield _prepared(changed('"rows.csv"', f'"{name}"', name), make, name)
        yield _prepared(changed('label = "y"', 'label = "y"\ntest = "bad.parquet"', "bad.parquet"), make, "bad.parquet")
        if kind != "missing":
            names = f"bad.safetensors {FOREIGN.get(kind, '')}".strip()
            yield _prepared(changed("sizes = [3, 4, 1]", 'file = "bad.safetensors"', names), make)
    for old, new, names in (
        ('"rows.csv"', '"rows.xlsx"', "rows.xlsx"),
        ('"rows.csv"', "[]", "train"),
        ('"rows.csv"', "[3]", "train"),
        ('"rows.csv"', '["rows.csv", "rows.csv", "none.csv"]', "none.csv"),
        ('"rows.csv"', r'"a\u0000b.csv"', "csv"),
        ('"rows.csv"', '"' + "x" * 300 + '.csv"', "xxx.csv"),
        ('"rows.csv"', '"rows.npy"', "rows.npy"),
        ('label = "y"', 'label = "Y"', "'Y'"),
        ('label = "y"', "label = 99", "99"),
        ('label = "y"', "", "label"),
        ('label = "y"', 'label = "y"\nfeatures = 3', "features"),
        ("sizes = [3, 4, 1]", "sizes = []", "[model]"),
        ("sizes = [3, 4, 1]", 'sizes = ["a", 1]', "[model]"),
        ("sizes = [3, 4, 1]", "sizes = [3, -4, 1]", ""),
        ("sizes = [3, 4, 1]", "sizes = [3, 1.5, 1]", ""),
        ("sizes = [3, 4, 1]", "sizes = [3, 4, 100000000000]", ""),
        ("sizes = [3, 4, 1]", "sizes = [9, 4, 1]", "rows.csv"),
        ("sizes = [3, 4, 1]", 'sizes = [3, 4, 1]\nactivation = "swish"', "swish"),
        ("sizes = [3, 4, 1]", 'sizes = [3, 4, 1]\nstructure = "sparse"', "sparse"),
        ("sizes = [3, 4, 1]", "sizes = [3, 4, 1]\nseed = -1", "seed"),
        ("sizes = [3, 4, 1]", 'file = "rows.csv"', "rows.csv"),
        ("sizes = [3, 4, 1]", 'file = "none.safetensors"', "none.safetensors"),
        ("epochs = 1", "epochs = 0", "epochs"),
        ("epochs = 1", "epochs = 1.5", "epochs"),
        ("epochs = 1", "epochs = true", "epochs"),
        ("batch_size = 2", "batch_size = 0", "batch"),
        ("batch_size = 2", "batch_size = 2000", "2000"),
        ("lr = 0.1", "lr = nan", ""),
        ("lr = 0.1", "lr = inf", ""),
        ("lr = 0.1", "lr = 0", ""),
        ("lr = 0.1", 'lr = 0.1\nloss = "hinge"', "hinge"),
        ("lr = 0.1", "lr = 0.1\nmomentum = 2", "momentum"),
        ("lr = 0.1", "lr = 0.1\nweight_decay = -1", "decay"),
        ("lr = 0.1", "lr = 0.1\ncheckpoint_every = 0\ncheckpoint = 'kept'", "checkpoint"),
        ("lr = 0.1", "lr = 0.1\ncheckpoint = 'rows.csv'", "rows.csv"),
        ("[data]", "data = 3\n[date]", "date"),
        ("[training]", "[[training]]", "training"),
        ("lr = 0.1", "lr = 0.1\n[output]\nmodel = 'none/trained.safetensors'", "none"),
        ("lr = 0.1", "lr = 0.1\n[output]\nmodel = '.'", "output"),
    ):
        yield changed(old, new, names)
    yield Mistake(("train", str(shop.folder / "config.toml"), "--resume"), 1, "checkpoint")


def _prepared(mistake: Mistake, make: Callable[[Path], None], name: str = "bad.safetensors") -> Mistake:
    make(Path(mistake.arguments[1]).parent / name)
    return mistake


CLUSTERED = (
    *(("models",), ("jobs",), ("datasets",), ("forget", "m")),
    *(("reveal", "m", "--output", "x"), ("deal", "m", "--rows", "1")),
)


def _clusters(shop: Workshop) -> Iterator[Mistake]:
    """Cluster files: of clients, whose option is a plain text, and of nodes."""
    good = (shop.home / "cluster.toml").read_text()
    secret = ("--token-file", str(shop.folder / "secret"), "--timeout-s", "0.2")
    calls = (*CLUSTERED, ("predict", "m", str(shop.folder / "rows.csv")))
    for call in calls:
        for _, path in shop.spoilt("cluster.toml", PLACES | CONTENTS):
            yield Mistake((*call, "--cluster", str(path), *secret), 1, path.name)
    trained = ("train", str(shop.folder / "config.toml"), *secret[:2], "--cluster")
    for _, path in shop.spoilt("cluster.toml", PLACES | CONTENTS):
        yield Mistake((*trained, str(path)), 1, path.name)
    yield from _file_argument(shop, "cluster.toml", "dealer", "--node", str(shop.home / "dealer"), "--cluster", "{}")
    yield from _file_argument(shop, "cluster.toml", "party", "--node", str(shop.home / "party1"), "--cluster", "{}")
    yield from _file_argument(
        shop, "cluster.toml", "token", "new", "--output", str(shop.place("new")), "--cluster", "{}"
    )
    yield from _file_argument(shop, "cluster.toml", "token", "show", *secret[:2], "--party", "0", "--cluster", "{}")
    for old, new in (
        ("version = 1", "version = 2"),
        ("version = 1", ""),
        ('id = "', 'id = "z'),
        ("[party1]", "[party2]"),
        ("[party0]", "party0 = 3\n[other]"),
        ("BEGIN CERTIFICATE", "BEGIN CERTIFICAT"),
        ("MII", "MI"),
        ('http = "127', 'htp = "127'),
        ('http = "127.0.0.1:', 'http = "127.0.0.1:x'),
    ):
        path = shop.place("cluster.toml")
        changed = good.replace(old, new)
        assert changed != good, old
        path.write_text(changed)
        yield Mistake(("models", "--cluster", str(path), *secret), 1, path.name)
        yield Mistake(("party", "--node", str(shop.home / "party0"), "--cluster", str(path)), 1, path.name)
        yield Mistake(("doctor", "--node", str(shop.home / "party0"), "--cluster", str(path)), 1, path.name, True)
    for _, path in shop.spoilt("cluster.toml", CONTENTS):
        yield Mistake(("doctor", "--node", str(shop.home / "dealer"), "--cluster", str(path)), 1, path.name, True)
        yield Mistake(("doctor", "--cluster", str(path)), 1, path.name, True)
    for call in (*calls, ("share-model", str(shop.folder / "model.safetensors"), "--name", "m")):
        yield Mistake((*call, *shop.reach), 1, "refuses connections: is its node running? `hdcos doctor` says more")
    here = ("--cluster", str(shop.home / "cluster.toml"))
    yield Mistake(("models", *here), 1, "--token-file")
    yield Mistake(("models",), 1, "--cluster")
    yield Mistake(("doctor", *here, *secret[:2]), 1, "refuses connections. Is it running, and is its port open?", True)


def _secrets(shop: Workshop) -> Iterator[Mistake]:
    cluster = ("--cluster", str(shop.home / "cluster.toml"))
    for call in (("models",), ("token", "show", "--party", "1")):
        yield from _file_argument(shop, "secret", *call, *cluster, "--token-file", "{}")
    for call in CLUSTERED:
        yield Mistake((*call, *cluster), 1, "HDCOS_TOKEN")
        yield Mistake(call, 1, "HDCOS_CLUSTER")


NODE_CALLS = (
    ("token", "list"),
    ("token", "revoke", "me"),
    ("token", "allow", "me2", "party0-" + "0" * 64, "--role", "predict"),
    ("approve", "list"),
    ("quota",),
    ("retry", "m"),
    ("workers", "2"),
)


def _nodes(shop: Workshop) -> Iterator[Mistake]:
    cluster = ("--cluster", str(shop.home / "cluster.toml"))
    served = (("party", *cluster), ("doctor", *cluster))
    for call in (*served, *NODE_CALLS, ("dealer", *cluster)):
        for _, path in shop.spoilt("node", {"missing": PLACES["missing"], "binary": CONTENTS["binary"]}):
            yield Mistake((*call, "--node", str(path)), USAGE, path.name)
        empty = shop.place("node")
        empty.mkdir()
        yield Mistake((*call, "--node", str(empty)), 1, "card.toml", call[0] == "doctor")
    for file, calls in (
        ("card.toml", (*served, *NODE_CALLS[:2])),
        ("key.pem", served),
        ("certificate.pem", served),
        ("node.toml", served[:1]),
    ):
        for call in calls:
            for kind, make in (PLACES | CONTENTS).items():
                if file == "node.toml" and kind in ("missing", "dangling", "loop", "empty"):
                    continue  # then the defaults hold
                node = shop.node()
                (node / file).unlink()
                make(node / file)
                if file == "key.pem" and kind not in PLACES and kind != "unreadable":
                    (node / file).chmod(0o600)
                yield Mistake((*call, "--node", str(node)), 1, file, call[0] == "doctor")
    for call in (("party", *cluster), *NODE_CALLS):
        for kind in ("folder", "binary", "html", "png"):
            node = shop.node()
            for left in (node / "state").iterdir():
                left.unlink()
            (PLACES | CONTENTS)[kind](node / "state" / "hdcos.sqlite")
            yield Mistake((*call, "--node", str(node)), 1, "hdcos.sqlite")
        node = shop.node()
        shutil.rmtree(node / "state")
        (node / "state").write_text("a file")
        yield Mistake((*call, "--node", str(node)), 1, "state")
    dealer = str(shop.home / "dealer")
    party = str(shop.home / "party0")
    yield Mistake(("party", *cluster, "--node", dealer), 1, "dealer")
    yield Mistake(("dealer", *cluster, "--node", party), 1, "party0")
    yield Mistake(("token", "list", "--node", dealer), 1, "dealer")
    yield Mistake(("token", "revoke", "nobody", "--node", party), 1, "nobody")
    yield Mistake(("approve", "nothing", "--node", party), 1, "nothing")
    for option in ("--listen", "--http-listen"):
        for address in ("nowhere", "127.0.0.1:99999", "no.such.host.invalid:1", "256.0.0.1:80"):
            yield Mistake(("party", *cluster, "--node", party, option, address), 1, address)
    for address in ("nowhere", "no.such.host.invalid:1"):
        yield Mistake(("dealer", *cluster, "--node", dealer, "--listen", address), 1, address)
    for old, new, names in (
        ("[limits]", "[limit]", "limit"),
        ("rows = 4096", "rows = -1", "rows"),
        ("reveal = false", "reveal = 1", "reveal"),
        ("cors = []", "cors = 3", "cors"),
        ("[http]", "[http]\nkey = 'x.pem'", "key"),
        ("[http]", "[http]\nkey = 'x.pem'\ncertificate = 'y.pem'", "y.pem"),
    ):
        node = shop.node()
        text = (node / "node.toml").read_text()
        assert old in text, old
        (node / "node.toml").write_text(text.replace(old, new, 1))
        yield Mistake(("party", *cluster, "--node", str(node)), 1, names)
    node = shop.node()
    (node / "key.pem").chmod(0o644)
    yield Mistake(("party", *cluster, "--node", str(node)), 1, "chmod 600")
    yield Mistake(("party", *cluster, "--node", str(_swapped(shop))), 1, "certificate")


def _swapped(shop: Workshop) -> Path:
    """A node of one cluster whose key belongs to another."""
    node = shop.node()
    for name in ("key.pem", "certificate.pem"):
        shutil.copy(shop.home / "party1" / name, node / name)
    return node


def _outputs(shop: Workshop) -> Iterator[Mistake]:
    """Things that are to be written where something is, or where nothing can be."""
    cluster = str(shop.home / "cluster.toml")
    cards = tuple(str(shop.home / role / "card.toml") for role in ("dealer", "party0", "party1"))
    occupied, here = shop.place("occupied"), shop.place("folder")
    occupied.write_text("something")
    here.mkdir()
    nowhere = shop.place("none") / "file"
    for target in (occupied, here, nowhere, occupied / "file"):
        yield Mistake(("init", str(target), *cards), 1, target.name)
        yield Mistake(("token", "new", "--cluster", cluster, "--output", str(target)), 1, target.name)
    for target in (occupied, occupied / "file", shop.home):
        yield Mistake(("init", "--single-machine", str(target)), 1, target.name)
        yield (
            Mistake(("node", "init", str(target), "--role", "dealer", "--address", PORT), 1, target.name)
            if (target != shop.home)
            else Mistake(
                ("node", "init", str(shop.home / "dealer"), "--role", "dealer", "--address", PORT), 1, "key.pem"
            )
        )
    yield Mistake(("init", str(shop.place("c.toml")), *cards, "--single-machine"), USAGE, "--single-machine")
    yield Mistake(("init", str(shop.place("c.toml")), *cards[:2]), 1, "party1")
    yield Mistake(("init", str(shop.place("c.toml")), *cards, cards[0]), 1, "one card")
    yield from _file_argument(shop, "card.toml", "init", str(shop.place("c.toml")), *cards[:2], "{}")
    yield from _file_argument(shop, "old.toml", "init", str(shop.place("c.toml")), *cards, "--replaces", "{}")
    node = ("node", "init", str(shop.place("n")), "--role", "party0", "--address", PORT, "--http", PORT)
    yield from _file_argument(shop, "authority.pem", *node, "--authority", "{}")
    yield Mistake(("node", "init", str(shop.place("n")), "--role", "party0", "--address", PORT), 1, "HTTPS")
    yield Mistake(("node", "init", str(shop.place("n")), "--role", "dealer", "--address", "here"), 1, "'here'")
    rows = str(shop.folder / "rows.csv")
    reach = shop.reach
    yield Mistake(("predict", "m", rows, "--output", str(here), *reach), USAGE, "folder")
    yield Mistake(("predict", "m", rows, "--output", str(nowhere.with_suffix(".csv")), *reach), 1, "file.csv")
    yield Mistake(("predict", "m", rows, "--output", str(occupied / "file.npy"), *reach), 1, "file.npy")
    yield Mistake(("predict", "m", rows, "--output", str(here / "x.txt"), *reach), 1, "x.txt")
    yield from _outputs_over_files(shop, occupied)
    yield Mistake(("reveal", "m", "--output", str(here), *reach), USAGE, "folder")
    yield Mistake(("reveal", "m", "--output", str(nowhere), *reach), 1, "file")


def _outputs_over_files(shop: Workshop, occupied: Path) -> Iterator[Mistake]:
    """What is read stays as it is, and so does what people may have edited."""
    rows, declared = str(shop.folder / "rows.csv"), str(shop.folder / "columns.toml")
    again = shop.place("again.csv")
    again.symlink_to(rows)
    for output in (rows, again):
        said = f"{output} is a file that is read here"
        yield Mistake(("predict", "m", rows, "--output", str(output), *shop.reach), 1, said)
        yield Mistake(("prepare", rows, "--columns", declared, "--output", str(output)), 1, said)
    config = shop.place("config.toml")
    config.write_text(CONFIG.replace("rows.csv", rows) + '[output]\nmodel = "config.toml"\n')
    yield Mistake(("train", str(config)), 1, "config.toml is a file that is read here")
    for call in (("suggest", rows, "--label", "y"), ("columns", rows)):
        yield Mistake((*call, "--output", str(occupied)), 1, f"{occupied} is there already")


def _values(shop: Workshop) -> Iterator[Mistake]:
    """Names and numbers that nothing can be done with."""
    for call, code, names in (
        (("cost", "nothing"), 1, "nothing"),
        (("cost", "lenet5", "--activation", "swish"), 1, "swish"),
        (("cost", "lenet5", "--structure", "sparse"), 1, "sparse"),
        (("cost", "lenet5", "--batch", "0"), USAGE, "--batch"),
        (("cost", "activations", "--batch", "3"), USAGE, "--batch"),
        (("cost", "nothing"), 1, "convnet_fashion_mnist, networks, activations"),
        (("cost", "digits", "--activation", "cos"), USAGE, "--activation: only for ready models"),
        (("plan", "nothing", "--rows-per-second", "5"), 1, "nothing"),
        (("plan", "networks", "--rows-per-second", "5"), 1, "convnet_fashion_mnist\n"),
        (("plan", "higgs_mlp"), USAGE, "--rows-per-second"),
        (("plan", "higgs_mlp", "--rows-per-second", "0"), USAGE, "--rows-per-second"),
        (("plan", "higgs_mlp", "--rows-per-second", "5", "--train", "5"), USAGE, "--train"),
        (("plan", "higgs_mlp", "--rows-per-second", "5", "--hours", "5"), USAGE, "--hours: use it with --train"),
        (("plan", "higgs_mlp", "--train", "5000", "--p99-ms", "5"), USAGE, "--p99-ms: use it with --rows-per-second"),
        (("plan", "higgs_mlp", "--train", "50"), 1, "50 rows do not fill a batch of 2048"),
        (("plan", "higgs_mlp", "--rows-per-second", "1e6", "--pairs", "1"), 1, "1 pairs do at most"),
        (("plan", "criteo_mlp", "--rows-per-second", "5", "--rows-per-request", "5000"), 1, "5000 rows"),
        (("plan", "higgs_mlp", "--rows-per-second", "1e6", "--mbps", "10"), 1, "Mbit/s"),
        (("plan", "digits", "--rows-per-second", "5", "--figures", str(shop.folder / "rows.csv")), 1, "rows.csv"),
        (("plan", str(shop.folder / "model.safetensors"), "--rows-per-second", "5"), 1, "--measure"),
        (("nothing",), USAGE, "nothing"),
        (("train",), USAGE, "CONFIG"),
        (("predict", "m"), USAGE, "FILE"),
        (("demo", "extra"), USAGE, "extra"),
        (("token", "allow", "x", "abc", "--node", str(shop.home / "party0"), "--role", "predict"), 1, "64"),
        (
            ("token", "allow", "x", "party0-" + "0" * 64, "--node", str(shop.home / "party0"), "--role", "rule"),
            USAGE,
            "rule",
        ),
        (("jobs", "--cancel"), USAGE, "cancelled"),
    ):
        yield Mistake(call, code, names)


# ---- how a call ended


def verdict(mistake: Mistake, code: int, stdout: str, stderr: str) -> str:
    """What is wrong with how a call ended; nothing if it ended as it should."""
    said = stdout if mistake.found else stderr
    lines = said.splitlines()
    if "Traceback" in stdout + stderr or "mistake in hdcos" in stderr:
        return f"a traceback or an unforeseen error: {(stdout + stderr)[-400:]}"
    if code != mistake.code:
        return f"exit code {code} instead of {mistake.code}: {(stdout + stderr)[-300:]}"
    usage = code == USAGE and stderr.startswith("Usage:")
    if not mistake.found and not usage and len(lines) != 1:
        return f"{len(lines)} lines instead of one: {said[-300:]}"
    if mistake.found and (stderr or not lines):
        return f"nothing found, or something on stderr: {stderr[-300:]}"
    flat = said if not usage else " ".join(said.replace("│", " ").split())
    if mistake.names not in flat and mistake.names not in flat.replace(" ", ""):
        return f"does not name {mistake.names!r}: {said[-300:]}"
    return ""


def environment() -> dict[str, str | None]:
    """Variables that would change how a call ends are not there."""
    return {name: None for name in os.environ if name.startswith("HDCOS_") and name != "HDCOS_DATA"}
