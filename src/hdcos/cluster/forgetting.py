"""Have both parties forget a data set, a model or a job, also if one of them is away now.

Each party is asked by itself. What one did is not undone because the other is away: that one is named, and the same is
asked again when it is back. That neither party has anything is told, and no error here: this may be asked as often as
one likes.

Security  a party removes its own shares and asks nobody: one share that is left says nothing without the other. What
          was learnt from a model, and what jobs spent, stays in the ledgers: they count what must not be used twice.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from hdcos.checks import ID, check_name
from hdcos.cluster.connect import HttpsTransport
from hdcos.cluster.https import Answer
from hdcos.cluster.transport import ENDED
from hdcos.errors import DataMissing, HdcosError, InputError, PeerLost, PolicyRefused

PATHS = {"data set": "/v2/datasets", "model": "/v2/models", "job": "/v2/jobs"}
"""What can be forgotten, and where it is."""


@dataclass(frozen=True)
class Forgotten:
    """How it went."""

    what: str
    """With its kind: data set north."""
    parties: Sequence[int]
    """Those that had it, and have it no more."""

    def __str__(self) -> str:
        if not self.parties:
            return f"{self.what}: neither party has anything of it"
        where = "both parties" if len(self.parties) == 2 else f"party {self.parties[0]}, the other had nothing of it"
        return f"{self.what} is forgotten at {where}"


def forget(transport: HttpsTransport, name: str, kind: str | None = None) -> Forgotten:
    """Have both parties forget what is called so; PeerLost names the party that has to be asked again.

    With a model go the jobs that made it and have ended, and what was revealed of it.
    """
    kind = kind or ("job" if re.match(ID, name) else _kind(transport, check_name(name)))
    done = [_delete(transport, kind, name)]
    if kind == "model":
        done += [_delete(transport, "job", job) for job in _jobs_of(transport, name)]
    return Forgotten(f"{kind} {name}", sorted({rank for parties in done for rank in parties}))


def _kind(transport: HttpsTransport, name: str) -> str:
    """Whether a name is that of a data set of the caller's or of a model; a party that is away is not asked."""
    found = set[str]()
    for answer in transport.each("GET", f"{PATHS['data set']}/{name}"):
        if isinstance(answer, Answer) and any(item["own"] for item in answer.meta["versions"]):
            found.add("data set")
    for answer in transport.each("GET", PATHS["model"]):
        if isinstance(answer, Answer) and name in [item["name"] for item in answer.meta["models"]]:
            found.add("model")
    if len(found) > 1:
        raise InputError(f"a data set and a model are called {name!r}: say which, --data or --model")
    if not found and _jobs_of(transport, name):  # of a model that was forgotten before they were
        return "model"
    return found.pop() if found else "data set"


def _jobs_of(transport: HttpsTransport, model: str) -> list[str]:
    """The caller's jobs that made a model and have ended, at both parties if both have them."""
    answers = [answer for answer in transport.each("GET", PATHS["job"]) if isinstance(answer, Answer)]
    listed = [job for answer in answers for job in answer.meta["jobs"] if job["model"] == model]
    going = {job["id"] for job in listed if job["state"] not in ENDED}
    return [number for number in dict.fromkeys(job["id"] for job in listed) if number not in going]


def _delete(transport: HttpsTransport, kind: str, name: str) -> list[int]:
    """The parties that had it and have forgotten it; an error names the one that could not be told."""
    answers = transport.each("DELETE", f"{PATHS[kind]}/{name}")
    done = [rank for rank, answer in enumerate(answers) if isinstance(answer, Answer)]
    failed = [
        (rank, answer)
        for rank, answer in enumerate(answers)
        if isinstance(answer, HdcosError) and not isinstance(answer, DataMissing)
    ]
    for _, error in failed:
        if isinstance(error, InputError | PolicyRefused):
            raise error
    if failed:
        rank, error = failed[0]
        other = f" Party {1 - rank} has forgotten it." if 1 - rank in done else ""
        why = "; ".join(str(error) for _, error in failed)
        raise PeerLost(
            f"{why}. Its share of the {kind} {name} may still be there: say `hdcos forget {name}` again when it "
            f"answers.{other}"
        ) from error
    return done
