"""`hdcos node renew`: a new certificate for the key that a node has."""

from __future__ import annotations

from pathlib import Path

import click

from hdcos.cli.common import FOLDER
from hdcos.link.cluster_file import CARD_FILE, renew_node


@click.command("renew", short_help="Make a new certificate for a node's key.")
@click.argument("folder", type=FOLDER)
def renew(folder: Path) -> None:
    """Make a new certificate for the key in FOLDER, and its node card: before the old one ends, or because it is from
    before workers. The node starts again when the cluster file has the new certificate.
    """
    made, kept = renew_node(folder)
    click.echo(f"{made.role} at {made.address}: node card in {folder / CARD_FILE}; the old certificate is {kept}")
    click.echo(f"fingerprint {made.certificate.fingerprint}")
    click.echo("Give the node card to the other operators: `hdcos init --replaces` sees that it has the same key.")
