"""Estimators hold names: what they leave at the parties goes with them, and copies find it again."""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
from sklearn.base import clone

from hdcos.errors import DataMissing, InputError, PeerLost
from hdcos.sklearn import PrivateClassifier, clusters

X, Y = np.eye(6), np.array([0, 1] * 3)


@pytest.fixture(scope="module", autouse=True)
def _ended():
    yield
    clusters.close()


def names() -> set[str]:
    return {record["name"] for record in clusters.start_cluster(None).models()}


def test_a_model_goes_with_its_estimator_and_with_the_next_fit() -> None:
    before = names()
    model = PrivateClassifier(epochs=1).fit(X, Y)
    first = model.model_name_
    assert names() == before | {first}
    model.fit(X, Y)
    assert names() == before | {model.model_name_}
    assert model.model_name_ != first
    del model
    gc.collect()
    assert names() == before


def test_a_model_that_was_named_or_copied_stays() -> None:
    model = PrivateClassifier(epochs=1, name="ours").fit(X, Y)
    copied = PrivateClassifier(epochs=1).fit(X, Y)
    copy = pickle.loads(pickle.dumps(copied))  # noqa: S301
    assert np.abs(copy.decision_function(X) - copied.decision_function(X)).max() < 1e-2
    kept = {"ours", copied.model_name_}
    del model, copied
    gc.collect()
    assert names() == kept
    copy.forget()
    assert names() == {"ours"}
    assert not hasattr(copy, "classes_")


def test_a_process_speaks_on_its_own_connections_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    mine = clusters.start_cluster(None)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    with pytest.raises(DataMissing):
        clusters.find_cluster(None)
    clusters._leave()
    monkeypatch.undo()
    assert clusters.find_cluster(None) is mine
    assert mine.models() is not None, "it can still be asked"


def test_a_cluster_that_was_passed_is_cloned_as_itself_and_not_pickled() -> None:
    cluster = clusters.start_cluster(None)
    model = clone(PrivateClassifier(epochs=1, cluster=cluster))
    assert model.cluster is cluster
    model.fit(X, Y)
    with pytest.raises(InputError, match="pass the cluster file"):
        pickle.dumps(model)


def test_a_lost_cluster_is_started_again_and_what_it_held_is_gone() -> None:
    model, other = PrivateClassifier(epochs=1).fit(X, Y), PrivateClassifier(epochs=1).fit(X, Y)
    os.kill(clusters.start_cluster(None).pids["party1"], 9)
    with pytest.raises(PeerLost):
        model.predict(X)
    assert model.fit(X, Y).predict(X).shape == (6,)
    with pytest.raises(DataMissing, match="Fit again"):
        other.predict(X)
    clusters.close()
    with pytest.raises(DataMissing, match="fit it again here"):
        model.predict(X)


def test_a_process_that_ends_takes_its_cluster_along_without_a_word() -> None:
    program = (
        "import numpy as np, hdcos\n"
        "from hdcos.sklearn import clusters\n"
        "model = hdcos.sklearn.PrivateClassifier(epochs=1).fit(np.eye(4), [0, 1, 0, 1])\n"
        "print(*clusters.start_cluster(None).pids.values())\n"
    )
    command = [sys.executable, "-W", "error", "-c", program]
    finished = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (finished.returncode, finished.stderr) == (0, "")
    assert len(finished.stdout.split()) == 3
    for pid in map(int, finished.stdout.split()):
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
