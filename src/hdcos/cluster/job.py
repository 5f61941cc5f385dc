"""A run of training, followed from the caller's side: every epoch of it, and how it does on the caller's own rows.

The parties show the model of each epoch under a name of its own, and wait until it was looked at. On a terminal a bar
shows how far it is; elsewhere nothing is printed.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Thread
from time import perf_counter
from typing import TYPE_CHECKING, Any

from hdcos import errors
from hdcos.api.cost import Cost
from hdcos.cluster.model import PrivateModel
from hdcos.cluster.transport import ENDED, RetryableError, Status
from hdcos.errors import DataMissing, HdcosError, HdcosWarning, InputError, PolicyRefused, RangeError
from hdcos.secure.training.watch import Epoch, Watch

if TYPE_CHECKING:
    from rich.progress import Progress

    from hdcos.cluster.cluster import Cluster

POLL_S = 0.5
ALL_EPOCHS = 10_000
"""More than a job may have: a client that has looked at this one looks at none."""


class Job:
    """A run of training that goes on while the caller does something else; `cluster.job(id)` finds it again."""

    def __init__(
        self,
        cluster: Cluster,
        number: str,
        watched: Watch | None = None,
        own_rows: str = "",
        patience: int | None = None,
        every: int = 1,
    ) -> None:
        self._cluster, self._transport, self.id = cluster, cluster.transport, number
        self._watched, self._own_rows, self._patience = watched, own_rows, patience
        self._every = self._next = every
        """Epochs from one look to the next, and the next that is looked at."""
        self.best_epoch: int | None = None
        """Whose weights the model has, where epochs were judged; else the model is that of the last one."""
        self.state, self.step, self.total_steps = "waiting", 0, 0
        self._error = self._model = self._version = ""
        self._epochs: dict[int, Epoch] = {}
        self._seconds: dict[int, float] = {}
        self._follower: Thread | None = None
        self._failure: BaseException | None = None

    # ---- what callers ask

    @property
    def done(self) -> bool:
        """Whether it has ended, however it did."""
        if self._follower is not None and self._follower.is_alive():
            return False
        self._look()
        return self.state in ENDED

    @property
    def cancelled(self) -> bool:
        return self.state == "cancelled"

    @property
    def history(self) -> list[Epoch]:
        """What is known of each epoch so far."""
        return [self._epochs[number] for number in sorted(self._epochs)]

    @property
    def cost(self) -> Cost:
        """What it cost so far, at both parties, and nobody else's work: rounds, bytes and seconds of its steps, and
        their material."""
        return Cost.of([status["report"]["cost"] for status in self._transport.job(self.id)])

    def cancel(self) -> None:
        """End after the steps under way; `result` is the model as it is then."""
        self._transport.cancel(self.id, keep=True)

    def events(self) -> Iterator[Status]:
        """What party 0 says of the job, until it ends; a lost connection is made again."""
        while True:
            try:
                for status in self._transport.events(self.id):
                    self._note(status)
                    yield status
            except RetryableError:
                time.sleep(POLL_S)
            if self.state in ENDED:
                return
            self._look()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended or the time is over. True if it has ended; an error that ended it is raised."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if self._follower is not None:
            self._follower.join(timeout_s)
            if self._failure is not None and not self._follower.is_alive():
                raise self._failure
        while not self.done:
            if deadline is not None and time.monotonic() >= deadline:
                return False
            time.sleep(POLL_S)
        if self.state == "failed":
            name, _, text = self._error.partition(": ")
            known = name in errors.NAMED
            raise errors.remote(name if known else "", f"job {self.id} failed: {text if known else self._error}")
        return True

    def result(self, timeout_s: float | None = None) -> PrivateModel:
        """The trained model; of a job that was cancelled, the model as it was then."""
        if not self.wait(timeout_s):
            raise TimeoutError(f"step {self.step} of {self.total_steps} after {timeout_s:g} s: the job goes on")
        if self.cancelled and not self._version:
            raise HdcosError(f"job {self.id} was cancelled, and nothing of it was kept")
        model = self.model()
        model.history, model.cost, model.best_epoch = self.history, self.cost, self.best_epoch
        return model

    def model(self) -> PrivateModel:
        """The model that it made; a newer one of that name, if there is one by now."""

        def wanted() -> str:
            self._look()
            return self._version

        self._look()
        return self._cluster.model(self._model, wanted)

    def __repr__(self) -> str:
        return f"<Job {self.id}, {self.state}, step {self.step} of {self.total_steps}>"

    # ---- following it

    def follow_in_background(self) -> None:
        """See every epoch while the caller does something else."""

        def work() -> None:
            try:
                self.follow(progress=False)
            except BaseException as error:
                self._failure = error

        self._follower = Thread(target=work, name="training", daemon=True)
        self._follower.start()

    def leave(self) -> None:
        """The caller goes: a job that goes on without it need not wait for its looks."""
        if self._follower is not None and self._follower.is_alive():
            with suppress(HdcosError):
                self._transport.looked(self.id, ALL_EPOCHS)

    def follow(self, progress: bool) -> None:
        """See every epoch until the job ends; RangeError, and its end, if it diverges."""
        events, began, looked = self.events(), time.monotonic(), ""
        try:
            with show_progress(progress) as display:
                for status in events:
                    display.update(status)
                    for number, seconds in status["report"]["ended"]:
                        self._seconds[int(number)] = seconds
                        if self._watched is None:
                            self._epochs.setdefault(int(number), Epoch(int(number), seconds))
                    interim = status["interim"]
                    if self._watched is not None and interim["version"] not in ("", looked):
                        looked = interim["version"]
                        try:
                            self._look_at(interim)
                        except PolicyRefused as error:
                            self._stop_looking(error)
                        display.note(self._epochs[interim["epoch"]])
                self._look()
                while self.state not in ENDED:  # at party 1, too
                    time.sleep(POLL_S)
                    self._look()
                if self.state == "done":
                    last = self._complete(status["epochs"], time.monotonic() - began)
                    display.note(self._epochs[last])
        except RangeError:  # it diverged: nothing will come of it
            self._transport.cancel(self.id, keep=False)
            for _ in events:
                pass
            raise
        finally:
            if self._own_rows and self.state in ENDED:
                with suppress(HdcosError):  # rows that came with the call, and go with it
                    self._transport.forget_data(self._own_rows)

    def _look_at(self, interim: dict[str, Any]) -> None:
        """Predictions of the model of an epoch while training waits."""
        number, best, stop = interim["epoch"], False, False
        self._epochs.setdefault(number, Epoch(number, self._seconds.get(number, 0.0)))
        if self._patience is None and number < self._next:  # looked at already, before a crash, or not to be
            self._transport.looked(self.id, self._next - 1)
            return

        def shown() -> str:  # after a crash it is another one, which nobody should wait for
            return str(self._transport.job(self.id)[0]["interim"]["version"])

        with suppress(DataMissing):  # too late: the job waited for long, went on and has ended
            try:
                found = self._transport.model(interim["model"], shown)
                record = found if found.version == interim["version"] else None
            except InputError:  # a party was lost and has begun again: the epoch will be shown again
                record = None
            if record is None and self._patience is not None:
                return  # nobody has judged it yet
            if record is not None:
                self._epochs[number] = self._score(number, PrivateModel(self._transport, record))
                self._next = number + self._every
                if self._patience is not None:
                    best, stop = judge(self._epochs, number, self._patience)
        self._transport.looked(self.id, max(number, self._next - 1), best, stop)

    def _stop_looking(self, error: PolicyRefused) -> None:
        """The parties predict nothing more: nobody looks, and training goes on to its end."""
        self._watched = None
        with suppress(HdcosError):  # then the job waits for a while, and goes on
            self._transport.looked(self.id, ALL_EPOCHS)
        said = f"job {self.id} goes on to its end, and how it does is not looked at any more: {error}"
        warnings.warn(said, HdcosWarning, stacklevel=4)

    def _score(self, number: int, model: PrivateModel) -> Epoch:
        assert self._watched is not None
        return self._watched.epoch(number, self._seconds.get(number, 0.0), model.predict(self._watched.rows))

    def _complete(self, last: int, seconds: float) -> int:
        """All epochs, the last one as the trained model is; returns its number. Times that a party forgot with a crash
        are the mean. Where epochs were judged all were looked at, and the last may be one of fewer."""
        judged = self._patience is not None and self._watched is not None and bool(self._epochs)
        last = max(self._epochs) if judged else last
        for number in range(1, last + 1):
            self._seconds.setdefault(number, seconds / last)
            self._epochs.setdefault(number, Epoch(number, self._seconds[number]))
        if self._watched is not None and not judged:
            try:
                self._epochs[last] = self._score(last, self.model())
            except PolicyRefused as error:
                self._stop_looking(error)
        return last

    def _look(self) -> None:
        zero, one = self._transport.job(self.id)
        self._note(zero)
        if self.state in ENDED and one["state"] not in ENDED:
            self.state = "running"  # party 1 has yet to end it

    def _note(self, status: Status) -> None:
        self.state, self.step = status["state"], status["step"]
        self.total_steps = status["total_steps"] or self.total_steps
        self._error, self._model, self._version = status["error"], status["model"], status["version"]
        self.best_epoch = status["report"].get("best") or None  # parties of earlier releases say nothing of it


def judge(epochs: Mapping[int, Epoch], number: int, patience: int) -> tuple[bool, bool]:
    """Whether an epoch has the smallest loss so far, and whether the best one lies so far back that training may stop.

    Epochs behind it are not looked at: after a crash an epoch may be judged for the second time.
    """
    losses = {n: epoch.loss for n, epoch in epochs.items() if n <= number and epoch.loss is not None}
    best = min(losses, key=lambda n: (losses[n], n), default=number)
    return best == number, number - best >= patience


class Display:
    """Epoch, steps per second, rounds, megabytes, available material, time left; without a bar, nothing."""

    def __init__(self, bar: Progress | None) -> None:
        self._bar = bar
        self._task = None if bar is None else bar.add_task("waiting", total=None, numbers="")
        self._last = (0, perf_counter())

    def update(self, status: Status) -> None:
        """Show what a party says of the job now."""
        if self._bar is None or self._task is None:
            return
        (step, moment), now = self._last, perf_counter()
        said, online = [], status["report"]["cost"]["online"]
        if status["step"] > step:
            said.append(f"{(status['step'] - step) / max(now - moment, 1e-9):.1f} steps/s")
            self._last = (status["step"], now)
        said.append(f"{online['rounds']:,} rounds, {online['bytes_sent'] / 1e6:,.0f} MB each way")
        if status.get("available") is not None:
            said.append(f"material for {status['available']} steps")
        epoch = min(status["epochs"], 1 + status["epoch"])
        running = status["state"] == "running"
        self._bar.update(
            self._task,
            total=status["total_steps"] or None,
            completed=status["step"],
            description=f"epoch {epoch}/{status['epochs']}" if running else status["state"],
            numbers=", ".join(said),
        )

    def note(self, epoch: Epoch) -> None:
        """Leave a line about an epoch above the bar."""
        if self._bar is not None:
            self._bar.console.print(str(epoch), highlight=False)


@contextmanager
def show_progress(wanted: bool) -> Iterator[Display]:
    if not (wanted and sys.stderr.isatty()):
        yield Display(None)
        return
    from rich.console import Console  # a client without a terminal does without it
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

    texts = [TextColumn("{task.description}"), BarColumn(20), TextColumn("{task.fields[numbers]}")]
    with Progress(*texts, TimeElapsedColumn(), TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        yield Display(bar)
