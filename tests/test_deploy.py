"""What operators are given: units, container files and the page on operations say what is true of this code."""

from __future__ import annotations

import configparser
import hashlib
import re
import shlex
import tomllib
from pathlib import Path

import click
import pytest
from msgspec.structs import asdict

from hdcos import nn
from hdcos.api.tokens import ROLES
from hdcos.cli.main import main
from hdcos.link import split_name
from hdcos.party import service as service_module
from hdcos.party.config import Limits, StockRules
from hdcos.party.http import metrics, pages
from hdcos.secure.estimate import estimate, total

ROOT = Path(__file__).parent.parent
DEPLOY = ROOT / "deploy"
OPERATIONS = (ROOT / "docs" / "operations.md").read_text()
DOCKERFILE = (DEPLOY / "Dockerfile").read_text()
COMPOSE = (DEPLOY / "compose.yaml").read_text()
KUBERAY = (DEPLOY / "kuberay.yaml").read_text()
NODES = ("dealer", "party0", "party1")
CALL = re.compile(r"(?:sudo -u hdcos |docker run .*?[ ])?(?:/opt/hdcos/bin/)?hdcos (\S.*)")


def calls(text: str) -> list[str]:
    """Every `hdcos ...` in the blocks of shell and in the running text of a document."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line.split("    #")[0].strip() for block in blocks for line in block.splitlines()]
    inline = re.findall(r"`([^`\n]+)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    return [match[1] for line in [*lines, *inline] if (match := CALL.fullmatch(line))]


def check_call(words: list[str], whole: bool) -> None:
    """The command exists, takes these options and, if it is not just mentioned, gets those it needs."""
    command: click.Command = main
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(click.Context(command), words[0])
        assert found is not None, f"there is no command {words[0]!r}"
        command, words = found, words[1:]
    options = {name: param for param in command.params for name in param.opts if name.startswith("--")}
    given = [word for word in words if word.startswith("--")]
    for name in given:
        assert name in options, f"{command.name} has no option {name}"
        kind = options[name].type
        if isinstance(kind, click.Choice):
            assert words[words.index(name) + 1] in kind.choices
    if whole and words and "..." not in words:
        missing = {name for name, param in options.items() if param.required} - set(given)
        assert not missing, f"{command.name} needs {missing}"


def unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(strict=True, interpolation=None, comment_prefixes=("#",), delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(DEPLOY / "systemd" / f"hdcos-{name}.service")
    return parser


def test_every_command_in_the_page_on_operations_exists() -> None:
    found = calls(OPERATIONS)
    assert len(found) > 25
    assert {line.split()[0] for line in found} >= {"node", "init", "doctor", "token", "approve", "cost", "predict"}
    for line in found:
        # A command is written out in blocks; in the running text it may be named without what it needs.
        check_call(shlex.split(line), whole=line in "".join(re.findall(r"```sh\n(.*?)```", OPERATIONS, re.DOTALL)))


def test_a_command_that_does_not_exist_would_be_noticed() -> None:
    for line in ("nothing", "node begin", "doctor --nodes x", "node init x --role king --address a:1"):
        with pytest.raises(AssertionError):
            check_call(shlex.split(line), whole=True)
    with pytest.raises(AssertionError, match="needs"):
        check_call(["token", "new", "--cluster", "c"], whole=True)


def test_the_published_hash_is_that_of_the_page() -> None:
    (published,) = re.findall(r"^sha256 of digit\.html: ([0-9a-f]{64})$", OPERATIONS, re.MULTILINE)
    assert published == hashlib.sha256(pages.digit()).hexdigest()


def test_every_metric_that_is_named_exists_and_every_metric_is_named() -> None:
    source = Path(metrics.__file__).read_text()
    direct = set(re.findall(r'"(hdcos_[a-z_]+)"', source))
    counters = re.search(r'"counters": \{(.*?)\}', Path(service_module.__file__).read_text(), re.DOTALL)
    assert counters is not None
    counted = {f"hdcos_{name}_total" for name in re.findall(r'"(\w+)":', counters[1])}
    of_workers = {f"hdcos_worker_{name}" for name in ("rows", "batches", "steps", "starts")}
    totals = {"hdcos_sessions", "hdcos_refused", "hdcos_queries", *of_workers}
    known = {f"{name}_total" if name in totals else name for name in direct} | counted
    assert set(re.findall(r"`(hdcos_[a-z_]+)`", OPERATIONS)) == known


def test_settings_and_roles_are_those_of_the_code() -> None:
    said = dict(re.findall(r"^\| `\[(?:limits|stock)\] (\w+)` \| ([0-9.]+) \|", OPERATIONS, re.MULTILINE))
    assert {name: float(value) for name, value in said.items()} == {**asdict(Limits()), **asdict(StockRules())}
    assert tuple(re.findall(r"^\| `(\w+)` \| ", OPERATIONS.split("### Revealing")[0], re.MULTILINE)) == ROLES


def test_the_example_of_sizing_is_what_the_model_costs() -> None:
    cost = total(estimate(nn.models.criteo_mlp(activation="cos", structure="hadamard"), 1))
    assert (
        f"{cost.online.rounds} rounds, {cost.online.bytes_sent} bytes each way between the parties, "
        f"{cost.offline.bytes_sent} bytes of material"
    ) in OPERATIONS


@pytest.mark.parametrize("name", ["party", "dealer"])
def test_a_unit_starts_its_node_with_little_power_and_leaves_no_shares_behind(name: str) -> None:
    service = unit(name)["Service"]
    words = shlex.split(service["ExecStart"])
    assert words[:2] == ["/opt/hdcos/bin/hdcos", name]
    assert words[-1] == "$HDCOS_OPTIONS"
    check_call(words[1:-1], whole=True)
    assert service["User"] == "hdcos"
    assert service["KillSignal"] == "SIGTERM"
    assert (service["LimitCORE"], service["MemorySwapMax"], service["UMask"]) == ("0", "0", "0077")
    assert (service["NoNewPrivileges"], service["ProtectSystem"]) == ("yes", "strict")
    assert (service["Restart"], service["CapabilityBoundingSet"]) == ("on-failure", "")
    assert unit(name)["Install"]["WantedBy"] == "multi-user.target"


def test_the_image_is_made_of_files_that_exist_and_that_are_sent_to_the_builder() -> None:
    copied: list[str] = []
    for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE):
        copied += line.split()[:-1]
    assert copied
    assert all((ROOT / name).exists() for name in copied)
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert "*" in ignored
    assert {line[1:] for line in ignored if line.startswith("!")} == set(copied)


def test_the_image_runs_as_nobody_in_particular_and_without_pytorch() -> None:
    stage = DOCKERFILE.split("FROM ")[-1]
    for line in ("USER hdcos", 'ENTRYPOINT ["hdcos"]', "STOPSIGNAL SIGTERM", 'VOLUME ["/node"]'):
        assert f"\n{line}\n" in stage
    assert "/v2/health/live" in stage
    assert "torch" not in DOCKERFILE
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    built = [*re.findall(r"EXTRAS=(\S+)", DOCKERFILE), *re.findall(r"EXTRAS=(\S+)", KUBERAY)]
    assert (sorted(built), '.whl)[$EXTRAS]"' in DOCKERFILE) == (["server", "server,ray", "server,ray"], True)
    assert {"server", "ray"} <= set(extras)
    (probe,) = re.findall(r'CMD \["python", "-c", "(.*)"\]', DOCKERFILE)
    compile(probe, "HEALTHCHECK", "exec")


def test_compose_starts_each_node_by_a_command_that_exists() -> None:
    commands = re.findall(r"^    command: \[(.*)\]$", COMPOSE, re.MULTILINE)
    assert len(commands) == len(NODES)
    for line in commands:
        check_call([word.strip().strip('"') for word in line.split(",")], whole=True)
    for line in ("read_only: true", "cap_drop: [ALL]", "no-new-privileges:true", "restart: unless-stopped", "core: 0"):
        assert line in COMPOSE
    assert "\t" not in COMPOSE
    assert "ONE MACHINE PROTECTS NOTHING" in COMPOSE


def test_compose_is_yaml_with_one_service_per_node() -> None:
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load(COMPOSE)["services"]
    assert set(services) == set(NODES)
    for name, service in services.items():
        assert service["read_only"]
        assert service["cap_drop"] == ["ALL"]
        assert service["mem_limit"] == service["memswap_limit"]
        assert [volume.rsplit("/", 1)[1] for volume in service["volumes"]] == ["node", "cluster.toml:ro"]
        assert f"/{name}:/node" in service["volumes"][0]
        assert service["command"][0] == ("dealer" if name == "dealer" else "party")
    assert services["dealer"]["healthcheck"] == {"disable": True}


def test_kuberay_starts_the_node_by_a_command_that_exists_and_lets_nobody_reach_ray() -> None:
    yaml = pytest.importorskip("yaml")
    cluster, public, head, workers = yaml.safe_load_all(KUBERAY)
    assert [part["kind"] for part in (cluster, public, head, workers)] == [
        "RayCluster",
        "Service",
        "NetworkPolicy",
        "NetworkPolicy",
    ]
    (container,) = cluster["spec"]["headGroupSpec"]["template"]["spec"]["containers"]
    assert f"ray=={cluster['spec']['rayVersion']}" in (ROOT / "constraints.txt").read_text().splitlines()
    (line,) = re.findall(r"exec hdcos (party .*)$", container["args"][0])
    words = shlex.split(line)
    check_call(words, whole=True)
    (group,) = cluster["spec"]["workerGroupSpecs"]
    placed = group["replicas"] * int(group["rayStartParams"]["num-cpus"])
    assert int(words[words.index("--workers") + 1]) == placed + 1
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert words[words.index("--listen") + 1] == f"0.0.0.0:{ports['links']}"
    assert words[words.index("--http-listen") + 1] == f"0.0.0.0:{ports['https']}"
    assert {port["name"]: port["port"] for port in public["spec"]["ports"]} == ports
    mine = {"ray.io/cluster": cluster["metadata"]["name"]}
    inside = {"from": [{"podSelector": {"matchLabels": mine}}]}
    assert public["spec"]["selector"] == {**mine, "ray.io/node-type": "head"}
    for policy, kind in ((head, "head"), (workers, "worker")):
        assert policy["spec"]["podSelector"]["matchLabels"] == {**mine, "ray.io/node-type": kind}
        assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert workers["spec"]["ingress"] == [inside]
    assert head["spec"]["ingress"] == [inside, {"ports": [{"port": name} for name in ports]}]


def test_the_examples_of_proxies_route_the_same_names_to_the_same_machines() -> None:
    yaml = pytest.importorskip("yaml")
    haproxy = (DEPLOY / "haproxy.cfg").read_text()
    rules = dict(re.findall(r"use_backend (\w+) if { req\.ssl_sni -i (\S+) }", haproxy))
    (rest,) = re.findall(r"default_backend (\w+)", haproxy)
    backends = re.findall(r"^backend (\w+)\n((?:    server .*\n)+)", haproxy, re.MULTILINE)
    servers = {name: re.findall(r"server \w+ (\S+)", lines) for name, lines in backends}
    assert set(servers) == {*rules, rest}
    envoy = yaml.safe_load((DEPLOY / "envoy.yaml").read_text())["static_resources"]
    places = {}
    for known in envoy["clusters"]:
        endpoints = known["load_assignment"]["endpoints"][0]["lb_endpoints"]
        addresses = [each["endpoint"]["address"]["socket_address"] for each in endpoints]
        places[known["name"]] = [f"{address['address']}:{address['port_value']}" for address in addresses]
    routed = {}
    for chain in envoy["listeners"][0]["filter_chains"]:
        assert chain["filter_chain_match"]["transport_protocol"] == "tls"
        (name,) = chain["filter_chain_match"].get("server_names", [""])
        routed[name] = places[chain["filters"][0]["typed_config"]["cluster"]]
    assert routed == {**{name: servers[backend] for backend, name in rules.items()}, "": servers[rest]}
    assert all(split_name(name)[1] for name in rules.values())
