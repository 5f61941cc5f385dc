"""What Ray is asked for on behalf of a worker, and what the worker is told of the device that Ray chose."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hdcos.link import Identity
from hdcos.link.identity import make_key
from hdcos.party.launcher import Placement
from hdcos.party.node import Node
from hdcos.ring.device import Place
from tests.serve_nodes import command

ray_launcher = pytest.importorskip("hdcos.party.ray_launcher", exc_type=ImportError)
PARTY = Identity.create("party0")
_, PUBLIC = make_key()


@pytest.mark.parametrize(
    ("device", "asked", "told"),
    [
        ("cpu", [0, 0, 0], ["cpu"] * 3),
        ("cuda:0", [0.5] * 3, ["cuda:0"] * 3),
        ("cuda:0,cuda:1", [0.5] * 3, ["cuda:0"] * 3),  # whichever Ray gives: a process is shown no other
        ("cpu,cuda:1", [0.5, 0, 0.5], ["cuda:0", "cpu", "cuda:0"]),
    ],
)
def test_ray_sets_gpus_aside_for_workers_that_compute_on_them(device: str, asked, told, monkeypatch) -> None:
    place = Place(device, None if device == "cpu" else 1 << 30)
    node = Node("party0", PARTY, {"party0": (PARTY.certificate,)}, {}, None, bytes(16), 5.0, None, place=place)  # type: ignore[arg-type]
    options: list[dict[str, Any]] = []
    places: list[dict[str, Any]] = []

    def remote(**wanted: Any) -> Any:
        options.append(wanted)
        start = SimpleNamespace(remote=lambda port: (("127.0.0.1", 7000 + port), PUBLIC))
        begin = SimpleNamespace(remote=lambda settings: places.append(settings["place"]))
        return lambda kind: SimpleNamespace(remote=lambda: SimpleNamespace(start=start, begin=begin))

    monkeypatch.setattr(ray_launcher.ray, "remote", remote)
    monkeypatch.setattr(ray_launcher.ray, "get", lambda answer, timeout: answer)
    monkeypatch.setattr(ray_launcher, "Relay", lambda *known: None)
    monkeypatch.setattr(ray_launcher.RayLauncher, "_begin", lambda launcher, address: None)
    launcher = ray_launcher.RayLauncher(Placement("auto", 100, 0.5), None, place)
    for index in (1, 2, 3):
        launcher.start(f"w{index}.party0", lambda public, index=index: node.settings_of(index, public))
    assert [(wanted["num_cpus"], wanted["num_gpus"]) for wanted in options] == [(1, each) for each in asked]
    assert [(each["name"], each["memory"]) for each in places] == [(each, place.memory) for each in told]


def test_a_part_of_a_gpu_is_for_workers_of_ray_that_have_one(tmp_path: Path) -> None:
    assert command("init", tmp_path / "c", "--single-machine")[0] == 0
    place = ("party", "--node", tmp_path / "c" / "party0", "--cluster", tmp_path / "c" / "cluster.toml")
    for more in (("--ray", "local"), ("--device", "cuda:0")):
        code, said = command(*place, "--worker-gpus", "0.5", *more)
        assert (code, "--worker-gpus is for workers of a Ray cluster" in said) == (1, True)
