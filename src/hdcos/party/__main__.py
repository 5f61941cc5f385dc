"""`python -m hdcos.party`: a node that `hdcos.local()` started. Its configuration comes on standard input."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from hdcos.errors import DeviceError, HandshakeError, PeerLost
from hdcos.party.node import Node, run_dealer, run_party, tune_process


def main() -> None:
    tune_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    node = Node.from_json(json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        if node.role == "dealer":
            run_dealer(node)
        else:
            run_party(node, int(node.role[-1]))
    except (DeviceError, HandshakeError, PeerLost) as error:
        sys.exit(f"{node.role}: {error}")


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
