"""The update of a step: rate, momentum and decay as public integers whose mean is exact."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hdcos.errors import InputError
from hdcos.secure.training.rule import BEFORE, MEAN_BITS, Rule, Step, apply, changes, first_averaged, mean
from hdcos.sharing import Share


@pytest.mark.parametrize(
    "values",
    [
        {"rate": 0.0}, {"rate": -1.0}, {"rate": math.inf}, {"rate": math.nan}, {"momentum": -0.1}, {"momentum": 1.0},
        {"momentum": math.nan}, {"decay": -0.1}, {"decay": math.inf}, {"decay": math.nan},
    ],
)  # fmt: skip
def test_numbers_that_make_no_step_are_refused(values) -> None:
    with pytest.raises(InputError):
        Rule(**{"rate": 0.1, **values})


def test_small_and_zero_are_allowed() -> None:
    assert not Rule(1e-300, 0.0, 0.0).inertial
    assert Rule(0.1, 0.999).inertial
    assert Rule(0.1, decay=1e-9).inertial


@pytest.mark.parametrize("value", [1 / 16, 0.3, 1.0, 2.5, 1000.7])
def test_an_integer_factor_is_the_value_in_the_mean(value) -> None:
    factors = [Rule(0.1, number=number).dither(value) for number in range(1000)]
    assert set(factors) <= {math.floor(value), math.ceil(value)}
    assert sum(factors) == math.floor(1000 * value)


def test_what_would_be_lost_is_refused_and_the_least_rate_is_told() -> None:
    with pytest.raises(InputError, match=r"0\.1 is too small for 0\.bias.*smallest it can take is 0\.2"):
        Rule(0.1).check_factor(1 / 32, "0.bias")
    with pytest.raises(InputError, match=r"too small for layer 3.*smallest it can take is 0\.4"):
        Rule(0.1).on_cosine(32.0, 24, 3)
    with pytest.raises(InputError, match="too small"):
        Rule(0.1).check_factor(1 / 16.1, "w")
    with pytest.raises(InputError, match="too small"):
        Rule(0.1).on_cosine(127.9, 24, 3)


@pytest.mark.parametrize("amplitude", [128.0, 1000.3, 2.0**30, 3e9, 2.0**40])
def test_a_factor_on_cosines_has_31_bits_where_it_can_and_its_shift_undoes_them(amplitude) -> None:
    factor, shift = Rule(0.1).on_cosine(amplitude, 24, 0)
    extra = shift - 24
    assert factor == round(amplitude * 2.0**extra)
    assert 2**30 <= factor < 2**31 if extra else factor >= 2**30
    assert extra >= 0


def share(*values: int, scale: int = 20) -> Share:
    return Share(np.array(values, np.uint64), scale)


def moved_by(rule: Rule, before: int = 0, factor: float = 1.0) -> tuple[int, dict[str, Share]]:
    """By how much w = 2**20 * 8 moves when its step is 5, its copy is 8 and its copy of one step ago `before`."""
    state = {"w": share(8 << 20), "w" + BEFORE: share(before, scale=0)}
    copies = {"w": share(8, scale=0)}
    after = apply(
        state, rule, changes(state, rule, {"w": Step(np.array([5], np.uint64))}, copies, {"w": factor}), copies
    )
    return int(after["w"].words.view(np.int64)[0]) - (8 << 20), after


def test_a_plain_step_is_taken_off() -> None:
    moved, after = moved_by(Rule(0.5))
    assert moved == -5
    assert list(after) == ["w"]
    assert (after["w"].scale, after["w"].bits) == (20, 64)


def test_momentum_goes_on_where_the_last_step_went() -> None:
    """rate mu v = mu rate / last rate * (w - w before), in units of w."""
    moved, after = moved_by(Rule(0.5, 0.75, 0.0, last_rate=0.25), before=6)
    assert moved == -5 + int(0.75 * 0.5 / 0.25 * 2) * 2**20
    assert int(after["w" + BEFORE].words[0]) == 8
    assert moved_by(Rule(0.5, 0.75), before=6)[0] == -5, "there is no last step before the first"


def test_decay_pulls_towards_zero() -> None:
    moved, after = moved_by(Rule(0.5, 0.0, 0.25))
    assert moved == -5 - int(0.5 * 0.25 * 8) * 2**20
    assert list(after) == ["w"], "without momentum no copy is kept"


def test_the_shares_of_a_step_have_the_bits_they_had() -> None:
    state = {"w": Share(np.array([7], np.uint64), 20, 50)}
    assert apply(state, Rule(0.1), {"w": np.array([1], np.uint64)}, {})["w"].bits == 50


def test_one_part_of_a_step_adds_momentum_and_decay() -> None:
    assert moved_by(Rule(0.5, 0.75, 0.25, last_rate=0.25, leads=False), before=6)[0] == -5
    assert moved_by(Rule(0.5, 0.75, 0.25, last_rate=0.25), before=6)[0] != -5


def test_decay_follows_a_rate_of_its_own_unless_all_have_one() -> None:
    assert moved_by(Rule(0.5, 0.0, 0.25), factor=4.0)[0] == -5 - int(4 * 0.5 * 0.25 * 8) * 2**20
    together = Rule(0.5, 0.0, 0.25, scale_diagonals=False)
    assert moved_by(together, factor=4.0)[0] == -5 - int(0.5 * 0.25 * 8) * 2**20


def test_the_last_epochs_are_averaged_over() -> None:
    assert [first_averaged(average, 5) for average in (0, 2, 5)] == [5, 3, 0]
    with pytest.raises(InputError, match="5 epochs has no 6"):
        first_averaged(6, 5)
    with pytest.raises(InputError):
        first_averaged(-1, 5)


@pytest.mark.parametrize("count", [1, 3, 1000])
def test_a_mean_is_the_sum_over_their_number(count: int) -> None:
    values = np.array([3.0, -7.5, 0.25])
    total = Share((values * count * 2.0**16).astype(np.int64).view(np.uint64), 16)
    found = mean(total, count)
    assert (found.scale, MEAN_BITS) == (48, 32)
    np.testing.assert_allclose(found.words.view(np.int64) / 2.0**found.scale, values, rtol=count * 2.0**-33)


def test_rounded_copies_count_at_the_scale_of_their_parameter() -> None:
    state, copies = {"w": Share(np.zeros(1, np.uint64), 20)}, {"w": Share(np.full(1, 5, np.uint64), 16)}
    added = changes(state, Rule(1.0, decay=0.5), {"w": Step(np.zeros(1, np.uint64))}, copies, {"w": 1.0})
    assert added["w"].view(np.int64).tolist() == [-5 * 2**3]


def test_steps_are_numbered_from_zero() -> None:
    assert Rule(0.1).dither(0.5) == Rule(0.1, number=0).dither(0.5) != Rule(0.1, number=1).dither(0.5)
