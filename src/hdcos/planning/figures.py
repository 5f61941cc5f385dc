"""Seconds of processor time as `hdcos plan --measure` found them, in a JSON file.

Processor time is counted by the kernel for each thread, so the figures hold on a machine that has other work as well.
A network is known by its architecture: weights change nothing in what it costs. The file that comes with hdcos has all
ready networks, and says on which processor they were measured.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from hdcos.api.bodies import explain
from hdcos.errors import InputError, ModelError
from hdcos.files import read_bytes, write_whole
from hdcos.nn import Network

Amount = Annotated[float, Meta(ge=0, lt=1e9)]
COMES_WITH = "figures.json"


class Table(Struct, frozen=True, forbid_unknown_fields=True):
    """A part of the file."""


class Work(Table, frozen=True):
    """Seconds, or bytes, of a batch or a step: a part that does not depend on its rows, and a part for each of them."""

    fixed: Amount
    row: Amount

    def of(self, rows: float) -> float:
        return self.fixed + self.row * rows


class Measured(Table, frozen=True):
    """Work on batches of predictions, or on steps of training."""

    online: Work
    """Of the thread that computes, at either party."""
    material: tuple[Work, Work]
    """Of the thread that unpacks material, at party 0 and at party 1."""
    dealer: Work
    caller: Work
    """Of the client that splits rows and joins answers; of training nothing."""
    waiting_s: Amount = 0.0
    """A batch that comes alone, besides work and rounds: until all that take part in it are awake. Of training nothing:
    its rounds follow one another."""


class NetworkFigures(Table, frozen=True):
    """What was measured of a network."""

    name: str
    inference: Measured
    training: Measured | None
    """None where a network cannot be trained on shares."""
    adding_s: Amount
    """A step of training, for each further worker of a party whose changes the first one adds."""
    round_s: Amount
    """A round between processes of one machine, besides work: until both threads are awake again."""
    slice_s: Amount
    """How long a thread that computes keeps its core while others wait for one."""
    switch_s: Amount
    """What a thread spends besides when it is given a core that others had for long: its caches are cold. After a short
    wait it is less, see `events.coldness`."""
    party_mb: Amount
    dealer_mb: Amount
    """Memory of a process, apart from the material that it keeps."""


class Figures(Table, frozen=True):
    """All that was measured on one machine."""

    machine: str
    version: str
    request: Work
    """A request over HTTPS at each party: its fixed part, and for each row."""
    networks: dict[str, NetworkFigures]
    """By the fingerprints of their architectures."""

    def of(self, model: Network) -> NetworkFigures:
        found = self.networks.get(model.fingerprint)
        if found is None:
            known = ", ".join(sorted(network.name for network in self.networks.values()))
            raise ModelError(
                f"nothing was measured of this network, only of {known}: add --measure, which takes about a minute"
            )
        return found

    def with_network(self, model: Network, measured: NetworkFigures) -> Figures:
        return msgspec.structs.replace(self, networks={**self.networks, model.fingerprint: measured})

    def write(self, path: Path) -> None:
        write_whole(path, msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")


def read_figures(path: Path | None = None) -> Figures:
    """The figures of a file, or those that come with hdcos."""
    if path is None:
        return msgspec.json.decode(resources.files(__package__).joinpath(COMES_WITH).read_bytes(), type=Figures)
    content = read_bytes(path, "measured figures")
    try:
        return msgspec.json.decode(content, type=Figures)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        try:
            wrong = explain(Figures, msgspec.json.decode(content))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            wrong = "it is not JSON"
        raise InputError(
            f"{path} has no measured figures: {wrong}. `hdcos plan --measure` writes such a file"
        ) from error
