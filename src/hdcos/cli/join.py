"""Commands for owners of tables who join them: identity, join."""

from __future__ import annotations

import json
import sys
from functools import partial
from pathlib import Path

import click

from hdcos.checks import check_name
from hdcos.cli import common
from hdcos.cluster.connect import reach_party
from hdcos.errors import InputError
from hdcos.join.files import Meeting, join_file
from hdcos.join.meeting import TIMEOUT_S, WAIT_S, listen, reach, through
from hdcos.link import Certificate, Identity
from hdcos.link.identity import CERTIFICATE_FILE, KEY_FILE


@click.command(short_help="Make the key with which an owner is known to another.")
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--name", default=None, help="What the other owner will read, for a new key.")
@common.json_option
def identity(folder: Path, name: str | None, as_json: bool) -> None:
    """Make a key and a certificate in FOLDER, or show the one that is there.

    The other owner gets FOLDER/certificate.pem, which is public, and compares its fingerprint with the one shown here.
    """
    if (folder / KEY_FILE).exists():
        if name is not None:
            raise InputError(f"{folder} has an identity already: leave --name out, or choose another folder")
        known = Identity.load(folder)
    elif name is None:
        raise InputError(f"there is no identity in {folder}: choose a --name to make one")
    else:
        known = Identity.create(check_name(name), folder)
    certificate = folder / CERTIFICATE_FILE
    if as_json:
        click.echo(json.dumps({"name": known.name, "certificate": str(certificate), "fingerprint": known.fingerprint}))
        return
    click.echo(f"{known.name}: give {certificate} to the other owner\nfingerprint {known.fingerprint}")


@click.command(short_help="Find the rows that two owners share.")
@click.argument("file", type=common.FILE)
@click.option("--id", "ids", multiple=True, required=True, help="A column of the id; give it once for each column.")
@click.option("--identity", "folder", type=common.FOLDER, required=True, help="What `hdcos identity` made.")
@click.option("--peer", type=common.FILE, required=True, help="The other owner's certificate.pem.")
@click.option("--output", type=common.NEW_FILE, default=None, help="Where the joined rows go; else FILE.joined.json.")
@click.option("--listen", "host", default=None, metavar="HOST:PORT", help="Wait here for the other owner.")
@click.option("--connect", "address", default=None, metavar="HOST:PORT", help="Where the other owner listens.")
@click.option("--meet", default=None, metavar="NAME", help="Meet at a party under this name, which both owners give.")
@click.option("--with", "guest", default=None, metavar="CLIENT", help="The other owner, as the party knows it.")
@click.option("--at", "rank", type=click.IntRange(0, 1), default=0, show_default=True, help="The party to meet at.")
@click.option("--cluster", envvar="HDCOS_CLUSTER", help="The cluster file, to meet; $HDCOS_CLUSTER otherwise.")
@common.token_option
@click.option("--ignore-case", is_flag=True, help="Whether ids are the same in any case; as the other owner does.")
@click.option("--drop-empty", is_flag=True, help="Leave out rows whose id is empty.")
@click.option("--first", is_flag=True, help="Of rows with the same id take the first.")
@click.option("--at-most", type=click.IntRange(1), help="Refuse an owner who brings more ids, who may be trying them.")
@click.option("--wait-s", default=WAIT_S, show_default=True, help="How long the other owner may take to come.")
@click.option("--timeout-s", default=TIMEOUT_S, show_default=True, help="How long it may take to answer.")
@common.json_option
def join(
    file: Path,
    ids: tuple[str, ...],
    folder: Path,
    peer: Path,
    output: Path | None,
    host: str | None,
    address: str | None,
    meet: str | None,
    guest: str | None,
    rank: int,
    cluster: str | None,
    token_file: Path | None,
    ignore_case: bool,
    drop_empty: bool,
    first: bool,
    at_most: int | None,
    wait_s: float,
    timeout_s: float,
    as_json: bool,
) -> None:
    """Find the rows of FILE (CSV or Parquet) whose ids another owner has, too. The other owner runs the same command at
    the same time.

    Both owners learn the ids they share, and roughly how many ids the other has; no other id is shown. Ids are compared
    in Unicode's form NFC without white space at their ends. Either one owner waits (--listen) and the other connects
    (--connect), or both meet at a party (--meet, --with), which sees sealed messages alone. `hdcos upload --join` then
    uploads the shared rows, in the order that both owners have.
    """
    if sum(way is not None for way in (host, address, meet)) != 1:
        raise click.UsageError("choose one way to reach the other owner: --listen, --connect or --meet")
    if (meet is None) != (guest is None):
        raise click.UsageError("--meet and --with belong together: the name of the meeting, and whom to meet")
    target = output or file.with_name(f"{file.name}.joined.json")
    common.check_output(target, file, peer)
    mine, theirs = Identity.load(folder), Certificate.read(peer)
    if mine.certificate == theirs:
        raise InputError(f"{peer} is this owner's own certificate: --peer takes the other owner's")
    common.if_interrupted(lambda: "Nothing was written: both owners run the command again.")
    patience = (mine, theirs, wait_s, timeout_s)
    meeting: Meeting
    if host is not None:
        meeting = partial(listen, host, *patience)
    elif address is not None:
        meeting = partial(reach, address, *patience)
    else:
        secret = common.read_secret(token_file) if token_file else None
        party = reach_party(cluster, secret, rank, timeout_s)
        meeting = partial(through, party, check_name(meet, "meeting's name"), str(guest), *patience)
    done = join_file(
        file,
        ids,
        target,
        meeting,
        ignore_case=ignore_case,
        drop_empty=drop_empty,
        first=first,
        at_most=at_most,
        told=(lambda text: click.echo(text, err=True)) if sys.stderr.isatty() else (lambda text: None),
    )
    if as_json:
        known = {"join": done.rows.join, "rows": len(done.rows), "ids": done.mine, "theirs_at_most": done.theirs}
        click.echo(json.dumps({**known, "output": str(target)}))
        return
    click.echo(f"{len(done.rows)} rows are shared, of {done.mine} ids here and at most {done.theirs} there: {target}")
    click.echo(f"Next: hdcos upload {file} --join {target} --name NAME")
