"""Do the joined shares of every kind satisfy the relation they stand for?"""

from __future__ import annotations

import json

import numpy as np
import pytest

from chi_square import p_value
from hdcos.errors import InputError
from hdcos.offline import (
    BitTimesMask,
    CountTable,
    Dealer,
    FusedTrig,
    GrowingTrig,
    Kind,
    LiftedPowers,
    LiftedTimesMask,
    LiftedTimesTrig,
    LiftedTotal,
    Mask,
    MaskProduct,
    MaterialPool,
    Need,
    Plan,
    Powers,
    RandomBit,
    Reference,
    RoundingMask,
    SignKeys,
    SignTables,
    TrigPair,
)
from hdcos.offline.material import Field, Sharing
from hdcos.ring import compact_dtype, dcf_words, matmul, sign_products, trig_words

ROWS = 50
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
        Need(Mask((2,)), 1),
        Need(Mask((6,)), 1),
        Need(MaskProduct("circulant", (5,), Reference(0), Reference(15, whole=True)), ROWS),
        Need(RoundingMask((4,), 24), ROWS),
        Need(LiftedTimesMask((4,), Reference(17), Reference(9, whole=True), 24), ROWS),
        Need(LiftedTimesTrig((4,), Reference(17), Reference(10), 24), ROWS),
        Need(LiftedTimesTrig((4,), Reference(17), Reference(10), 24, weight=True), ROWS),
        Need(LiftedTimesMask((4,), Reference(17), Reference(9, whole=True), 24, ring=34), ROWS),
        Need(TrigPair((2,), 20, 18, (1, 3, 5), 46), ROWS),
        Need(RoundingMask((4,), 24, summed=True), ROWS),
        Need(LiftedTotal((4,), Reference(23, rows=True), 24), 1),
        Need(Mask((3, 4)), 1),
        Need(FusedTrig((4,), 16, 16, Reference(25, whole=True), terms=3), ROWS),
        Need(LiftedTimesMask((4,), Reference(17), Reference(25, whole=True, start=8, shape=(4,)), 24, term=2), ROWS),
        Need(LiftedTimesTrig((4,), Reference(17), Reference(26), 24, weight=True, term=2), ROWS),
        Need(SignTables((4,), 24, Reference(17)), ROWS),
        Need(SignKeys((4,), 24, Reference(17)), ROWS),
        Need(RandomBit((4,)), ROWS),
        Need(BitTimesMask((4,), Reference(31), Reference(17), 24), ROWS),
        Need(Mask((4,), 7), ROWS),
        Need(BitTimesMask((4,), Reference(31), Reference(33), 7, lifted=False), ROWS),
        Need(RandomBit((4,), 5), ROWS),
        Need(CountTable((4,), 4, 9, 6), ROWS),
    )
)


def filled(plan: Plan, executions: int = 1, name: str = "test") -> tuple[MaterialPool, MaterialPool]:
    dealer = Dealer()
    pools = tuple(MaterialPool(name, plan, rank, dealer.open(name, plan, rank)) for rank in (0, 1))
    start = 0
    for count in plan.chunks(executions):
        pools[0].fill(start, count, dealer.deal(name, start, count, 0))
        pools[1].fill(start, count, dealer.deal(name, start, count))
        start += count
    return pools


def joined(plan: Plan, pools: tuple[MaterialPool, MaterialPool], executions: int = 1) -> list[list[np.ndarray]]:
    """The plain fields of every position."""
    allocations = [pool.begin(executions) for pool in pools]
    plain = []
    for need in plan.needs:
        shares = [allocation.take(need.kind, need.units * executions) for allocation in allocations]
        plain.append([join(item, *both) for item, *both in zip(need.kind.fields(), *shares, strict=True)])
    for allocation in allocations:
        allocation.finish()
    return plain


def join(item: Field, zero: np.ndarray, one: np.ndarray) -> np.ndarray:
    """What two parties' words mean; of their own ones, both."""
    a, b = zero.astype(np.uint64), one.astype(np.uint64)
    if item.sharing is Sharing.OWN:
        return np.stack([a, b])
    if item.sharing is Sharing.COMMON:
        assert (a == b).all()
        return a
    return (a ^ b if item.sharing is Sharing.XOR else a + b) & np.uint64((1 << item.bits) - 1)


