"""A join from file to file: read the ids, meet the other owner, match, leave the joined rows with both or with none.

Each owner writes its file under another name first and says so. Only when the other has said the same does it get its
name. If the connection breaks in that very moment one owner may have a file that the other lacks: it names a join that
no other data set has, so training refuses it, and both join again. Tables that share nothing are written and forgotten
likewise, so that nobody sees it by what is sent.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from hdcos.errors import FrameError, HdcosError, InputError, PeerLost
from hdcos.files import full_disk_named, new_file, sync_folder
from hdcos.join.ids import read_ids
from hdcos.join.matching import exchange, match
from hdcos.join.rows import JoinedRows
from hdcos.link import Link

Meeting = Callable[[], AbstractContextManager[Link]]
"""How to reach the other owner, once there is something to say."""
WRITTEN = b"written!"


@dataclass(frozen=True)
class Joined:
    """What came of it."""

    rows: JoinedRows
    mine: int
    """Ids that this owner brought."""
    theirs: int
    """And the other at most: its number is told rounded up."""


def join_file(
    file: str | os.PathLike[str],
    columns: Sequence[str],
    output: str | os.PathLike[str],
    meeting: Meeting,
    *,
    ignore_case: bool = False,
    drop_empty: bool = False,
    first: bool = False,
    workers: int | None = None,
    at_most: int | None = None,
    told: Callable[[str], None] = lambda text: None,
) -> Joined:
    """Join a table with another owner's, who calls this at the same time, and write which rows are joined.

    `columns` make up an id; `ignore_case`, `drop_empty` and `first` are as `read_ids` has them, `at_most` as `match`
    has it. `told` hears what is being done.
    """
    target = Path(output)
    ids = read_ids(Path(file), columns, ignore_case, drop_empty, first)
    told(f"{len(ids):,} ids of {ids.total:,} rows; waiting for the other owner")
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        with meeting() as link:
            told(f"{link.peer} is here; looking for shared ids")
            found = match(link, ids.rules, ids.digests, workers, at_most)
            joined = JoinedRows.of(ids, found.id, found.places)
            try:
                _write(temporary, joined)
            except (HdcosError, OSError):  # the other owner need not know the names of this one's folders
                link.abort(HdcosError("that owner could not write its joined rows, so nothing was joined"))
                raise
            if exchange(link, WRITTEN) != WRITTEN:
                raise FrameError(f"{link.peer} did not say that its joined rows are written")
            if len(joined):
                temporary.replace(target)
    except PeerLost as error:
        raise PeerLost(f"{str(error).rstrip('.')}. Nothing was written: both owners run `hdcos join` again") from error
    finally:
        temporary.unlink(missing_ok=True)
    if not len(joined):  # said when the link is closed: what is raised before goes to the other owner, too
        raise InputError(
            f"no id is in both tables, of {len(ids):,} ids here: look at the columns that make them up at both "
            f"owners (--id), and how they are written (--ignore-case); nothing was written"
        )
    sync_folder(target.parent)
    return Joined(joined, len(ids), found.theirs)


def _write(path: Path, joined: JoinedRows) -> None:
    with full_disk_named(path), new_file(path) as file:
        file.write(joined.encode())
        file.flush()
        os.fsync(file.fileno())
