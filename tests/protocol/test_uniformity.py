"""Is every opened value uniform whatever the secret, and every difference of two openings too?

The sum of both shares is tested, not a share: each share is uniform even under a broken mask. A reused mask leaves
each opening uniform and shows only in differences: within a run, and between runs on equal and on different secrets.
A mask deliberately broken and one deliberately reused must be caught by the same tests.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np
import pytest

import chi_square
from hdcos.offline import Allocation, Kind, RandomBit, SignTables
from hdcos.protocol.plan import plan
from hdcos.testing.pair import Opened, deal, share_pair, simulate
from protocol_cases import CASES, Case

SAMPLES = 20_000
FEWEST_RUNS = 4
BINS_BITS = 5
LEAST_P = 1e-9
"""A uniform value fails a test once in a billion; thousands of tests are made."""

SECRETS = {"0": 0, "1": 1, "-1": 2**64 - 1, "large": 2**62 + 987654321}


def _in_large_batches(case: Case) -> Case:
    """The case on more rows, where all its inputs are rows: as many samples in fewer runs."""
    (rows, *others), size = case.shapes[0], prod(case.shapes[0])
    if any(shape != case.shapes[0] for shape in case.shapes):
        return case
    times = max(1, SAMPLES // FEWEST_RUNS // size)
    return replace(case, shapes=((rows * times, *others),) * len(case.shapes))


SECRET_CASES = [_in_large_batches(case) for case in CASES if case.name != "reveal"]

Allocating = Callable[[Case, list], tuple[Allocation, Allocation]]
Runs = list[list[Opened]]


class _Passing:
    """An allocation seen through a wrapper."""

    def __init__(self, allocation: Allocation) -> None:
        self.allocation = allocation
        self.device = allocation.device

    @property
    def position(self) -> int:
        return self.allocation.position

    def finish(self) -> None:
        self.allocation.finish()


def fresh(case: Case, shares: list) -> tuple[Allocation, Allocation]:
    return deal(plan(case.program, *(pair[0] for pair in shares)).material)


def broken(case: Case, shares: list) -> tuple[Allocation, Allocation]:
    """Masks whose shares never have the uppermost opened bit set."""
    zero, one = fresh(case, shares)

    class Tampered(_Passing):
        def take(self, kind: Kind, units: int, precompute=None):
            fields = [field.copy() for field in self.allocation.take(kind, units, precompute)]
            opened_bits = getattr(kind, "bits", 64)
            for index, item in enumerate(kind.fields()):
                if item.name in ("mask", "phase"):
                    top = (opened_bits if item.bits == 64 else item.bits) - 1
                    fields[index] &= ~fields[index].dtype.type(1 << top)
            return tuple(fields)

    return Tampered(zero), Tampered(one)


def reusing() -> Allocating:
    """The same material for every run."""
    kept: list = []

    def allocation(case: Case, shares: list) -> tuple[Allocation, Allocation]:
        if not kept:
            kept.append(fresh(case, shares))
        return copy.deepcopy(kept[0])

    return allocation


def openings(case: Case, word: int, runs: int, allocating: Allocating = fresh) -> Runs:
    """What each of several runs on a constant secret opened, part by part."""
    observed = []
    for _ in range(runs):
        shares = [share_pair(np.full(shape, word, np.uint64), case.scale) for shape in case.shapes]
        _, transcript = simulate(case.program, *shares, allocations=allocating(case, shares))
        observed.append([part for round_ in transcript.rounds for part in round_])
    return observed


def runs_needed(case: Case) -> int:
    return max(FEWEST_RUNS, -(-SAMPLES // prod(case.shapes[0])))


def p_value(values: np.ndarray, bits: int) -> float:
    """The smallest p-value of chi-square tests on the top, the middle and the low bits."""
    values = values.astype(np.uint64) & np.uint64((1 << bits) - 1)
    size = min(BINS_BITS, bits)
    windows = [
        (values >> np.uint64(shift)) & np.uint64((1 << size) - 1) for shift in {0, (bits - size) // 2, bits - size}
    ]
    return min(chi_square.p_value(np.bincount(part.astype(int), minlength=1 << size)) for part in windows)


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


@pytest.mark.parametrize(("broken_kind", "opening"), [(SignTables, 1), (RandomBit, 2)])
def test_a_broken_mask_of_bits_is_caught_in_the_opening_that_it_masks(broken_kind: type[Kind], opening: int) -> None:
    """Every other mask is as it should be: what it masks alone must look wrong."""
    (case,) = [case for case in CASES if case.name == "relu of 20 bits by tables"]

    class Unmasked(_Passing):
        def take(self, kind: Kind, units: int, precompute=None):
            first, *others = self.allocation.take(kind, units, precompute)
            return (np.zeros_like(first) if type(kind) is broken_kind else first, *others)

    def allocating(case: Case, shares: list) -> tuple[Allocation, Allocation]:
        zero, one = fresh(case, shares)
        return Unmasked(zero), Unmasked(one)

    observed = singles(openings(case, SECRETS["1"], runs_needed(case), allocating))
    assert [least_p([sample]) < LEAST_P for sample in observed] == [place == opening for place in range(3)]


@pytest.mark.parametrize("case", SECRET_CASES, ids=lambda case: case.name)
def test_a_reused_mask_is_caught_by_differences_between_runs(case: Case) -> None:
    allocating = reusing()
    observed = openings(case, SECRETS["1"], runs_needed(case), allocating)
    others = openings(case, SECRETS["-1"], runs_needed(case), allocating)
    masked_parts = [sample for sample in differences_between(observed, others) if not _is_seed(sample)]
    assert least_p(masked_parts) < LEAST_P


def test_one_mask_for_two_openings_of_a_run_is_caught_by_differences_within() -> None:
    from hdcos.offline import Mask
    from hdcos.protocol.rounds import together

    def careless(party, x):
        (mask,) = party.take(Mask(x.shape[1:], 64), len(x))
        return (yield from together(party.open(x, mask, 0, 64), party.open(x, mask, 0, 64)))

    case = Case("careless", careless, lambda x: x, CASES[0].price)
    observed = openings(case, SECRETS["large"], runs_needed(case))
    assert least_p(singles(observed)) > LEAST_P, "each opening alone looks innocent"
    assert least_p(differences_within(observed)) < LEAST_P


class _Watching(_Passing):
    """An allocation that remembers the masks it handed out."""

    def __init__(self, allocation: Allocation) -> None:
        super().__init__(allocation)
        self.masks: list[np.ndarray] = []

    def take(self, kind: Kind, units: int, precompute=None):
        fields = self.allocation.take(kind, units, precompute)
        for item, share in zip(kind.fields(), fields, strict=True):
            if item.name in ("mask", "phase"):
                self.masks.append(share.reshape(-1).astype(np.uint64))
        return fields


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("case", SECRET_CASES, ids=lambda case: case.name)
def test_an_opening_less_ones_own_share_of_the_mask_is_still_uniform(case: Case, rank: int) -> None:
    """What a party can compute from its view: x plus the other share of the mask, which must hide x by itself."""
    views: dict[int, list[np.ndarray]] = {}
    bits: dict[int, int] = {}
    for _ in range(runs_needed(case)):
        shares = [share_pair(np.full(shape, 5, np.uint64), case.scale) for shape in case.shapes]
        watched = tuple(_Watching(allocation) for allocation in fresh(case, shares))
        _, transcript = simulate(case.program, *shares, allocations=watched)
        opened = [part for round_ in transcript.rounds for part in round_ if part.values.size != 32 or part.bits != 8]
        assert len(opened) == len(watched[rank].masks), "one mask for each opening"
        for index, (part, mask) in enumerate(zip(opened, watched[rank].masks, strict=True)):
            opened_words = part.values.reshape(-1).astype(np.uint64)
            views.setdefault(index, []).append(opened_words ^ mask if part.by_xor else opened_words - mask)
            bits[index] = part.bits
    for index, values in views.items():
        assert p_value(np.concatenate(values), bits[index]) > LEAST_P


def _is_seed(sample: tuple[list[np.ndarray], int]) -> bool:
    """The paper's algorithm sends seeds from the operating system, which no material masks."""
    return sample[1] == 8 and sample[0][0].size in (16, 32)