def test_every_kind_satisfies_its_relation_when_joined() -> None:
    values = joined(PLAN, filled(PLAN))
    (m,), (w,), (mw,), (mm,) = values[:4]
    assert (mw == matmul(m, w[0])).all()
    assert (mm == m * m).all()
    mask, high, top = values[4]
    assert (high == mask >> np.uint64(26)).all()
    assert (top == (mask >> np.uint64(25)) & np.uint64(1)).all()
    p, p2, p3 = values[5]
    assert (p2 == p * p).all()
    assert (p3 == p * p * p).all()
    q, q2 = values[6]
    assert (q2 == q * q & np.uint64(2**41 - 1)).all()
    minus_r, cos, sin = values[7]
    r = (np.uint64(0) - minus_r) & np.uint64(0xFFFF)
    expected_cos, expected_sin = trig_words(r.astype(np.uint16), 16, 16)
    assert (cos.astype(np.int64) == expected_cos).all()
    assert (sin.astype(np.int64) == expected_sin).all()
    minus_r, cos_k, sin_k = values[8]
    for index, k in enumerate((1, 3, 5)):
        kr = (np.uint64(0) - np.uint64(k) * minus_r) & np.uint64(2**20 - 1)
        expected_cos, expected_sin = trig_words(kr.astype(np.uint32), 20, 18)
        assert (cos_k[..., index].astype(np.int64) == expected_cos).all()
        assert (sin_k[..., index].astype(np.int64) == expected_sin).all()
    ((w,),) = values[9]
    for position, weight in ((10, w), (11, np.kron(w.reshape(2, 2), np.ones((2, 2), np.uint64)).ravel())):
        minus_r, cos, sin, w_cos, w_sin = values[position]
        assert_trig(minus_r, cos, sin, 16)
        assert (w_cos == weight * cos).all()
        assert (w_sin == weight * sin).all()
    m, phase, cos, sin, m_cos, m_sin, b_cos, b_sin = values[12]
    b = m >> np.uint64(23)
    assert_trig(phase, cos, sin, 14)
    assert (m_cos == m * cos).all()
    assert (m_sin == m * sin).all()
    assert (b_cos == b * cos).all()
    assert (b_sin == b * sin).all()
    m, integer, top, m2, mb, m3, m2b = values[13]
    b = m >> np.uint64(23)
    for dealt, expected in ((integer, m), (top, b), (m2, m * m), (mb, m * b), (m3, m**3), (m2b, m * m * b)):
        assert (dealt == expected).all()
    ((r,),), (product,) = values[15], values[16]
    matrix = np.array([[r[(i - j) % 6] for i in range(5)] for j in range(6)])
    assert (product == matmul(values[0][0], matrix)).all()
    mask, _, b = values[17]
    m = mask & np.uint64(2**24 - 1)
    _, cos, sin, w_cos, w_sin = values[10]
    products = (m * cos, b * cos, m * sin, b * sin)
    weighted = tuple(p for f in (w_cos, w_sin) for p in ((m * f + np.uint64(1 << 23)) >> np.uint64(24), b * f))
    expected = {18: (m * w, b * w), 19: products, 20: (*products, *weighted), 21: (m * w, b * w)}
    for position, exact in expected.items():
        for item, dealt, product in zip(PLAN.needs[position].kind.fields(), values[position], exact, strict=True):
            assert (dealt == product & np.uint64(2**item.bits - 1)).all()
    m, top = values[23]
    assert (top == m >> np.uint64(23)).all()
    assert (values[24][0][0] == m.sum(axis=0)).all()
    minus_r, cos_k, sin_k = values[22]
    for index, k in enumerate((1, 3, 5)):
        kr = (np.uint64(0) - np.uint64(k) * minus_r) & np.uint64(2**20 - 1)
        for dealt, exact in zip((cos_k, sin_k), trig_words(kr.astype(np.uint32), 20, 18), strict=True):
            assert (dealt[..., index] == exact.astype(np.uint64) & np.uint64(2**46 - 1)).all()


def test_terms_have_products_with_their_own_row_and_with_moved_masks() -> None:
    values = joined(PLAN, filled(PLAN))
    mask, _, _ = values[17]
    m = (mask & np.uint64(2**24 - 1))[:, [2, 3, 0, 1]]  # number i ^ 2 in place i
    b, ((w,),) = m >> np.uint64(23), values[25]
    minus_r, cos, sin, *products = values[26]
    assert_trig(minus_r, cos, sin, 16)
    for term in range(3):
        assert (products[2 * term] == w[term] * cos).all()
        assert (products[2 * term + 1] == w[term] * sin).all()
    plain = [product for factor in (cos, sin) for product in (m * factor, b * factor)]
    weighted = [p for f in products[4:] for p in ((m * f + np.uint64(1 << 23)) >> np.uint64(24), b * f)]
    for position, exact in ((27, [m * w[2], b * w[2]]), (28, [*plain, *weighted])):
        for item, dealt, product in zip(PLAN.needs[position].kind.fields(), values[position], exact, strict=True):
            assert (dealt == product & np.uint64(2**item.bits - 1)).all()


