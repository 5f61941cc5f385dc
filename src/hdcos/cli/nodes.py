"""Commands for operators: node init, init, dealer, party; and who may do what there: token, approve, quota, retry."""

from __future__ import annotations

import logging
import math
import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import click

from hdcos.api.tokens import ROLES, check_fingerprint, fingerprint, new_secret, token, token_hash
from hdcos.checks import check_name
from hdcos.cli.common import FILE, FOLDER, INTERRUPTED, new_table, read_secret, show
from hdcos.cli.renew import renew
from hdcos.errors import DataMissing, InputError
from hdcos.files import new_file, read_text
from hdcos.link import Certificate
from hdcos.link.cluster_file import CARD_FILE, PARTIES, SERVERS, ClusterFile, NodeCard, make_node
from hdcos.link.ports import find_free_ports
from hdcos.party import config
from hdcos.party.dealers import serve_with_workers
from hdcos.party.launcher import Placement
from hdcos.party.node import Node, log_to_stderr, tune_process
from hdcos.party.side_workers import WANTED_FILE, want_workers
from hdcos.party.store import Store, state
from hdcos.ring.device import Place

MOST_WORKERS = 256
log = logging.getLogger("hdcos")
folder_option = click.option("--node", "folder", required=True, type=FOLDER, help="The folder of the node.")
cluster_option = click.option("--cluster", "path", required=True, type=FILE, help="The cluster file.")


@click.group()
def node() -> None:
    """One node of a cluster."""


node.add_command(renew)


@node.command("init", short_help="Make a node: key, certificate, node card.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--role", type=click.Choice(SERVERS), required=True, help="What the node is.")
@click.option("--address", required=True, help="Where the other nodes reach this one: host:port.")
@click.option("--http", default="", help="Where clients reach this party over HTTPS: host:port.")
@click.option(
    "--authority",
    type=FILE,
    help="The certificate clients check HTTPS against, if it will not be the node's own (see node.toml).",
)
def node_init(folder: Path, role: str, address: str, http: str, authority: Path | None) -> None:
    """Make this node's key, certificate, node card and node.toml in FOLDER. The key never leaves it; the node card is
    for all.
    """
    trusted = ""
    if authority is not None:
        Certificate.read(authority)
        trusted = read_text(authority, "a certificate in PEM")
    made = _new_node(folder, role, address, http, trusted)
    click.echo(f"{role} at {made.address}: node card in {folder / CARD_FILE}")
    click.echo(f"fingerprint {made.certificate.fingerprint}")
    click.echo("Give the node card to the other operators, and tell them the fingerprint by another way.")


def _new_node(folder: Path, role: str, address: str, http: str = "", authority: str = "") -> NodeCard:
    made = make_node(folder, role, address, http, authority)
    if role in PARTIES:
        (folder / config.FILE).write_text(config.TEMPLATE)
    return made


@click.command("init", short_help="Combine the node cards of a cluster.")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("cards", nargs=-1, type=FILE)
@click.option("--single-machine", is_flag=True, help="Make all nodes in the folder TARGET, for trying it out.")
@click.option(
    "--replaces",
    type=FILE,
    help="The cluster file that the new one takes the place of: the cluster, and with it its clients' tokens, stay.",
)
@click.option("--no-dealer", is_flag=True, help="The parties make their material themselves: slower, nobody to trust.")
@click.option(
    "--client",
    "clients",
    multiple=True,
    help="With --single-machine: a further client, whose secret is in TARGET/NAME.token; again for more.",
)
def init(
    target: Path,
    cards: tuple[Path, ...],
    single_machine: bool,
    no_dealer: bool,
    replaces: Path | None,
    clients: tuple[str, ...],
) -> None:
    """Combine the node CARDS of all nodes into the cluster file TARGET, which nodes and clients then share."""
    if single_machine:
        if cards:
            raise click.UsageError("--single-machine makes all nodes itself: leave the node cards out")
        _single_machine(target, PARTIES if no_dealer else SERVERS, clients)
        return
    if clients:
        raise click.UsageError("clients make their secrets themselves (`hdcos token new`): --client is for one machine")
    if target.exists():
        raise InputError(f"{target} exists already: a cluster file is never overwritten")
    cluster = ClusterFile.of((NodeCard.read(path) for path in cards), dealer=not no_dealer)
    before = None if replaces is None else ClusterFile.read(replaces)
    if before is not None:
        cluster = ClusterFile(before.id, cluster.servers)
    cluster.write(target)
    click.echo(f"{target} is the cluster file of all nodes and clients. Compare with what each operator was told:")
    for known in cluster.servers.values():
        old = None if before is None else before.servers.get(known.role)
        same = "  the same key as before" if old is not None and known.certificate.has_key_of(old.certificate) else ""
        click.echo(f"  {known.role:<7} {known.address:<24} {known.certificate.fingerprint}{same}")


