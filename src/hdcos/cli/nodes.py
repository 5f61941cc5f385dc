"""`hdcos node init`, `hdcos init`, `hdcos dealer`, `hdcos party`, `hdcos doctor`: the operators' side of a cluster."""

from __future__ import annotations

import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import asdict
from pathlib import Path

import click

from hdcos.api.tokens import ROLES, check_fingerprint, fingerprint, new_secret, token, token_hash
from hdcos.cli.failing import INTERRUPTED
from hdcos.cli.remote import read_secret, token_option
from hdcos.cluster.doctor import examine_as_client
from hdcos.errors import DataMissing, InputError
from hdcos.link import Certificate
from hdcos.link.cluster_file import CARD_FILE, PARTIES, SERVERS, ClusterFile, NodeCard, make_node
from hdcos.party.config import FILE, TEMPLATE
from hdcos.party.doctor import examine
from hdcos.party.node import Node, log_to_stderr, run_dealer, tune_process
from hdcos.party.store import Store, state
from hdcos.reading import read_text

log = logging.getLogger("hdcos")
folder_option = click.option(
    "--node",
    "folder",
    required=True,
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of the node.",
)
cluster_option = click.option(
    "--cluster", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path), help="The cluster file."
)


@click.group()
def node() -> None:
    """One node of a cluster."""


@node.command("init", short_help="Make a node: key, certificate, card.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--role", type=click.Choice(SERVERS), required=True, help="What the node is.")
@click.option("--address", required=True, help="Where the other nodes reach this one: host:port.")
@click.option("--http", default="", help="Where clients reach this party over HTTPS: host:port.")
@click.option(
    "--authority",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The certificate clients check HTTPS against, if it will not be the node's own (see node.toml).",
)
def node_init(folder: Path, role: str, address: str, http: str, authority: Path | None) -> None:
    """Make this node's key, certificate, card and node.toml in FOLDER. The key never leaves it; the card is for all."""
    trusted = ""
    if authority is not None:
        Certificate.read(authority)
        trusted = read_text(authority, "a certificate in PEM")
    card = _new_node(folder, role, address, http, trusted)
    click.echo(f"{role} at {card.address}: card in {folder / CARD_FILE}")
    click.echo(f"fingerprint {card.certificate.fingerprint}")
    click.echo("Give the card to the other operators, and tell them the fingerprint by another way.")


def _new_node(folder: Path, role: str, address: str, http: str = "", authority: str = "") -> NodeCard:
    card = make_node(folder, role, address, http, authority)
    if role in PARTIES:
        (folder / FILE).write_text(TEMPLATE)
    return card


