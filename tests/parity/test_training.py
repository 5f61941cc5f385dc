"""Data sets, training, jobs: every case gives the same on both transports."""

from __future__ import annotations

import time

import numpy as np
import pandas as pd
import pytest

from hdcos import nn
from hdcos.cluster.job import Job
from hdcos.cluster.model import PrivateModel
from hdcos.errors import DataMissing, HdcosError, InputError, ModelError, RangeError
from hdcos.secure.training.plain import plain_fit
from hdcos.secure.training.step import plan_step
from hdcos.secure.training.targets import one_hot

GENERATOR = np.random.default_rng(0)
X = GENERATOR.uniform(-1, 1, (120, 6))
Y = (X @ GENERATOR.normal(size=(6, 3))).argmax(1)
OPTIONS = {"epochs": 2, "batch_size": 20, "lr": 0.5, "seed": 3, "progress": False}
STEPS = 2 * 6


def model(outputs=3, seed=1):
    return nn.models.mlp([6, 8, outputs], seed=seed)


def plain(x=X, y=Y, **changes):
    options = {"epochs": 2, "batch_size": 20, "seed": 3, **changes}
    return plain_fit(model(), x, one_hot(y, 3), rate=lambda epoch: 0.5, **options)


def close(private, expected, x=X, limit=0.02) -> bool:
    return bool(np.abs(private.predict(x) - expected(x)).max() < limit)


@pytest.fixture(scope="module")
def rows(cluster):
    cluster.upload(X, Y, name="rows", outputs=3)
    return "rows"


def outcome(work) -> str:
    """Nothing, or the error's name and the part of its message that names what was refused."""
    known = ("one client", "leave `checkpoint` and `resume` out")
    try:
        work()
    except HdcosError as error:
        return f"{type(error).__name__}: {next((words for words in known if words in str(error)), str(error))}"
    return ""


# ---- data sets


def test_data_sets_are_listed(cluster, rows) -> None:
    (found,) = [item for item in cluster.datasets() if item["name"] == rows]
    shape = {key: found[key] for key in ("rows", "features", "outputs", "complete", "bytes", "received", "columns")}
    size = 8 * 120 * 9
    assert shape == {
        **{"rows": 120, "features": 6, "outputs": 3, "complete": True},
        **{"bytes": size, "received": size, "columns": None},
    }
    assert len(found["version"]) == 32


def test_a_data_set_is_replaced_by_a_newer_one_of_its_name(cluster) -> None:
    cluster.upload(X[:50], Y[:50], name="growing", outputs=3)
    cluster.upload(X, Y, name="growing", outputs=3)
    trained = cluster.fit(model(), "growing", **OPTIONS)
    assert close(trained, plain())
    cluster.forget_data("growing")


def test_forgotten_data_is_gone(cluster) -> None:
    cluster.upload(X, name="brief")
    cluster.forget_data("brief")
    assert "brief" not in {item["name"] for item in cluster.datasets()}
    with pytest.raises(DataMissing, match="brief"):
        cluster.forget_data("brief")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"x": np.zeros((0, 3))}, "at least one row"),
        ({"x": np.zeros(3)}, "at least one row"),
        ({"x": X, "y": Y[:-1], "outputs": 3}, "do not belong together"),
        ({"x": X, "y": Y, "outputs": 1}, "do not fit classes"),
        ({"x": X, "y": Y, "outputs": 3, "loss": "hinge"}, "no loss is called"),
        ({"x": np.full((2, 2), np.nan)}, "NaN"),
    ],
)
def test_bad_data_is_refused_before_anything_is_sent(cluster, arguments, words) -> None:
    with pytest.raises(InputError, match=words):
        cluster.upload(**arguments, name="bad")
    assert "bad" not in {item["name"] for item in cluster.datasets()}


def test_data_of_nobody_cannot_be_allowed(cluster) -> None:
    with pytest.raises(DataMissing):
        cluster.allow_training("nothing", "somebody")


def test_training_is_allowed_or_refused_by_name(cluster, rows) -> None:
    """A cluster on this machine has one client, and says so."""
    assert outcome(lambda: cluster.allow_training(rows, "somebody")) in ("", "PolicyRefused: one client")


def test_data_sets_that_are_not_there_are_named(cluster, rows) -> None:
    with pytest.raises(InputError, match=r"no data set is called \['nobody'\]"):
        cluster.fit(model(), [rows, "nobody"], **OPTIONS)


# ---- fit


