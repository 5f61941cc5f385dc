"""Small files in the real formats, in a folder of their own."""

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest

from hdcos.data import files
from hdcos.data.images import IDX_TYPES


def idx_bytes(array: np.ndarray, code: int = 0x08) -> bytes:
    header = bytes([0, 0, code, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape)
    return header + array.astype(IDX_TYPES[code]).tobytes()


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here asks the Internet: without a server of the test's own, downloads are refused on this machine."""
    monkeypatch.setattr(files, "SOURCES", dict.fromkeys(files.SOURCES, ("http://127.0.0.1:9/",)))


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder, empty."""
    monkeypatch.setenv("HDCOS_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def put(home: Path):
    """Write one file, compressed where its name says so."""

    def write(name: str, content: bytes) -> Path:
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
        return path

    return write


@pytest.fixture
def idx():
    return idx_bytes
