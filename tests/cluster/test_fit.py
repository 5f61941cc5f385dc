"""Training on real processes: the private run follows the plain run, at the rounds it promised."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import hdcos
from hdcos import data, nn
from hdcos.errors import InputError, ModelError, RangeError, RateRaised
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.shuffle import batches
from hdcos.secure.training.step import plan_step
from hdcos.secure.training.targets import one_hot
from hdcos.secure.training.watch import mean_loss
from hdcos.testing.bounds import error_bound


@pytest.fixture(scope="module")
def cluster():
    with hdcos.local(timeout_s=20) as running:
        yield running


def test_private_training_follows_plain_training_on_digits(cluster) -> None:
    x, y = data.digits("train")
    images, labels = data.digits("test")
    model = nn.models.mlp([64, 64, 10], "cos", "hadamard", seed=7)
    private = cluster.fit(model, x, y, epochs=15, batch_size=100, lr=0.5, seed=11, progress=False)
    plain = plain_fit(model, x, one_hot(y, 10), 15, 100, lambda epoch: 0.5, 11)
    scores, expected = private.predict(images), plain(images)
    assert np.sqrt(((scores - expected) ** 2).mean()) < 2e-2
    accuracies = [(guess.argmax(1) == labels).mean() for guess in (scores, expected)]
    assert abs(accuracies[0] - accuracies[1]) <= 0.006
    assert accuracies[0] > 0.6, "it learned something"
    revealed = private.reveal()
    assert (np.abs(revealed(images) - scores) <= error_bound(revealed, images)).all()


def test_a_step_takes_2_l_plus_3_rounds_and_the_bytes_it_said(cluster) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(512, 28)), generator.integers(0, 2, 512)
    cluster.upload(x, y, name="higgs")
    planned = plan_step(nn.models.higgs_mlp(), 256)
    assert planned.rounds == 11
    cluster.reset_cost()
    trained = cluster.fit(nn.models.higgs_mlp(), "higgs", epochs=2, batch_size=256, lr=0.5, progress=False)
    for cost in (cluster.cost.online, trained.cost.online):
        assert cost.rounds == 4 * 11
        assert cost.bytes_sent == (4 * planned.online_bytes,) * 2


def test_the_rate_may_change_and_training_may_go_on_after_a_look(cluster) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(64, 6)), generator.integers(0, 2, 64)
    model = nn.models.mlp([6, 8, 1], "cos", "hadamard")
    rates = []

    def schedule(epoch: int) -> float:
        rates.append(epoch)
        return 0.5 / (1 + epoch)

    private = cluster.fit(
        model, x, y, epochs=3, batch_size=32, lr=schedule, loss="squared", validation=(x, y), progress=False
    )
    assert sorted(set(rates)) == [0, 1, 2]
    assert private.predict(x).shape == (64, 1)


def test_rows_and_columns_of_several_owners_train_the_model_that_pooled_data_would(cluster) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.uniform(-1, 1, (60, 6)), generator.integers(0, 3, 60)
    model = nn.models.mlp([6, 8, 3], "cos", "hadamard")
    cluster.upload(x[:25], y[:25], name="north", outputs=3)
    cluster.upload(x[25:], y[25:], name="south", outputs=3)
    cluster.upload(x[:, :2], name="bank")
    cluster.upload(x[:, 2:], y, name="shop", outputs=3)
    options = {"epochs": 3, "batch_size": 20, "lr": 0.5, "seed": 4, "progress": False}
    pooled = plain_fit(model, x, one_hot(y, 3), 3, 20, lambda epoch: 0.5, 4)
    for owners in (["north", "south"], ("bank", "shop")):
        private = cluster.fit(model, owners, **options)
        assert np.abs(private.predict(x) - pooled(x)).max() < 1e-2


@pytest.mark.parametrize(
    ("owners", "words"),
    [
        (["left", "nobody"], "no data set is called"),
        (["left", "right"], "must bring labels"),
        (("left", "right"), "exactly one"),
        (("left", "short"), "same rows"),
        (("joined", "short"), "are of no join.*hdcos join"),
        (["short"], "takes 6"),
        ([], "no data set is named"),
    ],
)
def test_data_sets_that_do_not_fit_together_are_refused(cluster, owners, words) -> None:
    cluster.upload(np.zeros((10, 3)), name="left")
    cluster.upload(np.zeros((10, 3)), name="right")
    cluster.upload(np.zeros((9, 3)), np.zeros(9, int), name="short")
    cluster.upload(np.zeros((9, 3)), name="joined", join="0" * 32)
    model = nn.models.mlp([6, 8, 1], "cos", "hadamard")
    with pytest.raises(InputError, match=words):
        cluster.fit(model, owners, epochs=1, batch_size=5, lr=0.5, progress=False)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"y": np.full(20, 7)}, InputError, "classes 0 to 2"),
        ({"y": np.full(20, 0.5)}, InputError, "whole numbers"),
        ({"y": np.full(20, np.nan)}, InputError, "NaN"),
        ({"y": np.zeros(19, int)}, InputError, "20 rows and 19 labels"),
        ({"x": np.full((20, 6), np.nan)}, InputError, "NaN"),
        ({"x": np.zeros((20, 5))}, InputError, r"\(rows, 6\)"),
        ({"batch_size": 21}, InputError, "21 rows cannot be drawn from 20"),
        ({"batch_size": 0}, InputError, "batch_size must be a whole number"),
        ({"lr": -1.0}, InputError, "positive"),
        ({"lr": 1e-12}, InputError, "too small"),
        ({"loss": "hinge"}, InputError, "hinge"),
        ({"y": np.full((20, 3), 0.3), "loss": "softmax"}, InputError, "one class per row"),
        ({"y": np.full((20, 3), 1.5)}, InputError, "from 0 to 1"),
        ({"y": np.full((20, 3), 1e4), "loss": "squared"}, InputError, "may reach 128"),
        ({"epochs": 0}, InputError, "epochs"),
        ({"momentum": 1.0}, InputError, "momentum"),
        ({"weight_decay": -0.1}, InputError, "weight decay"),
        ({"lr": lambda epoch: -1.0 if epoch else 0.5, "epochs": 2}, InputError, "positive number, got -1.0 in epoch 2"),
        ({"watch": -1}, InputError, "watch is the number of your rows"),
        ({"validation": (np.zeros((3, 6)), np.zeros(2, int))}, InputError, "3 validation rows and 2 labels"),
        ({"validation": (np.zeros((3, 5)), np.zeros(3, int))}, InputError, r"\(rows, 6\)"),
        ({"validation": (np.zeros((3, 6)), np.full(3, 9))}, InputError, "classes 0 to 2"),
        ({"seed": -1}, InputError, "seed"),
        ({"model": nn.models.mlp([6, 8, 3], "relu6", "dense")}, ModelError, "ReLU6"),
    ],
)
def test_bad_input_is_refused_by_name(cluster, changes, error, words) -> None:
    options = {
        "model": nn.models.mlp([6, 8, 3], "cos", "hadamard"),
        "x": np.zeros((20, 6)),
        "y": np.zeros(20, int),
        "epochs": 1,
        "batch_size": 10,
        "lr": 0.5,
        "progress": False,
        **changes,
    }
    with pytest.raises(error, match=words):
        cluster.fit(**options)


@pytest.mark.parametrize("own", [True, False])
def test_training_that_diverges_says_so(cluster, own) -> None:
    """A rate that throws logits far beyond what the loss is computed for is reported, with or without validation.

    With validation after an epoch in which they happen to be far out: sooner or later, and not always within five.
    """
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(200, 6)), generator.integers(0, 3, 200)
    model, own_rows = nn.models.mlp([6, 16, 3], "cos", "dense"), None if own else (x, y)
    with pytest.raises(RangeError, match=r"diverged in epoch.*smaller learning rate"):
        cluster.fit(model, x, y, epochs=40, batch_size=20, lr=300.0, validation=own_rows, progress=False)


def test_an_owner_who_trains_with_its_own_rows_sees_their_loss_and_accuracy(cluster) -> None:
    x, y = data.digits("train")
    model = nn.models.mlp([64, 64, 10])
    options = {"epochs": 3, "batch_size": 100, "lr": 1.0, "seed": 1, "progress": False}
    private = cluster.fit(model, x, y, **options)
    assert [epoch.watched for epoch in private.history] == ["training rows"] * 3
    losses = [mean_loss(model(x), one_hot(y, 10), "logistic"), *(epoch.loss for epoch in private.history)]
    assert losses[3] < losses[2] < losses[1] < losses[0]
    scores = private.predict(x)
    assert private.history[-1].loss == pytest.approx(mean_loss(scores, one_hot(y, 10), "logistic"), rel=0.1)
    assert private.history[-1].accuracy == pytest.approx((scores.argmax(1) == y).mean(), abs=0.08)

    quiet = cluster.fit(model, x, y, watch=0, **options)
    assert [(epoch.loss, epoch.accuracy, epoch.watched) for epoch in quiet.history] == [(None, None, "")] * 3
    steps = 3 * (len(x) // 100)
    assert quiet.cost.online.rounds == steps * plan_step(model, 100).rounds
    assert private.cost.online.rounds == quiet.cost.online.rounds, "predictions are not part of training"
    assert np.abs(quiet.predict(x) - scores).max() < 2e-2


def test_targets_that_are_no_classes_have_a_loss_but_no_accuracy(cluster) -> None:
    generator = np.random.default_rng(0)
    x = generator.uniform(-1, 1, (64, 6))
    private = cluster.fit(
        nn.models.mlp([6, 8, 1]),
        x,
        x[:, :1] * 3,
        epochs=2,
        batch_size=16,
        lr=0.05,
        loss="squared",
        progress=False,
    )
    assert private.history[1].accuracy is None
    assert private.history[1].loss < private.history[0].loss


def test_rows_of_others_are_not_watched(cluster) -> None:
    cluster.upload(np.ones((20, 6)), np.zeros(20, int), name="of-others")
    private = cluster.fit(nn.models.mlp([6, 8, 1]), "of-others", epochs=1, batch_size=10, lr=0.5, progress=False)
    assert private.history[0].loss is None


def test_a_rate_that_falls_too_low_is_kept_at_the_least_and_said_once(cluster) -> None:
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(64, 6)), generator.integers(0, 2, 64)
    model = nn.models.mlp([6, 8, 1])
    with pytest.warns(
        RateRaised, match=r"falls to 0 and is kept at .* in 3 of 4 epochs \(the first is epoch 2\)"
    ) as said:
        private = cluster.fit(
            model, x, y, epochs=4, batch_size=32, lr=lambda epoch: [0.5, 1e-9, 1e-12, 0][epoch], progress=False
        )
    assert len(said) == 1
    assert len(private.history) == 4


@pytest.mark.parametrize("loss", ["squared", "softmax"])
def test_other_losses_and_layers_train_on_real_processes(cluster, loss) -> None:
    x, y = data.digits("train")
    model = nn.Sequential(
        [
            *(nn.Conv2d(1, 4, 3, padding=1), nn.Cos(), nn.AvgPool2d(2), nn.Flatten()),
            *(nn.HadamardDiagonal(64, 32), nn.Tanh(), nn.Dense(32, 10)),
        ],
        1,
        (1, 8, 8),
    )
    images = x.reshape(-1, 1, 8, 8)
    rate = 0.1 if loss == "squared" else 0.05
    private = cluster.fit(
        model, images, y, epochs=3, batch_size=50, lr=rate, momentum=0.9, loss=loss, seed=1, progress=False
    )
    accuracy = (private.predict(images).argmax(1) == y).mean()
    assert accuracy > 0.2 + (model(images).argmax(1) == y).mean()
    revealed = private.reveal()
    assert np.abs(revealed(images) - private.predict(images)).max() < 2e-2


def regression():
    x = np.random.default_rng(0).uniform(-1, 1, (300, 3))
    return x, np.rint(4 * (x @ [1.5, -2.0, 0.5]))  # whole numbers, and still no classes


def test_a_regression_takes_one_number_for_each_row(cluster) -> None:
    x, y = regression()
    model, options = nn.models.mlp([3, 16, 1], seed=1), {"epochs": 6, "batch_size": 20, "lr": 0.02, "seed": 2}
    private = cluster.fit(model, x, y, loss="squared", validation=(x[:50], y[:50]), progress=False, **options)
    assert private.history[-1].accuracy is None
    assert private.history[-1].loss < private.history[0].loss
    module, rows, targets = model.to_torch(torch.float64), torch.from_numpy(x), torch.from_numpy(y)[:, None]
    for epoch in range(6):
        for chosen in batches(2, epoch, len(x), 20):
            module.zero_grad()
            (0.5 * ((module(rows[chosen]) - targets[chosen]) ** 2).sum() / 20).backward()
            with torch.no_grad():
                for group in nn.parameter_groups(module, 0.02):
                    for parameter in group["params"]:
                        parameter -= group["lr"] * parameter.grad
    assert np.abs(private.predict(x) - nn.from_torch(module)(x)).max() < 0.02
    column = cluster.fit(model, x, y[:, None], loss="squared", progress=False, **options)
    assert np.abs(private.predict(x) - column.predict(x)).max() < 0.02
    cluster.upload(x, y, name="numbers", loss="squared")
    named = cluster.fit(model, "numbers", loss="squared", progress=False, **options)
    assert np.abs(private.predict(x) - named.predict(x)).max() < 0.02
    with pytest.raises(InputError, match="loss='squared'"):
        cluster.fit(model, x, y, progress=False, **options)
    with pytest.raises(InputError, match="divide them by their size"):
        cluster.fit(model, x, 1000 * y, loss="squared", progress=False, **options)
    with pytest.raises(InputError, match="no loss is called 'hinge'"):
        cluster.upload(x, y, name="hinged", loss="hinge")
