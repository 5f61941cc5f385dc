"""Data sets and training jobs on a remote cluster."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from hdcos.client.halves import random_words
from hdcos.client.model import RemoteModel
from hdcos.client.names import check_name
from hdcos.client.parties import Parties, RetryableError
from hdcos.errors import HdcosError, InputError, PeerLost
from hdcos.nn import Flatten, Sequential
from hdcos.nn.columns import Rows
from hdcos.ring import Array
from hdcos.train.form import Form
from hdcos.train.targets import Epoch, HeldOut, accuracy, check_targets, encoded_rows, one_hot

if TYPE_CHECKING:
    from hdcos.client.cluster import RemoteCluster

CHUNK_BYTES = 1 << 23
ENDED = ("done", "failed", "cancelled")
POLL_S = 0.5


def upload(parties: Parties, x: Rows, y: ArrayLike | None, name: str, outputs: int) -> None:
    """Split one owner's rows between the parties, chunk by chunk; a chunk that got lost is sent again."""
    words, shape = encoded_rows(x, y, outputs)
    version, flat = secrets.token_hex(16), np.concatenate([part.reshape(-1) for part in words.values()])
    parties.ask("POST", "/v2/datasets", {"name": name, "version": version, **shape})
    path = f"/v2/datasets/{check_name(name)}/{version}"
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
        model = RemoteModel(self._parties, self._model)
        model.history = self.history
        return model

    def __repr__(self) -> str:
        return f"<RemoteJob {self.id}, {self.state}, step {self.step} of {self.total_steps}>"

    def _look(self) -> None:
        self._note(self._parties.patiently("GET", self._path)[0].meta)

    def _note(self, status: dict[str, Any]) -> None:
        self.state, self.step = status["state"], status["step"]
        self.total_steps = status["total_steps"] or self.total_steps
        self._error, self._model = status["error"], status["model"]

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


def follow(job: RemoteJob, model: str, held: HeldOut | None, loss: str, progress: bool) -> None:
    """Watch a job until it ends: show how far it is, and see how the model of each epoch does on the caller's rows."""
    seen, began = 0, time.monotonic()
    with _bar(progress) as show:
        for status in job.events():
            show(status)
            epoch = status["epochs"] if status["state"] == "done" else status["epoch"]
            if epoch > seen:
                score = None
                if held is not None:
                    scores = RemoteModel(job._parties, model).predict(held.rows)
                    score = accuracy(scores, held, loss, epoch - 1)
                job.history.append(Epoch(epoch, time.monotonic() - began, score))
                seen, began = epoch, time.monotonic()


class _bar:  # noqa: N801
    """A progress bar on a terminal, nothing elsewhere."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted
        self._progress: Any = None

    def __enter__(self) -> Callable[[dict[str, Any]], None]:
        import sys

        if not (self._wanted and sys.stderr.isatty()):
            return lambda status: None
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

        return show

    def __exit__(self, *rest: object) -> None:
        if self._progress is not None:
            self._progress.stop()


def public_front(form: Form, model: Sequential, x: Rows, y: ArrayLike, loss: str) -> Array:
    """Rows of a call after the leading public layers, with their labels checked."""
    check_targets(one_hot(y, form.outputs), loss)
    values = model.rows(x)
    for layer in form.front:
        values = layer.forward({}, values)
    return values


def check_named(form: Form) -> None:
    """Rows that were uploaded are what the first shared layer takes."""
    if any(not isinstance(layer, Flatten) for layer in form.front):
        raise InputError(f"apply the leading {form.front[0].kind} before uploading, and train what follows it")
