"""Plans from the network are measured before anything is dealt."""

from __future__ import annotations

import json
import time
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hdcos.errors import DataMissing, FrameError, InputError
from hdcos.link.message import request
from hdcos.offline import (
    BitTimesMask,
    Dealer,
    Mask,
    MaskProduct,
    MaterialPool,
    Need,
    Plan,
    RandomBit,
    Reference,
    TrigPair,
    limits,
)
from hdcos.offline.bilinear import Bilinear
from hdcos.offline.source import serve_dealer
from tls_pair import tls_pair


def mask(*shape, units=1):
    return {"kind": "mask", "shape": list(shape), "bits": 64, "units": units}


def product(operation, shape, **more):
    left, right = {"position": 0}, {"position": 1, "whole": True}
    return {
        "kind": "mask_product",
        "operation": operation,
        "shape": shape,
        "left": left,
        "right": right,
        "units": 1,
    } | more


def trig(**more):
    return {"kind": "trig_pair", "shape": [4], "phase_bits": 20, "scale": 20, "units": 1} | more


def fused(*pool, units=16):
    weight = {"position": 0, "whole": True}
    record = {"kind": "fused_trig", "shape": [units], "phase_bits": 16, "scale": 16, "weight": weight, "units": 1}
    return [mask(4), {**record, "pool": list(pool)}]


def lifted_terms(size):
    return [mask(4), {"kind": "rounding_mask", "shape": [size], "bits": 24, "units": 1}]


def lifted_product(term):
    references = {"lifted": {"position": 1}, "mask": {"position": 0, "whole": True}}
    return {"kind": "lifted_times_mask", "shape": [4], "bits": 24, "units": 1, "term": term, **references}


