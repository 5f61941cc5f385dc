"""Data sets and training jobs on a remote cluster."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from hdcos.api.names import check_name
from hdcos.cluster.https import Parties, RetryableError
from hdcos.cluster.remote_cost import Cost
from hdcos.cluster.remote_model import RemoteModel
from hdcos.cluster.shares import random_words
from hdcos.errors import DataMissing, HdcosError, PeerLost
from hdcos.nn.columns import Rows
from hdcos.ring import Array
from hdcos.secure.training.targets import encoded_rows
from hdcos.secure.training.watch import Epoch, Watch

if TYPE_CHECKING:
    from hdcos.cluster.remote import RemoteCluster

CHUNK_BYTES = 1 << 23
ENDED = ("done", "failed", "cancelled")
POLL_S = 0.5


def upload(parties: Parties, x: Rows, y: ArrayLike | None, name: str, outputs: int, loss: str | None = None) -> None:
    """Split one owner's rows between the parties, chunk by chunk; a chunk that got lost is sent again."""
    words, shape = encoded_rows(x, y, outputs, loss)
    version, flat = secrets.token_hex(16), np.concatenate([part.reshape(-1) for part in words.values()])
    path = f"/v2/datasets/{check_name(name)}/{version}"
    try:
        parties.ask("POST", "/v2/datasets", {"name": name, "version": version, **shape})
        _send(parties, path, flat)
    except BaseException:
        with suppress(HdcosError):  # where that fails too, the parties forget it in their own time
            parties.ask("DELETE", path)
        raise