def test_several_terms_are_trained_as_in_plaintext(cluster, rows) -> None:
    several = nn.Sequential([nn.HadamardDiagonal(6, 8, terms=4), nn.Cos(), nn.HadamardDiagonal(8, 3, terms=2)], seed=1)
    expected = plain_fit(several, X, one_hot(Y, 3), 2, 20, lambda epoch: 0.5, 3)
    assert close(cluster.fit(several, rows, **OPTIONS), expected)


def test_private_training_is_plain_training(cluster) -> None:
    before = cluster.datasets()
    trained = cluster.fit(model(), X, Y, name="trained", **OPTIONS)
    assert type(trained) is PrivateModel
    assert close(trained, plain())
    assert cluster.model("trained") is trained
    assert cluster.datasets() == before, "rows that came with the call go with it"
    assert not any(item["name"].startswith("job-") for item in cluster.models())


def test_rows_and_columns_of_several_owners(cluster) -> None:
    cluster.upload(X[:50], Y[:50], name="north", outputs=3)
    cluster.upload(X[50:], Y[50:], name="south", outputs=3)
    cluster.upload(X[:, :2], name="bank")
    cluster.upload(X[:, 2:], Y, name="shop", outputs=3)
    for owners in (["north", "south"], ("bank", "shop")):
        assert close(cluster.fit(model(), owners, **OPTIONS), plain())


def test_tables_train_by_the_names_of_their_columns(cluster) -> None:
    names = list("abcdef")
    table = pd.DataFrame(X, columns=names)
    trained = cluster.fit(model(), table, Y, **OPTIONS)
    assert trained.feature_names == tuple(names)
    assert np.abs(trained.predict(table[names[::-1]]) - plain()(X)).max() < 0.02


@pytest.mark.parametrize("loss", ["logistic", "softmax", "squared"])
def test_every_loss_falls(cluster, loss) -> None:
    options = {**OPTIONS, "epochs": 3, "lr": 0.1}
    trained = cluster.fit(model(), X, Y, loss=loss, **options)
    assert trained.history[-1].loss < trained.history[0].loss


def test_a_regression_takes_numbers(cluster) -> None:
    y = X @ [1.5, -2.0, 0.5, 0, 0, 1]
    trained = cluster.fit(model(1), X, y, loss="squared", **{**OPTIONS, "lr": 0.1})
    assert trained.history[-1].accuracy is None
    assert trained.history[-1].loss < trained.history[0].loss


def test_momentum_and_weight_decay_change_the_result(cluster) -> None:
    trained = cluster.fit(model(), X, Y, momentum=0.5, weight_decay=0.01, **OPTIONS)
    assert not close(trained, plain(), limit=0.05)


def test_diagonals_may_learn_at_the_rate_of_the_others(cluster, rows) -> None:
    trained = cluster.fit(model(), rows, scale_diagonals=False, **OPTIONS)
    assert close(trained, plain(scale_diagonals=False))
    assert not close(trained, plain(), limit=0.05), "unless told otherwise they have a rate of their own"


def test_a_kernel_machine_is_trained_on_features_that_the_caller_computes(cluster) -> None:
    machine = nn.models.kernel_machine(6, 3, 64)
    features, head = (
        machine.layers[0],
        nn.Sequential(machine.layers[1:]).with_state(
            {f"0.{name}": values for name, values in machine.parameters(1).items()}
        ),
    )
    trained = cluster.fit(machine, X, Y, momentum=0.9, **{**OPTIONS, "lr": 0.1})
    made = features.forward({}, X)
    expected = plain_fit(head, made, one_hot(Y, 3), 2, 20, lambda epoch: 0.1, 3, momentum=0.9)
    assert np.abs(trained.predict(X) - expected(made)).max() < 0.02
    assert trained.rounds == {"masked": 0, "shares": 1}
    assert trained.cost.online.rounds == STEPS * plan_step(machine, 20).rounds
    cluster.upload(X, Y, name="plain", outputs=3)
    with pytest.raises(InputError, match="apply the leading RandomFeatures before uploading"):
        cluster.fit(machine, "plain", **OPTIONS)


