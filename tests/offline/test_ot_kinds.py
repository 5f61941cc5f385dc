"""Material that two parties made themselves: do the joined shares of every kind satisfy their relation?"""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest
from scipy import stats

from hdcos.errors import InputError
from hdcos.offline import (
    FusedTrig,
    GrowingTrig,
    Kind,
    LiftedPowers,
    LiftedTimesMask,
    LiftedTimesTrig,
    LiftedTotal,
    Mask,
    MaskProduct,
    Need,
    Plan,
    Powers,
    Reference,
    RoundingMask,
    TrigPair,
)
from hdcos.offline.ot.kinds import _GENERATORS
from hdcos.testing.ot_pair import Pair, joined, wrong_fields

ROWS = 6
LIMITS = {size: stats.chi2.isf(1e-10, (1 << size) - 1) for size in range(1, 6)}
IMAGES, GRADIENTS = Reference(29, rows=True), Reference(32, rows=True)
PLAN = Plan(
    (
        Need(Mask((6,)), ROWS),
        Need(Mask((6, 4)), 1),
        Need(MaskProduct("matmul", (4,), Reference(0), Reference(1, whole=True)), ROWS),
        Need(MaskProduct("multiply", (6,), Reference(0), Reference(0)), ROWS),
        Need(RoundingMask((3,), 26), ROWS),
        Need(Powers((5,), 3), ROWS),
        Need(Powers((5,), 2, 41), ROWS),
        Need(TrigPair((6,), 16, 16), ROWS),
        Need(TrigPair((2,), 20, 18, (1, 3, 5)), ROWS),
        Need(Mask((4,)), 1),
        Need(FusedTrig((4,), 16, 16, Reference(9, whole=True)), ROWS),
        Need(FusedTrig((16,), 16, 16, Reference(9, whole=True), (1, 4, 4, 2)), ROWS),
        Need(GrowingTrig((5,), 24, 16, 14), ROWS),
        Need(LiftedPowers((5,), 3, 24), ROWS),
        Need(Mask((6,)), 1),
        Need(MaskProduct("circulant", (5,), Reference(0), Reference(14, whole=True)), ROWS),
        Need(RoundingMask((4,), 24, summed=True), ROWS),
        Need(LiftedTimesMask((4,), Reference(16), Reference(9, whole=True), 24), ROWS),
        Need(LiftedTimesTrig((4,), Reference(16), Reference(10), 24), ROWS),
        Need(LiftedTimesTrig((4,), Reference(16), Reference(10), 24, weight=True), ROWS),
        Need(RoundingMask((4,), 22, summed=True), 1),
        Need(Mask((4,)), ROWS),
        Need(LiftedTimesMask((4,), Reference(20, whole=True), Reference(21), 22, ring=46), ROWS),
        Need(LiftedTimesTrig((16,), Reference(16), Reference(11), 24, pool=(1, 4, 4, 2)), ROWS),
        Need(Mask((5,)), ROWS),
        Need(MaskProduct("matmul.weight", (6, 4), Reference(0, rows=True), Reference(21, rows=True)), 1),
        Need(MaskProduct("matmul.input", (6,), Reference(21), Reference(1, whole=True), 50), ROWS),
        Need(MaskProduct("circulant.weight", (6,), Reference(0, rows=True), Reference(24, rows=True)), 1),
        Need(MaskProduct("circulant.input", (6,), Reference(24), Reference(14, whole=True)), ROWS),
        Need(Mask((2, 6, 6), 40), ROWS),
        Need(Mask((3, 2, 3, 3), 36), 1),
        Need(MaskProduct("conv2d", (3, 4, 4), Reference(29), Reference(30, whole=True), 36), ROWS),
        Need(Mask((3, 3, 3)), ROWS),
        Need(MaskProduct("conv2d", (3, 3, 3), Reference(29), Reference(30, whole=True), 36, 2, 1), ROWS),
        Need(MaskProduct("conv2d.weight", (3, 2, 3, 3), IMAGES, GRADIENTS, 40, 2, 1), 1),
        Need(MaskProduct("conv2d.input", (2, 6, 6), Reference(32), Reference(30, whole=True), 36, 2, 1), ROWS),
        Need(TrigPair((3, 2), 24, 24), ROWS),
        Need(TrigPair((2,), 28, 30), ROWS),
        Need(TrigPair((3,), 20, 16, (1, 3), 46), ROWS),
        Need(LiftedTotal((4,), Reference(16, rows=True), 24), 1),
        Need(LiftedTotal((3,), Reference(4, rows=True), 26), 1),
        Need(LiftedTimesMask((2,), Reference(4), Reference(14, whole=True, start=3, shape=(2,)), 26), ROWS),
        Need(Mask((3, 4)), 1),
        Need(FusedTrig((4,), 16, 16, Reference(42, whole=True), terms=3), ROWS),
        Need(LiftedTimesMask((4,), Reference(16), Reference(42, whole=True, start=4, shape=(4,)), 24, term=1), ROWS),
        Need(LiftedTimesTrig((4,), Reference(16), Reference(43), 24, weight=True, term=1), ROWS),
        Need(Mask((2,), 40), 1),
        Need(MaskProduct("channels", (2, 6, 6), Reference(29), Reference(46, whole=True), 36), ROWS),
        Need(Mask((4, 1, 3, 3), 36), 1),
        Need(MaskProduct("conv2d", (4, 4, 4), Reference(29), Reference(48, whole=True), 36, groups=2), ROWS),
        Need(MaskProduct("conv2d", (3, 2, 2), Reference(29), Reference(30, whole=True), 36, dilation=2), ROWS),
    )
)  # fmt: skip