def _single_machine(folder: Path, roles: tuple[str, ...], clients: tuple[str, ...]) -> None:
    names = {"me": "token", **{check_name(name, "client's name"): f"{name}.token" for name in clients}}
    addresses = [f"127.0.0.1:{port}" for port in find_free_ports(len(roles) + len(PARTIES))]
    http = dict(zip(PARTIES, addresses[len(roles) :], strict=True))
    made = [
        _new_node(folder / role, role, address, http.get(role, ""))
        for role, address in zip(roles, addresses[: len(roles)], strict=True)
    ]
    cluster, path = ClusterFile.of(made, dealer="dealer" in roles), folder / "cluster.toml"
    cluster.write(path)
    secrets = {name: new_secret() for name in names}
    for rank, role in enumerate(PARTIES):
        with state(folder / role) as store:
            for name, secret in secrets.items():
                store.allow(name, token_hash(token(secret, cluster.id, rank)), ROLES)
    for name, secret in secrets.items():
        _keep_secret(folder / names[name], secret)
    place = folder / "token"
    click.echo(f"A cluster for one machine, which protects nothing from its owner, in {folder}. Start it with\n")
    for role in roles:
        command = "dealer" if role == "dealer" else "party"
        click.echo(f"  hdcos {command} --node {folder / role} --cluster {path} &")
    click.echo("\nand use it with\n")
    click.echo(f"  export HDCOS_CLUSTER={path} HDCOS_TOKEN=$(cat {place})")
    click.echo("  hdcos models")
    try:
        _find_server()
    except click.ClickException as error:
        click.echo(f"\nNote: {error.message}", err=True)
    for name in clients:
        click.echo(f"The secret of {name} is in {folder / names[name]}.")


def _keep_secret(path: Path, secret: str) -> None:
    with new_file(path) as file:
        file.write(f"{secret}\n".encode())


def _server(command: str, roles: tuple[str, ...], text: str) -> click.Command:
    @cluster_option
    @folder_option
    @click.option("--listen", default="", help="host:port to listen on, if not the address in the cluster file.")
    @click.option(
        "--http-listen", default="", help="host:port to listen on for clients, if not that of the cluster file."
    )
    @click.option("--timeout-s", default=30.0, show_default=True, help="How long another node may be silent.")
    @click.option(
        "--workers",
        type=click.IntRange(1, MOST_WORKERS),
        default=1,
        show_default=True,
        help="Processes that work side by side, each with one of the other party.",
    )
    @click.option(
        "--ray",
        default="",
        help="Have the workers run on the machines of this organisation's Ray cluster: host:port; `auto`, the one that "
        "was started on this machine; or `local`, one of this machine alone that is started now.",
    )
    @click.option(
        "--worker-ports",
        type=click.IntRange(1024, 65535 - MOST_WORKERS),
        metavar="FIRST",
        help="With --ray: worker i listens at port FIRST + i of its machine, where a proxy can route its name.",
    )
    @click.option(
        "--device",
        default="cpu",
        show_default=True,
        help="Where to compute: cpu, a GPU such as cuda:0, or several for workers: cuda:0,cuda:1 (docs/gpu.md).",
    )
    @click.option(
        "--device-memory",
        type=float,
        callback=_gib_in_bytes,
        help="GiB of the GPU's that a process may take.",
    )
    @click.option(
        "--worker-gpus",
        type=click.FloatRange(0, 1, min_open=True),
        metavar="PART",
        help="With --ray and GPUs: the part of one that Ray gives each worker; 1 by default, 0.5 for two on each.",
    )
    @click.option(
        "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Of stderr."
    )
    def serve(
        path: Path,
        folder: Path,
        listen: str,
        http_listen: str,
        timeout_s: float,
        workers: int,
        ray: str,
        worker_ports: int | None,
        device: str,
        device_memory: int | None,
        worker_gpus: float | None,
        log_format: str,
    ) -> None:
        role = NodeCard.read(folder / CARD_FILE).role
        if role not in roles:
            raise InputError(f"{folder} is the node of {role}, not of {' or '.join(roles)}")
        if worker_ports and not ray:
            raise InputError("--worker-ports is for workers of a Ray cluster (--ray): others share the node's port")
        if worker_gpus and not (ray and "cuda" in device):
            raise InputError(
                "--worker-gpus is for workers of a Ray cluster (--ray) that compute on GPUs (--device cuda:0)"
            )
        placement = Placement(ray, worker_ports or 0, worker_gpus or 1.0)
        serve_party = _find_server() if role in PARTIES else None
        tune_process()
        log_to_stderr(log_format)
        cluster = ClusterFile.read(path)
        place = Place(device, device_memory)
        place.open()  # what cannot be had is said before anybody is told that this node listens
        if workers > 1:
            cluster.require_issuing()
        if serve_party is not None:
            told = serve_party(folder, cluster, listen, http_listen, timeout_s, workers, placement, place)
            # The state is closed; a thread that still waits for a lost node must not hold the process.
            os._exit(INTERRUPTED if told == signal.SIGINT else 0)
        dealing = Node.from_cluster_file(folder, cluster, listen, timeout_s, place)
        # A dealer holds nothing that could be torn. An exception would have to pass everything it interrupts.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))
        log.info("dealer: listening on %s:%d", *dealing.listener.getsockname()[:2])
        serve_with_workers(dealing, workers, placement)

    return click.command(command, help=text, short_help=text.partition(" until")[0] + ".")(serve)