@pytest.mark.parametrize(
    ("given", "rates"),
    [
        ({"lr": 0.5, "schedule": lambda epoch: 1.0 - 0.5 * epoch}, (0.5, 0.25)),
        ({"lr": lambda epoch: 0.5 - 0.25 * epoch}, (0.5, 0.25)),
        ({"lr": 0.5, "schedule": "linear"}, (0.5, 0.25)),
        ({"lr": 0.5, "warm_up": 1, "schedule": "cosine"}, (0.25, 0.5)),
    ],
)
def test_rates_may_change_by_epoch(cluster, rows, given, rates) -> None:
    trained = cluster.fit(model(), rows, **{**OPTIONS, **given})
    assert close(trained, plain_fit(model(), X, one_hot(Y, 3), 2, 20, lambda epoch: rates[epoch], 3))


IMAGES = GENERATOR.uniform(0, 1, (120, 1, 4, 4))


def image_model():
    return nn.Sequential([nn.Flatten(), *nn.models.mlp([16, 8, 3]).layers], 1, (1, 4, 4))


@pytest.mark.parametrize("options", [{"flip": True, "shift": 1}, {"average": 1}])
def test_images_move_and_weights_are_averaged_as_in_plaintext(cluster, options) -> None:
    given = {"epochs": 2, "batch_size": 20, "seed": 3}
    trained = cluster.fit(image_model(), IMAGES, Y, lr=0.5, watch=0, **given, **options)
    targets = one_hot(Y, 3)
    expected = plain_fit(image_model(), IMAGES, targets, rate=lambda epoch: 0.5, **given, **options)
    assert close(trained, expected, IMAGES, 0.01)
    usual = plain_fit(image_model(), IMAGES, targets, rate=lambda epoch: 0.5, **given)
    assert not close(trained, usual, IMAGES, 0.02)
    planned = plan_step(image_model(), 20)
    assert trained.cost.online.rounds == STEPS * planned.rounds
    if "flip" in options:
        assert trained.cost.online.bytes_sent == (STEPS * planned.online_bytes,) * 2


def test_validation_rows_are_watched(cluster) -> None:
    trained = cluster.fit(model(), X[:100], Y[:100], validation=(X[100:], Y[100:]), **OPTIONS)
    assert [epoch.number for epoch in trained.history] == [1, 2]
    assert all(epoch.watched == "validation rows" and 0 <= epoch.accuracy <= 1 for epoch in trained.history)


def test_some_rows_of_the_callers_own_are_watched(cluster) -> None:
    trained = cluster.fit(model(), X, Y, watch=30, **OPTIONS)
    assert all(epoch.watched == "training rows" and epoch.loss is not None for epoch in trained.history)
    assert all(0 < epoch.seconds < 60 for epoch in trained.history)


def test_nothing_is_watched_unless_it_can_be(cluster, rows) -> None:
    for trained in (cluster.fit(model(), X, Y, watch=0, **OPTIONS), cluster.fit(model(), rows, **OPTIONS)):
        assert [(epoch.number, epoch.loss, epoch.watched) for epoch in trained.history] == [
            (1, None, ""),
            (2, None, ""),
        ]


def test_a_seed_decides_the_batches(cluster, rows) -> None:
    same = [cluster.fit(model(), rows, **OPTIONS).predict(X) for _ in range(2)]
    other = cluster.fit(model(), rows, **{**OPTIONS, "seed": 4}).predict(X)
    assert np.abs(same[0] - same[1]).max() < 0.01
    assert np.abs(same[0] - other).max() > np.abs(same[0] - same[1]).max()


def test_training_that_diverges_says_so_and_leaves_nothing(cluster) -> None:
    older = cluster.share(model(), "steady")
    before = cluster.datasets()
    with pytest.raises(RangeError, match=r"diverged in epoch 1.*smaller learning rate"):
        cluster.fit(model(), X, Y, name="steady", **{**OPTIONS, "epochs": 50, "lr": 500.0})
    assert cluster.jobs()[-1]["state"] == "cancelled"
    assert cluster.datasets() == before
    assert cluster.model("steady").version == older.version, "a model that is served is not replaced"


def test_a_trained_model_takes_the_place_of_one_of_its_name(cluster, rows) -> None:
    older = cluster.share(model(seed=5), "improved")
    trained = cluster.fit(model(), rows, name="improved", **OPTIONS)
    assert close(trained, plain())
    assert close(older, plain())


