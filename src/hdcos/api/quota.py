"""How many rows of a model are answered: what each party decides for itself, and a caller can compute beforehand."""

from __future__ import annotations

from hdcos.secure.answers import stated_queries
from hdcos.secure.compile import CompiledNetwork

PART = 1000
"""What is stated for a network, divided by this, is answered unless the operator says otherwise."""


def allowed_queries(chosen: CompiledNetwork, configured: int) -> int:
    """How many rows of a model are answered: what the operator says, or a part of what is stated for its network, which
    is none where less than PART is stated."""
    return configured or int(stated_queries(chosen)) // PART
