"""Graphs on shares: within the bound that follows from the bits, at the planned price, with nothing opened twice."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos import nn
from hdcos.errors import HdcosWarning, ModelError
from hdcos.nn.layer import Shape
from hdcos.secure.answers import RECTIFIED, stated_queries
from hdcos.secure.compile import WHOLE_TURN, compile_network
from hdcos.secure.estimate import densify, estimate, ot_traffic, total
from hdcos.secure.program import plan_inference
from hdcos.secure.wiring import Values
from hdcos.testing.bounds import error_bound
from hdcos.testing.pair import simulate_transcript


class Builder:
    """Layers as they are added, and the value of each."""

    def __init__(self, shape: Shape) -> None:
        self.layers: list[nn.Layer] = []
        self.inputs: list[tuple[int, ...]] = []
        self.shapes = [shape]

    def __call__(self, layer: nn.Layer, *reads: int) -> int:
        """The number of what a layer gives for these values, or for the newest."""
        reads = reads or (len(self.layers),)
        self.layers.append(layer)
        self.inputs.append(reads)
        self.shapes.append(layer.output_shape(*(self.shapes[number] for number in reads)))
        return len(self.layers)

    def graph(self, seed: int = 0) -> nn.Graph:
        """With biases that are not zero, and weights of an Affine that are not one."""
        model = nn.Graph(self.layers, self.inputs, seed, self.shapes[0])
        generator = np.random.default_rng(seed)
        moved = {
            name: values + generator.uniform(-0.5, 0.5, values.shape) * (values.ndim == 1)
            for name, values in model.state().items()
        }
        return model.with_state(moved)


def random_graph(seed: int) -> nn.Graph:
    """A dozen layers that read whatever there is, images and rows, and one output for all that nobody read."""
    generator = np.random.default_rng(seed)
    net = Builder((2, 4, 4))
    for _ in range(12):
        number = int(generator.integers(max(0, len(net.shapes) - 4), len(net.shapes)))
        shape = net.shapes[number]
        same = [other for other, each in enumerate(net.shapes) if each == shape]
        choices: list[tuple[nn.Layer, tuple[int, ...]]] = [
            (nn.ReLU(), (number,)),
            (nn.Cos(), (number,)),
            (nn.Sin(), (number,)),
            (nn.Affine(shape[0]), (number,)),
            (nn.Identity(), (number,)),
            *[(nn.Add(), (number, int(generator.choice(same))))] * 3,
            (nn.Concat(), (number, int(generator.choice(same)))),
        ]
        if len(shape) == 3:
            channels, height, _ = shape
            groups = int(generator.choice([g for g in (1, 2, channels) if channels % g == 0]))
            spread = {"groups": groups, "dilation": int(generator.integers(1, 3))}
            choices += [
                *[(nn.Conv2d(channels, channels, 3, 1, spread["dilation"], **spread), (number,))] * 3,
                (nn.Conv2d(channels, 2, 1), (number,)),
                (nn.Conv2d(channels, 4, 3, 2, 1), (number,)),
                (nn.AdaptiveAvgPool2d(1), (number,)),
                (nn.Flatten(), (number,)),
            ]
            if height > 1 and height % 2 == 0:
                choices += [(nn.AvgPool2d(2), (number,)), (nn.MaxPool2d(2), (number,))]
        else:
            choices += [(nn.Dense(shape[0], 6), (number,)), (nn.HadamardDiagonal(shape[0], 8), (number,))]
        layer, reads = choices[generator.integers(len(choices))]
        net(layer, *reads)
    unread = set(range(len(net.shapes))) - {number for reads in net.inputs for number in reads}
    ends = []
    for number in sorted(unread):
        flat = net(nn.Flatten(), number) if len(net.shapes[number]) == 3 else number
        ends.append(net(nn.Dense(net.shapes[flat][0], 3), flat))
    if len(ends) > 1:
        net(nn.Add(), *ends)
    return net.graph(seed)


def check(model: nn.Graph, x: np.ndarray, masked: bool = True, **options: int) -> np.ndarray:
    """Outputs on shares: within the bound, for the rounds and bytes that were planned, with all material used once."""
    outputs, transcript = simulate_transcript(model, x, masked=masked, **options)
    assert (np.abs(outputs - model(x)) <= error_bound(model, x, **options)).all()
    planned = total(estimate(model, len(x), masked=masked, **options)).online
    assert (len(transcript.rounds), sum(transcript.sent_bytes)) == (planned.rounds, planned.bytes_sent)
    return outputs


@pytest.mark.parametrize("seed", range(24))
def test_random_graphs_give_the_plaintext_output_at_the_planned_price(seed: int) -> None:
    model = random_graph(seed)
    x = np.random.default_rng(seed).uniform(-1, 1, (3, 2, 4, 4))
    check(model, x, masked=bool(seed % 2))


def resnet() -> nn.Graph:
    """Two residual blocks, the second with stride 2 and a convolution in its shortcut; norms are folded."""
    net = Builder((1, 8, 8))
    net(nn.Conv2d(1, 4, 3, padding=1))
    start = net(nn.ReLU())
    for inputs, outputs, stride in ((4, 4, 1), (4, 8, 2)):
        net(nn.Conv2d(inputs, outputs, 3, stride, 1), start)
        net(nn.ReLU())
        end = net(nn.Conv2d(outputs, outputs, 3, padding=1))
        shortcut = start if stride == 1 else net(nn.Conv2d(inputs, outputs, 1, stride), start)
        net(nn.Add(), end, shortcut)
        start = net(nn.ReLU())
    net(nn.AdaptiveAvgPool2d(1))
    net(nn.Flatten())
    net(nn.Dropout(0.3))
    net(nn.Dense(8, 10))
    return net.graph(1)


@pytest.mark.parametrize("masked", [True, False], ids=["masked", "shares"])
def test_a_small_resnet_predicts_on_shares(masked: bool) -> None:
    model, x = resnet(), np.random.default_rng(3).uniform(0, 1, (6, 1, 8, 8))
    outputs = check(model, x, masked)
    assert np.abs(outputs - model(x)).max() < 5e-3
    planned = plan_inference(compile_network(model))
    # Five convolutions behind the first, of which two read what is opened once; five ReLUs of three rounds; the last.
    assert planned.rounds == 4 + 5 * 3 + 1
    assert stated_queries(compile_network(model)) == pytest.approx(RECTIFIED * 4 / 10)


def test_an_affine_layer_mixes_no_hidden_units_and_counts_only_where_nothing_follows() -> None:
    layers = [nn.Dense(6, 20), nn.ReLU(), nn.Affine(20), nn.Dense(20, 3), nn.Affine(3)]
    model = nn.Sequential(layers)
    assert stated_queries(compile_network(model)) == pytest.approx(RECTIFIED / 3)
    assert stated_queries(compile_network(nn.Sequential(layers[:-1]))) == pytest.approx(RECTIFIED * 6 / 3)


def test_a_value_that_several_products_read_is_opened_once_with_products_of_its_own_for_each() -> None:
    net = Builder((6,))
    net(nn.Dense(6, 5))
    hidden = net(nn.ReLU())
    net(nn.Add(), net(nn.Dense(5, 4), hidden), net(nn.Dense(5, 4), hidden))
    chosen = compile_network(net.graph())
    planned = plan_inference(chosen)
    kinds = [need.kind.name for need in planned.material.needs]
    assert kinds.count("mask_product") == 3
    assert [stage.name for stage in chosen.stages if stage.name.endswith("opened")] == ["1 ReLU opened"]
    assert planned.rounds == 3 + 1
    assert len([kind for kind in kinds if kind == "mask"]) == 2  # the rows, and what both products read


def test_rows_that_several_layers_read_are_masked_once() -> None:
    """A product in turns counts modulo a turn, another layer in the whole ring: the mask is as wide as the widest."""
    net = Builder((6,))
    net(nn.Add(), net(nn.Cos(), net(nn.Dense(6, 4), 0)), net(nn.Dense(6, 4), 0))
    model = net.graph()
    chosen = compile_network(model)
    assert chosen.input_bits == 64
    assert plan_inference(chosen).rounds == 1  # the cosine: rows came masked, and products of them are local
    assert [need.kind.name for need in plan_inference(chosen).material.needs].count("mask") == 1
    check(model, np.random.default_rng(0).uniform(-2, 2, (5, 6)))
    both = Builder((6,))
    both(nn.Concat(), both(nn.Cos(), both(nn.Dense(6, 4), 0)), both(nn.Cos(), both(nn.Dense(6, 4), 0)))
    assert compile_network(both.graph()).input_bits < 64


@pytest.mark.parametrize("options", [{}, {"phase_bits": WHOLE_TURN}], ids=["phases", "exact"])
def test_chains_of_cosines_between_joins_are_fused_as_in_networks_without(options) -> None:
    net = Builder((8,))
    net(nn.HadamardDiagonal(8, 16), 0)
    net(nn.Cos())
    left = net(nn.HadamardDiagonal(16, 8))
    net(nn.Add(), left, 0)
    net(nn.Sin())
    net(nn.HadamardDiagonal(8, 8))
    net(nn.Cos())
    net(nn.Concat(), len(net.layers), left)
    net(nn.HadamardDiagonal(16, 3))
    model = net.graph(2)
    kinds = [type(stage).__name__ for stage in compile_network(model).stages]
    assert kinds.count("FusedDiagonal") == 2
    check(model, np.random.default_rng(0).uniform(-1, 1, (4, 8)), **options)


def test_series_and_polynomials_between_joins_have_room() -> None:
    net = Builder((5,))
    hidden = net(nn.Tanh(interval=12), net(nn.Dense(5, 6), 0))
    squared = net(nn.Square(), hidden)
    net(nn.Add(), net(nn.Dense(6, 6), hidden), net(nn.LowRank(6, 6, 2), squared), squared)
    net(nn.Concat(), net(nn.GrowingCos()), hidden, net(nn.LeakyReLU(0.1), squared + 3))
    net(nn.Circulant(18, 4))
    model = net.graph(3)
    check(model, np.random.default_rng(0).uniform(-1, 1, (4, 5)), masked=False)


def test_leading_public_layers_are_the_owners_as_long_as_nobody_else_reads_the_rows() -> None:
    net = Builder((1, 6, 6))
    net(nn.AvgPool2d(2))
    flat = net(nn.Flatten())
    net(nn.Add(), net(nn.Dense(9, 9), flat), flat)
    model = net.graph()
    chosen = compile_network(model)
    assert [layer.kind for layer in chosen.front] == ["AvgPool2d", "Flatten"]
    assert (chosen.input_shape, plan_inference(chosen).rounds) == ((9,), 0)
    check(model, np.random.default_rng(0).uniform(0, 1, (4, 1, 6, 6)))
    net = Builder((1, 6, 6))
    net(nn.Concat(), net(nn.Flatten(), net(nn.AvgPool2d(3), 0)), net(nn.Dense(36, 2), net(nn.Flatten(), 0)))
    model = net.graph()
    assert (compile_network(model).front, compile_network(model).input_shape) == ((), (1, 6, 6))
    check(model, np.random.default_rng(0).uniform(0, 1, (4, 1, 6, 6)))


@pytest.mark.parametrize("window", [2, 3, 7])
def test_means_that_no_weights_divide_are_divided_by_a_public_factor(window: int) -> None:
    net = Builder((2, 2 * window, 2 * window))
    net(nn.Conv2d(2, 3, 1))
    net(nn.ReLU())
    pooled = net(nn.AvgPool2d(window))
    net(nn.Add(), net(nn.ReLU(), pooled), pooled)
    net(nn.AdaptiveAvgPool2d(1))
    net(nn.Cos())
    model = net.graph()
    check(model, np.random.default_rng(0).uniform(-1, 1, (3, *model.input_shape)))


def test_pooling_to_a_size_takes_windows_that_are_no_squares() -> None:
    net = Builder((2, 6, 9))
    net(nn.Conv2d(2, 2, 1))
    net(nn.ReLU())
    net(nn.AdaptiveAvgPool2d(3))
    net(nn.Reshape((3, 6)))
    net(nn.Flatten())
    net(nn.Dense(18, 2))
    model = net.graph()
    check(model, np.random.default_rng(0).uniform(-1, 1, (3, 2, 6, 9)))


@pytest.mark.parametrize("kind", [nn.AvgPool2d, nn.MaxPool2d])
def test_pooling_with_a_stride_and_padding(kind) -> None:
    net = Builder((2, 7, 6))
    net(nn.Conv2d(2, 3, 1))
    net(kind(3, 2, 1))
    net(nn.Affine(3))
    net(kind(2, 1))
    net(nn.Flatten())
    net(nn.Dense(18, 2))
    model = net.graph()
    check(model, np.random.default_rng(0).uniform(-1, 1, (3, 2, 7, 6)))


def test_layers_that_do_nothing_cost_nothing_and_change_nothing() -> None:
    layers = [nn.Dense(4, 8), nn.Cos(), nn.HadamardDiagonal(8, 2)]
    plain = nn.Sequential(layers, 4)
    padded = nn.Sequential(
        [nn.Dropout(), layers[0], nn.Identity(), layers[1], nn.Dropout(0.1), layers[2], nn.Identity()]
    )
    padded = padded.with_state({f"{2 * int(k[0]) + 1}{k[1:]}": v for k, v in plain.state().items()})
    first, second = (compile_network(model) for model in (plain, padded))
    assert [type(stage) for stage in first.stages] == [type(stage) for stage in second.stages]
    assert plan_inference(first).material == plan_inference(second).material
    check(padded, np.random.default_rng(0).uniform(-1, 1, (3, 4)))


def test_records_of_networks_without_graphs_are_what_they_were() -> None:
    chosen = compile_network(
        nn.Sequential([nn.Conv2d(1, 2, 3), nn.Cos(), nn.AvgPool2d(2), nn.ReLU()], input_shape=(1, 6, 6))
    )
    assert (len(chosen.record()), chosen.reads) == (4, ())
    assert not {"groups", "dilation", "across"} & {name for _, fields in chosen.record()[2] for name in fields}
    wired = compile_network(resnet())
    assert wired.record()[-1] == wired.reads
    assert len(wired.reads) == len(wired.stages)


def test_values_are_let_go_once_their_last_reader_has_them() -> None:
    values = Values(3, ((0,), (1,), (2, 1)), "rows")
    assert values.read(0) == ["rows"]
    values.keep(0, "a")
    assert values.read(1) == ["a"]
    values.keep(1, "b")
    assert values.read(2) == ["b", "a"]
    values.keep(2, "c")
    assert (values.newest, list(values._known.values())) == ("c", ["c"])


def test_calibration_measures_what_reaches_each_series_of_a_graph() -> None:
    net = Builder((3,))
    wide = net(nn.Affine(3), 0)
    net(nn.Add(), net(nn.Tanh(), wide), net(nn.Sigmoid(), 0))
    net(nn.Dense(3, 2))
    model = nn.Graph(net.layers, net.inputs, input_shape=(3,))
    model = model.with_state({**model.state(), "0.weight": np.full(3, 9.0)})
    x = np.random.default_rng(0).uniform(-1, 1, (50, 3))
    found = model.calibrate(x)
    assert found.reached[0] == (9 * x.min(), 9 * x.max())
    assert found.reached[1] == (x.min(), x.max())
    assert found.intervals[0].interval >= 13
    assert found.intervals[1].interval == min(nn.Sigmoid().intervals)
    assert found.material_bytes == total(estimate(found.model)).offline.bytes_sent
    check(found.model, x[:5])
    with pytest.warns(HdcosWarning, match="layer 0, Affine, gives values from"):
        model.with_state({**model.state(), "0.bias": np.full(3, 900.0)}).with_layers(
            [net.layers[0], nn.ReLU(), *net.layers[2:]]
        ).calibrate(x)


def test_a_graph_of_dense_layers_and_its_traffic_without_a_dealer_are_planned() -> None:
    net = Builder((8,))
    net(nn.Add(), net(nn.Cos(), net(nn.HadamardDiagonal(8, 8), 0)), net(nn.Affine(8), 0))
    model = net.graph()
    assert [layer.kind for layer in densify(model).layers] == ["Dense", "Cos", "Affine", "Add"]
    assert densify(model).inputs == model.inputs
    assert ot_traffic(compile_network(model, dealer=False)).bytes > 0
    with pytest.raises(ModelError, match="layer 1, ReLU, takes comparisons, which need a dealer"):
        compile_network(model.with_layers([model.layers[0], nn.ReLU(), *model.layers[2:]]), dealer=False)
