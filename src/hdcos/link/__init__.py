"""Links between nodes: mutual TLS 1.3 with pinned certificates, framed, metered, and honest about failures.

Modules, each using only those before it: frame, meter, emulation, names (of workers), certificate, identity, base
(Link), trust, tls, listener (Listener, connect), client_hello, doorman (workers behind one port), handshake, message
(requests and replies), cluster_file (the nodes of a cluster), ports (that are free).
"""

from hdcos.link.base import Link as Link
from hdcos.link.certificate import Certificate as Certificate
from hdcos.link.doorman import Doorman as Doorman
from hdcos.link.emulation import Emulation as Emulation
from hdcos.link.frame import Frame as Frame
from hdcos.link.frame import Kind as Kind
from hdcos.link.handshake import Hello as Hello
from hdcos.link.handshake import handshake as handshake
from hdcos.link.identity import Identity as Identity
from hdcos.link.listener import Listener as Listener
from hdcos.link.listener import connect as connect
from hdcos.link.meter import Count as Count
from hdcos.link.meter import Meter as Meter
from hdcos.link.meter import Snapshot as Snapshot
from hdcos.link.names import split_name as split_name
from hdcos.link.names import worker_name as worker_name
from hdcos.link.tls import TlsTransport as TlsTransport
