"""Downloads from a server of this test's own: only the right bytes arrive, and who has none is told what to do."""

from __future__ import annotations

import gzip
import hashlib
import http.server
import io
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hdcos import data
from hdcos.data import files
from hdcos.errors import DataMissing

NAMES = [f"mnist/t10k-{kind}" for kind in ("images-idx3-ubyte", "labels-idx1-ubyte")]


class Server(http.server.ThreadingHTTPServer):
    """Serves bytes by path, and writes down what was asked for."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.shorten = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        content = self.server.files.get(self.path)
        if content is None:
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) - self.server.shorten])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, idx) -> Iterator[Server]:
    """Three images and their labels, with their own hashes in place of MNIST's."""
    contents = [np.arange(3 * 28 * 28, dtype=np.uint8).reshape(3, 28, 28), np.array([1, 2, 3], dtype=np.uint8)]
    with Server() as running:
        for name, array in zip(NAMES, contents, strict=True):
            packed = gzip.compress(idx(array))
            running.files[f"/{Path(name).name}.gz"] = packed
            monkeypatch.setitem(files.SHA256, name, hashlib.sha256(packed).hexdigest())
        monkeypatch.setattr(files, "SOURCES", {"mnist": (f"{running.address}gone/", running.address)})
        thread = threading.Thread(target=running.serve_forever)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def left_over(home: Path) -> list[str]:
    return [path.name for path in (home / "mnist").iterdir()] if (home / "mnist").exists() else []


def test_missing_files_are_downloaded_once(home: Path, server: Server) -> None:
    images, labels = data.mnist("test")
    assert (images.shape, labels.tolist()) == ((3, 1, 28, 28), [1, 2, 3])
    assert sorted(left_over(home)) == sorted(f"{Path(name).name}.gz" for name in NAMES)
    asked = len(server.asked)
    data.mnist("test")
    assert len(server.asked) == asked


def test_the_next_source_is_tried_when_one_has_no_file(home: Path, server: Server) -> None:
    data.mnist("test")
    assert server.asked[0].startswith("/gone/")


def test_other_bytes_are_refused_and_not_kept(home: Path, server: Server) -> None:
    server.files = {path: content + b"x" for path, content in server.files.items()}
    with pytest.raises(DataMissing, match="which is another file") as caught:
        data.mnist("test")
    assert files.SHA256[NAMES[0]] in str(caught.value)
    assert left_over(home) == []


def test_a_connection_that_breaks_leaves_nothing_behind(home: Path, server: Server) -> None:
    server.shorten = 5
    with pytest.raises(DataMissing):
        data.mnist("test")
    assert left_over(home) == []


def test_endless_answers_are_cut_off(home: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "LARGEST_BYTES", 10)
    with pytest.raises(DataMissing, match="longer than 10 bytes"):
        data.mnist("test")


def test_offline_the_error_says_what_to_get_and_where_to_put_it(home: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        data.fashion_mnist("train")
    name = "fashion-mnist/train-images-idx3-ubyte"
    for part in (f"{name}.gz is not in {home}", files.SHA256[name], f"put it at {home / name}.gz", "HDCOS_DATA"):
        assert part in str(caught.value)


def test_a_terminal_sees_a_bar(home: Path, server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    data.mnist("test")
    assert "t10k-images-idx3-ubyte.gz" in terminal.getvalue()


def test_elsewhere_it_is_quiet(home: Path, server: Server, capsys: pytest.CaptureFixture[str]) -> None:
    data.mnist("test")
    assert capsys.readouterr() == ("", "")


def test_every_listed_file_has_a_source_and_a_hash_of_its_own() -> None:
    assert len(set(files.SHA256.values())) == len(files.SHA256) == 8
    assert {name.split("/")[0] for name in files.SHA256} == set(files.SOURCES)
