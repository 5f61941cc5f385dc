"""Do the tests notice? Small faults, one at a time, in the modules where a fault would be a leak or a lie.

`make prove SUITE=mutation [PART=party.http.auth]` writes every mutant that no test killed. One that computes the same
as the original is named in EQUIVALENT with the reason; all others count.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache, partial
from multiprocessing import get_context
from typing import NamedTuple

from benchmarks.mutant import Mutant, mutants
from benchmarks.mutant_trial import Trial
from benchmarks.record import Line, at_least

LEAST_KILLED = 0.9

PROTOCOLS = ("golden", "protocol/test_limits.py", "protocol/test_prices.py", "protocol/test_answers.py")
NETS: dict[str, tuple[str, ...]] = {
    "hdcos.protocol.opening": PROTOCOLS,
    "hdcos.protocol.masked": PROTOCOLS,
    "hdcos.sharing.share": ("sharing", "golden"),
    "hdcos.offline.pool": ("offline/test_pool.py",),
    "hdcos.party.allotment": ("party/test_allotment.py", "party/test_executions.py"),
    "hdcos.link.frame": ("link/test_frame.py", "link/test_exchange.py"),
    "hdcos.party.http.auth": ("party/test_auth.py",),
    "hdcos.party.checkpoint": ("party/test_checkpoints.py",),
    "hdcos.secure.labels": ("secure/test_labels.py",),
    "hdcos.secure.training.rule": ("secure/test_rule.py", "secure/test_rates.py", "golden"),
}
"""The modules, and the tests under tests/ that should notice, the quickest first."""


class Same(NamedTuple):
    """Mutants that compute the same: the module, how they begin, what the line has, and why."""

    module: str
    changes: tuple[str, ...]
    code: str
    why: str


EQUIVALENT = (
    Same("hdcos.sharing.share", ("64 -> 65",), "def join(", "a word of 64 bits is its own remainder"),
    Same(
        "hdcos.sharing.share",
        ("Eq -> NotEq", "condition negated", "0 -> 1"),
        "share.words + zero if rank == 0",
        "minus a sharing of zero is a sharing of zero",
    ),
    Same(
        "hdcos.protocol.masked",
        ("Eq -> NotEq", "condition negated"),
        "if party.rank == 0 else np.uint64(0) -",
        "it does not matter which of the two parties adds what is public",
    ),
    Same("hdcos.party.allotment", ("0",), "self._boost: tuple[int, float] =", "that time was long ago"),
    Same("hdcos.party.allotment", ("Gt -> GtE",), "if number > self._burnt", "burning again burns nothing"),
    Same("hdcos.party.http.auth", ("0.0",), "self._read = 0.0", "that time was long ago"),
    Same("hdcos.link.frame", ("Lt -> LtE",), "if frame.sequence < sequence", "they are known to differ"),
    Same("hdcos.link.frame", ("8 -> 9",), "PIECE_BYTES = 8", "how much is encrypted at a time, not what is sent"),
    Same(
        "hdcos.link.frame", ("LtE -> Lt",), "payload_bytes(buffers) <= PIECE_BYTES", "a frame of one piece either way"
    ),
    Same("hdcos.link.frame", ("GtE -> Gt",), "held + len(view) >= PIECE_BYTES", "the last piece may be a whole one"),
    Same("hdcos.party.http.auth", ("Gt -> GtE",), "if size > counted", "holding no more changes nothing"),
    Same("hdcos.party.checkpoint", ("left out", "0.05"), "time.sleep(0.05)", "how often one looks, not what is found"),
    Same("hdcos.party.checkpoint", ("Gt -> GtE",), "if time.monotonic() > limit", "no clock is that exact"),
    Same("hdcos.party.checkpoint", ("0 -> 1",), "if self._lock >= 0", "descriptor 0 is the standard input"),
    Same("hdcos.party.checkpoint", ("1 -> 2",), "default=-1", "no file has a negative descriptor"),
    Same("hdcos.party.checkpoint", ("1 -> 2",), "self._lock = -1", "no file has a negative descriptor"),
    Same("hdcos.party.checkpoint", ("GtE -> Gt",), "if self._lock >= 0", "descriptor 0 is the standard input"),
    Same("hdcos.party.checkpoint", ("False",), "repr=False", "the number of a descriptor is no secret"),
    Same("hdcos.party.checkpoint", ("True",), "sort_keys=True", "the order of keys means nothing"),
    Same("hdcos.party.checkpoint", ("True",), "missing_ok=True", "the file was seen just before, under a lock"),
    Same("hdcos.party.checkpoint", ("0 -> 1",), "last = 0", "the first attempt is 1"),
    Same("hdcos.offline.pool", ("Gt -> GtE",), "if capacity > executions", "a copy is as good"),
    Same("hdcos.offline.pool", ("Gt -> GtE",), "if len(self._pieces) > 1", "a copy is as good"),
    Same("hdcos.offline.pool", ("And -> Or",), "if self.precomputes and capacity", "a copy is as good"),
    Same(
        "hdcos.offline.pool",
        ("0 -> 1",),
        "np.empty(0, np.uint8) if corrections",
        "one that needs some refuses both",
    ),
    Same("hdcos.offline.pool", ("Lt -> LtE",), "self._filled < wanted <=", "what is there is not waited for"),
    Same("hdcos.offline.pool", ("And -> Or",), "if self._failure is None and", "what failed is not ordered any more"),
    Same("hdcos.offline.pool", ("1 -> 2",), "if self.rank == 1:", "what is sent takes the place of what is expanded"),
    Same("hdcos.offline.pool", ("LShift", "1 -> 2", "26"), "SLAB_BYTES =", "how memory is cut, not what is in it"),
)


def is_equivalent(mutant: Mutant) -> bool:
    return any(
        mutant.module == same.module and mutant.change.startswith(same.changes) and same.code in mutant.change
        for same in EQUIVALENT
    )


@cache
def made_of(module: str) -> list[Mutant]:
    """Every fault of a module that changes what it computes."""
    return [mutant for mutant in mutants(module) if not is_equivalent(mutant)]


def kill_quickly(module: str) -> list[str]:
    """Try every fault the quick way; what the tests import."""
    with Trial(module, NETS[module]) as trial:
        return trial.kill_quickly(made_of(module))


def survivors_of(module: str, imported: Sequence[str]) -> list[str]:
    """The faults that no test notices, which the quick way does not see or cannot make."""
    survivors = []
    with Trial(module, NETS[module]) as trial:
        trial.warm(imported)
        for mutant in made_of(module):
            if trial.survives(mutant):
                survivors.append(str(mutant))
                print(f"survived: {mutant}", flush=True)
    return survivors


def prove_module(module: str, seed: int) -> Iterator[Line]:
    """Every fault of one module, in two processes: what one has imported, the other must not."""
    made = len(made_of(module))
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
        imported = process.submit(kill_quickly, module).result()
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as process:
        survivors = process.submit(survivors_of, module, imported).result()
    yield at_least(f"{module}: {made} faults, part that tests notice", 1 - len(survivors) / made, LEAST_KILLED)
    for survivor in survivors:
        yield Line(f"not noticed: {survivor}", 1, "reported", True)


PARTS = {module.removeprefix("hdcos."): partial(prove_module, module) for module in NETS}