@pytest.fixture(scope="module")
def pair() -> Pair:
    return Pair()


def test_every_kind_satisfies_its_relation_when_joined(pair: Pair) -> None:
    values = joined(PLAN, pair.deal(PLAN))
    found = wrong_fields(PLAN, values)
    assert not any(found.values()), {name: bad for name, bad in found.items() if bad}


def test_every_kind_has_a_generator_and_is_covered_here() -> None:
    assert set(_GENERATORS) == {kind for kind in Kind.registry.values() if not kind.dealer_only}
    assert {type(need.kind) for need in PLAN.needs} == set(_GENERATORS)


def test_without_compiled_loops_the_same_material_is_made() -> None:
    code = (
        "from hdcos.offline import *\n"
        "from hdcos.testing.ot_pair import Pair, joined, wrong\n"
        "plan = Plan((Need(Mask((3,)), 1), Need(FusedTrig((3,), 16, 16, Reference(0, whole=True)), 4),"
        " Need(RoundingMask((3,), 20, summed=True), 4), Need(Powers((2,), 3), 4)))\n"
        "print(wrong(plan, joined(plan, Pair().deal(plan))))"
    )
    environment = {**os.environ, "HDCOS_KERNELS": "reference"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_a_single_unit_of_one_number_can_be_made(pair: Pair) -> None:
    plan = Plan(tuple(Need(kind, 1) for kind in (TrigPair((1,), 16, 16), RoundingMask((1,), 63), Powers((1,), 4))))
    values = joined(plan, pair.deal(plan))
    assert not any(wrong_fields(plan, values).values())


def test_a_whole_unit_serves_each_execution_of_several_made_at_once(pair: Pair) -> None:
    whole = Reference(0, whole=True)
    needs = (
        Need(Mask((4,)), 1),
        Need(FusedTrig((4,), 16, 16, whole), 5),
        Need(Mask((4,)), 5),
        Need(MaskProduct("multiply", (4,), Reference(2), whole), 5),
        Need(RoundingMask((4,), 20, summed=True), 1),
        Need(LiftedTimesMask((4,), Reference(4, whole=True), Reference(2), 20), 5),
    )
    plan = Plan(needs)
    assert not plan.one_by_one
    values = joined(plan, pair.deal(plan, executions=7), 7)
    assert not any(wrong_fields(plan, values, 7).values())


def test_a_mask_of_another_scope_can_be_referred_to(pair: Pair) -> None:
    model = Plan((Need(Mask((6, 4), 50), 1), Need(Mask((6,)), 1)))
    weights = joined(model, pair.deal(model, name="model"))
    left, scope = Reference(0), Reference(0, "model", whole=True)
    work = Plan((Need(Mask((6,), 50), 1), Need(MaskProduct("matmul", (4,), left, scope, 50), 1)))
    values = joined(work, pair.deal(work, executions=7), 7)
    assert not any(wrong_fields(work, values, 7, {"model": weights[0]}).values())
    fused = Plan((Need(FusedTrig((6,), 16, 16, Reference(1, "model", whole=True)), 1),))
    values = joined(fused, pair.deal(fused, executions=3), 3)
    assert not any(wrong_fields(fused, values, 3, {"model": weights[1]}).values())


def test_what_cannot_be_referred_to_is_refused(pair: Pair) -> None:
    with pytest.raises(InputError, match="no material is open"):
        pair.deal(Plan((Need(FusedTrig((4,), 16, 16, Reference(0, "nowhere", whole=True)), 1),)))
    with pytest.raises(InputError, match="mask has no own bits"):
        pair.deal(Plan((Need(Mask((4,)), 1), Need(LiftedTimesMask((4,), Reference(0), Reference(0), 20), 1))))
    with pytest.raises(InputError, match="a mask of 40 bits cannot enter a product of 64 bits"):
        pair.deal(Plan((Need(Mask((4,), 40), 1), Need(FusedTrig((4,), 16, 16, Reference(0, whole=True)), 1))))
    with pytest.raises(InputError, match="units refer to position"):
        pair.deal(Plan((Need(Mask((4,)), 2), Need(MaskProduct("multiply", (4,), Reference(0), Reference(0)), 3))))


def test_cosines_are_unbiased_and_off_by_little_more_than_one_unit(pair: Pair) -> None:
    plan = Plan((Need(TrigPair((20_000,), 16, 16), 1),))
    (values,) = joined(plan, pair.deal(plan))
    angle = -2 * np.pi * values["mask"].astype(float) / 2**16
    for name, exact in (("cos", np.cos(angle)), ("sin", np.sin(angle))):
        error = values[name].astype(np.int64) - exact * 2**16
        assert np.abs(error).max() < 1.5
        assert abs(error.mean()) < 5 * error.std() / np.sqrt(error.size)


def test_each_party_alone_sees_uniform_fields_that_are_unrelated(pair: Pair) -> None:
    """Every share, and every difference of two fields of one party.

    But for a lifted mask, whose shares modulo 2**bits are those of the integer: as in a rounding mask of the dealer's,
    one sharing serves the opening and what is computed from it.
    """
    executions = 40
    views: list[dict[tuple[int, str], list[np.ndarray]]] = [{}, {}]
    pools = pair.fill(PLAN, executions, "uniform")
    for view, pool in zip(views, pools, strict=True):
        for _ in range(executions):
            allocation = pool.begin(1)
            for position, need in enumerate(PLAN.needs):
                for item, share in zip(need.kind.fields(), allocation.take(need.kind, need.units), strict=True):
                    view.setdefault((position, item.name), []).append(share.astype(np.uint64).ravel())
    widths = {(p, item.name): item.bits for p, need in enumerate(PLAN.needs) for item in need.kind.fields()}
    for view in views:
        shares = {name: np.concatenate(parts) for name, parts in view.items()}
        names = list(shares)
        for i, name in enumerate(names):
            assert_uniform(shares[name], widths[name], f"{name}")
            for other in names[:i]:
                if name[0] == other[0] and {name[1], other[1]} in ({"mask", "integer"}, {"mask", "high"}):
                    continue
                size = min(shares[name].size, shares[other].size)
                difference = shares[name][:size] - shares[other][:size]
                assert_uniform(difference, min(widths[name], widths[other]), f"{name} - {other}")


def assert_uniform(values: np.ndarray, bits: int, what: str) -> None:
    if values.size < 700:
        return
    size = min(5, bits)
    limit, expected = LIMITS[size], values.size / (1 << size)
    for shift in {0, max(0, (bits - 5) // 2), max(0, bits - 5)}:
        window = (values >> np.uint64(shift)) & np.uint64((1 << size) - 1)
        counts = np.bincount(window.astype(np.int64), minlength=1 << size)
        assert ((counts - expected) ** 2).sum() / expected < limit, f"{what}: bits from {shift} on are not uniform"
