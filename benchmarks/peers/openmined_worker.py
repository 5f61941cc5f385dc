"""openmined-psi: the ids that two lists share, by Diffie-Hellman. Prints the seconds of each step as one JSON line.

`python openmined_worker.py HERE THERE`: files with one id in each line. Only the client learns what is shared.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import private_set_intersection.python as psi

FALSE_POSITIVES = 1e-12


def main() -> None:
    mine, theirs = (Path(name).read_text().split() for name in sys.argv[1:3])
    client, server = (side.CreateWithNewKey(True) for side in (psi.client, psi.server))
    seconds = {}

    def timed(name, work):  # type: ignore[no-untyped-def]
        start = time.perf_counter()
        done = work()
        seconds[name] = time.perf_counter() - start
        return done

    data = psi.DataStructure.RAW
    setup = timed("setup", lambda: server.CreateSetupMessage(FALSE_POSITIVES, len(mine), theirs, data))
    request = timed("request", lambda: client.CreateRequest(mine))
    response = timed("response", lambda: server.ProcessRequest(request))
    found = timed("result", lambda: client.GetIntersection(setup, response))
    print(json.dumps({"seconds": seconds, "found": len(found)}))


if __name__ == "__main__":
    main()