def test_a_network_of_relus_is_trained_as_in_plaintext_for_what_was_planned(cluster, rows) -> None:
    rectified = nn.models.mlp([6, 8, 8, 3], "relu", "dense", seed=1)
    trained = cluster.fit(rectified, rows, momentum=0.5, **{**OPTIONS, "lr": 0.2})
    expected = plain_fit(rectified, X, one_hot(Y, 3), 2, 20, lambda epoch: 0.2, 3, momentum=0.5)
    assert close(trained, expected)
    planned = plan_step(rectified, 20, rate=0.2, momentum=0.5)
    assert trained.cost.online.rounds == STEPS * planned.rounds
    assert trained.cost.online.bytes_sent == (STEPS * planned.online_bytes,) * 2
    assert trained.cost.offline.bytes_sent[1] >= planned.material.packed_bytes(STEPS)


def test_training_knows_its_own_cost(cluster, rows) -> None:
    trained = cluster.fit(model(), rows, **OPTIONS)
    planned = plan_step(model(), 20)
    assert trained.cost.online.rounds == STEPS * planned.rounds
    assert trained.cost.online.bytes_sent == (STEPS * planned.online_bytes,) * 2
    assert trained.cost.offline.bytes_sent[1] >= planned.material.packed_bytes(STEPS)
    watched = cluster.fit(model(), X, Y, **OPTIONS)
    assert watched.cost.online.rounds == trained.cost.online.rounds, "looking on is not part of it"


def test_a_trained_model_can_be_revealed(cluster, rows) -> None:
    trained = cluster.fit(model(), rows, **OPTIONS)
    assert np.abs(trained.reveal(wait_s=20)(X) - trained.predict(X)).max() < 0.01


@pytest.mark.parametrize("every", [1, 100])
def test_how_often_checkpoints_are_written_may_be_said(cluster, rows, every) -> None:
    assert close(cluster.fit(model(), rows, checkpoint_every=every, **OPTIONS), plain())


def test_a_checkpoint_folder_is_used_or_refused_by_name(cluster, rows, tmp_path) -> None:
    """Parties elsewhere keep checkpoints by themselves; nothing is dropped silently."""
    options = {**OPTIONS, "checkpoint": tmp_path / "kept", "checkpoint_every": 5}
    found = outcome(lambda: cluster.fit(model(), rows, **options))
    written = bool(list(tmp_path.rglob("*.safetensors")))
    assert (found, written) in (("", True), ("InputError: leave `checkpoint` and `resume` out", False))


def test_a_run_is_resumed_or_that_is_refused_by_name(cluster, rows, tmp_path) -> None:
    with pytest.raises(HdcosError, match=r"leave `checkpoint` and `resume` out|no checkpoint"):
        cluster.fit(model(), rows, resume=tmp_path / "empty", **OPTIONS)


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"y": np.full(120, 7)}, InputError, "classes 0 to 2"),
        ({"y": None}, InputError, "rows need labels"),
        ({"x": [], "y": None}, InputError, "no data set is named"),
        ({"x": X[:, :5]}, InputError, r"\(rows, 6\)"),
        ({"batch_size": 121}, InputError, "121 rows cannot be drawn from 120"),
        ({"batch_size": 0}, InputError, "batch_size must be a whole number"),
        ({"epochs": 1.5}, InputError, "epochs must be a whole number"),
        ({"lr": -1.0}, InputError, "positive"),
        ({"lr": 1e-12}, InputError, "too small"),
        ({"loss": "hinge"}, InputError, "hinge"),
        ({"momentum": 1.0}, InputError, "momentum"),
        ({"weight_decay": -0.1}, InputError, "weight decay"),
        ({"watch": -1}, InputError, "watch is the number"),
        ({"schedule": "steep"}, InputError, "no schedule is called 'steep'"),
        ({"warm_up": 2}, InputError, "a warm-up of 2 epochs leaves none of 2"),
        ({"warm_up": -1}, InputError, "warm_up must be a whole number"),
        ({"average": 3}, InputError, "a run of 2 epochs has no 3"),
        ({"flip": True}, ModelError, "for images"),
        ({"seed": -1}, InputError, "seed must be a whole number"),
        ({"seed": 1.5}, InputError, "seed must be a whole number"),
        ({"checkpoint_every": 0}, InputError, "checkpoint_every must be a whole number"),
        ({"validation": (X[:3], Y[:2])}, InputError, "3 validation rows and 2 labels"),
        ({"model": nn.Sequential([nn.ReLU(), nn.Dense(6, 3)], input_shape=(6,))}, ModelError, "layer 0, ReLU"),
    ],
)
@pytest.mark.parametrize("wait", [True, False])
def test_bad_options_are_refused_at_once(cluster, changes, error, words, wait) -> None:
    before = len(cluster.jobs())
    with pytest.raises(error, match=words):
        cluster.fit(**{"model": model(), "x": X, "y": Y, **OPTIONS, **changes}, wait=wait)
    assert len(cluster.jobs()) == before


