"""All seeds but one: sixteen seeds of which the other party learns all except the one it names, secretly.

Computes  from a root, a binary tree of depth 4 whose leaves are the seeds; from the sums of the left and of the right
          nodes of each level, one of each pair per base transfer, all leaves but one.
Security  whoever names leaf a chooses in each level the sum on the side that the path to a does not take. Nodes on the
          path are never covered: their sums are hidden by keys it does not have, and the hash of a node gives no hint
          at the node. Its choices are hidden by the base transfers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

DEPTH = 4
LEAVES = 1 << DEPTH
SEED_BYTES = 16

Sums = list[tuple[bytes, bytes]]


def grow(root: bytes, session: bytes, number: int) -> tuple[list[bytes], Sums]:
    """The leaves of a tree, and per level the sums of its left and of its right nodes."""
    nodes, sums = [root], []
    for level in range(DEPTH):
        nodes = [child for node in nodes for child in _children(node, session, number, level)]
        sums.append((xor(nodes[0::2]), xor(nodes[1::2])))
    return nodes, sums


def sides(leaf: int) -> list[int]:
    """Which sum of each level is needed to know all leaves but this one: 0 left, 1 right."""
    return [1 - (leaf >> (DEPTH - 1 - level) & 1) for level in range(DEPTH)]


def regrow(leaf: int, sums: Sequence[bytes], session: bytes, number: int) -> list[bytes]:
    """All leaves but one, which stays zero; `sums` are those that `sides` names."""
    nodes: list[bytes | None] = [None]
    for level, side in enumerate(sides(leaf)):
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