@click.command("init", short_help="Combine the cards of all nodes.")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("cards", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--single-machine", is_flag=True, help="Make all nodes in the folder TARGET, for trying it out.")
@click.option(
    "--replaces",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The cluster file that the new one takes the place of: the cluster, and with it its clients' tokens, stay.",
)
@click.option("--no-dealer", is_flag=True, help="The parties make their material themselves: slower, nobody to trust.")
def init(target: Path, cards: tuple[Path, ...], single_machine: bool, no_dealer: bool, replaces: Path | None) -> None:
    """Combine the CARDS of all nodes into the cluster file TARGET, which nodes and clients then share."""
    if single_machine:
        if cards:
            raise click.UsageError("--single-machine makes all nodes itself: leave the cards out")
        _single_machine(target, PARTIES if no_dealer else SERVERS)
        return
    if target.exists():
        raise InputError(f"{target} exists already: a cluster file is never overwritten")
    site = ClusterFile.of((NodeCard.read(path) for path in cards), dealer=not no_dealer)
    if replaces is not None:
        site = ClusterFile(ClusterFile.read(replaces).id, site.servers)
    site.write(target)
    click.echo(f"{target} is the cluster file of all nodes and clients. Compare with what each operator was told:")
    for card in site.servers.values():
        click.echo(f"  {card.role:<7} {card.address:<24} {card.certificate.fingerprint}")


def _single_machine(folder: Path, roles: tuple[str, ...]) -> None:
    socks = [socket.create_server(("127.0.0.1", 0)) for _ in range(len(roles) + len(PARTIES))]
    addresses = [f"127.0.0.1:{sock.getsockname()[1]}" for sock in socks]
    for sock in socks:
        sock.close()
    http = dict(zip(PARTIES, addresses[len(roles) :], strict=True))
    made = [
        _new_node(folder / role, role, address, http.get(role, ""))
        for role, address in zip(roles, addresses[: len(roles)], strict=True)
    ]
    site, path, secret = ClusterFile.of(made, dealer="dealer" in roles), folder / "cluster.toml", new_secret()
    site.write(path)
    for rank, role in enumerate(PARTIES):
        with state(folder / role) as store:
            store.allow("me", token_hash(token(secret, site.id, rank)), ROLES)
    place = folder / "token"
    _keep_secret(place, secret)
    click.echo(f"A cluster for one machine, which protects nothing from its owner, in {folder}. Start it with\n")
    for role in roles:
        command = "dealer" if role == "dealer" else "party"
        click.echo(f"  hdcos {command} --node {folder / role} --cluster {path} &")
    click.echo("\nand use it with\n")
    click.echo(f"  export HDCOS_CLUSTER={path} HDCOS_TOKEN=$(cat {place})")
    click.echo("  hdcos models")


def _keep_secret(path: Path, secret: str) -> None:
    """A new file that only its owner can read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(f"{secret}\n")


def _server(command: str, roles: tuple[str, ...], text: str) -> click.Command:
    @cluster_option
    @folder_option
    @click.option("--listen", default="", help="host:port to listen on, if not the address in the cluster file.")
    @click.option(
        "--http-listen", default="", help="host:port to listen on for clients, if not that of the cluster file."
    )
    @click.option("--timeout-s", default=30.0, show_default=True, help="How long another node may be silent.")
    @click.option(
        "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Of stderr."
    )
    def serve(cluster: Path, folder: Path, listen: str, http_listen: str, timeout_s: float, log_format: str) -> None:
        card = NodeCard.read(folder / CARD_FILE)
        if card.role not in roles:
            raise InputError(f"{folder} is the node of {card.role}, not of {' or '.join(roles)}")
        serve_party = _party_server() if card.role in PARTIES else None
        tune_process()
        log_to_stderr(log_format)
        site = ClusterFile.read(cluster)
        if serve_party is not None:
            told = serve_party(folder, site, listen, http_listen, timeout_s)
            # The state is closed; a thread that still waits for a lost node must not hold the process.
            os._exit(INTERRUPTED if told == signal.SIGINT else 0)
        dealing = Node.from_cluster_file(folder, site, listen, timeout_s)
        log.info("dealer: listening on %s:%d", *dealing.listener.getsockname()[:2])
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))  # a dealer holds nothing that could be torn
        run_dealer(dealing, log.info)

    return click.command(command, help=text, short_help=text.partition(" until")[0] + ".")(serve)


def _party_server() -> Callable[[Path, ClusterFile, str, str, float], signal.Signals]:
    """The HTTPS server of a party: an extra, which clients and dealers go without."""
    try:
        from hdcos.party.http.server import serve_party
    except ModuleNotFoundError as error:
        if (error.name or "hdcos").partition(".")[0] == "hdcos":
            raise
        raise click.ClickException(
            f"a party needs its server, and {error.name} is not installed: pip install 'hdcos[server]'"
        ) from error
    return serve_party


dealer = _server("dealer", ("dealer",), "Run the dealer of a cluster until it is told to stop.")
party = _server("party", PARTIES, "Run a party of a cluster until it is told to stop.")


@click.command(short_help="Say what is wrong with a cluster, and what to do.")
@click.option(
    "--cluster",
    required=True,
    envvar="HDCOS_CLUSTER",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The cluster file; $HDCOS_CLUSTER otherwise.",
)
@click.option(
    "--node",
    "folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="The folder of a node of yours; without it, the cluster is looked at as clients see it.",
)
@token_option
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(cluster: Path, folder: Path | None, token_file: Path | None, as_json: bool) -> None:
    """Look at a cluster, as a client or from one of its nodes, and say what is wrong and what to do."""
    if folder is not None:
        findings = list(examine(cluster, folder))
    else:
        secret = read_secret(token_file) if token_file else os.environ.get("HDCOS_TOKEN")
        findings = list(examine_as_client(cluster, secret))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            click.echo(f"{'ok  ' if finding.ok else 'BAD '} {finding.what}: {finding.text}")
    if not all(finding.ok for finding in findings):
        sys.exit(1)


# ---- who may use a party


@click.group("token")
def tokens() -> None:
    """Clients and what they may ask."""


@tokens.command("new", short_help="Make a client's secret.")
@cluster_option
@click.option("--output", required=True, type=click.Path(path_type=Path), help="Where the client keeps its secret.")
def token_new(cluster: Path, output: Path) -> None:
    """Make a client's secret, and what the operators of the two parties need to know of it."""
    site, secret = ClusterFile.read(cluster), new_secret()
    _keep_secret(output, secret)
    click.echo(f"The secret is in {output}: keep it, and show it to nobody. Each operator runs, with a name and roles:")
    for rank, role in enumerate(PARTIES):
        line = f"hdcos token allow NAME {fingerprint(secret, site.id, rank)} --node FOLDER --role predict"
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
    for name, hashed, roles in clients:
        click.echo(f"{name:<20} {hashed[:12]} {', '.join(roles)}")


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
@click.option(
    "--token-file",
    required=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="The file of the secret.",
)
@click.option("--party", "rank", type=click.IntRange(0, 1), required=True, help="Which party.")
def token_show(cluster: Path, token_file: Path, rank: int) -> None:
    """The bearer token that the owner of a secret shows to one party: for Prometheus, curl and the like."""
    click.echo(token(read_secret(token_file), ClusterFile.read(cluster).id, rank))


@click.command(short_help="Let a model be revealed.")
@click.argument("reveal")
@folder_option
@click.option("--refuse", is_flag=True, help="Say no instead.")
def approve(reveal: str, folder: Path, refuse: bool) -> None:
    """Let a model be revealed, as far as this party is concerned. `hdcos approve list` shows who asks."""
    with _store(folder) as store:
        if reveal == "list":
            for item in store.reveals():
                click.echo(f"{item.id}  {item.state:<9} {item.owner} asks for {item.model}")
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
    for name, (answered, allowed) in counted.items():
        if model in (None, name):
            click.echo(f"{name:<20} {answered} of {allowed} rows")


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