def _gib_in_bytes(context: click.Context, parameter: click.Parameter, gib: float | None) -> int | None:
    """What was said in GiB, in bytes: at least one, and a number."""
    if gib is None:
        return None
    if not math.isfinite(gib) or gib * (1 << 30) < 1:
        raise click.BadParameter(f"{gib:g} is not a number of GiB, such as 20 or 0.5")
    return int(gib * (1 << 30))


def _find_server() -> Callable[[Path, ClusterFile, str, str, float, int, Placement, Place], signal.Signals]:
    """The HTTPS server of a party: an extra, which clients and dealers go without."""
    try:
        from hdcos.party.http.server import serve_party
    except ModuleNotFoundError as error:
        if (error.name or "hdcos").partition(".")[0] == "hdcos":
            raise
        raise click.ClickException(
            f"a party needs its server, and {error.name} is not installed: pip install 'hdcos[server]', "
            f"or in a copy of the repository pip install '.[server]'"
        ) from error
    return serve_party


dealer = _server("dealer", ("dealer",), "Run the dealer of a cluster until it is told to stop.")
party = _server("party", PARTIES, "Run a party of a cluster until it is told to stop.")


# ---- who may use a party


@click.group("token")
def tokens() -> None:
    """Clients and what they may ask."""


@tokens.command("new", short_help="Make a client's secret.")
@cluster_option
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Where the client keeps its secret.")
def token_new(path: Path, output: Path) -> None:
    """Make a client's secret, and what the operators of the two parties need to know of it."""
    cluster, secret = ClusterFile.read(path), new_secret()
    _keep_secret(output, secret)
    click.echo(f"The secret is in {output}: keep it, and show it to nobody. Each operator runs, with a name and roles:")
    for rank, role in enumerate(PARTIES):
        line = f"hdcos token allow NAME {fingerprint(secret, cluster.id, rank)} --node FOLDER --role predict"
        click.echo(f"  {role}: {line}")


@tokens.command("allow", short_help="Let a client in.")
@click.argument("name")
@click.argument("shown", metavar="FINGERPRINT")
@folder_option
@click.option("--role", "roles", type=click.Choice(ROLES), multiple=True, required=True, help="May be given often.")
def token_allow(name: str, shown: str, folder: Path, roles: tuple[str, ...]) -> None:
    """Let a client in under a NAME. FINGERPRINT is what `hdcos token new` printed for this party."""
    hashed = check_fingerprint(shown, NodeCard.read(folder / CARD_FILE).role)
    with _store(folder) as store:
        store.allow(name, hashed, roles)
        _note(store, "allow", name, ", ".join(roles))
    click.echo(f"{name} may {', '.join(roles)}")


