"""Base transfers as they should be: the keys, without the curve. Those on the curve are tested with `hdcos.offline.ot`,
and here by tests that do not ask for these."""

from __future__ import annotations

import hashlib

import pytest

from hdcos.join import oprf
from hdcos.offline.ot.base import KEY_BYTES, POINT_BYTES


def key(session: bytes, number: int, choice: int) -> bytes:
    return hashlib.sha256(session + bytes((number, choice))).digest()[:KEY_BYTES]


class IdealSender:
    def __init__(self, session: bytes, count: int) -> None:
        self._session, self._count, self.message = session, count, bytes(POINT_BYTES)

    def keys(self, answer: bytes) -> list[tuple[bytes, bytes]]:
        assert len(answer) == 2 * POINT_BYTES * self._count
        return [(key(self._session, number, 0), key(self._session, number, 1)) for number in range(self._count)]


class IdealReceiver:
    def __init__(self, session: bytes, choices: list[int]) -> None:
        self._session, self._choices, self.message = session, choices, bytes(2 * POINT_BYTES * len(choices))

    def keys(self, answer: bytes) -> list[bytes]:
        assert len(answer) == POINT_BYTES
        return [key(self._session, number, choice) for number, choice in enumerate(self._choices)]


@pytest.fixture
def ideal_transfers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oprf, "BaseSender", IdealSender)
    monkeypatch.setattr(oprf, "BaseReceiver", IdealReceiver)
