"""Where the first worker of a party, which is in its node, waits for the others that train with it.

Security  they come over the party's own network with certificates that the node issued for them, and say which scope of
          material they gather for: one of an earlier attempt is refused.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from time import monotonic

from hdcos.errors import HandshakeError, HdcosError, PeerLost
from hdcos.link import Hello, Link, Listener, handshake, worker_name
from hdcos.link.names import MAX_WORKERS
from hdcos.party.group import ALONE, GROUP, Group, meaning, name_worker
from hdcos.party.launcher import Address
from hdcos.party.node import Node
from hdcos.ring import table_hash

FIRST = 0
"""The number of the worker that is in the node."""


class Gathering:
    """Makes the groups that the first worker leads, one after another."""

    def __init__(self, node: Node, host: str) -> None:
        self._timeout_s, sock = node.timeout_s, socket.create_server((host, 0))
        self.address: Address = sock.getsockname()[:2]
        self._role, numbers = node.role, range(1, MAX_WORKERS if node.identity.certificate.issues else 1)
        known = {node.identity.certificate: tuple(worker_name(node.role, number) for number in numbers)}
        self._listener = Listener(node.identity, known, sock=sock, link_timeout_s=node.timeout_s)

    def gather(self, workers: Sequence[int], scope: str) -> Group:
        """The group of these workers; links are made when something is added for the first time."""
        if len(workers) < 2:
            return ALONE
        return Group(workers.index(FIRST), len(workers), lambda: self._await(workers[1:], scope))

    def _await(self, others: Sequence[int], scope: str) -> list[Link]:
        wanted, found = [worker_name(self._role, index) for index in others], dict[str, Link]()
        limit = monotonic() + self._timeout_s
        while len(found) < len(wanted):
            if monotonic() > limit:
                missing = ", ".join(name for name in wanted if name not in found)
                raise PeerLost(f"{missing} did not come within {self._timeout_s:g} s")
            link = self._listener.accept(max(0.1, limit - monotonic()))
            try:
                handshake(link, Hello(name_worker(FIRST), GROUP, table_hash(), meaning(scope)))
                if link.peer not in wanted:
                    raise HandshakeError(f"{link.peer} was not asked to train here")
            except HdcosError as error:
                link.abort(error)  # of an earlier attempt
                continue
            found[link.peer] = link
        return [found[name] for name in wanted]

    def close(self) -> None:
        self._listener.close()
