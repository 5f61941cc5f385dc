"""Where data files are, how they are opened, and where MNIST and Fashion-MNIST come from.

HDCOS_DATA names the folder; without it they are in hdcos under the user's cache folder. A file may be compressed
by gzip, with .gz after its name, or not.

A downloaded file counts only with the SHA-256 that is listed here, so the way it came does not matter. It is written
beside its place and moved there when it is whole and right: an interrupted download leaves nothing that could be read.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import secrets
import sys
import urllib.request
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any, BinaryIO, cast

from hdcos.errors import DataMissing, InputError

VARIABLE = "HDCOS_DATA"
SOURCES = {
    "mnist": ("https://ossci-datasets.s3.amazonaws.com/mnist/", "https://storage.googleapis.com/cvdf-datasets/mnist/"),
    "fashion-mnist": ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",),
}
"""Where each folder's files are offered, tried in this order."""

SHA256 = {
    "mnist/train-images-idx3-ubyte": "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
    "mnist/train-labels-idx1-ubyte": "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
    "mnist/t10k-images-idx3-ubyte": "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
    "mnist/t10k-labels-idx1-ubyte": "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    "fashion-mnist/train-images-idx3-ubyte": "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
    "fashion-mnist/train-labels-idx1-ubyte": "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
    "fashion-mnist/t10k-images-idx3-ubyte": "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
    "fashion-mnist/t10k-labels-idx1-ubyte": "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
}
"""Of the files as published, compressed by gzip."""

TIMEOUT_S = 20.0
PIECE_BYTES = 1 << 16
LARGEST_BYTES = 1 << 26
"""No file listed here is longer; what is longer is not read to its end."""


def folder() -> Path:
    """The folder of the data files; it need not exist."""
    chosen = os.environ.get(VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "hdcos"


def locate(name: str, origin: str = "the file") -> Path:
    """The path of a data file such as "mnist/train-images-idx3-ubyte", compressed or not.

    `origin` says in the error what to get where there is none.
    """
    for path in (folder() / f"{name}.gz", folder() / name):
        if path.is_file():
            return path
    source = f"named by {VARIABLE}" if os.environ.get(VARIABLE) else f"used because {VARIABLE} is not set"
    raise DataMissing(
        f"{name}.gz (or {name}) is not in {folder()}, the folder {source}.\n"
        f"Get {origin} and put it at {folder() / name}.gz or {folder() / name},\n"
        f"or name the folder that has it: `export {VARIABLE}=/path/to/data`."
    )


@contextmanager
def open_file(path: Path) -> Iterator[BinaryIO]:
    """The uncompressed bytes of a file; damage found while reading them is an InputError."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            yield cast(BinaryIO, stream)
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"{path} is not a whole gzip file: {error}") from error


def obtain(name: str) -> Path:
    """The path of a listed file, downloaded if it is not in the data folder yet."""
    with suppress(DataMissing):
        return locate(name)
    target = folder() / f"{name}.gz"
    tried = []
    for source in SOURCES[name.split("/")[0]]:
        address = f"{source}{target.name}"
        try:
            _fetch(address, target, SHA256[name])
            return target
        except (OSError, HTTPException, ValueError) as error:
            tried.append(f"{address}: {error}")
    raise DataMissing(
        f"{name}.gz is not in {folder()} and could not be downloaded.\n"
        + "".join(f"  {line}\n" for line in tried)
        + f"Get the file whose SHA-256 is {SHA256[name]} and put it at {target},\n"
        f"or name the folder that has {name}.gz: `export {VARIABLE}=/path/to/data`."
    )


def _fetch(address: str, target: Path, sha256: str) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    quiet = not sys.stderr.isatty()
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(4)}.part")
    try:
        with urllib.request.urlopen(address, timeout=TIMEOUT_S) as answer, part.open("xb") as file:
            length = int(answer.headers.get("Content-Length") or 0)
            digest, received = hashlib.sha256(), 0
            with Progress(*columns, console=Console(stderr=True), transient=True, disable=quiet) as bar:
                task = bar.add_task(target.name, total=length or None)
                while piece := answer.read(PIECE_BYTES):
                    received += len(piece)
                    if received > LARGEST_BYTES:
                        raise ValueError(f"longer than {LARGEST_BYTES:,} bytes, which the file is not")
                    digest.update(piece)
                    file.write(piece)
                    bar.advance(task, len(piece))
            if digest.hexdigest() != sha256:
                raise ValueError(f"{received:,} bytes with SHA-256 {digest.hexdigest()}, which is another file")
            file.flush()
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def pyarrow() -> Any:
    """The package, with its reader of Parquet files; InputError says how to get it."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("Parquet files need pyarrow: pip install 'hdcos[parquet]'") from None
    return pyarrow
