"""Where the first worker of a party, which is in its node, waits for the others that train with it.

Security  they come over the party's own network with the party's certificate, and say which scope of material they
          gather for: one of an earlier attempt is refused.
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from time import monotonic

from hdcos.errors import HandshakeError, HdcosError, PeerLost
from hdcos.link import Hello, Kind, Link, Listener, handshake
from hdcos.link.message import decode_message, integer
from hdcos.party.group import ALONE, GROUP, Group, meaning, name_worker
from hdcos.party.launcher import Address
from hdcos.party.node import Node
from hdcos.ring import table_hash

FIRST = 0
"""The number of the worker that is in the node."""


class Gathering:
    """Makes the groups that the first worker leads, one after another."""

    def __init__(self, node: Node, host: str = "127.0.0.1") -> None:
        self._timeout_s, sock = node.timeout_s, socket.create_server((host, 0))
        self.address: Address = sock.getsockname()[:2]
        known = {node.identity.certificate: "worker"}
        self._listener = Listener(node.identity, known, sock=sock, link_timeout_s=node.timeout_s)

    def gather(self, workers: Sequence[int], scope: str) -> Group:
        """The group of these workers; links are made when something is added for the first time."""
        if len(workers) < 2:
            return ALONE
        return Group(workers.index(FIRST), len(workers), lambda: self._await(workers[1:], scope))

    def _await(self, others: Sequence[int], scope: str) -> list[Link]:
        wanted, found = [name_worker(index) for index in others], dict[str, Link]()
        limit = monotonic() + self._timeout_s
        while len(found) < len(wanted):
            if monotonic() > limit:
                missing = ", ".join(name for name in wanted if name not in found)
                raise PeerLost(f"{missing} did not come within {self._timeout_s:g} s")
            link = self._listener.accept(max(0.1, limit - monotonic()))
            try:
                handshake(link, Hello(name_worker(FIRST), GROUP, table_hash(), meaning(scope)))
                name = name_worker(integer(decode_message(link.receive(Kind.REQUEST)[1])[0], "worker"))
                if name not in wanted:
                    raise HandshakeError(f"{name} was not asked to train here")
            except HdcosError as error:
                link.abort(error)  # of an earlier attempt
                continue
            found[name] = link
        return [found[name] for name in wanted]

    def close(self) -> None:
        self._listener.close()
