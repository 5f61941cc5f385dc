"""Estimators on shares with the habits of scikit-learn: they learn, can be revealed, and refuse what makes no sense."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from hdcos.errors import InputError, RangeError
from hdcos.sklearn import PrivateClassifier, PrivateRegressor, close
from hdcos.sklearn.checks import EXPECTED_FAILED_CHECKS
from hdcos.sklearn.clusters import start_cluster

NOISE = 5e-3
"""Of an answer, and of weights of size about 1 that were rounded."""


@pytest.fixture(scope="module", autouse=True)
def _clusters():
    yield
    close()


def test_whatever_the_seed_logits_of_outliers_do_not_drive_training_away() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    losses = [PrivateClassifier(hidden=(), epochs=20, random_state=seed).fit(x, y).loss_ for seed in (2, 3)]
    assert max(losses) < 0.1
    assert losses[0] == pytest.approx(losses[1], abs=0.02)


def test_logistic_regression_learns_what_scikit_learn_does_and_can_be_revealed() -> None:
    table = load_breast_cancer(as_frame=True)
    x, y = table.data, np.where(table.target, "benign", "malignant")
    model = PrivateClassifier(hidden=(), epochs=20, random_state=0).fit(x[::2], y[::2])
    reference = make_pipeline(StandardScaler(), LogisticRegression()).fit(x[::2], y[::2])
    assert model.score(x[1::2], y[1::2]) >= reference.score(x[1::2], y[1::2]) - 0.02
    assert list(model.classes_) == ["benign", "malignant"]
    assert list(model.feature_names_in_) == list(x.columns)
    with pytest.raises(AttributeError, match=r"no coef_: fit it and call reveal\(\)"):
        model.coef_  # noqa: B018
    inside = x[1::2][(abs((x[1::2] - x[::2].mean()) / x[::2].std()) < 7).all(axis=1)]
    logits = model.decision_function(inside)
    model.reveal()
    assert model.coef_.shape == (1, 30)
    assert np.abs(inside.to_numpy() @ model.coef_[0] + model.intercept_[0] - logits).max() < NOISE


def test_linear_regression_learns_what_ridge_does_in_units_of_the_table() -> None:
    x, y = load_diabetes(return_X_y=True)
    model = PrivateRegressor(hidden=(), epochs=25, random_state=0).fit(x[::2], y[::2])
    reference = make_pipeline(StandardScaler(), Ridge()).fit(x[::2], y[::2])
    errors = [np.sqrt(np.mean((each.predict(x[1::2]) - y[1::2]) ** 2)) for each in (model, reference)]
    assert errors[0] <= 1.02 * errors[1]
    assert model.loss_ < 0.5, "half the mean square of standardised targets"
    predicted = model.predict(x[1::2])
    model.reveal()
    assert model.coef_.shape == (10,)
    assert np.abs(x[1::2] @ model.coef_ + model.intercept_ - predicted).max() < NOISE * y.std()


def test_a_pipeline_is_cross_validated_and_has_probabilities_of_every_class() -> None:
    x, y = load_wine(return_X_y=True)
    scores = cross_val_score(make_pipeline(StandardScaler(), PrivateClassifier(epochs=40, random_state=0)), x, y, cv=2)
    assert scores.mean() > 0.94
    model = PrivateClassifier(epochs=20).fit(x, y)
    chances = model.predict_proba(x[::5])
    assert chances.shape == (36, 3)
    assert np.abs(chances.sum(axis=1) - 1).max() < 1e-9
    assert (model.classes_[chances.argmax(axis=1)] == model.predict(x[::5])).mean() > 0.9


def test_tables_go_in_with_categories_and_come_out_with_their_index() -> None:
    random = np.random.default_rng(0)
    table = pd.DataFrame({"city": random.choice(["Basel", "Bern", "Genf"], 200)}, index=[f"id-{n}" for n in range(200)])
    label = np.where(table["city"] == "Bern", "yes", "no")
    model = make_pipeline(OneHotEncoder(sparse_output=False), PrivateClassifier(epochs=30)).fit(table, label)
    frame = model[-1].predict_frame(pd.DataFrame(model[:-1].transform(table), index=table.index))
    assert list(frame.columns) == ["prediction", "probability_no", "probability_yes"]
    assert list(frame.index[:2]) == ["id-0", "id-1"]
    assert (frame["prediction"] == label).all()


def test_a_hidden_layer_of_cosines_learns_what_no_linear_model_can() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(600, 2))
    y = (x[:, 0] * x[:, 1] > 0).astype(int)
    model = PrivateClassifier(hidden=(32,), structure="hadamard", batch_size=64, epochs=15, random_state=1).fit(x, y)
    assert model.score(x, y) > 0.8
    assert model.reveal().layers[1].kind == "Cos"
    with pytest.raises(AttributeError, match="only a linear model"):
        model.coef_  # noqa: B018


def test_data_sets_of_two_owners_are_trained_on_by_their_names() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    x = StandardScaler().fit_transform(x)
    cluster = start_cluster(None)
    cluster.upload(x[:300], y[:300], name="north")
    cluster.upload(x[300:], y[300:], name="south")
    cluster.upload(x[:, :10], name="bank")
    cluster.upload(pd.DataFrame(x[:, 10:]), y, name="shop")
    model = PrivateClassifier(epochs=4, cluster=cluster, random_state=0)
    by_rows, by_columns = clone(model).fit(["north", "south"]), clone(model).fit(("bank", "shop"))
    for fitted in (by_rows, by_columns):
        assert fitted.n_features_in_ == 30
        assert fitted.loss_ is None
        assert fitted.score(x, y) > 0.95
    with pytest.raises(InputError, match="no data set that you may train on is called shopp"):
        model.fit(("bank", "shopp"))
    with pytest.raises(InputError, match=r"none of .* has labels"):
        model.fit("bank")
    with pytest.raises(InputError, match="leave y out"):
        model.fit("north", y)


def test_scikit_learns_own_checks_of_the_interface_pass() -> None:
    """All of its checks, those of what is learnt included, are in `make prove SUITE=tables`."""
    for estimator in (PrivateClassifier(epochs=2), PrivateRegressor(epochs=2)):
        found = check_estimator(estimator, legacy=False, expected_failed_checks=EXPECTED_FAILED_CHECKS)
        assert {result["status"] for result in found} <= {"passed", "skipped"}
    assert len(EXPECTED_FAILED_CHECKS) <= 12
    assert all(len(reason) > 20 for reason in EXPECTED_FAILED_CHECKS.values())


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"hidden": 64}, "`hidden` is a tuple of widths"),
        ({"hidden": (8, 0)}, "the width of a hidden layer must be a whole number"),
        ({"epochs": "many"}, "epochs must be a whole number"),
        ({"batch_size": 0}, "batch_size must be a whole number"),
        ({"lr": -1.0}, "learning rate"),
        ({"cluster": 7}, "`cluster` is a cluster file"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict, wrong: str) -> None:
    with pytest.raises(InputError, match=wrong):
        PrivateClassifier(**settings).fit(np.eye(4), [0, 1, 0, 1])


def test_one_class_is_nothing_to_tell_apart() -> None:
    with pytest.raises(InputError, match="the labels have 1 class only"):
        PrivateClassifier().fit(np.eye(3), ["a", "a", "a"])


def test_training_that_diverges_is_said_so() -> None:
    random = np.random.default_rng(0)
    x = random.normal(size=(64, 4))
    with pytest.raises(RangeError, match="training diverged"):
        PrivateRegressor(hidden=(), lr=30.0, epochs=5).fit(x, x[:, 0])
