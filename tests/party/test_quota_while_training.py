"""What is predicted while a model is trained counts for its quota: most of that is left, and training goes on."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos import nn
from hdcos.cluster.looking import LEAST, PART, spread_looks
from hdcos.errors import HdcosWarning, PolicyRefused
from hdcos.sklearn import PrivateClassifier
from party.conftest import connected, make_home, running_all, secret, set_limits

QUOTA = 400
X = np.random.default_rng(0).uniform(-1, 1, (200, 6))
Y = X[:, :3].argmax(1)
OPTIONS = {"epochs": 6, "batch_size": 50, "lr": 0.1, "progress": False}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = make_home(tmp_path_factory.mktemp("quota") / "home")
    set_limits(folder, queries_per_model=QUOTA)
    with running_all(folder):
        yield folder


@pytest.fixture(scope="module")
def client(home):
    with connected(home) as connection:
        yield connection


def network():
    return nn.models.mlp([6, 8, 3])


def used(client, name):
    return next(model["queries"] for model in client.models() if model["name"] == name)


@pytest.mark.parametrize("epochs", [1, 2, 3, 10, 40, 1000])
@pytest.mark.parametrize("most", [0, 7, 15, 16, 75, 210, 2560, 10**6])
def test_looks_never_take_more_than_they_may(epochs, most) -> None:
    rows, every = spread_looks(256, epochs, most)
    looked = sum(number % every == 0 or number == epochs for number in range(1, 1 + epochs))
    assert rows * looked <= most
    assert rows == 0 if most < LEAST else rows >= LEAST
    if most >= 256 * epochs:
        assert (rows, every) == (256, 1)


def test_watching_a_run_leaves_most_of_the_quota(client) -> None:
    """256 rows after each of 6 epochs are far more than the parties answer."""
    trained = client.fit(network(), X, Y, name="watched", **OPTIONS)
    assert 0 < used(client, "watched") <= QUOTA // PART
    assert [epoch.number for epoch in trained.history] == [1, 2, 3, 4, 5, 6]
    assert trained.history[-1].loss is not None
    assert trained.predict(X[:10]).shape == (10, 3)


def test_validation_that_the_quota_does_not_cover_is_refused_before_training(client) -> None:
    before = (client.jobs(), client.datasets())
    with pytest.raises(PolicyRefused, match=r"100 validation rows after each of 6 epochs are 600 .* 66 rows at most"):
        client.fit(network(), X, Y, validation=(X[:100], Y[:100]), **OPTIONS)
    assert (client.jobs(), client.datasets()) == before


def test_a_run_whose_looks_are_refused_goes_on_to_its_end(client) -> None:
    """A model that was forgotten is not listed with its count, which goes on."""
    older = client.share(network(), "again")
    older.predict(np.tile(X, (2, 1))[: QUOTA - 20])
    older.delete()
    with pytest.warns(HdcosWarning, match="goes on to its end.*hdcos quota again --reset") as warned:
        trained = client.fit(network(), X, Y, name="again", validation=(X[:15], Y[:15]), **OPTIONS)
    assert len([warning for warning in warned if warning.category is HdcosWarning]) == 1
    assert [epoch.number for epoch in trained.history] == [1, 2, 3, 4, 5, 6]
    assert [epoch.loss is None for epoch in trained.history] == [False, True, True, True, True, True]
    assert client.jobs()[-1]["state"] == "done"
    assert trained.name == "again"


def test_an_estimator_leaves_most_of_the_quota(client, home, monkeypatch) -> None:
    monkeypatch.setenv("HDCOS_TOKEN", secret(home))
    found = PrivateClassifier(hidden=(8,), epochs=2, cluster=str(home / "cluster.toml"), name="estimated").fit(X, Y)
    assert found.loss_ is not None
    assert used(client, "estimated") <= QUOTA // PART