def _send(parties: Parties, path: str, flat: Array) -> None:
    digests = [hashlib.sha256(), hashlib.sha256()]
    for first in range(0, len(flat), CHUNK_BYTES // 8):
        part = flat[first : first + CHUNK_BYTES // 8]
        zero = random_words(part.shape)
        # A chunk that is sent again must be the same half: a fresh one would not fit the other party's.
        chunks = [half.astype("<u8", copy=False).tobytes() for half in (zero, part - zero)]
        for digest, chunk in zip(digests, chunks, strict=True):
            digest.update(chunk)
        parties.again(_put(parties, f"{path}?offset={8 * first}", chunks))
    parties.again(lambda: parties.ask("POST", f"{path}/complete", [{"sha256": d.hexdigest()} for d in digests]))


def _put(parties: Parties, path: str, chunks: list[bytes]) -> Callable[[], object]:
    return lambda: parties.ask("PUT", path, raw=chunks)


class RemoteJob:
    """A run of training at the parties. It goes on without this process; `cluster.job(id)` finds it again."""

    def __init__(self, cluster: RemoteCluster, number: str) -> None:
        self._cluster, self._parties, self.id = cluster, cluster.parties, number
        self._path = f"/v2/jobs/{number}"
        self.state, self.step, self.total_steps = "waiting", 0, 0
        self._error = self._model = self._version = ""
        self.history: list[Epoch] = []

    @property
    def done(self) -> bool:
        self._look()
        return self.state in ENDED

    def cancel(self) -> None:
        """End it after the steps under way; nothing of it is kept."""
        self._parties.ask("POST", f"{self._path}/cancel", {})

    def events(self) -> Iterator[dict[str, Any]]:
        """What party 0 says of the job, until it ends; a lost connection is made again."""
        while True:
            try:
                yield from self._stream()
            except RetryableError:
                time.sleep(POLL_S)
            if self.state in ENDED:
                return
            self._look()

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until it has ended or the time is over. True if it has ended; an error that ended it is raised."""
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self.done:
            if deadline is not None and time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        if self.state == "failed":
            raise HdcosError(f"job {self.id} failed: {self._error}")
        return True

    def result(self, timeout_s: float | None = None) -> RemoteModel:
        """The trained model."""
        if not self.wait(timeout_s):
            raise TimeoutError(f"step {self.step} of {self.total_steps} after {timeout_s:g} s: the job goes on")
        if self.state == "cancelled":
            raise HdcosError(f"job {self.id} was cancelled")
        model = self.model()
        model.history, model.cost = self.history, self.cost
        return model

    def model(self) -> RemoteModel:
        """The model that it made; a newer one of that name, if there is one by now."""

        def wanted() -> str:
            self._look()
            return self._version

        self._look()
        self._cluster.await_version(self._model, wanted)
        return RemoteModel(self._parties, self._model)

    @property
    def cost(self) -> Cost:
        """What it cost so far, at both parties, and nobody else's work: rounds, bytes and seconds of its steps, and
        their material."""
        return Cost.of([answer.meta["report"]["cost"] for answer in self._parties.patiently("GET", self._path)])

    def __repr__(self) -> str:
        return f"<RemoteJob {self.id}, {self.state}, step {self.step} of {self.total_steps}>"

    def _look(self) -> None:
        zero, one = (answer.meta for answer in self._parties.patiently("GET", self._path))
        self._note(zero)
        if self.state in ENDED and one["state"] not in ENDED:
            self.state = "running"  # party 1 has yet to end it

    def _note(self, status: dict[str, Any]) -> None:
        self.state, self.step = status["state"], status["step"]
        self.total_steps = status["total_steps"] or self.total_steps
        self._error, self._model, self._version = status["error"], status["model"], status["version"]

    def _seen(self, epoch: int) -> None:
        """Let training go on: the model of this epoch was looked at."""
        self._parties.again(lambda: self._parties.both[0].ask("POST", f"{self._path}/look", {"epoch": epoch}, None))

    def _stream(self) -> Iterator[dict[str, Any]]:
        answer = self._parties.both[0].follow(f"{self._path}/events")
        try:
            if answer.status != 200:
                raise RetryableError(PeerLost(f"party 0 answered with status {answer.status}"))
            buffer = b""
            for piece in answer.stream(1 << 12, decode_content=False):
                buffer += piece
                *lines, buffer = buffer.split(b"\n")
                for line in lines:
                    if line.startswith(b"data: "):
                        status = json.loads(line[6:])
                        self._note(status)
                        yield status
        except (OSError, ValueError) as error:
            raise RetryableError(PeerLost(f"the events of the job stopped ({type(error).__name__})")) from None
        except Exception as error:
            if type(error).__module__.startswith("urllib3"):
                raise RetryableError(PeerLost(f"the events of the job stopped ({type(error).__name__})")) from None
            raise
        finally:
            answer.close()


class Following:
    """A job seen from the caller's side until it ends: every epoch of it, and how it does on the caller's own rows.

    The parties show the model of each epoch under a name of its own, and wait until it was looked at.
    """

    def __init__(self, job: RemoteJob, cluster: RemoteCluster, watched: Watch | None) -> None:
        self._job, self._cluster, self._watched = job, cluster, watched
        self._seconds: dict[int, float] = {}
        self._epochs: dict[int, Epoch] = {}

    def run(self, progress: bool) -> None:
        job, began, last = self._job, time.monotonic(), 0
        with _bar(progress) as (show, say):
            for status in job.events():
                show(status)
                self._seconds |= {int(number): seconds for number, seconds in status["report"]["ended"]}
                shown, last = status["interim"]["epoch"], status["epochs"]
                if self._watched is not None and shown and shown not in self._epochs:
                    self._look_at(status["interim"])
                    say(self._epochs[shown])
            if job.wait() and job.state == "done":
                self._end(last, (time.monotonic() - began) / last)
                say(self._epochs[last])
        job.history = [self._epochs[number] for number in sorted(self._epochs)]

    def _look_at(self, interim: dict[str, Any]) -> None:
        """Predictions of the model of an epoch while training waits."""
        number = interim["epoch"]
        self._epochs[number] = Epoch(number, self._seconds.get(number, 0.0))
        with suppress(DataMissing):  # too late: the job waited for long, went on and has ended
            self._cluster.await_version(interim["model"], lambda: interim["version"])
            self._epochs[number] = self._scored(number, RemoteModel(self._job._parties, interim["model"]))
        self._job._seen(number)

    def _scored(self, number: int, model: RemoteModel) -> Epoch:
        assert self._watched is not None
        return self._watched.epoch(number, self._seconds.get(number, 0.0), model.predict(self._watched.rows))

    def _end(self, last: int, mean_s: float) -> None:
        """All epochs, the last one as the trained model is. Times that a party forgot with a crash are the mean."""
        for number in range(1, last + 1):
            self._seconds.setdefault(number, mean_s)
            self._epochs.setdefault(number, Epoch(number, self._seconds[number]))
        if self._watched is not None:
            self._epochs[last] = self._scored(last, self._job.model())


class _bar:  # noqa: N801
    """A progress bar on a terminal, nothing elsewhere."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._progress: Any = None

    def __enter__(self) -> tuple[Callable[[dict[str, Any]], None], Callable[[Epoch], None]]:
        import sys

        if not (self._wanted and sys.stderr.isatty()):
            return lambda status: None, lambda epoch: None
        from rich.console import Console
        from rich.progress import Progress

        self._progress = Progress(console=Console(stderr=True), transient=True)
        self._progress.start()
        task = self._progress.add_task("Training", total=None)

        def show(status: dict[str, Any]) -> None:
            words = f"{status['state']}, epoch {status['epoch']} of {status['epochs']}"
            self._progress.update(
                task, total=status["total_steps"] or None, completed=status["step"], description=words
            )

        def say(epoch: Epoch) -> None:
            self._progress.console.print(str(epoch), highlight=False)

        return show, say

    def __exit__(self, *rest: object) -> None:
        if self._progress is not None:
            self._progress.stop()
