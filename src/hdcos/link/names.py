"""What workers are called: `w3.party1` is worker 3 of party 1. Worker 0 is the node itself and has its name, `party1`.

The names are DNS names in form, so that TLS can carry them (as the server name of a ClientHello and as the subject
alternative name of a certificate) and proxies can route by them. They are never looked up: where a node is, the cluster
file says. A name is public; an eavesdropper learns which pair of workers a connection belongs to.
"""

from __future__ import annotations

import re

from hdcos.errors import InputError

MAX_WORKERS = 1000
_ROLE = re.compile(r"[a-z][a-z0-9]{0,47}")
_WORKER = re.compile(r"w([1-9][0-9]{0,2})\.([a-z][a-z0-9]{0,47})")


def worker_name(role: str, worker: int) -> str:
    """The name of a node's worker."""
    if worker == 0:
        return role
    if not _ROLE.fullmatch(role) or not 0 < worker < MAX_WORKERS:
        raise InputError(
            f"a worker is number 0 to {MAX_WORKERS - 1} of a role like party0 (lower-case letters and digits), "
            f"got {worker!r} of {role!r}."
        )
    return f"w{worker}.{role}"


def split_name(name: str) -> tuple[str, int]:
    """The role and the number of a worker. A name of any other kind is that of a node itself."""
    found = _WORKER.fullmatch(name)
    return (found[2], int(found[1])) if found else (name, 0)