def test_what_comparisons_take_is_made_of_the_mask_of_the_opening() -> None:
    values = joined(PLAN, filled(PLAN))
    m = values[17][0] & np.uint64(2**24 - 1)
    point = (m + np.uint64(1 << 22)) & np.uint64(2**24 - 1)
    masks, *tables, products = values[29]
    assert len(tables) == 5
    for table, shift, width in zip(tables, (18, 13, 8, 4, 0), (5, 5, 5, 4, 4), strict=True):
        block = (point >> np.uint64(shift)) & np.uint64((1 << width) - 1)
        for x in range(1 << width):
            assert ((table >> np.uint64(x)) & np.uint64(1) == (x < block)).all()
    for number, factors in enumerate(sign_products(5)):
        product = np.bitwise_and.reduce([masks >> np.uint64(factor) for factor in factors])
        assert ((products >> np.uint64(number)) & np.uint64(1) == product & np.uint64(1)).all()
    assert (products >> np.uint64(37) == point >> np.uint64(23)).all()
    (zero, one), cipher, words = values[30]
    assert (words == dcf_words(cipher, zero, one, point.astype(compact_dtype(24)), 24)).all()
    assert len(np.unique(cipher, axis=0)) == ROWS, "every row has a key of AES of its own"
    (r,), (r_m, r_a), (narrow,), (r_narrow,), (small,) = values[31:36]
    assert set(np.unique(r)) == set(np.unique(small)) == {0, 1}
    assert (r_m == r * m).all()
    assert (r_a == r * (m >> np.uint64(23))).all()
    assert (r_narrow == r * narrow).all()
    count, table = values[36]
    for x in range(16):
        right = (np.uint64(x) - count) & np.uint64(15) == 9
        assert (table[..., x] == right).all()


def assert_trig(minus_r: np.ndarray, cos: np.ndarray, sin: np.ndarray, scale: int) -> None:
    r = ((np.uint64(0) - minus_r) & np.uint64(0xFFFF)).astype(np.uint16)
    expected_cos, expected_sin = trig_words(r, 16, scale)
    assert (cos.astype(np.int64) == expected_cos).all()
    assert (sin.astype(np.int64) == expected_sin).all()


def test_each_party_alone_sees_uniform_fields_that_are_unrelated() -> None:
    """Every share of every field, and every difference of two fields of one party, in several windows of bits."""
    executions = 40
    pools = filled(PLAN, executions)
    views: list[dict[tuple[int, str], np.ndarray]] = [{}, {}]
    for rank, pool in enumerate(pools):
        taken: dict[tuple[int, str], list[np.ndarray]] = {}
        for _ in range(executions):
            allocation = pool.begin(1)
            for position, need in enumerate(PLAN.needs):
                fields = allocation.take(need.kind, need.units)
                for item, share in zip(need.kind.fields(), fields, strict=True):
                    taken.setdefault((position, item.name), []).append(share.astype(np.uint64).ravel())
        views[rank] = {name: np.concatenate(shares) for name, shares in taken.items()}
    widths = {(p, item.name): item.bits for p, need in enumerate(PLAN.needs) for item in need.kind.fields()}
    for view in views:
        names = list(view)
        for i, name in enumerate(names):
            assert_uniform(view[name], widths[name], f"{name}")
            for other in names[:i]:
                size = min(view[name].size, view[other].size)
                difference = view[name][:size] - view[other][:size]
                assert_uniform(difference, min(widths[name], widths[other]), f"{name} - {other}")
    for name, share in views[0].items():
        assert_uniform(share - views[1][name], widths[name], f"{name} of both parties", unless=name[1] != "mask")


