"""How long one waits for another before that one counts as lost, as parts of a node's `timeout_s`.

Who waits for somebody that waits as well must give up later, or would name the wrong one and end more than is lost. So
every wait is shorter than those around it:

    JOIN      the first worker of a party, for those that train with it to come
    DEALER    anybody, for the dealer, which waits for nobody
    MATERIAL  a program, for material that is being made
    SUM       the first worker, for the parts of the others, who may wait for material
    1         a round, for the other party, which may wait for any of these; a worker, for the sum from the first one
    ANSWER    party 0, for how a command went at party 1, and party 1 for the next: it may wait in a round
    WORKER    a node, for its worker, which may wait for material and then in a round
    COMMAND   a follower, for the next command of a node that may wait for its own worker
"""

from __future__ import annotations

JOIN, DEALER, MATERIAL, SUM, ANSWER, WORKER, COMMAND = 0.5, 0.7, 0.8, 0.9, 1.2, 2.0, 3.0
MOST_JOIN_S = 5.0
"""The first pair answers nobody while it waits for the others."""


def join_s(timeout_s: float) -> float:
    """How long workers are waited for that were told to train together."""
    return min(MOST_JOIN_S, JOIN * timeout_s)
