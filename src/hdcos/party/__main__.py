"""`python -m hdcos.party`: a node that `hdcos.local()` started, or a worker of a node, which makes its own key.

Its configuration comes on standard input.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading

from hdcos.api.process import OWN_KEY
from hdcos.errors import DeviceError, HandshakeError, PeerLost
from hdcos.link.identity import make_key
from hdcos.party.node import Node, run_dealer, run_party, tune_process


def main() -> None:
    tune_process()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that started this one
    own = _make_key() if OWN_KEY in sys.argv else {}
    if not (told := sys.stdin.readline()):
        return  # the process that started this one is gone
    node = Node.from_json({**json.loads(told), **own})
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        if node.role == "dealer":
            run_dealer(node)
        else:
            run_party(node, int(node.role[-1]))
    except (DeviceError, HandshakeError, PeerLost) as error:
        sys.exit(f"{node.role}: {error}")


def _make_key() -> dict[str, str]:
    """A key that stays here; its public part is all that is ever said on the output."""
    key, public = make_key()
    try:
        os.write(sys.stdout.fileno(), public)
    except BrokenPipeError:
        sys.exit(0)
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())
    return {"key": key.decode()}


def _end_with_input() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