@tokens.command("list")
@folder_option
def token_list(folder: Path) -> None:
    """Clients of a party."""
    with _store(folder) as store:
        clients = store.clients()
    table = new_table("client", "roles", "fingerprint", texts=3)
    for name, hashed, roles in clients:
        table.add_row(name, ", ".join(roles), hashed)
    show(table)


@tokens.command("revoke", short_help="Shut a client out.")
@click.argument("name")
@folder_option
def token_revoke(name: str, folder: Path) -> None:
    """Shut a client out; a running party notices within a second."""
    with _store(folder) as store:
        store.revoke(name)
        _note(store, "revoke", name)


@tokens.command("show", short_help="The bearer token for one party.")
@cluster_option
@click.option("--token-file", required=True, type=FILE, help="The file of the secret.")
@click.option("--party", "rank", type=click.IntRange(0, 1), required=True, help="Which party.")
def token_show(path: Path, token_file: Path, rank: int) -> None:
    """The bearer token that the owner of a secret shows to one party: for Prometheus, curl and the like."""
    click.echo(token(read_secret(token_file), ClusterFile.read(path).id, rank))


@click.command(short_help="Let a model be revealed.")
@click.argument("reveal")
@folder_option
@click.option("--refuse", is_flag=True, help="Say no instead.")
def approve(reveal: str, folder: Path, refuse: bool) -> None:
    """Let a model be revealed, as far as this party is concerned. `hdcos approve list` shows who asks."""
    with _store(folder) as store:
        if reveal == "list":
            table = new_table("reveal", "state", "client", "model", texts=4)
            table.columns[0].no_wrap = table.columns[1].no_wrap = True
            for item in store.reveals():
                table.add_row(item.id, item.state, item.owner, item.model)
            show(table)
            return
        store.decide_reveal(reveal, "refused" if refuse else "approved")
        _note(store, "refuse to reveal" if refuse else "approve to reveal", store.reveal(reveal).model, reveal)
    click.echo(f"{reveal}: {'refused' if refuse else 'approved'} here; the other party decides for itself")


@click.command(short_help="Rows answered of each model.")
@click.argument("model", required=False)
@folder_option
@click.option("--reset", is_flag=True, help="Allow as many rows again: what was learnt of the weights stays learnt.")
def quota(model: str | None, folder: Path, reset: bool) -> None:
    """Rows of each MODEL that this party has answered, for all clients together, and how many it will."""
    if reset and model is None:
        raise InputError("the quota of which model is to be reset?")
    with _store(folder) as store:
        if reset and model is not None:
            answered = store.queries(model)
            store.forget_queries(model)
            _note(store, "reset quota", model, f"{answered} rows")
            click.echo(f"{model}: {answered} rows were answered and are forgotten; the other party counts for itself")
            return
        counted = store.all_queries()
    table = new_table("model", "answered")
    for name, (answered, allowed) in counted.items():
        if model in (None, name):
            table.add_row(name, f"{answered} of {allowed} rows")
    show(table)


@click.command(short_help="Change the number of workers.")
@click.argument("count", type=click.IntRange(1, MOST_WORKERS))
@folder_option
def workers(count: int, folder: Path) -> None:
    """Have a running party use COUNT workers from now on; its next start has --workers again."""
    if NodeCard.read(folder / CARD_FILE).role == "dealer":
        raise InputError("a dealer keeps the workers it began with: start it again with --workers, parties wait for it")
    with _store(folder) as store:
        want_workers(store.folder / WANTED_FILE, count)
        _note(store, "workers", str(count))
    click.echo(f"{count} workers; as many pairs work as both parties have workers for")


@click.command(short_help="Load a model again.")
@click.argument("model")
@folder_option
def retry(model: str, folder: Path) -> None:
    """Have MODEL loaded again, which this party gave up; a running party notices within some seconds."""
    with _store(folder) as store:
        if not store.forgive("load", model):
            raise DataMissing(
                f"nothing is held against loading a model named {model!r} here: perhaps at the other party"
            )
        _note(store, "retry", model)
    click.echo(f"{model} will be loaded again; the other party decides for itself")


def _note(store: Store, action: str, target: str, detail: str = "") -> None:
    """What an operator did belongs into the audit log too."""
    store.audit([(time.time(), "operator", action, target, "ok", detail)])


def _store(folder: Path) -> AbstractContextManager[Store]:
    role = NodeCard.read(folder / CARD_FILE).role
    if role not in PARTIES:
        raise InputError(f"{folder} is the node of {role}: clients talk to parties only")
    return state(folder)
