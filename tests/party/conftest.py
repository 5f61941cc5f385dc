"""A cluster of real processes, set up and started by the operators' own commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from resource import RLIMIT_NOFILE, setrlimit

import pytest
import urllib3
from click.testing import CliRunner

import hdcos
from hdcos.api.bodies import LENGTH_HEADER, decode_body, encode_body
from hdcos.api.tokens import token
from hdcos.cli import main
from hdcos.link.cluster_file import PARTIES, ClusterFile
from hdcos.party.http import pages
from party.browser import Authority, Browser, chromium
from party.fake_pair import Party, fake_pair
from party.hand import MODELS, party_token


def command(*arguments):
    result = CliRunner().invoke(main, [str(argument) for argument in arguments])
    return result.exit_code, result.output


ROLES = ("dealer", "party0", "party1")


START = "from hdcos.__main__ import run; run()"


@contextmanager
def running_all(folder, roles=ROLES, timeout_s=10, changed=None, **descriptors):
    """Nodes started by their commands at once, some with so few descriptors; ready when they say that they listen.

    What `changed` says of a role is run in its process first: a line or more of Python that makes it slow or break.
    """
    logs = {role: folder / f"{role}.log" for role in roles}
    said = {role: log.read_text().count("listening on") if log.exists() else 0 for role, log in logs.items()}
    processes = {}
    for role, log in logs.items():
        kind, most = "dealer" if role == "dealer" else "party", descriptors.get(role)
        with log.open("a") as errors:
            processes[role] = subprocess.Popen(
                [
                    *(sys.executable, "-c", f"{(changed or {}).get(role, '')}\n{START}", kind, "--node", folder / role),
                    *("--cluster", folder / "cluster.toml", "--timeout-s", str(timeout_s)),
                ],
                stderr=errors,
                preexec_fn=most and (lambda most=most: setrlimit(RLIMIT_NOFILE, (most, most))),
            )
    try:
        for role, process in processes.items():
            for _ in range(400):
                if logs[role].read_text().count("listening on") > said[role] or process.poll() is not None:
                    break
                time.sleep(0.05)
        yield processes
    finally:
        for process in processes.values():
            process.send_signal(signal.SIGTERM)
        for role, process in processes.items():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise AssertionError(f"{role} did not stop when it was told to") from None


@contextmanager
def running(folder, role, timeout_s=10):
    with running_all(folder, (role,), timeout_s) as processes:
        yield processes[role]


def secret(folder) -> str:
    return (folder / "token").read_text().strip()


def connected(folder, timeout_s=20.0, **options):
    return hdcos.connect(folder / "cluster.toml", token=secret(folder), timeout_s=timeout_s, **options)


def set_limits(folder, **changes):
    """Other settings of both parties, which are not started yet."""
    for role in PARTIES:
        path = folder / role / "node.toml"
        lines = path.read_text().splitlines()
        kept = [
            f"{line.split()[0]} = {changes[line.split()[0]]}"
            if line.split()[:1] and line.split()[0] in changes
            else line
            for line in lines
        ]
        path.write_text("\n".join(kept) + "\n")


def make_home(folder):
    code, output = command("init", "--single-machine", folder)
    assert code == 0, output
    for role in ("party0", "party1"):  # little material: tests should not wait for material
        path = folder / role / "node.toml"
        path.write_text(path.read_text().replace("megabytes = 256 ", "megabytes = 4 "))
    return folder


@pytest.fixture
def folder(tmp_path):
    return make_home(tmp_path / "home")


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A running cluster that the tests of a module share."""
    folder = make_home(tmp_path_factory.mktemp("cluster") / "home")
    with running_all(folder):
        yield folder


class Raw:
    """Requests as any HTTP client could make them."""

    def __init__(self, folder, name="me", shown=None):
        self._cluster_file = ClusterFile.read(folder / "cluster.toml")
        self._tokens = [shown or token(secret(folder), self._cluster_file.id, rank) for rank in (0, 1)]
        self._pools = []
        for rank in (0, 1):
            card = self._cluster_file.servers[f"party{rank}"]
            host, port = card.http.split(":")
            fingerprint = card.certificate.fingerprint
            self._pools.append(
                urllib3.HTTPSConnectionPool(
                    host, int(port), cert_reqs="CERT_NONE", assert_fingerprint=fingerprint, retries=False, timeout=20
                )
            )

    def __call__(self, rank, method, path, meta=None, tensors=None, body=None, headers=None):
        """Status, JSON and tensors of an answer."""
        sent = {"authorization": f"Bearer {self._tokens[rank]}", **(headers or {})}
        if tensors is not None:
            body, more = encode_body(meta or {}, tensors, "inputs")
            sent |= more
        elif meta is not None:
            body = json.dumps(meta).encode()
        answer = self._pools[rank].urlopen(method, path, body=body, headers=sent)
        length = answer.headers.get(LENGTH_HEADER)
        if length is None:
            kind = answer.headers.get("content-type", "")
            return answer.status, json.loads(answer.data) if "json" in kind else answer.data, {}
        return answer.status, *decode_body(answer.data, length)

    def both(self, *arguments, **options):
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda rank: self(rank, *arguments, **options), (0, 1)))

    def close(self):
        for pool in self._pools:
            pool.close()


@pytest.fixture(scope="module")
def raw(home):
    asking = Raw(home)
    yield asking
    asking.close()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser"), authority.path) as running:
        yield running


@pytest.fixture
def parties(authority: Authority) -> Iterator[list[Party]]:
    """Two servers that answer like two parties."""
    with fake_pair(MODELS, (authority.server("party0"), authority.server("party1"))) as pair:
        for number, party in enumerate(pair):
            party.expect(party_token(number))
        yield pair


@pytest.fixture
def standalone(tmp_path: Path) -> str:
    """The digit page as a local file."""
    path = tmp_path / "digit.html"
    path.write_bytes(pages.digit())
    return path.as_uri()


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("HDCOS_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def cluster(home):
    with connected(home) as connection:
        yield connection
