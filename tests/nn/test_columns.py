"""Networks find the columns of tables by name, and remember the names."""

import json
import time

import numpy as np
import pandas as pd
import pytest

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.nn.columns import check_names

NAMES = ("age", "income", "pulse")
ROWS = np.random.default_rng(0).uniform(-1, 1, (5, 3))


@pytest.fixture
def model():
    return nn.Sequential([nn.Dense(3, 2)], feature_names=NAMES)


def frame(*order):
    return pd.DataFrame(ROWS, columns=NAMES)[list(order)]


def test_columns_in_another_order_give_the_same_outputs(model) -> None:
    expected = model(ROWS)
    for order in (("age", "income", "pulse"), ("pulse", "age", "income")):
        np.testing.assert_array_equal(model(frame(*order)), expected)


def test_a_table_without_names_is_taken_by_position(model) -> None:
    np.testing.assert_array_equal(model(pd.DataFrame(ROWS)), model(ROWS))
    unnamed = model.with_feature_names(None)
    assert unnamed.feature_names is None
    np.testing.assert_array_equal(unnamed(frame("pulse", "age", "income")), model(ROWS[:, [2, 0, 1]]))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (frame("age", "income"), r"lacks \['pulse'\].*takes the columns \['age', 'income', 'pulse'\].*has \['age'"),
        (frame(*NAMES).assign(city=1.0), r"has unknown \['city'\].*takes the columns.*has \['age'.*'city'\]"),
        (frame(*NAMES).rename(columns={"age": "Age"}), r"lacks \['age'\] and has unknown \['Age'\]"),
        (frame(*NAMES).rename(columns={"age": 7}), r"one is called 7"),
        (frame("age", "age", "pulse"), r"two features are called 'age'"),
        (frame(*NAMES).assign(age="old"), r"column 'age' does not hold numbers"),
        (frame(*NAMES).assign(age=[1, None, 2, 3, 4]), r"NaN"),
    ],
)
def test_other_columns_are_named_on_both_sides(model, table, words) -> None:
    with pytest.raises(InputError, match=words) as refusal:
        model(table)
    assert "\n" not in str(refusal.value)


def test_columns_of_several_types_become_numbers(model) -> None:
    mixed = frame(*NAMES).assign(age=[True, False, True, True, False], pulse=np.arange(5))
    expected = np.column_stack([[1, 0, 1, 1, 0], ROWS[:, 1], np.arange(5)])
    np.testing.assert_array_equal(model(mixed), model(expected))


def test_a_wide_table_is_listed_in_part() -> None:
    model = nn.Sequential([nn.Dense(500, 1)], feature_names=[f"x{i}" for i in range(500)])
    table = pd.DataFrame(np.zeros((1, 500)), columns=[f"y{i}" for i in range(500)])
    with pytest.raises(InputError, match="and 480 more") as refusal:
        model(table)
    assert len(str(refusal.value)) < 1500


def test_names_go_through_files_other_parameters_and_torch(model, tmp_path) -> None:
    model.save(tmp_path / "model.safetensors")
    loaded = nn.load(tmp_path / "model.safetensors")
    outlined = nn.Sequential.outline(json.loads(json.dumps(model.architecture())))
    for other in (loaded, outlined, model.with_state(model.state()), nn.from_torch(model.to_torch())):
        assert other.feature_names == NAMES
    assert model.with_feature_names(None).fingerprint != model.fingerprint


def test_files_without_names_load_as_before(model, tmp_path) -> None:
    nameless = model.with_feature_names(None)
    assert "feature_names" not in nameless.architecture()
    nameless.save(tmp_path / "model.safetensors")
    assert nn.load(tmp_path / "model.safetensors").feature_names is None


def test_images_are_tables_of_pixels_too() -> None:
    model = nn.models.lenet5().with_feature_names([f"pixel{i}" for i in range(784)])
    pixels = pd.DataFrame(np.random.default_rng(1).uniform(0, 1, (2, 784)), columns=model.feature_names)
    expected = model(pixels.to_numpy().reshape(2, 1, 28, 28))
    np.testing.assert_array_equal(model(pixels[list(reversed(pixels.columns))]), expected)


@pytest.mark.parametrize(
    ("names", "words"),
    [
        ("abc", "a list of strings"),
        (["a", "b"], "3 features cannot have 2 names"),
        (["a", "b", 3], "a list of strings"),
        (["a", "b", "b"], "two features are called 'b'"),
        (["a", "b", " "], "printable"),
        (["a", "b", "c\n"], "printable"),
        (["a", "b", "c" * 201], "1 to 200"),
    ],
)
def test_names_that_tell_nothing_apart_are_refused(names, words) -> None:
    with pytest.raises(ModelError, match=words):
        nn.Sequential([nn.Dense(3, 2)], feature_names=names)


def test_names_are_bounded_and_checked_in_no_time() -> None:
    many = [f"{number:x}" for number in range(200_000)]
    began = time.process_time()
    check_names(many, len(many))
    plain_s = time.process_time() - began
    with pytest.raises(ModelError, match="two features are called"):
        check_names([*many, many[-1]], len(many) + 1)
    with pytest.raises(ModelError, match="bytes"):
        check_names([f"{number:0200d}" for number in range(6000)], 6000)
    assert time.process_time() - began < 10 * plain_s, "refusing takes about as long as accepting"
