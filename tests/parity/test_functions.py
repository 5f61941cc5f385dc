"""Single functions: every case gives the same on both transports."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos.cluster.function import PrivateFunction
from hdcos.errors import InputError, MaterialExhausted, ModelError, PeerLost, RangeError
from hdcos.protocol.catalogue import FUNCTIONS, find

INPUTS = {"multiply": [(6, 5), (6, 5)], "matmul": [(6, 5), (5, 3)], "conv2d": [(2, 1, 6, 6), (3, 1, 3, 3)]}
INPUTS |= dict.fromkeys(("greater_equal", "maximum", "minimum"), [(16, 33)] * 2) | {"argmax": [(40, 10)]}
CLOSE = {"expm1": 4e-3, "matmul": 0.02, "multiply": 0.004, "conv2d": 0.03, "round": 2**-7, "growing_cos": 4e-3}


def inputs_of(name: str, seed: int = 0) -> list[np.ndarray]:
    generator = np.random.default_rng(seed)
    low, high = find(name).interval
    return [generator.uniform(low, high, shape) for shape in INPUTS.get(name, [(16, 33)])]


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-3, 3, (count, 7))


def is_cosine(found, x) -> bool:
    return found.shape == x.shape and bool(np.abs(found - np.cos(x)).max() < 2e-4)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_every_function_runs_on_shares_at_its_declared_price(cluster, name) -> None:
    function, inputs = find(name), inputs_of(name)
    cluster.reset_cost()
    result = cluster.evaluate(name, *inputs)
    cost = cluster.cost
    declared = function.price(*(array.shape for array in inputs), **function.parameters)
    assert cost.online.rounds == declared.rounds
    assert cost.online.bytes_sent == (declared.online_bytes,) * 2
    assert cost.offline.bytes_sent == (declared.common_bytes, declared.offline_bytes)
    expected = function.meaning(*inputs)
    assert result.shape == expected.shape
    assert np.abs(result - expected).max() <= CLOSE.get(name, 1e-3)


@pytest.mark.parametrize("name", ["relu", "argmax"])
def test_keys_of_comparisons_go_to_both_parties_at_the_declared_price(cluster, name) -> None:
    function, (x,) = find(name), inputs_of(name)
    with cluster.function(name, x.shape, way="dcf") as compare:
        cluster.reset_cost()
        compare.prepare(2)
        for _ in range(2):
            assert np.abs(compare(x) - function.meaning(x)).max() <= 2**-12
        with pytest.raises(MaterialExhausted, match="0 available"):
            compare(x)
        cost = cluster.cost
    declared = function.price(x.shape, **{**function.parameters, "way": "dcf"})
    assert (cost.online.rounds, cost.online.bytes_sent) == (2 * declared.rounds, (2 * declared.online_bytes,) * 2)
    assert cost.offline.bytes_sent == (2 * declared.common_bytes, 2 * declared.offline_bytes)
    assert declared.common_bytes > 0


def test_material_is_dealt_per_row_and_any_batches_consume_it(cluster) -> None:
    x = rows(10)
    with cluster.function("cos", (1, 7)) as cos:
        assert type(cos) is PrivateFunction
        cos.prepare(10)
        assert cos.stock == 10
        for batch in (x[:1], x[1:5], x[5:]):
            assert is_cosine(cos(batch), batch)
        assert cos.stock == 0
        with pytest.raises(MaterialExhausted, match="0 available"):
            cos(x[:1])
        cos.prepare(1)
        assert is_cosine(cos(x[:1]), x[:1])


def test_material_is_kept_ahead_of_demand(cluster) -> None:
    x = rows(4)
    with cluster.function("cos", (4, 7), ahead=2) as cos:
        for _ in range(12):
            assert is_cosine(cos(x), x)


def test_material_made_in_the_background_is_waited_for(cluster) -> None:
    x = np.random.default_rng(4).uniform(-3, 3, (256, 512))
    with cluster.function("cos", x.shape) as cos:
        cos.prepare(3, wait=False)
        for _ in range(3):
            assert is_cosine(cos(x), x)


def test_several_functions_may_be_open_and_mixed(cluster) -> None:
    x = rows(3)
    with cluster.function("cos", (3, 7), ahead=1) as cos, cluster.function("square", (1, 7), ahead=3) as square:
        for _ in range(2):
            assert is_cosine(cos(x), x)
            assert np.abs(square(x) - x**2).max() < 1e-3
        assert is_cosine(cluster.evaluate("cos", x), x)


def test_parameters_reach_the_parties(cluster) -> None:
    x = rows(4)
    assert np.abs(cluster.evaluate("cos", x, phase_bits=24) - np.cos(x)).max() < 4e-6
    image, kernel = np.arange(16.0).reshape(1, 1, 4, 4), np.ones((1, 1, 2, 2))
    found = cluster.evaluate("conv2d", image, kernel, stride=2)
    assert np.abs(found - find("conv2d").meaning(image, kernel, stride=2)).max() < 1e-2


@pytest.mark.parametrize(
    ("name", "inputs", "error", "words"),
    [
        ("cos", [[[np.nan, 1.0]]], InputError, "NaN"),
        ("cos", [[[np.inf]]], InputError, "infinity"),
        ("cos", [[[1e15]]], RangeError, "scale"),
        ("cos", [[["a"]]], InputError, "numbers"),
        ("cos", [3.0], InputError, "row"),
        ("cos", [np.zeros((0, 3))], InputError, "row"),
        ("cos", [], InputError, "inputs"),
        ("cos", ["hi"], InputError, "row"),
        ("cos", [np.zeros((2, 2))] * 2, InputError, "inputs"),
        ("matmul", [np.zeros((2, 2))], InputError, "inputs"),
        ("sigmoid", [[[9.0]]], RangeError, r"\[-8, 8\]"),
        ("square", [[[4000.0]]], RangeError, "square may reach"),
        ("matmul", [np.zeros((2, 3)), np.zeros((4, 2))], InputError, r"\(2, 3\)"),
        ("multiply", [np.zeros((2, 3)), np.zeros((3, 2))], InputError, r"\(3, 2\)"),
        ("matmul", [np.full((2, 300), 1e4), np.full((300, 2), 1e4)], RangeError, "matmul may reach"),
        ("no such", [[[1.0]]], ModelError, "choose from"),
    ],
)
def test_bad_input_is_refused_by_name_before_anything_is_sent(cluster, name, inputs, error, words) -> None:
    cluster.reset_cost()
    with pytest.raises(error, match=words):
        cluster.evaluate(name, *inputs)
    assert cluster.cost.online.bytes_sent == (0, 0)


def test_an_unknown_parameter_is_refused(cluster) -> None:
    with pytest.raises(ModelError, match="no parameter"):
        cluster.evaluate("cos", [[1.0]], phase_bit=3)


def test_rows_of_another_shape_are_refused(cluster) -> None:
    with cluster.function("cos", (2, 3), ahead=1) as cos, cluster.function("matmul", (2, 3), (3, 2), ahead=1) as matmul:
        for x in (np.zeros((2, 4)), np.zeros((3, 3)), np.zeros(3)):
            with pytest.raises(InputError, match="is open for rows"):
                cos(x)
        with pytest.raises(InputError, match="takes 1 inputs"):
            cos(np.zeros((2, 3)), np.zeros((2, 3)))
        with pytest.raises(InputError, match="exactly"):
            matmul(np.zeros((4, 3)), np.zeros((6, 2)))


@pytest.mark.parametrize("executions", [0, -1, "3", 1e3, True])
def test_material_is_prepared_for_whole_numbers(cluster, executions) -> None:
    with cluster.function("cos", (1, 7)) as cos, pytest.raises(InputError, match="whole number of at least 1"):
        cos.prepare(executions)


def test_more_material_than_can_be_kept_is_refused_and_less_is_not(cluster) -> None:
    x = rows(1)
    with cluster.function("cos", (1, 7)) as cos:
        with pytest.raises(InputError, match="prepare fewer at a time"):
            cos.prepare(10**12)
        cos.prepare(1)
        assert is_cosine(cos(x), x)


def test_a_function_that_was_closed_says_so(cluster) -> None:
    x = rows(1)
    with cluster.function("cos", (1, 7), ahead=1) as cos:
        assert is_cosine(cos(x), x)
    for use in (lambda: cos(x), lambda: cos.prepare(1), lambda: cos.stock, cos.close):
        with pytest.raises(InputError, match="is closed"):
            use()


def test_a_mistake_inside_a_block_closes_the_function(cluster) -> None:
    for _ in range(70):  # more than one client may have open
        with pytest.raises(InputError, match="NaN"), cluster.function("none", (1, 1)) as same:
            same(np.full((1, 1), np.nan))


def test_functions_end_with_their_cluster(start) -> None:
    with start() as ended:
        cos = ended.function("cos", (1, 7), ahead=1)
    for use in (lambda: cos(rows(1)), lambda: ended.evaluate("cos", rows(1))):
        with pytest.raises(PeerLost, match="inside its `with` block"):
            use()
