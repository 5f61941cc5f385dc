"""The pages in headless Chromium against real parties, whose certificates are those of a test authority."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
import pytest

from hdcos import nn
from hdcos.api.tokens import token
from hdcos.link.cluster_file import ClusterFile
from hdcos.party.http import pages
from party.browser import chromium, missing
from party.conftest import connected, make_home, running_all, secret
from party.hand import logits, predicted

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())
MODEL = nn.models.pretrained("lenet5_mnist")


@pytest.fixture(scope="module")
def trusted_home(tmp_path_factory, authority):
    """A running cluster with certificates that browsers trust, and a model in it."""
    folder = make_home(tmp_path_factory.mktemp("trusted") / "home")
    cluster_file = ClusterFile.read(folder / "cluster.toml")
    origins = ["null", *(f"https://{cluster_file.servers[role].http}" for role in ("party0", "party1"))]
    for role in ("party0", "party1"):
        certificate, key = authority.server(role)
        path = folder / role / "node.toml"
        listed = ", ".join(f'"{origin}"' for origin in origins)
        lines = f'[http]\ncertificate = "{certificate}"\nkey = "{key}"\ncors = [{listed}]\n'
        text = path.read_text()
        path.write_text(lines + text[text.index("\n[policy]") :])
    pem = authority.path.read_text()
    known = {role: replace(card, authority=pem if card.http else "") for role, card in cluster_file.servers.items()}
    ClusterFile(cluster_file.id, known).write(folder / "cluster.toml")
    with running_all(folder):
        with connected(folder, timeout_s=40) as cluster:
            cluster.share(MODEL, "lenet5_mnist")
        yield folder


def test_a_drawn_digit_is_read_and_no_party_sees_it(trusted_home, authority, tmp_path) -> None:
    cluster_file = ClusterFile.read(trusted_home / "cluster.toml")
    urls = {role: f"https://{cluster_file.servers[role].http}" for role in ("party0", "party1")}
    standalone = tmp_path / "digit.html"
    standalone.write_bytes(pages.digit())
    fragment = "#" + urlencode({**urls, "model": "lenet5_mnist", "secret": secret(trusted_home)})
    with chromium(tmp_path / "browser", authority.path) as browser:
        for page in (standalone.as_uri(), f"{urls['party0']}/digit"):
            with browser.tab(page + fragment) as tab:
                predicted(tab, 3)
                assert tab.text("#winner") == "3"
                assert len(logits(tab)) == 10
        with browser.tab(urls["party1"]) as tab:
            shown = token(secret(trusted_home), cluster_file.id, 1)
            tab.eval(f"sessionStorage.setItem('hdcos.status.token', {shown!r})")
            tab.open(urls["party1"])
            tab.wait("document.body.innerText.includes('lenet5_mnist')")
            time.sleep(0.5)
            target = Path(os.environ.get("HDCOS_SCREENSHOTS", tmp_path)) / "status-real.png"
            tab.screenshot(target)
            assert target.stat().st_size > 10_000


def test_the_client_checks_the_authority(trusted_home) -> None:
    x = np.random.default_rng(0).uniform(0, 1, (1, 1, 28, 28))
    with connected(trusted_home) as cluster:
        assert np.abs(cluster.model("lenet5_mnist").predict(x) - MODEL(x)).max() < 0.05
