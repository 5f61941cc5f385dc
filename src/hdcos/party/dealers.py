"""The dealer with several workers: processes that each make the material of some pairs, one of them the node itself.

The parties' pairs of workers are divided among them by number. Each has random seeds of its own and knows nothing of
the others' scopes. One that ends is started again: the pairs that it worked for lose their links to it, end their life
and begin again with it, as after any other loss.
"""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from functools import partial
from threading import Thread

from hdcos.errors import HdcosError
from hdcos.link import Doorman, worker_name
from hdcos.party.launcher import Launcher, Placement, Running, choose_launcher
from hdcos.party.node import Node, run_dealer

log = logging.getLogger("hdcos")
LOOK_S, LONGEST_PAUSE_S = 0.5, 5.0


def serve_with_workers(node: Node, workers: int, placement: Placement) -> None:
    """Serve for as long as the process lives, with further workers as processes of their own."""
    doorman = Doorman(node.listener)
    mine = replace(node, listener=doorman.serve(node.role, ""))
    launcher = choose_launcher(placement, doorman, node.listener, node.place)
    mine.place.open()  # before others are started: what they inherit would name this one's device alone meanwhile
    for index in range(1, workers):
        Thread(target=_keep_running, args=(node, index, launcher), name=f"worker {index}", daemon=True).start()
    run_dealer(mine, log.info, workers)


def _keep_running(node: Node, index: int, launcher: Launcher) -> None:
    name, pause = worker_name(node.role, index), LOOK_S
    while True:
        began = time.monotonic()
        try:
            worker = launcher.start(name, partial(node.settings_of, index))
            log.info("worker %d begins", index)
            died = _await_end(worker)
            worker.stop()
        except (OSError, HdcosError) as error:
            died = f"{type(error).__name__}: {error}"
        except Exception as error:  # its message might quote anything
            died = f"internal error ({type(error).__name__})"
        log.warning("worker %d does not work: %s", index, died)
        pause = LOOK_S if time.monotonic() - began > LONGEST_PAUSE_S else min(2 * pause, LONGEST_PAUSE_S)
        time.sleep(pause)


def _await_end(worker: Running) -> str:
    while not (died := worker.state()):
        time.sleep(LOOK_S)
    return died
