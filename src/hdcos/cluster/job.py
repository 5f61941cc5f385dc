"""Training in the background: what `fit(..., wait=False)` returns."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Event, Thread

from hdcos.cluster.model import PrivateModel


class Job:
    """A run of training that goes on while the caller does something else."""

    def __init__(self, work: Callable[[Job], PrivateModel]) -> None:
        self.step = self.total_steps = 0
        self._stop = Event()
        self._future: Future[PrivateModel] = Future()
        self._thread = Thread(target=self._run, args=(work,), name="training", daemon=True)
        self._thread.start()

    @property
    def done(self) -> bool:
        return self._future.done()

    @property
    def cancelled(self) -> bool:
        return self._stop.is_set()

    def cancel(self) -> None:
        """End after the steps under way; `result` is the model as it is then."""
        self._stop.set()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it is done or the time is over; an error that ended it is raised. True if it is done."""
        self._thread.join(timeout_s)
        if not self._future.done():
            return False
        self._future.result()
        return True

    def result(self, timeout_s: float | None = None) -> PrivateModel:
        """The trained model; whatever ended the training otherwise is raised here."""
        if not self.wait(timeout_s):
            assert timeout_s is not None
            raise TimeoutError(f"step {self.step} of {self.total_steps} after {timeout_s:g} s: the job goes on")
        return self._future.result()

    def _run(self, work: Callable[[Job], PrivateModel]) -> None:
        try:
            self._future.set_result(work(self))
        except BaseException as error:
            self._future.set_exception(error)

    def __repr__(self) -> str:
        return f"<Job, step {self.step} of {self.total_steps}{', done' if self.done else ''}>"
