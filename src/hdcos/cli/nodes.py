"""`hdcos node init`, `hdcos init`, `hdcos dealer`, `hdcos party`, `hdcos doctor`: a cluster on several machines."""

from __future__ import annotations

import json
import signal
import socket
import sys
from dataclasses import asdict
from pathlib import Path

import click

from hdcos.errors import InputError
from hdcos.serve.doctor import examine
from hdcos.serve.node import serve_node
from hdcos.serve.site import CARD_FILE, CLIENT, PARTIES, SERVERS, Card, Site, make_node


@click.group()
def node() -> None:
    """One node of a cluster."""


@node.command("init")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--role", type=click.Choice([*SERVERS, CLIENT]), required=True)
@click.option("--address", default="", help="Where the others reach this node: host:port.")
@click.option("--name", default="", help="The name of a client.")
def node_init(folder: Path, role: str, address: str, name: str) -> None:
    """Make this node's key, certificate and card in FOLDER. The key never leaves it; the card is for the others."""
    card = make_node(folder, role, address, name)
    click.echo(f"{role} {card.address or card.name}: card in {folder / CARD_FILE}")
    click.echo(f"fingerprint {card.certificate.fingerprint}")
    click.echo("Give the card to the other operators, and tell them the fingerprint by another way.")


@click.command("init")
@click.argument("target", type=click.Path(path_type=Path))
@click.argument("cards", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--single-machine", is_flag=True, help="Make all nodes in the folder TARGET, for trying it out.")
@click.option("--no-dealer", is_flag=True, help="The parties make their material themselves: slower, nobody to trust.")
def init(target: Path, cards: tuple[Path, ...], single_machine: bool, no_dealer: bool) -> None:
    """Combine the CARDS of all nodes into the cluster file TARGET, which all nodes then share."""
    if single_machine:
        if cards:
            raise InputError("--single-machine makes all nodes itself: leave the cards out")
        _single_machine(target, PARTIES if no_dealer else SERVERS)
        return
    if target.exists():
        raise InputError(f"{target} exists already: a cluster file is never overwritten")
    site = Site.of((Card.read(path) for path in cards), dealer=not no_dealer)
    site.write(target)
    click.echo(f"{target} is the cluster file of all nodes. Compare with what each operator was told:")
    for card in (*site.servers.values(), *site.clients):
        click.echo(f"  {card.role:<7} {card.address or card.name:<24} {card.certificate.fingerprint}")


def _single_machine(folder: Path, roles: tuple[str, ...]) -> None:
    made = []
    with_ports = [socket.create_server(("127.0.0.1", 0)) for _ in roles]
    for role, sock in zip(roles, with_ports, strict=True):
        made.append(make_node(folder / role, role, f"127.0.0.1:{sock.getsockname()[1]}"))
        sock.close()
    made.append(make_node(folder / CLIENT, CLIENT, name="client"))
    path = folder / "cluster.toml"
    Site.of(made, dealer="dealer" in roles).write(path)
    click.echo(f"A cluster for one machine, which protects nothing from its owner, in {folder}. Start it with\n")
    for role in roles:
        command = "dealer" if role == "dealer" else "party"
        click.echo(f"  hdcos {command} --node {folder / role} --cluster {path} &")
    click.echo(f'\nand use it with hdcos.connect("{path}", "{folder / CLIENT}").')


def _server(command: str, roles: tuple[str, ...], text: str) -> click.Command:
    @click.option("--cluster", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
    @click.option("--node", "folder", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
    @click.option("--listen", default="", help="host:port to listen on, if not the address in the cluster file.")
    @click.option("--timeout-s", default=30.0, show_default=True)
    @click.option("--allow-reveal", is_flag=True, help="Let clients have models revealed, if the other party does too.")
    def serve(cluster: Path, folder: Path, listen: str, timeout_s: float, allow_reveal: bool) -> None:
        card = Card.read(folder / CARD_FILE)
        if card.role not in roles:
            raise InputError(f"{folder} is the node of {card.role}, not of {' or '.join(roles)}")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        serve_node(folder, Site.read(cluster), listen, timeout_s, allow_reveal)

    return click.command(command, help=text)(serve)


dealer = _server("dealer", ("dealer",), "Run the dealer of a cluster until it is told to stop.")
party = _server("party", ("party0", "party1"), "Run a party of a cluster until it is told to stop.")


@click.command()
@click.option("--cluster", required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--node", "folder", required=True, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def doctor(cluster: Path, folder: Path, as_json: bool) -> None:
    """Look at a cluster from one of its nodes (or clients), and say what is wrong and what to do."""
    findings = list(examine(cluster, folder))
    if as_json:
        click.echo(json.dumps([asdict(finding) for finding in findings]))
    else:
        for finding in findings:
            click.echo(f"{'ok  ' if finding.ok else 'BAD '} {finding.what}: {finding.text}")
    if not all(finding.ok for finding in findings):
        sys.exit(1)
