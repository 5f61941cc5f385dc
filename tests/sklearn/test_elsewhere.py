"""An estimator whose parties run elsewhere, named by a cluster file: found again, and revealed when both approve."""

from __future__ import annotations

import pickle
import re
from pathlib import Path

import numpy as np
import pytest

from hdcos.errors import PolicyRefused
from hdcos.sklearn import PrivateClassifier, clusters
from party.conftest import command, make_home, running_all, secret

X = np.random.default_rng(0).normal(size=(64, 3))
Y = np.where(X[:, 0] > 0, "yes", "no")


def test_a_model_of_parties_elsewhere_is_found_again_and_revealed_when_both_approve(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = make_home(tmp_path / "home")
    monkeypatch.setenv("HDCOS_TOKEN", secret(home))
    with running_all(home):
        model = PrivateClassifier(epochs=60, cluster=str(home / "cluster.toml")).fit(X, Y)
        stored = pickle.dumps(model)
        clusters.close()
        again = pickle.loads(stored)  # noqa: S301
        assert again.score(X, Y) > 0.9
        with pytest.raises(PolicyRefused, match="hdcos approve") as refusal:
            again.reveal(wait_s=0.1)
        assert not hasattr(again, "coef_")
        found = re.search(r"[0-9a-f]{32}", str(refusal.value))
        assert found is not None
        for role in ("party0", "party1"):
            assert command("approve", found[0], "--node", home / role)[0] == 0
        again.reveal(wait_s=20, request=found[0])
        assert again.coef_.argmax() == 0, "what the label follows"
        again.forget()
        assert clusters.start_cluster(again.cluster).models() == []
        clusters.close()
