"""Criteo's format, on rows that were generated for this test."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hdcos import data
from hdcos.data.criteo import CATEGORIES, INTEGERS, MISSING, Vocabulary, embed, embedding_size, read_criteo, split
from hdcos.data.synthetic import CARDINALITIES, CLICKS, write_criteo, write_higgs
from hdcos.errors import InputError


def line(label: str = "1", integers: list[str] | None = None, categories: list[str] | None = None) -> bytes:
    fields = [label, *(integers or ["3"] * INTEGERS), *(categories or ["0000000a"] * CATEGORIES)]
    return "\t".join(fields).encode() + b"\n"


def test_integers_are_logarithms_and_empty_fields_are_missing(put) -> None:
    integers = ["", "-2", "0", "7", *["1"] * 9]
    categories = ["", "68fd1e64", *["ffffffff"] * 24]
    put("criteo/train.txt.gz", line("0", integers, categories) + line())
    rows = data.criteo()
    assert rows.labels.tolist() == [0, 1]
    np.testing.assert_allclose(rows.integers[0, :5], [0, 0, 0, np.log(8), np.log(2)], rtol=1e-6)
    assert rows.categories[0, :3].tolist() == [MISSING, 0x68FD1E64, 0xFFFFFFFF]


def test_no_more_rows_are_read_than_are_asked_for(put) -> None:
    put("criteo/train.txt", line("0") * 5 + line("1") * 5)
    assert data.criteo(6).labels.tolist() == [0] * 5 + [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no rows"),
        (line() + line("2"), "row 1"),
        (line() + b"1\t2\n", "has 2 fields"),
        (line(integers=["x"] * INTEGERS), "row 0"),
        (line(categories=["xyz"] * CATEGORIES), "row 0"),
    ],
)
def test_damage_is_named_with_its_row(put, content: bytes, message: str) -> None:
    path = put("criteo/train.txt", content)
    with pytest.raises(InputError, match=message) as caught:
        data.criteo()
    assert str(path) in str(caught.value)


def test_values_that_are_rare_missing_or_unknown_share_the_first_row(put) -> None:
    def with_first(value: str) -> bytes:
        return line(categories=[value, *["0000000a"] * (CATEGORIES - 1)])

    path = put("criteo/train.txt", with_first("5") * 2 + with_first("3") * 2 + with_first("9") + with_first(""))
    rows = read_criteo(path)
    assert Vocabulary.of(rows).indices(rows)[:, 0].tolist() == [2, 2, 1, 1, 3, 0]
    assert Vocabulary.of(rows, min_count=2).indices(rows)[:, 0].tolist() == [2, 2, 1, 1, 0, 0]
    assert Vocabulary.of(rows[np.array([0])]).indices(rows)[:, 0].tolist() == [1, 1, 0, 0, 0, 0]
    assert Vocabulary.of(rows, min_count=99).indices(rows).max() == 0


def test_the_parts_are_80_10_and_10_per_cent_and_disjoint(put) -> None:
    path = put("criteo/train.txt", b"".join(line(integers=[str(i)] * INTEGERS) for i in range(50)))
    rows = read_criteo(path)
    parts = split(rows)
    assert [len(part) for part in parts] == [40, 5, 5]
    together = np.concatenate([part.integers[:, 0] for part in parts])
    np.testing.assert_array_equal(np.sort(together), rows.integers[:, 0])


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory):
    path = tmp_path_factory.mktemp("criteo") / "train.txt"
    write_criteo(path, 6000)
    return read_criteo(path)


def test_generated_rows_have_the_format_and_the_clicks_of_criteo(generated) -> None:
    assert len(generated) == 6000
    assert generated.labels.mean() == pytest.approx(CLICKS, abs=1e-3)
    assert (generated.categories == MISSING).mean() == pytest.approx(0.03, abs=0.02)


def test_the_generators_cardinalities_make_rows_of_1023_numbers(generated) -> None:
    vocabulary = Vocabulary.of(generated)
    assert tuple(len(values) for values in vocabulary.known) == CARDINALITIES
    assert vocabulary.width == 1023
    assert len(CARDINALITIES) == CATEGORIES
    assert [embedding_size(c) for c in (0, 1, 16, 10**6)] == [1, 6, 12, 189]
    tables = [
        np.full((len(known) + 1, size), 0.5) for known, size in zip(vocabulary.known, vocabulary.sizes, strict=True)
    ]
    few = generated[np.arange(4)]
    embedded = embed(few.integers, vocabulary.indices(few), tables)
    assert embedded.shape == (4, 1023)
    np.testing.assert_array_equal(embedded[:, :INTEGERS], few.integers)


def test_generated_higgs_rows_are_read_by_the_loader(home: Path) -> None:
    write_higgs(home / "higgs" / "higgs-sample.csv", 50)
    x, y = data.higgs()
    assert (x.shape, set(y)) == ((50, 28), {0, 1})
    again, _ = data.higgs(rows=7)
    np.testing.assert_array_equal(again, x[:7])


def test_all_of_higgs_is_read_where_there_is_no_sample(home: Path) -> None:
    write_higgs(home / "higgs" / "HIGGS.csv", 5)
    assert len(data.higgs()[0]) == 5
