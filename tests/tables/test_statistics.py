"""Sums over rows: exact, the same however the rows are split between owners, and refused where they would tell rows."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hdcos.errors import InputError
from hdcos.sharing.wide import add_wide, join_wide, split_wide
from hdcos.tables import Columns, Preparation
from hdcos.tables.fitting import measure, require_agreed
from hdcos.tables.statistics import SCALE, exact_squares, exact_sum

DECLARED = Columns.of(
    {
        "a": {"kind": "numeric", "missing": "mean"},
        "b": {"kind": "numeric", "missing": "indicator", "limits": [-1e3, 1e3]},
        "m": {"kind": "boolean", "missing": "mean"},
        "c": {"kind": "category", "values": ["u", "v", "w"], "unseen": "other", "least": 20},
        "y": {"kind": "label", "regression": True},
    }
)
REALS = st.floats(-1e30, 1e30).filter(lambda value: value == 0 or abs(value) > 1e-15)


@given(st.lists(REALS, max_size=40))
def test_sums_are_exact(values) -> None:
    array, one = np.array(values, dtype=np.float64), 1 << SCALE
    assert Fraction(exact_sum(array), one) == sum(map(Fraction, values))
    assert Fraction(exact_squares(array), one) == sum(Fraction(value) ** 2 for value in values)


def rows(number, seed=0):
    generator = np.random.default_rng([seed, number])
    gaps = generator.random(number) < 0.1
    return {
        "a": np.where(gaps, np.nan, generator.normal(1e9, 1.0, number)),
        "b": np.where(gaps[::-1], np.nan, generator.standard_cauchy(number) * 100),
        "m": generator.choice(["yes", "no", ""], number).tolist(),
        "c": generator.choice(["u", "v", "w", "x"], number, p=[0.5, 0.4, 0.02, 0.08]).tolist(),
        "y": generator.normal(size=number),
    }


def joined(parts):
    return {name: [cell for part in parts for cell in part[name]] for name in parts[0]}


@pytest.mark.parametrize("owners", [2, 3, 7])
def test_owners_who_add_shares_get_what_one_owner_of_all_rows_gets(owners) -> None:
    parts = [rows(30 + number, owners) for number in range(owners)]
    shares = [split_wide(measure(DECLARED, part).numbers) for part in parts]
    totals = join_wide(*(add_wide(side) for side in zip(*shares, strict=True)))
    together = Preparation.of(measure(DECLARED, parts[0]).total(totals), 1)
    alone = Preparation.fit(joined(parts), DECLARED)
    assert together.agrees(alone)
    assert together.moments["a"][1] == pytest.approx(np.nanstd(joined(parts)["a"]), rel=1e-6)
    assert together.kept["c"] == ("u", "v")


def test_a_large_offset_costs_no_digits_and_a_constant_has_deviation_one() -> None:
    table = {"a": 1e15 + np.array([0.0, 1.0, 2.0]), "b": [0.1] * 3}
    made = Preparation.fit(table, {"a": {"kind": "numeric"}, "b": "numeric"})
    assert made.moments["a"] == (1e15 + 1, pytest.approx(np.sqrt(2 / 3), rel=1e-15))
    assert made.moments["b"] == (0.1, 1.0)


def test_few_rows_do_not_leave_their_owner() -> None:
    with pytest.raises(InputError, match="9 rows would tell"):
        measure(DECLARED, rows(9)).check_sharing()
    sparse = {**rows(40), "a": [1.0] * 3 + [np.nan] * 37}
    with pytest.raises(InputError, match="'a' is filled in 3 of your rows alone"):
        measure(DECLARED, sparse).check_sharing()
    measure(DECLARED, rows(40)).check_sharing()


def test_owners_must_agree_on_values_and_classes() -> None:
    for kind, said in (("category", "list its `values`"), ("label", "list its `classes`")):
        with pytest.raises(InputError, match=said):
            require_agreed(Columns.of({"x": "numeric", "c": kind}))
    require_agreed(DECLARED)