@pytest.mark.parametrize("option", ["epoch", "rate"])
def test_an_option_that_nobody_knows_is_a_type_error(cluster, option) -> None:
    with pytest.raises(TypeError, match=option):
        cluster.fit(model(), X, Y, **OPTIONS, **{option: 1})


@pytest.mark.parametrize(
    ("owners", "changes", "words"),
    [
        ("narrow", {}, "takes 6"),
        (["left", "rows"], {}, "must bring labels"),
        (("left", "right"), {}, "exactly one"),
        ("rows", {"batch_size": 121}, "121 rows cannot be drawn from 120"),
    ],
)
def test_data_that_does_not_fit_fails_the_job_by_name(cluster, rows, owners, changes, words) -> None:
    for name, columns in (("narrow", 3), ("left", 3), ("right", 3)):
        labels = {"y": Y, "outputs": 3} if name == "narrow" else {}
        cluster.upload(X[:, :columns], name=name, **labels)
    job = cluster.fit(model(), owners, **{**OPTIONS, **changes}, wait=False)
    with pytest.raises(InputError, match=words):
        job.result(60)
    assert job.state == "failed"
    assert words in cluster.job(job.id)._error


# ---- jobs


def test_a_job_goes_on_in_the_background(cluster) -> None:
    job = cluster.fit(model(), X, Y, name="later", validation=(X, Y), **OPTIONS, wait=False)
    assert type(job) is Job
    trained = job.result(60)
    assert (job.state, job.step, job.total_steps) == ("done", STEPS, STEPS)
    assert job.done
    assert not job.cancelled
    assert trained.name == "later"
    assert close(trained, plain())
    assert [epoch.number for epoch in trained.history] == [1, 2]
    assert all(epoch.accuracy is not None for epoch in trained.history)
    assert trained.cost == job.cost


def test_a_job_is_found_again_by_its_id(cluster, rows) -> None:
    job = cluster.fit(model(), rows, **OPTIONS, wait=False)
    job.wait(60)
    found = cluster.job(job.id)
    assert (found.state, found.step) == ("done", STEPS)
    assert close(found.result(10), plain())
    assert job.id in repr(found)


def test_jobs_are_listed(cluster, rows) -> None:
    cluster.fit(model(), rows, name="listed", **OPTIONS)
    last = cluster.jobs()[-1]
    assert (last["model"], last["state"], last["step"], last["epochs"]) == ("listed", "done", STEPS, 2)
    assert {"id", "total_steps", "epoch", "error", "version", "report", "interim"} <= set(last)


def test_a_job_that_nobody_submitted_is_missing(cluster) -> None:
    with pytest.raises(DataMissing):
        cluster.job("0" * 32)
    with pytest.raises(InputError, match="32 hexadecimal digits"):
        cluster.job("mine")


def test_a_job_tells_how_far_it_is(cluster, rows) -> None:
    job = cluster.fit(model(), rows, **{**OPTIONS, "epochs": 5}, wait=False)
    states = [(status["state"], status["step"]) for status in job.events()]
    assert states[-1] == ("done", 30)
    assert [step for _, step in states] == sorted(step for _, step in states)


def test_waiting_has_an_end_and_the_job_goes_on(cluster, rows) -> None:
    job = cluster.fit(model(), rows, **{**OPTIONS, "epochs": 3000}, wait=False)
    assert not job.wait(0.1)
    with pytest.raises(TimeoutError, match="the job goes on"):
        job.result(timeout_s=0)
    assert not job.done
    job.cancel()
    assert job.wait(60)


def test_a_cancelled_job_keeps_the_model_so_far(cluster, rows) -> None:
    job = cluster.fit(model(), rows, name="partial", **{**OPTIONS, "epochs": 3000}, wait=False)
    deadline = time.monotonic() + 60
    while job.step < 6 and time.monotonic() < deadline:
        job.wait(0.05)
    job.cancel()
    partial = job.result(60)
    assert job.cancelled
    assert cluster.job(job.id).state == "cancelled"
    assert 6 <= job.step < 3000 * 6
    assert partial.name == "partial"
    before = np.abs(partial.predict(X) - model()(X)).max()
    assert before > 0.05, "it has learned something"