IMAGE, KERNEL = mask(1, 8, 8), mask(1, 1, 3, 3)
BOMBS = {
    "powers": ([{"kind": "powers", "shape": [1], "degree": 10**9, "bits": 64, "units": 1}], "degree is"),
    "lifted powers": ([{"kind": "lifted_powers", "shape": [1], "degree": 10**9, "bits": 20, "units": 1}], "degree is"),
    "padding": ([IMAGE, KERNEL, product("conv2d", [1, 1, 1], padding=1 << 15, stride=1 << 15)], "do not make up"),
    "stride": ([IMAGE, KERNEL, product("conv2d", [1, 2, 2], stride=0)], "stride is"),
    "groups": ([IMAGE, KERNEL, product("conv2d", [1, 2, 2], groups=0)], "groups is"),
    "many groups": ([IMAGE, KERNEL, product("conv2d", [1, 6, 6], groups=1 << 15)], "do not make up"),
    "dilation": ([IMAGE, KERNEL, product("conv2d", [1, 6, 6], dilation=1 << 15)], "do not make up"),
    "groups of a matrix": ([mask(4), mask(4, 4), product("matmul", [4], groups=2)], "neither groups nor a dilation"),
    "spread": ([mask(1, 2, 2), KERNEL, product("conv2d.input", [1, 8, 8], stride=1 << 15)], "do not make up"),
    "terms": ([mask(4, 16), {**fused()[1], "terms": 10**9}], "terms is a whole number from 1 to 64"),
    "terms of another weight": ([mask(4, 16), {**fused()[1], "terms": 5}], "do not make up"),
    "a term that moves too far": ([*lifted_terms(4), lifted_product(4)], "do not make up"),
    "a term of no power of two": ([*lifted_terms(12), lifted_product(3)], "do not make up"),
    "a term of no weight": ([*lifted_terms(8), lifted_product(64)], "term is a whole number from 0 to 63"),
    "channels": ([IMAGE, mask(1, 5, 3, 3), product("conv2d", [1, 6, 6])], "do not make up"),
    "matrix": ([mask(8), mask(1000, 3), product("matmul", [3])], "do not make up"),
    "circulant": ([mask(1 << 16), mask(1 << 20), product("circulant", [1 << 20])], "use a smaller network or batch"),
    "circulant by rows": (
        [mask(1 << 13), mask(1 << 13), product("circulant", [1 << 10], right={"position": 1})],
        "its right one whole",
    ),
    "outer product": ([mask(1 << 14, 1), mask(1 << 14), product("multiply", [1 << 14, 1 << 14])], "do not make up"),
    "work": (
        [mask(1 << 13, units=1 << 10), mask(1 << 13, 1 << 13), product("matmul", [1 << 13], units=1 << 10)],
        "million multiplications",
    ),
    "elements": ([mask(1 << 20, units=1 << 20)], "use a smaller network or batch"),
    "harmonics": ([trig(harmonics=list(range(1, 1000)))], "harmonics are"),
    "many harmonics": ([trig(shape=[1 << 20], harmonics=list(range(2, 200)))], "use a smaller network or batch"),
    "phase": ([trig(phase_bits=65)], "phase_bits is"),
    "scale": ([trig(scale=60)], "scale is"),
    "pool": (fused(1 << 20, 1 << 10, 1 << 10, 2), "pool is"),
    "no window": (fused(1, 4, 4, 0), "pool is"),
    "positions": ([mask(1)] * 10_001, "at most 10000 positions"),
    "axes": ([mask(*[1] * 1000)], "shape is"),
    "units": ([mask(1, units=True)], "states its units"),
    "sums": (
        [
            {"kind": "rounding_mask", "shape": [1], "bits": 20, "units": 1 << 14},
            mask(1 << 20),
            {
                **{"kind": "lifted_times_mask", "shape": [1 << 20], "bits": 20, "units": 1},
                **{"lifted": {"position": 0, "rows": True}, "mask": {"position": 1, "whole": True}},
            },
        ],
        "one unit after the other, not all rows",
    ),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_plan_that_would_take_memory_or_time_without_end_is_refused_at_once(name: str) -> None:
    records, said = BOMBS[name]
    records = json.loads(json.dumps(records))
    tracemalloc.start()
    started = time.perf_counter()
    try:
        with pytest.raises(InputError, match=said):
            Plan.from_json(records)
        assert time.perf_counter() - started < 1
        assert tracemalloc.get_traced_memory()[1] < 20e6
    finally:
        tracemalloc.stop()


def test_a_plan_may_not_refer_to_what_refers_itself_or_to_a_scope_that_is_not_open() -> None:
    dealer = Dealer()
    square = Plan((Need(Mask((4,)), 1), Need(MaskProduct("multiply", (4,), Reference(0), Reference(0)), 1)))
    dealer.open("model", square, 0)
    for reference in (Reference(1, "model"), Reference(2, "model"), Reference(0, "other"), Reference(0, "new")):
        plan = Plan((Need(Mask((4,)), 1), Need(MaskProduct("multiply", (4,), Reference(0), reference), 1)))
        with pytest.raises((InputError, DataMissing), match=r"no mask there|no material is open"):
            dealer.open("new", plan, 0)
    wide = Plan((Need(Mask((5,)), 1), Need(MaskProduct("multiply", (5,), Reference(0), Reference(0, "model")), 1)))
    with pytest.raises(InputError, match="do not make up"):
        dealer.open("new", wide, 0)


@pytest.mark.parametrize(
    ("number", "changes"),
    [
        (3, {"mask": {"position": 0, "rows": True}}),
        (4, {"right": {"position": 2, "rows": False}}),
        (4, {"right": {"position": 1, "rows": True}}),
        (4, {"units": 2}),
    ],
    ids=["rows of what is no sum", "a sum without rows", "of other rows", "several sums"],
)
def test_all_rows_are_for_sums_alone_and_as_many_of_each_factor(number: int, changes: dict) -> None:
    """Others met in NumPy, which could not put them together: an internal error of the dealer."""
    masks = [
        {"kind": "rounding_mask", "shape": [3], "units": 40, "bits": 20, "summed": False},
        {"kind": "mask", "shape": [3], "units": 12, "bits": 20},
        {"kind": "mask", "shape": [3], "units": 40, "bits": 20},
    ]
    signs = {"kind": "sign_tables", "shape": [3], "units": 40, "bits": 20, "mask": {"position": 0}}
    factors = {"left": {"position": 2, "rows": True}, "right": {"position": 2, "rows": True}}
    total = {"kind": "mask_product", "operation": "matmul.weight", "shape": [3, 3], "units": 1, "bits": 20, **factors}
    plan = [*masks, signs, total]
    dealer = Dealer()
    dealer.open("as it should be", Plan.from_json(plan), 1)
    assert dealer.deal("as it should be", 0, 2, 1).size
    plan[number] = plan[number] | changes
    with pytest.raises(InputError, match=rf"position {number}: .* material is (made of|one unit)"):
        dealer.open("changed", Plan.from_json(plan), 0)


def test_material_may_refer_to_a_random_bit_of_another_scope() -> None:
    """Its value comes of a coin, not of the parties' shares."""
    dealer, bit = Dealer(), Plan((Need(RandomBit((4,)), 1),))
    times = Plan((Need(Mask((4,), 20), 30), Need(BitTimesMask((4,), Reference(0, "model"), Reference(0), 20), 30)))
    taken = []
    for name, plan in (("model", bit), ("new", times)):
        pools = [MaterialPool(name, plan, rank, dealer.open(name, plan, rank)) for rank in (0, 1)]
        pools[0].fill(0, 1, dealer.deal(name, 0, 1, 0))
        pools[1].fill(0, 1, dealer.deal(name, 0, 1, 1))
        allocations = [pool.begin(1) for pool in pools]
        for need in plan.needs:
            zero, one = (allocation.take(need.kind, need.units) for allocation in allocations)
            taken.append(zero[0].astype(np.uint64) + one[0].astype(np.uint64))
    r, m, product = taken
    assert set(np.unique(r)) <= {0, 1}
    assert (product == r * (m & np.uint64(2**20 - 1))).all()


def test_a_dealer_keeps_a_bounded_number_of_open_scopes(monkeypatch) -> None:
    monkeypatch.setattr("hdcos.offline.dealer.MOST_OPEN", 5)
    dealer, plan = Dealer(), Plan((Need(Mask((1,)), 1), Need(Mask((1,)), 1)))
    dealer.open("a", plan, 0)
    dealer.open("b", plan, 0)
    with pytest.raises(InputError, match="close some first"):
        dealer.open("c", plan, 0)
    dealer.open("a", plan, 1)
    for rank in (0, 1):
        dealer.close("a", rank)
    dealer.open("c", plan, 0)


def test_scopes_without_any_material_count_as_well_and_names_are_short(monkeypatch) -> None:
    monkeypatch.setattr("hdcos.offline.dealer.MOST_OPEN", 5)
    dealer = Dealer()
    for number in range(6):
        dealer.open(f"scope {number}", Plan(()), 0)
    with pytest.raises(InputError, match="6 scopes are open"):
        dealer.open("one more", Plan(()), 0)
    with pytest.raises(InputError, match="at most 512 characters, this one 513"):
        dealer.open("x" * 513, Plan(()), 0)


def test_numbers_of_few_bits_are_dealt_in_chunks_that_fit_the_memory_they_take() -> None:
    plan = Plan((Need(TrigPair((1 << 16,), 1, 1, ring=1), 1),))
    count = next(plan.chunks(10**6))
    assert plan.packed_bytes(count) < 1 << 22  # 16 MB of single bits would take a gigabyte
    assert 8 * plan.work.words * count <= limits.AT_ONCE_BYTES


def test_the_work_of_a_convolution_covers_what_the_kernel_pads_and_multiplies() -> None:
    layer = Bilinear("conv2d", (3, 5, 5), stride=2, padding=1)
    assert layer.fits((2, 10, 10), (3, 2, 3, 3))
    words, multiplications = layer.work((2, 10, 10), None)
    assert words >= 2 * 12 * 12 + 75
    assert multiplications >= 75 * 2 * 9
    assert Bilinear("conv2d.weight", (3, 2, 3, 3), 2, 1).fits((2, 10, 10), (3, 5, 5))
    assert Bilinear("conv2d.input", (2, 10, 10), 2, 1).fits((3, 5, 5), (3, 2, 3, 3))
    assert not Bilinear("conv2d", (3, 5, 5), stride=2, padding=3).fits((2, 10, 10), (3, 2, 3, 3))


def test_what_dealing_takes_is_at_most_what_the_plan_says() -> None:
    plans = (
        Plan((Need(TrigPair((1 << 12,), 16, 16, (1, 2, 3)), 40),)),
        Plan(
            (
                *(Need(Mask((4, 64, 64)), 20), Need(Mask((8, 4, 5, 5)), 1)),
                Need(MaskProduct("conv2d", (8, 64, 64), Reference(0), Reference(1, whole=True), padding=2), 20),
            )
        ),
    )
    for number, plan in enumerate(plans):
        dealer = Dealer()
        dealer.open(f"{number}", plan, 0)
        TrigPair((1,), 16, 16).derive({"mask": np.zeros((1, 1), np.uint16)})  # its table is made once
        tracemalloc.start()
        dealer.deal(f"{number}", 0, 1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1.1 * 8 * plan.work.words


def test_a_request_that_no_plan_needs_is_not_read_by_a_dealer() -> None:
    with tls_pair() as (there, here), ThreadPoolExecutor(1) as pool:
        serving = pool.submit(serve_dealer, Dealer(), there, 0)
        with pytest.raises(FrameError, match="at most 4194304 are allowed"):
            request(here, {"operation": "open", "scope": "x" * (1 << 23), "plan": []}, timeout_s=10)
        with pytest.raises(FrameError):
            serving.result(10)
