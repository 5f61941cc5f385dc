"""Every error hdcos raises on purpose, in one tree.

HdcosError
├── InputError          a value, shape or type the caller passed cannot be used
│   └── RangeError      a number is outside what its fixed-point scale can hold
├── ModelError          a model or program cannot be built, read or shared
├── MaterialExhausted   less correlated randomness available than the work needs
├── MaterialReused      correlated randomness was repeated, skipped or asked for twice
├── HandshakeError      the peer runs another version, program, table, run or certificate
├── PeerLost            the peer closed the connection or did not answer in time
├── WorkerLost          one of the workers of a party that train together is gone
├── FrameError          bytes on a connection are not a well-formed frame
├── PolicyRefused       an operator's policy forbids what was asked
├── StorageFull         a disk has no room for what should be kept
├── DeviceError         a device is not there, or has no room for what should be computed
├── CheckpointMismatch  a checkpoint does not belong to this run
├── DataDamaged         what is kept of a data set is not what was written
└── DataMissing         a data file is not where it was looked for

Messages name shapes, counts, peers and remedies. They never contain share words.
An error that happens on another node travels there by name and is raised here as the same class.
What may well be right and deserves a look is an HdcosWarning.
"""

from __future__ import annotations

from collections.abc import Sequence


class HdcosError(Exception):
    """Base of all errors that hdcos raises on purpose."""


class HdcosWarning(UserWarning):
    """Something was assumed that the caller may know better."""


class RateRaised(UserWarning):
    """A schedule fell below the least rate that a run can take."""


class InputError(HdcosError, ValueError):
    """A value, shape or type the caller passed cannot be used."""


class RangeError(InputError):
    """A number is outside what its fixed-point scale can hold."""


class ModelError(HdcosError):
    """A model or program cannot be built, read or shared."""


class MaterialExhausted(HdcosError):
    """Less correlated randomness is available than the work needs."""


class MaterialReused(HdcosError):
    """Correlated randomness was repeated, skipped or asked for twice."""


class HandshakeError(HdcosError):
    """The peer runs another version, program, table, run or certificate."""


class PeerLost(HdcosError, ConnectionError):
    """The peer closed the connection or did not answer in time."""


class WorkerLost(HdcosError):
    """One of the workers of a party that train together is gone: training goes on from the last checkpoint."""

    def __init__(self, message: str, workers: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.workers = tuple(workers)
        """Their numbers, where they are known."""


class FrameError(HdcosError):
    """Bytes on a connection are not a well-formed frame."""


class PolicyRefused(HdcosError):
    """An operator's policy forbids what was asked."""


class StorageFull(HdcosError):
    """A disk has no room for what should be kept."""


class DeviceError(HdcosError):
    """A device that should compute is not there, cannot be used or has no room."""


class CheckpointMismatch(HdcosError):
    """A checkpoint does not belong to this run."""


class DataDamaged(HdcosError):
    """What is kept of a data set is not what was written."""


class DataMissing(HdcosError, FileNotFoundError):
    """A data file is not where it was looked for."""


NAMED: dict[str, type[HdcosError]] = {
    name: kind for name, kind in list(vars().items()) if isinstance(kind, type) and issubclass(kind, HdcosError)
}


def remote(name: str, message: str) -> HdcosError:
    """The error another node reported, as the same class here."""
    return NAMED.get(name, HdcosError)(message)
