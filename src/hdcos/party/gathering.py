"""Where the first worker of a party, which is in its node, waits for the others that train with it.

One that does not come in time is named, and the others are told at once: they train without it.

Security  they come over the party's own network with certificates that the node issued for them, and say which scope of
          material they gather for: one of an earlier attempt is refused.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from time import monotonic

from hdcos.errors import HandshakeError, HdcosError, PeerLost, WorkerLost
from hdcos.link import Hello, Link, Listener, handshake, worker_name
from hdcos.link.names import MAX_WORKERS
from hdcos.party.group import ALONE, GROUP, Group, meaning, name_worker
from hdcos.party.launcher import Address
from hdcos.party.node import Node
from hdcos.party.patience import SUM, join_s
from hdcos.ring import table_hash

FIRST = 0
"""The number of the worker that is in the node."""


class Gathering:
    """Makes the groups that the first worker leads, one after another."""

    def __init__(self, node: Node, host: str) -> None:
        self._join_s, self._sum_s = join_s(node.timeout_s), SUM * node.timeout_s
        sock = socket.create_server((host, 0))
        self.address: Address = sock.getsockname()[:2]
        self._role, numbers = node.role, range(1, MAX_WORKERS if node.identity.certificate.issues else 1)
        known = {node.identity.certificate: tuple(worker_name(node.role, number) for number in numbers)}
        self._listener = Listener(node.identity, known, sock=sock, link_timeout_s=self._sum_s)

    def gather(self, workers: Sequence[int], scope: str) -> Group:
        """The group of these workers; links are made when something is added for the first time."""
        if len(workers) < 2:
            return ALONE
        wanted = {worker_name(self._role, index): index for index in workers if index != FIRST}
        return Group(workers.index(FIRST), len(workers), lambda: self._await(wanted, scope))

    def _await(self, wanted: Mapping[str, int], scope: str) -> list[Link]:
        found, limit = dict[str, Link](), monotonic() + self._join_s
        try:
            while missing := [name for name in wanted if name not in found]:
                if (link := self._admit(wanted, scope, limit)) is None:
                    why = f"{', '.join(missing)} did not come within {self._join_s:g} s"
                    raise WorkerLost(why, [wanted[name] for name in missing])
                if link.peer in found:  # it began again meanwhile
                    found[link.peer].close()
                found[link.peer] = link
        except BaseException as error:
            for link in found.values():
                link.abort(error)
            raise
        return [found[name] for name in wanted]

    def _admit(self, wanted: Mapping[str, int], scope: str, limit: float) -> Link | None:
        """The next of the workers that are wanted; none if nobody comes in time."""
        while (left_s := limit - monotonic()) > 0:
            try:
                link = self._listener.accept(left_s)
            except (HandshakeError, PeerLost):  # its time is up
                return None
            link.timeout_s = left_s
            try:
                handshake(link, Hello(name_worker(FIRST), GROUP, table_hash(), meaning(scope)))
                if link.peer not in wanted:
                    raise HandshakeError(f"{link.peer} was not asked to train here")
            except HdcosError as error:
                link.abort(error)  # of an earlier attempt
                continue
            link.timeout_s = self._sum_s
            return link
        return None

    def close(self) -> None:
        self._listener.close()
