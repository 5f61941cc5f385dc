"""The same cases on processes of this machine and on a cluster over HTTPS: one caller, two transports."""

from __future__ import annotations

import pytest

import hdcos
from party.conftest import connected, make_home, running_all


@pytest.fixture(scope="module", params=["links", "https"])
def start(request, tmp_path_factory):
    """How to reach the cluster of a module, again and again; over links each call starts one of its own."""
    if request.param == "links":
        yield lambda **options: hdcos.local(timeout_s=20, **options)
        return
    folder = make_home(tmp_path_factory.mktemp("parity") / "home")
    for role in ("party0", "party1"):  # as a cluster on this machine has it
        path = folder / role / "node.toml"
        text = path.read_text()
        assert "reveal = false" in text
        path.write_text(text.replace("reveal = false", "reveal = true"))
    with running_all(folder):
        yield lambda **options: connected(folder, **options)


@pytest.fixture(scope="module")
def cluster(start):
    with start() as running:
        yield running
