"""Base transfers: of 128 pairs of random keys one party knows both keys, the other one of each pair.

Computes  receiver's bits c_i -> keys (k_i0, k_i1) for the sender, k_ic for the receiver. Masny and Rindal's endemic
          transfer (CCS 2019) on the prime-order group of edwards25519.
Online    one message each way, and they do not wait for each other: 32 bytes from the sender, 64 per transfer from the
          receiver.
Security  the receiver sends points (R_0, R_1) with R_c = t B - H(R_{1-c}) and R_{1-c} uniform: both are uniform, so
          the sender learns nothing of c, whatever it can compute. The receiver would know k_{1-c}, a hash of a
          (R_{1-c} + H(R_c)), only if it solved the computational Diffie-Hellman problem for a B and a point that a
          hash chose.

H hashes to the group by adding two Elligator images; scalar and point arithmetic are libsodium's, through PyNaCl.
Points are checked to lie in the prime-order group when they arrive. Random keys: what they encrypt is up to the caller.
"""

from __future__ import annotations

import hashlib

from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from hdcos.errors import FrameError
from hdcos.sharing import fresh_seed

POINT_BYTES = 32
KEY_BYTES = 16


class BaseSender:
    """Knows both keys of every pair."""

    def __init__(self, session: bytes, count: int) -> None:
        self._session, self._count, self._scalar = session, count, _scalar()
        self.message = sodium.crypto_scalarmult_ed25519_base_noclamp(self._scalar)

    def keys(self, answer: bytes) -> list[tuple[bytes, bytes]]:
        """Both keys of each pair, from the receiver's points."""
        if len(answer) != 2 * POINT_BYTES * self._count:
            raise FrameError(f"{len(answer)} bytes of base transfers, {2 * POINT_BYTES * self._count} expected")
        pairs = []
        for i in range(self._count):
            at = 2 * POINT_BYTES * i
            points = tuple(_checked(answer[p : p + POINT_BYTES]) for p in (at, at + POINT_BYTES))
            keys = []
            for c in (0, 1):
                base = sodium.crypto_core_ed25519_add(points[c], _to_group(self._session, i, c, points[1 - c]))
                keys.append(_key(self._session, i, c, self.message, points, _times(self._scalar, base)))
            pairs.append((keys[0], keys[1]))
        return pairs


class BaseReceiver:
    """Knows the key of each pair that its bit chose."""

    def __init__(self, session: bytes, choices: list[int]) -> None:
        self._session, self._choices = session, choices
        self._scalars, self._points = [], []
        for i, c in enumerate(choices):
            secret = _scalar()
            other = sodium.crypto_scalarmult_ed25519_base_noclamp(_scalar())
            mine = sodium.crypto_core_ed25519_sub(
                sodium.crypto_scalarmult_ed25519_base_noclamp(secret), _to_group(session, i, c, other)
            )
            self._scalars.append(secret)
            self._points.append((other, mine) if c else (mine, other))
        self.message = b"".join(point for pair in self._points for point in pair)

    def keys(self, answer: bytes) -> list[bytes]:
        """The chosen key of each pair, from the sender's point."""
        if len(answer) != POINT_BYTES:
            raise FrameError(f"a base transfer's point has {POINT_BYTES} bytes, not {len(answer)}")
        point = _checked(answer)
        return [
            _key(self._session, i, c, point, self._points[i], _times(self._scalars[i], point))
            for i, c in enumerate(self._choices)
        ]


def _scalar() -> bytes:
    scalar: bytes = sodium.crypto_core_ed25519_scalar_reduce(fresh_seed() + fresh_seed())
    return scalar


def _times(scalar: bytes, point: bytes) -> bytes:
    try:
        product: bytes = sodium.crypto_scalarmult_ed25519_noclamp(scalar, point)
    except (CryptoError, RuntimeError) as error:
        raise FrameError("a point of a base transfer gives no key") from error
    return product


def _checked(point: bytes) -> bytes:
    if not sodium.crypto_core_ed25519_is_valid_point(point):
        raise FrameError("what came for a base transfer is no point of the prime-order group")
    return point


def _to_group(session: bytes, index: int, choice: int, point: bytes) -> bytes:
    """A point nobody knows the logarithm of."""
    digest = hashlib.sha512(b"hdcos base point" + session + bytes((index, choice)) + point).digest()
    shares = (sodium.crypto_core_ed25519_from_uniform(digest[at : at + 32]) for at in (0, 32))
    total: bytes = sodium.crypto_core_ed25519_add(*shares)
    return total


def _key(session: bytes, index: int, choice: int, sender: bytes, points: tuple[bytes, ...], secret: bytes) -> bytes:
    """The whole transcript of a transfer goes into its key."""
    transcript = session + bytes((index, choice)) + sender + b"".join(points) + secret
    return hashlib.sha256(b"hdcos base key" + transcript).digest()[:KEY_BYTES]