def test_rows_of_a_cancelled_job_are_forgotten(cluster) -> None:
    before = cluster.datasets()
    job = cluster.fit(model(), X, Y, watch=0, **{**OPTIONS, "epochs": 3000}, wait=False)
    while job.step < 1:
        job.wait(0.05)
    job.cancel()
    job.result(60)
    assert cluster.datasets() == before


def test_predictions_go_on_while_a_job_runs(cluster, rows) -> None:
    other = cluster.share(model(seed=8), "beside")
    job = cluster.fit(model(), rows, **{**OPTIONS, "epochs": 3000}, wait=False)
    for _ in range(5):
        assert close(other, model(seed=8))
    assert not job.done
    job.cancel()
    job.wait(60)


# ---- weights of rows, and the best epoch


def test_rows_count_by_their_weights_and_their_classes_as_in_plaintext(cluster) -> None:
    weights = np.random.default_rng(5).choice([0.25, 1.0, 4.0], 120)
    classes = (0.5, 1.0, 3.0)
    trained = cluster.fit(model(), X, Y, sample_weight=weights, class_weight=classes, watch=0, **OPTIONS)
    assert close(trained, plain(weights=weights * np.array(classes)[Y]))
    assert not close(trained, plain(), limit=0.05), "weights matter here"
    assert trained.cost.online.rounds == STEPS * plan_step(model(), 20, weighted=True).rounds


def test_uploaded_rows_bring_their_weights_or_their_classes_have_them(cluster, rows) -> None:
    classes = (0.5, 1.0, 3.0)
    expected = plain(weights=np.array(classes)[Y])
    assert close(cluster.fit(model(), rows, class_weight=classes, **OPTIONS), expected)
    cluster.upload(X, Y, name="weighed", outputs=3, sample_weight=np.array(classes)[Y])
    assert close(cluster.fit(model(), "weighed", sample_weight="uploaded", **OPTIONS), expected)
    job = cluster.fit(model(), rows, sample_weight="uploaded", **OPTIONS, wait=False)
    with pytest.raises(InputError, match="every row must bring its weight"):
        job.result(60)
    cluster.forget_data("weighed")


def test_with_patience_the_best_epoch_is_kept_and_training_stops(cluster) -> None:
    """The labels to be judged by are those of a network two epochs old: from there on it gets worse."""
    wanted = plain(epochs=2)(X)
    options = {**OPTIONS, "epochs": 12, "lr": 0.5, "loss": "logistic"}
    judged = (X, 1 / (1 + np.exp(-wanted)))
    trained = cluster.fit(model(), X, Y, validation=judged, patience=3, **options)
    assert trained.best_epoch == 2
    assert [epoch.number for epoch in trained.history] == [1, 2, 3, 4, 5], "three epochs without a better one"
    assert min(trained.history, key=lambda epoch: epoch.loss).number == 2
    assert close(trained, plain(epochs=2))
    assert not close(trained, plain(epochs=5), limit=0.05)
    last = cluster.jobs()[-1]
    assert (last["state"], last["step"]) == ("done", 5 * 6)


def test_the_last_epoch_may_be_the_best(cluster) -> None:
    trained = cluster.fit(model(), X, Y, validation=(X, Y), patience=2, **{**OPTIONS, "epochs": 3})
    assert trained.best_epoch == 3
    assert len(trained.history) == 3
    assert close(trained, plain(epochs=3))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"patience": 2}, "patience judges epochs by rows that are not trained on"),
        ({"patience": 0, "validation": (X, Y)}, "patience must be a whole number"),
        ({"patience": 2, "validation": (X, Y), "average": 1}, "leave one out"),
        ({"patience": 2, "validation": (X, Y), "checkpoint": "kept"}, "cannot be resumed"),
        ({"sample_weight": np.ones(5)}, "120 rows cannot have weights"),
        ({"class_weight": "balanced", "x": "rows", "y": None}, "cannot see in uploaded data sets"),
        ({"sample_weight": np.ones(120), "x": "rows", "y": None}, "sample_weight='uploaded'"),
        ({"sample_weight": "uploaded", "class_weight": [1, 1, 1], "x": "rows", "y": None}, "not both"),
    ],
)
def test_weights_and_patience_that_make_no_sense_are_refused(cluster, changes, words) -> None:
    with pytest.raises(InputError, match=words):
        cluster.fit(**{"model": model(), "x": X, "y": Y, **OPTIONS, **changes})
