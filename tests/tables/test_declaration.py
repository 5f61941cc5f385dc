"""What columns are declared as: TOML and back, what is refused, and what is guessed from a file."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hdcos.errors import InputError
from hdcos.tables import Columns, infer

TEXT = """
[columns]
customer = "id"
age      = "numeric"
income   = { kind = "numeric", missing = "indicator", limits = [0, 500000] }
city     = { kind = "category", values = ["Basel", "Bern"], unseen = "other" }
street   = { kind = "category", buckets = 64, missing = "indicator" }
member   = { kind = "boolean", missing = "constant", fill = false }
since    = { kind = "date", parts = ["days", "month"], limits = ["2000-01-01", 2030-12-31] }
"net worth" = { kind = "numeric", scale = "none", clip = 2.5 }
comment  = "ignored"
churned  = { kind = "label", classes = ["no", "yes"] }

[cells]
missing = ["", "-"]

[training]
epochs = 3
"""


def test_a_declaration_is_written_as_it_was_read(tmp_path) -> None:
    path = tmp_path / "columns.toml"
    path.write_text(TEXT)
    columns = Columns.read(path)
    assert [column.kind for column in columns][:4] == ["id", "numeric", "numeric", "category"]
    assert columns["since"].limits == (10957.0, 22279.0)
    assert columns.missing_cells == ("", "-")
    path.write_text(columns.to_toml())
    again = Columns.read(path)
    assert again == columns
    assert again.digest == columns.digest


@settings(max_examples=40)
@given(st.text(min_size=1, max_size=30).filter(lambda text: text.strip() and text.isprintable()), st.text(max_size=20))
def test_any_name_and_value_survives_toml(tmp_path_factory, name, value) -> None:
    texts = ["plain", *([value.strip()] if value.strip() not in ("", "plain") else [])]
    columns = Columns.of({name: {"kind": "category", "values": texts}})
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(columns.to_toml(), encoding="utf-8", newline="")
    assert Columns.read(path) == columns


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("numerical", "no kind is called 'numerical'"),
        ({"missing": "mean"}, "say its kind"),
        ({"kind": "id", "missing": "mean"}, "id does not know"),
        ({"kind": "numeric", "values": ["a"]}, r"numeric does not know \['values'\]"),
        ({"kind": "numeric", "missing": "median"}, "missing is one of refuse, mean"),
        ({"kind": "numeric", "missing": "constant"}, "needs `fill`"),
        ({"kind": "numeric", "fill": 3}, "`fill` is not used"),
        ({"kind": "numeric", "clip": -1}, "above 0"),
        ({"kind": "numeric", "limits": [3, 1]}, "lower one first"),
        ({"kind": "numeric", "limits": [0, float("inf")]}, "finite"),
        ({"kind": "category", "missing": "mean"}, "missing is one of refuse, constant"),
        ({"kind": "category", "values": ["a", "a"]}, "'a' twice"),
        ({"kind": "category", "values": []}, "is a list"),
        ({"kind": "category", "values": ["a"], "buckets": 3}, "one-hot or hashed"),
        ({"kind": "category", "buckets": 3, "unseen": "other"}, "never unseen"),
        ({"kind": "category", "values": ["a"], "least": 3}, "needs unseen"),
        ({"kind": "category", "values": ["a"], "missing": "constant", "fill": "b"}, "none of its values"),
        ({"kind": "boolean", "missing": "constant", "fill": 1}, "true or false"),
        ({"kind": "date", "parts": ["century"]}, "parts are some of"),
        ({"kind": "label", "classes": ["a", "b"], "regression": True}, "`classes` or is a `regression`"),
    ],
)
def test_what_makes_no_sense_is_refused_by_the_name_of_the_column(entry, said) -> None:
    with pytest.raises(InputError, match=rf"\[columns\] city: .*{said}"):
        Columns.of({"city": entry})


def test_a_table_has_one_label_and_a_section(tmp_path) -> None:
    with pytest.raises(InputError, match="several labels"):
        Columns.of({"a": "label", "b": "label"})
    with pytest.raises(InputError, match="knows `missing` alone"):
        Columns.from_record({"columns": {"a": "numeric"}, "cells": {"gap": [""]}})
    (tmp_path / "none.toml").write_text("[training]\nepochs = 1\n")
    with pytest.raises(InputError, match=r"no section \[columns\]: `hdcos columns FILE` writes one"):
        Columns.read(tmp_path / "none.toml")


def test_a_guess_is_a_declaration_that_fits_the_file(tmp_path) -> None:
    header = "customer_id,name,age,city,street,member,since,empty,churned"
    lines = [
        f"{i},n{i},{20 + i % 50},{'Basel' if i % 3 else ' Bern '},s{i % 50},{'yes' if i % 2 else 'No'},"
        f"2020-01-{1 + i % 28:02},,{'yes' if i % 5 else 'no'}"
        for i in range(60)
    ]
    lines[7] = "60,n60,?,Basel,s1,yes,2020-02-01,,no"
    (tmp_path / "t.csv").write_text("\n".join([header, *lines]) + "\n")
    guess = infer(tmp_path / "t.csv", "churned")
    assert {column.name: column.kind for column in guess} == {
        **{"customer_id": "id", "name": "id", "age": "numeric", "city": "category", "street": "category"},
        **{"member": "boolean", "since": "date", "empty": "ignored", "churned": "label"},
    }
    assert guess["age"].missing == "indicator"
    assert guess["city"].values == ("Basel", "Bern")
    assert guess["street"].buckets == 64
    assert guess["churned"].classes == ("no", "yes")
    with pytest.raises(InputError, match="has no column 'churn'"):
        infer(tmp_path / "t.csv", "churn")


def test_numbers_of_a_label_are_classes_or_a_regression() -> None:
    assert infer({"x": [1.0, 2.5], "y": [1, 0]}, "y")["y"].classes == ("0", "1")
    assert infer({"x": [1.0, 2.5], "y": [1.0, 10.0]}, "y")["y"].classes == ("1", "10")
    assert infer({"x": [1.0, 2.5], "y": [1.5, 0]}, "y")["y"].regression
