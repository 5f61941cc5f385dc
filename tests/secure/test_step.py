"""One private step against autograd, parameter by parameter, and its price."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest
import torch

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.offline import Mask
from hdcos.protocol.plan import blank_share, plan
from hdcos.ring import decode, encode
from hdcos.secure.training import Rule, sgd_step, training_plan
from hdcos.secure.training.plan import INPUT_SCALE
from hdcos.secure.training.rule import Step, apply, changes
from hdcos.sharing import Share, join
from hdcos.testing.pair import share_pair, simulate
from hdcos.testing.plaintext import Counter, run_plaintext

ROWS = 32


def shared(training, model, x, targets):
    """Both shares of parameters, rows and targets."""
    state = model.state()
    pairs = {
        tensor.name: share_pair(tensor.words(state[tensor.name]), tensor.scale, tensor.bits)
        for tensor in training.tensors
    }
    x = np.asarray(x)
    for layer in training.front:
        x = layer.forward({}, x)
    rows = share_pair(encode(x.reshape(len(x), -1), INPUT_SCALE), INPUT_SCALE)
    return pairs, rows, share_pair(encode(targets, training.target_scale), training.target_scale)


def private_step(model, x, targets, loss, rule):
    """The model after one step on shares, and the transcript."""
    training = training_plan(model, loss)
    pairs, rows, wanted = shared(training, model, x, targets)
    names = list(pairs)

    def program(party, *shares):
        held = dict(zip(names, shares, strict=False))
        after = yield from sgd_step(party, training, held, shares[-2], shares[-1], rule)
        return tuple(after[name] for name in names)

    (zero, one), transcript = simulate(program, *pairs.values(), rows, wanted)
    after = {
        tensor.name: tensor.parameter(signed(join(a.words, b.words), tensor.bits))
        for tensor, a, b in zip(training.tensors, zero, one, strict=True)
    }
    return model.with_state(after), transcript


def signed(words, bits):
    """Words modulo 2**bits as words of the whole ring."""
    shift = np.uint64(64 - bits)
    return ((words << shift).view(np.int64) >> shift.astype(np.int64)).view(np.uint64)


def clear_step(model, x, targets, loss, rule):
    """The same step in plaintext, and how many openings left their range."""
    training, counter = training_plan(model, loss), Counter()
    pairs, rows, wanted = shared(training, model, x, targets)
    state = {name: whole(pair) for name, pair in pairs.items()}
    after = run_plaintext(sgd_step, training, state, whole(rows), whole(wanted), rule, counter=counter)
    return model.with_state({t.name: t.parameter(after[t.name].words) for t in training.tensors}), counter


def whole(pair):
    return Share(join(pair[0].words, pair[1].words), pair[0].scale, pair[0].bits)


def float_loss(logits, wanted, loss):
    if loss == "squared":
        return 0.5 * ((logits - wanted) ** 2).sum()
    if loss == "logistic":
        return torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="sum")
    label = wanted.argmax(1)
    against = torch.nn.functional.softplus(logits - logits.gather(1, label[:, None]))
    return against.sum() - len(label) * np.log(2)  # a class against itself adds log 2 and no gradient


def plain_step(model, x, targets, loss, rate, scale_diagonals=True):
    module = model.to_torch(torch.float64)
    (float_loss(module(torch.from_numpy(x)), torch.from_numpy(targets), loss) / len(x)).backward()
    factors = model.rate_factors() if scale_diagonals else dict.fromkeys(model.state(), 1.0)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter -= rate * factors[name] * parameter.grad
    return model.with_state({name: tensor.numpy() for name, tensor in module.state_dict().items()})


def small_images(activation, structure="hadamard"):
    act = nn.activations.activation(activation)
    between = [] if act is None else [act]
    return nn.Sequential(
        [
            nn.Conv2d(1, 3, 3, padding=1),
            *between,
            nn.AvgPool2d(2),
            nn.Conv2d(3, 4, 3, stride=2, padding=1),
            *between,
            nn.AvgPool2d(2),
            nn.Flatten(),
            *nn.models.mlp([16, 8, 3], activation, structure).layers,
        ],
        1,
        (1, 16, 16),
    )


def with_terms(terms, activation="cos"):
    act = nn.activations.activation(activation)
    shapes = [(12, 8, terms), (8, 8, terms), (8, 3, min(3, terms))]
    layers = [layer for ins, outs, k in shapes for layer in (nn.HadamardDiagonal(ins, outs, terms=k), act)]
    return nn.Sequential(layers[:-1], 1)


def of_windows(*between, structure="hadamard"):
    """Two convolutions, each before layers that compare or pool."""
    layers = [nn.Conv2d(1, 3, 3, padding=1), *between, nn.Conv2d(3, 4, 3, padding=1), *between, nn.Flatten()]
    return nn.Sequential([*layers, *nn.models.mlp([16, 8, 3], "relu", structure).layers], 1, (1, 8, 8))


def largest_of_cosines():
    """With weights so large that the cosines are not all nearly one."""
    layers = [nn.Conv2d(1, 2, 3, padding=1), nn.Cos(), nn.MaxPool2d(2), nn.Flatten(), nn.HadamardDiagonal(8, 3)]
    model = nn.Sequential(layers, 1, (1, 4, 4))
    return model.with_state({**model.state(), "0.weight": 4 * model.state()["0.weight"]})


COMPARING = {
    **{
        f"{structure} relu": nn.models.mlp([12, 8, 8, 3], "relu", structure, seed=1)
        for structure in nn.models.STRUCTURES
    },
    "leaky": nn.Sequential(
        [
            *(nn.Dense(12, 8), nn.LeakyReLU(0.2), nn.HadamardDiagonal(8, 8), nn.LeakyReLU(-0.5)),
            *(nn.HadamardDiagonal(8, 8), nn.LeakyReLU(), nn.Dense(8, 3)),
        ],
        1,
    ),
    "relu among others": nn.Sequential(
        [
            *(nn.HadamardDiagonal(12, 8), nn.Cos(), nn.HadamardDiagonal(8, 8), nn.ReLU()),
            *(nn.Dense(8, 8), nn.Tanh(), nn.Dense(8, 8), nn.ReLU(), nn.Dense(8, 8), nn.Dense(8, 3)),
        ],
        1,
    ),
    "means of relus": of_windows(nn.ReLU(), nn.AvgPool2d(2)),
    "means of leaky": of_windows(nn.LeakyReLU(0.1), nn.AvgPool2d(2), structure="dense"),
    "largest of relus": of_windows(nn.ReLU(), nn.MaxPool2d(2)),
    "relus of the largest": of_windows(nn.MaxPool2d(2), nn.ReLU(), structure="dense"),
    "largest of leaky": of_windows(nn.LeakyReLU(0.1), nn.MaxPool2d(2)),
    "largest": of_windows(nn.MaxPool2d(2), structure="dense"),
    "largest of tanh": of_windows(nn.Tanh(), nn.MaxPool2d(2)),
    "largest of cosines": largest_of_cosines(),
    "largest of 16": nn.Sequential(
        [nn.Conv2d(1, 3, 3, padding=1), nn.ReLU(), nn.MaxPool2d(4), nn.Flatten(), nn.HadamardDiagonal(12, 3)],
        1,
        (1, 8, 8),
    ),
}
MODELS = {
    **COMPARING,
    "1 layer": nn.models.mlp([12, 8, 3], seed=1),
    "2 layers": nn.models.mlp([12, 16, 8, 3], seed=1),
    "higgs": nn.models.higgs_mlp(seed=1),
    "wide": nn.models.mlp([64, 64, 10], seed=1),
    "blocks": nn.Sequential([nn.HadamardDiagonal(12, 8, blocks=3), nn.Cos(), nn.HadamardDiagonal(8, 3, blocks=3)], 1),
    "projection": nn.Sequential(
        [nn.RandomProjection(12, 16), nn.HadamardDiagonal(16, 8), nn.Cos(), nn.HadamardDiagonal(8, 3)], 1
    ),
    "terms": with_terms(4),
    "terms, pooled": nn.Sequential(
        [
            nn.Conv2d(1, 3, 3, padding=1),
            *(nn.Cos(), nn.AvgPool2d(2), nn.Flatten(), nn.HadamardDiagonal(12, 8, terms=4)),
            *(nn.Sigmoid(), nn.HadamardDiagonal(8, 3, terms=2)),
        ],
        1,
        (1, 4, 4),
    ),
    "linear": nn.Sequential([nn.Dense(12, 3)], 1),
    "diagonal": nn.Sequential([nn.HadamardDiagonal(12, 3)], 1),
    "images": small_images("cos"),
    "images, dense": small_images("cos", "dense"),
    "images, square": small_images("square"),
    "images, none": small_images("none"),
    "dense gelu": nn.models.mlp([12, 8, 8, 3], "gelu", "dense", seed=1),
    "hadamard softplus": nn.models.mlp([12, 8, 8, 3], "softplus", "hadamard", seed=1),
    **{
        f"{structure} {activation}": nn.models.mlp([12, 8, 8, 3], activation, structure, seed=1)
        for structure in nn.models.STRUCTURES
        for activation in ("cos", "sin", "square", "expm1", "polyfit3", "sigmoid", "tanh", "growing_cos", "none")
    },
}


def batch(model, seed=2):
    generator = np.random.default_rng(seed)
    candidates = (
        30 * ROWS if any(isinstance(layer, nn.ReLU | nn.LeakyReLU | nn.MaxPool2d) for layer in model.layers) else ROWS
    )
    x = np.rint(generator.uniform(-1, 1, (candidates, *model.input_shape)) * 2**12) / 2**12
    x = x[decided(model, x)][:ROWS]
    assert len(x) == ROWS
    outputs = model.output_shape[0]
    return x, np.eye(max(2, outputs))[generator.integers(0, max(2, outputs), ROWS)][:, :outputs]


def decided(model, x, margin=2.0**-9):
    """Rows of which no rounding decides a comparison: nothing is nearly zero, no two of a window are nearly equal."""
    kept, y = np.ones(len(x), bool), x
    for index, layer in enumerate(model.layers):
        if isinstance(layer, nn.ReLU | nn.LeakyReLU):
            kept &= (np.abs(y) > margin).reshape(len(y), -1).all(1)
        if isinstance(layer, nn.MaxPool2d):
            squares = np.moveaxis(layer.squares(y), 3, 4)
            second, first = np.sort(squares.reshape(*squares.shape[:4], -1))[..., -2:].transpose(4, 0, 1, 2, 3)
            kept &= ((first - second > margin) | (first == 0)).reshape(len(y), -1).all(1)
        y = layer.forward(model.parameters(index), y)
    return kept


def assert_same_step(model, stepped, plain, rate, tolerance=8e-2):
    """Rounding noise lies far below the step, in the mean square, or far below what any step would notice."""
    before = model.state()
    for parameter, after in plain.state().items():
        moved = after - before[parameter]
        error = stepped.state()[parameter] - after
        assert rms(error) <= tolerance * rms(moved) + 5e-4 * rate, parameter


def rms(x):
    return float(np.sqrt((x**2).mean()))


def moderate_rate(model, x, targets, loss):
    """A rate at which no parameter moves far: exploding activations are not what is tested here."""
    before, after = model.state(), plain_step(model, x, targets, loss, 1.0).state()
    return min(1.0, 0.2 / max(np.abs(after[name] - before[name]).max() for name in before))


CASES = [
    (name, loss)
    for name, model in MODELS.items()
    for loss in ("logistic", "squared", "softmax")
    if (loss != "softmax" or model.output_shape[0] > 1)
    and (loss == "logistic" or name not in COMPARING or name in ("dense relu", "largest of relus"))
]


@pytest.mark.parametrize(("name", "loss"), CASES)
def test_a_private_step_is_the_plain_step(name: str, loss: str) -> None:
    model = MODELS[name]
    x, targets = batch(model)
    rate = moderate_rate(model, x, targets, loss)
    private, transcript = private_step(model, x, targets, loss, Rule(rate))
    planned = planned_step(model, loss, ROWS)
    assert (planned.rounds, planned.online_bytes) == (len(transcript.rounds), sum(transcript.sent_bytes))
    tolerance = 3e-2 if name in COMPARING else 8e-2
    assert_same_step(model, private, plain_step(model, x, targets, loss, rate), rate, tolerance)


@pytest.mark.parametrize("name", ["2 layers", "blocks", "terms", "images", "phd cos", "dense cos"])
def test_diagonals_may_learn_at_the_rate_of_all_others(name: str) -> None:
    model = MODELS[name]
    x, targets = batch(model)
    rate = moderate_rate(model, x, targets, "logistic")
    private, _ = private_step(model, x, targets, "logistic", Rule(rate, scale_diagonals=False))
    assert_same_step(model, private, plain_step(model, x, targets, "logistic", rate, scale_diagonals=False), rate)


@pytest.mark.parametrize(
    "name", ["higgs", "terms", "images", "dense tanh", "phd growing_cos", "leaky", "largest of 16"]
)
def test_a_step_in_plaintext_is_the_plain_step_and_stays_in_range(name: str) -> None:
    model = MODELS[name]
    x, targets = batch(model)
    clear, counter = clear_step(model, x, targets, "logistic", Rule(0.1))
    assert_same_step(model, clear, plain_step(model, x, targets, "logistic", 0.1), 0.1)
    assert counter.openings > 0
    assert counter.out_of_range == 0


@pytest.mark.parametrize("activation", ["cos", "tanh"])
@pytest.mark.parametrize("loss", ["logistic", "softmax"])
def test_a_step_of_several_terms_opens_more_weights_and_nothing_else(activation: str, loss: str) -> None:
    """One round more or less, or a gradient by term, would show here, whatever the batch."""
    one, four = (planned_step(with_terms(terms, activation), loss, ROWS) for terms in (1, 4))
    more, first = 3 * 12 + 3 * 8 + 2 * 8, 3 * 12  # the first weights are used as they were lifted
    assert one.rounds == four.rounds
    assert four.online_bytes - one.online_bytes == pytest.approx((22 * more + 64 * (more - first)) / 8, abs=2)


@pytest.mark.parametrize("interval", [None, 28])
def test_a_step_with_a_wide_interval_is_the_plain_step_where_the_narrow_one_folds(interval: int | None) -> None:
    model = nn.Sequential([nn.Dense(12, 8), nn.Tanh(interval=interval), nn.Dense(8, 3)], 1)
    x, targets = batch(model)
    state = model.state()
    model = model.with_state({**state, "0.weight": 3.9 * state["0.weight"] / np.abs(state["0.weight"]).max()})
    reached = np.abs(x @ model.state()["0.weight"].T).max()
    assert 8 < reached < 28
    clear, counter = clear_step(model, x, targets, "logistic", Rule(0.1))
    private, _ = private_step(model, x, targets, "logistic", Rule(0.1))
    assert (counter.out_of_range == 0) == (interval == 28)
    for stepped in (clear, private):
        if interval == 28:
            assert_same_step(model, stepped, plain_step(model, x, targets, "logistic", 0.1), 0.1)
        else:
            with pytest.raises(AssertionError):
                assert_same_step(model, stepped, plain_step(model, x, targets, "logistic", 0.1), 0.1)


def test_a_step_in_plaintext_counts_what_leaves_its_range() -> None:
    model = MODELS["2 layers"]
    x, targets = batch(model)
    wild = model.with_state({**model.state(), "4.diagonal": np.full(8, 6.0) * np.sqrt(8)})
    training, counter = training_plan(model), Counter()
    state = {
        tensor.name: Share(encode(wild.state()[tensor.name] * tensor.factor, 40), 40).raised(tensor.scale)
        for tensor in training.tensors
    }
    rows, wanted = Share(encode(x, INPUT_SCALE), INPUT_SCALE), Share(encode(targets, 32), 32)
    run_plaintext(sgd_step, training, state, rows, wanted, Rule(0.1), counter=counter)
    assert counter.out_of_range > 0
    assert counter.largest > 1


@pytest.mark.parametrize(
    ("name", "loss", "rounds"),
    [
        ("1 layer", "logistic", 5),
        ("2 layers", "logistic", 7),
        ("higgs", "logistic", 11),
        ("higgs", "squared", 10),
        ("2 layers", "softmax", 8),
        ("dense cos", "logistic", 12),
        ("dense relu", "logistic", 16),
        ("hadamard relu", "logistic", 16),
        ("largest of relus", "logistic", 35),
        ("dense tanh", "logistic", 14),
        ("hadamard tanh", "logistic", 14),
    ],
)
def test_a_step_takes_the_rounds_it_should(name: str, loss: str, rounds: int) -> None:
    model = MODELS[name]
    _, transcript = private_step(model, *batch(model), loss, Rule(0.1))
    assert len(transcript.rounds) == rounds


def planned_step(model, loss, rows):
    """What a step will cost, from shapes alone."""
    training = training_plan(model, loss)
    state = {tensor.name: blank_share(tensor.shape, tensor.scale, tensor.bits) for tensor in training.tensors}
    x = blank_share((rows, prod(training.input_shape)), INPUT_SCALE)
    return plan(sgd_step, training, state, x, blank_share((rows, training.outputs), training.target_scale), Rule(0.1))


@pytest.mark.parametrize(
    ("options", "rounds", "megabytes"),
    [({}, 15, 25), ({"activation": "relu"}, 28, 15), ({"activation": "relu", "pooling": "max"}, 40, 15)],
)
def test_lenet5_takes_its_rounds_and_megabytes_each_way(options: dict, rounds: int, megabytes: int) -> None:
    structure = "dense" if options else "hadamard"
    planned = planned_step(nn.models.lenet5(**options, structure=structure), "logistic", 128)
    assert planned.rounds == rounds
    assert planned.online_bytes < megabytes * 1e6


def test_a_matrix_block_is_opened_in_the_ring_of_its_weight_and_its_derivative_no_wider_than_that_needs() -> None:
    model = nn.Sequential([nn.Dense(5, 7), nn.Cos(), nn.Dense(7, 11), nn.Cos(), nn.Dense(11, 3)])
    first, second, last = training_plan(model, "logistic").blocks
    planned = planned_step(model, "logistic", 2)
    opened = [(need.kind.shape, need.kind.bits) for need in planned.material.needs if isinstance(need.kind, Mask)]
    # The gradient at scale 12, times the derivative at 12, is rounded to 14 and keeps the 48 bits of the ring.
    assert (first.ring, second.ring, last.ring) == (48, 48, 46)
    assert first.slope_ring == second.slope_ring == 12 + 12 - 14 + 48
    weights = [((5 * 7 + 7 * 11,), 48), ((11 * 3,), 46)]
    forward = [((5,), 48), *weights, ((7,), 48), ((7,), 58), ((11,), 46), ((11,), 58)]
    assert opened == [*forward, ((3,), 46), ((11,), 48), ((7,), 48)]


@pytest.mark.parametrize(
    ("name", "momentum", "decay"),
    [
        *(
            (name, *rule)
            for name in ("2 layers", "images", "low_rank cos")
            for rule in ((0.9, 0), (0, 0.05), (0.8, 0.02))
        ),
        *((name, 0.8, 0.02) for name in ("dense relu", "relus of the largest")),
    ],
)
def test_momentum_and_decay_are_those_of_pytorch(name: str, momentum: float, decay: float) -> None:
    model = MODELS[name]
    training = training_plan(model)
    module = model.to_torch(torch.float64)
    optimizer = torch.optim.SGD(nn.parameter_groups(module, 1.0), momentum=momentum, weight_decay=decay)
    factors = [group["lr"] for group in optimizer.param_groups]
    state = {t.name: Share(t.words(model.state()[t.name]), t.scale, t.bits) for t in training.tensors}
    rates, last = [0.25, 0.25, 0.2, 0.3], None
    for number, rate in enumerate(rates):
        x, targets = batch(model, number)
        rows = Share(encode(x.reshape(len(x), -1), INPUT_SCALE), INPUT_SCALE)
        wanted = Share(encode(targets, training.target_scale), training.target_scale)
        state = run_plaintext(sgd_step, training, state, rows, wanted, Rule(rate, momentum, decay, last, number))
        last = rate
        for group, factor in zip(optimizer.param_groups, factors, strict=True):
            group["lr"] = rate * factor
        optimizer.zero_grad()
        (float_loss(module(torch.from_numpy(x)), torch.from_numpy(targets), "logistic") / len(x)).backward()
        optimizer.step()
    stepped = model.with_state({t.name: t.parameter(state[t.name].words) for t in training.tensors})
    assert_same_step(model, stepped, nn.from_torch(module), 1.0)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([nn.HadamardDiagonal(4, 4), nn.Cos()], "ends with a linear layer"),
        ([nn.Cos(), nn.HadamardDiagonal(4, 4)], "a linear layer should come"),
        ([nn.HadamardDiagonal(4, 4), nn.Cos(), nn.Cos(), nn.Dense(4, 2)], "a linear layer should come"),
    ],
)
def test_networks_that_cannot_be_trained_are_named(layers, words) -> None:
    with pytest.raises(ModelError, match=words):
        training_plan(nn.Sequential(layers))


@pytest.mark.parametrize(
    ("between", "words"),
    [
        ([nn.ReLU(), nn.MaxPool2d(2), nn.AvgPool2d(2)], "layer 3, AvgPool2d: training takes one pooling"),
        ([nn.MaxPool2d(2), nn.ReLU(), nn.MaxPool2d(2)], "layer 3, MaxPool2d: training takes one pooling"),
        ([nn.MaxPool2d(3)], "layer 1, MaxPool2d: .*windows of 2, 4 or 8"),
        ([nn.ReLU(), nn.MaxPool2d(16)], "layer 2, MaxPool2d: .*divide the image"),
        ([nn.MaxPool2d(2), nn.Cos()], "layer 2, Cos, .*put MaxPool2d behind it"),
        ([nn.LeakyReLU(-0.1), nn.MaxPool2d(2)], "layer 1, LeakyReLU, .*a slope below zero"),
        ([nn.ReLU(), nn.ReLU()], "layer 2, ReLU, .*a linear layer should come"),
    ],
)
def test_comparisons_that_cannot_be_trained_are_named(between, words) -> None:
    layers = [nn.Conv2d(1, 1, 5), *between, nn.Flatten()]
    shape = nn.Sequential(layers, input_shape=(1, 28, 28)).output_shape
    with pytest.raises(ModelError, match=words):
        training_plan(nn.Sequential([*layers, nn.Dense(shape[0], 2)], input_shape=(1, 28, 28)))


@pytest.mark.parametrize("bias", [0.0, 0.25])
@pytest.mark.parametrize("act", [nn.ReLU(), nn.LeakyReLU(0.25)])
def test_of_zeros_and_of_equal_numbers_the_gradient_is_that_of_autograd(act, bias: float) -> None:
    """On black borders all numbers of a window are equal, and zero while the bias is."""
    layers = [nn.Conv2d(1, 3, 3, padding=1), act, nn.MaxPool2d(2), nn.Flatten(), nn.Dense(48, 3)]
    model = nn.Sequential(layers, 1, (1, 8, 8))
    model = model.with_state({**model.state(), "0.bias": np.full(3, bias)})
    x, targets = batch(model)
    x[:, :, :5] = 0.0
    for stepped in (private_step, clear_step):
        after, _ = stepped(model, x, targets, "logistic", Rule(0.5))
        assert_same_step(model, after, plain_step(model, x, targets, "logistic", 0.5), 0.5, tolerance=2e-2)


def test_a_step_in_plaintext_counts_numbers_that_are_too_large_to_compare() -> None:
    model = MODELS["dense relu"]
    x, targets = batch(model)
    for size, expected in ((900.0, False), (1023.9, True)):
        far = model.with_state({**model.state(), "0.bias": np.full(8, size), "2.weight": np.zeros((8, 8))})
        _, counter = clear_step(far, x, targets, "logistic", Rule(0.1))
        assert (counter.out_of_range > 0) == expected


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan"), float("inf")])
def test_rates_that_are_no_rates_are_refused(rate: float) -> None:
    with pytest.raises(InputError, match="positive"):
        Rule(rate)


def test_a_rate_that_would_be_lost_in_rounding_is_refused() -> None:
    model = MODELS["dense cos"]
    with pytest.raises(InputError, match="too small"):
        private_step(model, *batch(model), "logistic", Rule(1e-9))


def test_a_coarse_rate_is_exact_in_the_mean() -> None:
    factors = [Rule(0.1, number=number).dither(5.18) for number in range(1000)]
    assert set(factors) == {5, 6}
    assert sum(factors) == 5180


def test_a_step_in_plaintext_counts_logits_beyond_the_fitted_interval() -> None:
    model = MODELS["diagonal"]
    x, targets = batch(model)
    for loss in ("logistic", "softmax"):
        for size, expected in ((10.0, False), (80.0, False), (190.0, True)):
            far = model.with_state({**model.state(), "0.bias": np.array([size, 0.0, 0.0])})
            _, counter = clear_step(far, x, targets, loss, Rule(0.1))
            assert (counter.out_of_range > 0) == expected


def test_a_small_decay_is_exact_in_the_mean() -> None:
    """Rate times decay is a fraction of a unit of a bias's scale: it must not be rounded away."""
    scale, rate, decay, steps = 36, 0.01, 1e-4, 2000
    state = {"b": Share(encode(np.array([1.0, -1.0]), scale), scale)}
    nothing = {"b": Step(np.zeros(2, np.uint64))}
    for number in range(steps):
        copies = {"b": Share(encode(decode(state["b"].words, scale), 18), 18)}
        rule = Rule(rate, 0.0, decay, rate, number)
        state = apply(state, rule, changes(state, rule, nothing, copies, dict.fromkeys(state, 1.0)), copies)
    expected = (1 - rate * decay) ** steps
    assert np.abs(decode(state["b"].words, scale) - np.array([expected, -expected])).max() < 1e-5


def test_softmax_needs_something_to_compare() -> None:
    with pytest.raises(ModelError, match="one"):
        training_plan(nn.models.higgs_mlp(), "softmax")


@pytest.mark.parametrize("structure", ["hadamard", "dense"])
def test_no_step_on_shares_makes_a_jump_that_the_same_step_in_plaintext_does_not(structure: str) -> None:
    """`make prove SUITE=training PART=faults` takes ten thousand of these."""
    model = nn.models.mlp([4, 4, 1], structure=structure, seed=2)
    worst = 0.0
    for number in range(60):
        x, targets = batch(model, number)
        rule = Rule(0.2, number=number)
        private, _ = private_step(model, x, targets, "logistic", rule)
        clear, counter = clear_step(model, x, targets, "logistic", rule)
        assert counter.out_of_range == 0
        for name, value in private.state().items():
            worst = max(worst, float(np.abs(value - clear.state()[name]).max()))
        model = private
    # A failed lift would move a parameter by a good part of its range, 2**-2 at least; rounding moves it by far less.
    assert worst < 2.0**-8
