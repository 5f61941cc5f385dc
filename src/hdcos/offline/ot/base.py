"""What every transfer rests on: base transfers, and trees of seeds of which the other party learns all but one.

*Base transfers*: of 128 pairs of random keys one party knows both keys, the other one of each pair.

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

*Trees*: sixteen seeds of which the other party learns all except the one it names, secretly.
Computes  from a root, a binary tree of depth 4 whose leaves are the seeds; from the sums of the left and of the right
          nodes of each level, one of each pair per base transfer, all leaves but one.
Security  the party that names leaf a chooses in each level the sum on the side that the path to a does not take. Nodes
          on the path are never covered: their sums are hidden by keys it does not have, and the hash of a node gives no
          hint at the node. Its choices are hidden by the base transfers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from nacl import bindings as sodium
from nacl.exceptions import CryptoError

from hdcos.errors import FrameError
from hdcos.sharing import fresh_seed

POINT_BYTES = 32
KEY_BYTES = 16
DEPTH = 4
LEAVES = 1 << DEPTH
SEED_BYTES = 16


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
            points = tuple(_check_point(answer[p : p + POINT_BYTES]) for p in (at, at + POINT_BYTES))
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
        point = _check_point(answer)
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


def _check_point(point: bytes) -> bytes:
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


def grow_tree(root: bytes, session: bytes, number: int) -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """The leaves of a tree, and per level the sums of its left and of its right nodes."""
    nodes, sums = [root], []
    for level in range(DEPTH):
        nodes = [child for node in nodes for child in _children(node, session, number, level)]
        sums.append((xor(nodes[0::2]), xor(nodes[1::2])))
    return nodes, sums


def choose_sides(leaf: int) -> list[int]:
    """Which sum of each level is needed to know all leaves but this one: 0 left, 1 right."""
    return [1 - (leaf >> (DEPTH - 1 - level) & 1) for level in range(DEPTH)]


def regrow_tree(leaf: int, sums: Sequence[bytes], session: bytes, number: int) -> list[bytes]:
    """All leaves but one, which stays zero; `sums` are those that `choose_sides` names."""
    nodes: list[bytes | None] = [None]
    for level, side in enumerate(choose_sides(leaf)):
        path = leaf >> (DEPTH - level)
        children: list[bytes | None] = []
        for node in nodes:
            children += [None, None] if node is None else _children(node, session, number, level)
        known = [child for child in children[side::2] if child is not None]
        children[2 * path + side] = xor([sums[level], *known])
        nodes = children
    return [bytes(SEED_BYTES) if node is None else node for node in nodes]


def xor(blocks: Sequence[bytes]) -> bytes:
    """The sum of blocks of 16 bytes."""
    total = 0
    for block in blocks:
        total ^= int.from_bytes(block, "little")
    return total.to_bytes(SEED_BYTES, "little")


def _children(node: bytes, session: bytes, number: int, level: int) -> list[bytes]:
    salt = number.to_bytes(8, "little") + level.to_bytes(8, "little")
    pair = hashlib.blake2b(node, key=session, salt=salt, person=b"hdcos.tree", digest_size=2 * SEED_BYTES).digest()
    return [pair[:SEED_BYTES], pair[SEED_BYTES:]]
