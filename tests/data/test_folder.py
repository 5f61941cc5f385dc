"""Where files are looked for, and what is said when they are not there or not whole."""

from pathlib import Path

import pytest

from hdcos import data
from hdcos.data.files import locate, open_file
from hdcos.errors import DataMissing, InputError


def test_the_folder_is_the_one_that_is_named(monkeypatch):
    monkeypatch.setenv("HDCOS_DATA", "/somewhere/data")
    assert data.folder() == Path("/somewhere/data")


def test_the_folder_is_in_the_users_cache_by_default(monkeypatch):
    monkeypatch.delenv("HDCOS_DATA", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert data.folder() == Path.home() / ".cache" / "hdcos"
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")
    monkeypatch.setenv("HDCOS_DATA", "")
    assert data.folder() == Path("/cache/hdcos")


def test_both_names_of_a_file_are_found(put):
    plain = put("a/plain", b"1")
    compressed = put("a/small.gz", b"2")
    assert locate("a/plain") == plain
    assert locate("a/small") == compressed
    contents = []
    for path in (plain, compressed):
        with open_file(path) as stream:
            contents.append(stream.read())
    assert contents == [b"1", b"2"]


@pytest.mark.parametrize(
    ("read", "name"),
    [
        (lambda: data.mnist("train"), "mnist/train-images-idx3-ubyte.gz"),
        (lambda: data.fashion_mnist("test"), "fashion-mnist/t10k-images-idx3-ubyte.gz"),
        (data.higgs, "higgs/HIGGS.csv.gz"),
        (data.criteo, "criteo/train.txt.gz"),
    ],
)
def test_a_missing_file_is_named_with_the_place_and_the_remedy(home, read, name):
    with pytest.raises(DataMissing) as caught:
        read()
    for part in (name, str(home / name), "Get ", "export HDCOS_DATA="):
        assert part in str(caught.value)


def test_without_a_setting_the_message_says_so(monkeypatch, tmp_path):
    monkeypatch.delenv("HDCOS_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DataMissing, match="HDCOS_DATA is not set"):
        data.higgs()


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-10], lambda b: b"no gzip" + b, lambda b: b[:30] + b"\xff" * 9 + b[39:]]
)
def test_damage_to_a_compressed_file_is_an_input_error(put, damage):
    path = put("x.gz", bytes(range(256)))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(InputError, match=r"x\.gz is not a whole gzip file"), open_file(path) as stream:
        stream.read()