def assert_uniform(values: np.ndarray, bits: int, what: str, unless: bool = False) -> None:
    if unless or values.size < 1000:
        return
    size = min(5, bits)
    for shift in {0, (bits - size) // 2, bits - size}:
        window = (values >> np.uint64(shift)) & np.uint64((1 << size) - 1)
        p = p_value(np.bincount(window.astype(int), minlength=1 << size))
        assert p > 1e-10, f"{what}: bits {shift} to {shift + size - 1} are not uniform"


def test_two_dealers_deal_different_material_for_one_name() -> None:
    plan = Plan((Need(TrigPair((50,), 16, 16), 4),))
    first, second = (filled(plan) for _ in range(2))
    for rank in (0, 1):
        shares = [pools[rank].begin(1).take(plan.needs[0].kind, 4) for pools in (first, second)]
        for one, other in zip(*shares, strict=True):
            assert (one == other).mean() < 0.05


def test_the_cosines_that_are_dealt_are_cosines() -> None:
    minus_r, cos, sin = joined(PLAN, filled(PLAN))[7]
    angle = -2 * np.pi * minus_r.astype(float) / 2**16
    assert np.abs(cos.astype(np.int64) / 2**16 - np.cos(angle)).max() <= 2**-16
    assert np.abs(sin.astype(np.int64) / 2**16 - np.sin(angle)).max() <= 2**-16


def test_executions_with_a_whole_unit_are_dealt_one_by_one() -> None:
    pools = filled(PLAN, executions=3)
    seen = []
    for _ in range(3):
        values = joined(PLAN, pools)
        assert (values[2][0] == matmul(values[0][0], values[1][0][0])).all()
        seen.append(values[1][0])
    assert not (seen[0] == seen[1]).any()


def test_a_whole_unit_serves_each_execution_of_several_dealt_at_once() -> None:
    plan = Plan(
        (
            Need(Mask((4,)), 1),
            Need(TrigPair((4,), 16, 16), 5),
            Need(FusedTrig((4,), 16, 16, Reference(0, whole=True)), 5),
            Need(Mask((4,)), 5),
            Need(MaskProduct("multiply", (4,), Reference(3), Reference(0, whole=True)), 5),
        )
    )
    assert not plan.one_by_one
    pools = filled(plan, executions=6)
    for _ in range(6):
        values = joined(plan, pools)
        ((w,),) = values[0]
        _, cos, _, w_cos, _ = values[2]
        assert (w_cos == w * cos).all()
        assert (values[4][0] == values[3][0] * w).all()


def test_sums_over_rows_are_those_of_each_execution_of_several_dealt_at_once() -> None:
    mask = RoundingMask((4,), 24, summed=True)
    plan = Plan((Need(mask, 5), Need(LiftedTotal((4,), Reference(0, rows=True), 24), 1)))
    assert not plan.one_by_one
    pools = filled(plan, executions=6)
    for _ in range(6):
        (m, _), ((total,),) = joined(plan, pools)
        assert (total == m.sum(axis=0)).all()


def test_a_mask_of_another_scope_can_be_referred_to() -> None:
    """A model's weight mask serves every later execution, each with a fresh sharing of the product."""
    dealer = Dealer()
    model = Plan((Need(Mask((6, 4)), 1),))
    work = Plan((Need(Mask((6,)), 1), Need(MaskProduct("matmul", (4,), Reference(0), Reference(0, "model")), 1)))
    pools = {}
    for name, plan in (("model", model), ("work", work)):
        pools[name] = [MaterialPool(name, plan, rank, dealer.open(name, plan, rank)) for rank in (0, 1)]
    pools["model"][0].fill(0, 1, None)
    pools["model"][1].fill(0, 1, None)
    pools["work"][0].fill(0, 7, None)
    pools["work"][1].fill(0, 7, dealer.deal("work", 0, 7))
    ((w,),) = joined(model, pools["model"])
    (m,), (mw,) = joined(work, pools["work"], executions=7)
    assert (mw == matmul(m, w[0])).all()


def test_a_plan_survives_its_journey_as_json() -> None:
    copy = Plan.from_json(json.loads(json.dumps(PLAN.to_json())))
    assert copy == PLAN
    assert copy.fingerprint == PLAN.fingerprint
    assert Plan(PLAN.needs[:-1]).fingerprint != PLAN.fingerprint


@pytest.mark.parametrize(
    "record",
    [
        "mask",
        [{"kind": "mask", "shape": [2]}],
        [{"kind": "mask", "shape": [2], "units": -1}],
        [{"kind": "mask", "shape": [2], "units": 1, "colour": "red"}],
        [{"kind": "no such kind", "units": 1}],
        [{"kind": "mask", "shape": ["a"], "units": 1}],
        [{"kind": "mask", "shape": [-3], "units": 1}],
        [{"kind": "mask", "shape": [1 << 40], "units": 1}],
        [{"kind": "mask", "shape": [2], "bits": 65, "units": 1}],
        [{"kind": "trig_pair", "shape": 7, "units": 1}],
        [{"kind": "mask_product", "operation": "divide", "shape": [1], "left": {}, "right": {}, "units": 1}],
        [{"kind": "mask_product", "operation": "matmul", "shape": [1], "left": {"x": 1}, "right": {}, "units": 1}],
        [7],
        None,
        {"kind": "mask"},
    ],
)
def test_what_is_not_a_plan_is_refused_by_name(record: object) -> None:
    with pytest.raises(InputError):
        Plan.from_json(record)


def test_every_kind_is_covered_here() -> None:
    assert {need.kind.name for need in PLAN.needs} == set(Kind.registry)


@pytest.mark.parametrize(
    "wrong", [{"position": -1}, {"position": 0.5}, {"position": 0, "scope": 3}, {"position": 0, "shape": [2, -1]}]
)
def test_a_reference_that_arrives_must_be_an_address(wrong):
    whole = Reference(0, whole=True)
    record = MaskProduct("multiply", (2,), Reference(0), whole).to_json()
    assert Kind.from_json(record) == MaskProduct("multiply", (2,), Reference(0), whole)
    with pytest.raises(InputError, match="a reference"):
        Kind.from_json({**record, "right": {**record["right"], **wrong}})
