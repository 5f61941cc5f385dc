"""Is every opened value uniform whatever the secret, and every difference of two openings too?

The sum of both halves is tested, not a half: each half is uniform even under a broken mask. A reused mask leaves
each opening uniform and shows only in differences: within a run, and between runs on equal and on different secrets.
A mask deliberately broken and one deliberately reused must be caught by the same tests.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from math import prod

import numpy as np
import pytest
from scipy import stats

from hdcos.offline import Kind, Ration
from hdcos.protocol.plan import plan
from hdcos.protocol.simulate import Opened, deal, share_pair, simulate
from protocol_cases import CASES, Case

SAMPLES = 20_000
BINS_BITS = 5
LEAST_P = 1e-9
"""A uniform value fails a test once in a billion; thousands of tests are made."""

SECRETS = {"0": 0, "1": 1, "-1": 2**64 - 1, "large": 2**62 + 987654321}
SECRET_CASES = [case for case in CASES if case.name != "reveal"]

Rationing = Callable[[Case, list], tuple[Ration, Ration]]
Runs = list[list[Opened]]


def fresh(case: Case, shares: list) -> tuple[Ration, Ration]:
    return deal(plan(case.program, *(halves[0] for halves in shares)).material)


def broken(case: Case, shares: list) -> tuple[Ration, Ration]:
    """Masks whose halves never have the uppermost opened bit set."""
    zero, one = fresh(case, shares)

    class Tampered:
        def __init__(self, ration: Ration) -> None:
            self.ration, self.halves = ration, []

        @property
        def position(self) -> int:
            return self.ration.position

        def finish(self) -> None:
            self.ration.finish()

        def take(self, kind: Kind, units: int):
            fields = [field.copy() for field in self.ration.take(kind, units)]
            opened_bits = getattr(kind, "phase_bits", None) or getattr(kind, "bits", 64)
            for index, item in enumerate(kind.fields()):
                if item.name == "mask":
                    fields[index] &= ~fields[index].dtype.type(1 << (opened_bits - 1))
            return tuple(fields)

    return Tampered(zero), Tampered(one)


def reusing() -> Rationing:
    """The same material for every run."""
    kept: list = []

    def ration(case: Case, shares: list) -> tuple[Ration, Ration]:
        if not kept:
            kept.append(fresh(case, shares))
        return copy.deepcopy(kept[0])

    return ration


def openings(case: Case, word: int, runs: int, rationing: Rationing = fresh) -> Runs:
    """What each of several runs on a constant secret opened, part by part."""
    observed = []
    for _ in range(runs):
        shares = [share_pair(np.full(shape, word, np.uint64), case.scale) for shape in case.shapes]
        _, transcript = simulate(case.program, *shares, rations=rationing(case, shares))
        observed.append([part for round_ in transcript.rounds for part in round_])
    return observed


def runs_needed(case: Case) -> int:
    return max(2, -(-SAMPLES // prod(case.shapes[0])))


def p_value(values: np.ndarray, bits: int) -> float:
    """The smaller p-value of chi-square tests on the top and on the low bits."""
    values = values.astype(np.uint64) & np.uint64((1 << bits) - 1)
    top = (values >> np.uint64(bits - BINS_BITS)).astype(int)
    low = (values & np.uint64((1 << BINS_BITS) - 1)).astype(int)
    return min(stats.chisquare(np.bincount(part, minlength=1 << BINS_BITS)).pvalue for part in (top, low))


def least_p(samples: list[tuple[list[np.ndarray], int]]) -> float:
    return min(p_value(np.concatenate([values.ravel() for values in parts]), bits) for parts, bits in samples)


def singles(runs: Runs) -> list[tuple[list[np.ndarray], int]]:
    """Each opening by itself."""
    return [([run[index].values for run in runs], runs[0][index].bits) for index in range(len(runs[0]))]


def differences_within(runs: Runs) -> list[tuple[list[np.ndarray], int]]:
    """Neighbouring elements of one opening, and any two openings of one run."""
    samples = []
    for i, first in enumerate(runs[0]):
        even = first.values.size // 2 * 2
        samples.append(([np.diff(run[i].values.ravel()[:even])[::2] for run in runs], first.bits))
        for j in range(i):
            size = min(first.values.size, runs[0][j].values.size)
            bits = min(first.bits, runs[0][j].bits)
            pairs = [(run[i].values.ravel()[:size], run[j].values.ravel()[:size]) for run in runs]
            samples.append(([a.astype(np.uint64) - b.astype(np.uint64) for a, b in pairs], bits))
    return samples


def differences_between(runs: Runs, others: Runs) -> list[tuple[list[np.ndarray], int]]:
    """The same opening of two runs."""
    return [
        ([run[index].values - other[index].values for run, other in zip(runs, others, strict=True)], part.bits)
        for index, part in enumerate(runs[0])
    ]


@pytest.mark.parametrize("case", SECRET_CASES, ids=lambda case: case.name)
def test_openings_and_their_differences_are_uniform_whatever_the_secret(case: Case) -> None:
    runs = {name: openings(case, word, runs_needed(case)) for name, word in SECRETS.items()}
    again = openings(case, SECRETS["0"], runs_needed(case))
    for name, observed in runs.items():
        assert least_p(singles(observed)) > LEAST_P, f"an opening shows the secret {name}"
        assert least_p(differences_within(observed)) > LEAST_P, f"two openings of one run are related at {name}"
        assert least_p(differences_between(observed, again)) > LEAST_P, f"two runs are related, secrets {name} and 0"


@pytest.mark.parametrize("case", SECRET_CASES, ids=lambda case: case.name)
def test_a_broken_mask_is_caught(case: Case) -> None:
    observed = openings(case, SECRETS["1"], runs_needed(case), broken)
    masked_parts = [sample for sample in singles(observed) if not _is_seed(sample)]
    assert least_p(masked_parts) < LEAST_P


@pytest.mark.parametrize("case", SECRET_CASES, ids=lambda case: case.name)
def test_a_reused_mask_is_caught_by_differences_between_runs(case: Case) -> None:
    rationing = reusing()
    observed = openings(case, SECRETS["1"], runs_needed(case), rationing)
    others = openings(case, SECRETS["-1"], runs_needed(case), rationing)
    masked_parts = [sample for sample in differences_between(observed, others) if not _is_seed(sample)]
    assert least_p(masked_parts) < LEAST_P


def test_one_mask_for_two_openings_of_a_run_is_caught_by_differences_within() -> None:
    from hdcos.offline import Mask
    from hdcos.protocol.opening import open_half
    from hdcos.protocol.rounds import together

    def careless(party, x):
        (mask,) = party.take(Mask(x.shape[1:], 64), len(x))
        return (yield from together(open_half(party, x, mask, 0, 64), open_half(party, x, mask, 0, 64)))

    case = Case("careless", careless, lambda x: x, CASES[0].price)
    observed = openings(case, SECRETS["large"], runs_needed(case))
    assert least_p(singles(observed)) > LEAST_P, "each opening alone looks innocent"
    assert least_p(differences_within(observed)) < LEAST_P


def _is_seed(sample: tuple[list[np.ndarray], int]) -> bool:
    """The paper's algorithm sends seeds from the operating system, which no material masks."""
    return sample[1] == 8
