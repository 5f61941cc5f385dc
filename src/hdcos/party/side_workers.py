"""All further workers of a party: as many as its operator wants at the moment, which a file says."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

from hdcos.api import answers
from hdcos.api.commands import Command
from hdcos.errors import HdcosError
from hdcos.files import write_whole
from hdcos.party.side_worker import LOOK_S, Shared, SideWorker

log = logging.getLogger("hdcos")
WANTED_FILE = "workers"
"""In the folder of a party's state: how many workers its operator wants at the moment."""


class SideWorkers:
    """All further workers of a party; as many as its operator wants at the moment, which a file says."""

    def __init__(self, shared: Shared, wanted: Path) -> None:
        self._shared, self._wanted = shared, wanted
        self._side_workers: dict[int, SideWorker] = {}
        self._ended = Event()

    def start(self, workers: int) -> None:
        want_workers(self._wanted, workers)
        Thread(target=self._keep, name="workers", daemon=True).start()

    def _keep(self) -> None:
        while not self._ended.is_set():
            try:
                self.resize(read_wanted(self._wanted))
            except (OSError, HdcosError) as error:
                log.warning("the number of workers stays as it is: %s", error)
            except Exception:  # looked at again, whatever it was
                log.exception("the number of workers stays as it is")
            self._ended.wait(LOOK_S)

    def resize(self, workers: int) -> None:
        """Have this many workers in all, the first one included; none besides it once they were stopped."""
        workers = 1 if self._ended.is_set() else workers
        for index in [index for index in self._side_workers if index >= workers]:
            self._side_workers.pop(index).stop()
        for index in range(1, workers):
            if index not in self._side_workers:
                worker = SideWorker(index, self._shared)
                worker.start()
                self._side_workers[index] = worker
        self._shared.listener.workers = workers

    def stop(self, timeout_s: float) -> None:
        self._ended.set()
        stopped = list(self._side_workers.values())
        self.resize(1)
        for worker in stopped:
            worker.join(timeout_s)

    def up(self) -> list[int]:
        """The workers that work now."""
        return [index for index, worker in list(self._side_workers.items()) if worker.up]

    def joining(self) -> list[int]:
        """The workers that jobs can count on now."""
        return [index for index, worker in list(self._side_workers.items()) if worker.joins]

    def excuse(self, workers: Sequence[int], why: str) -> None:
        """Have jobs do without these for a while."""
        for index in workers:
            if (worker := self._side_workers.get(index)) is not None:
                worker.excuse(why)

    def tell(self, workers: Sequence[int], command: Command) -> None:
        """Have further workers carry out a command of a job, each when it gets to it."""
        for index in workers:
            if (worker := self._side_workers.get(index)) is not None:
                worker.tell(command)

    @property
    def rows(self) -> int:
        return sum(worker.rows for worker in list(self._side_workers.values()))

    @property
    def batches(self) -> int:
        return sum(worker.batches for worker in list(self._side_workers.values()))

    def status(self) -> list[answers.WorkerStatus]:
        return [worker.status() for worker in list(self._side_workers.values())]


def want_workers(file: Path, workers: int) -> None:
    """Have a party, which may be running, use this many workers."""
    write_whole(file, f"{workers}\n".encode())


def read_wanted(file: Path) -> int:
    """How many workers a party should have."""
    text = file.read_text().strip() if file.exists() else "1"
    return max(1, int(text)) if text.isdecimal() else 1
