"""Comparisons at every boundary of their range, ties and cycles, and what they refuse before anything is sent."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos.errors import InputError, MaterialExhausted, MaterialReused, ModelError
from hdcos.offline import Dealer, MaterialPool, RandomBit, SignKeys, SignTables, limits
from hdcos.protocol import argmax, relu, selection, sign
from hdcos.protocol.catalogue import FUNCTIONS, Call, find
from hdcos.protocol.plan import blank_share, plan
from hdcos.ring import decode
from hdcos.sharing import Share, join
from hdcos.testing.pair import deal, share_pair, simulate
from hdcos.testing.plaintext import Counter, run_plaintext

WAYS = sign.WAYS
DEALER_ONLY = True
COMPARING = [name for name, function in FUNCTIONS.items() if "way" in function.parameters]


def words(values) -> np.ndarray:
    return np.asarray(values, np.int64).view(np.uint64)


def joined(shares: tuple[Share, Share]) -> np.ndarray:
    zero, one = shares
    return decode(join(zero.words, one.words, zero.bits), zero.scale, zero.bits)


def run(program, *secrets: np.ndarray, scale: int = 0, **parameters) -> np.ndarray:
    shares, _ = simulate(program, *(share_pair(secret, scale) for secret in secrets), **parameters)
    return joined(shares)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("bits", range(3, 11))
def test_every_value_of_few_bits_has_its_sign_and_its_relu(bits: int, way: str) -> None:
    """All of [-T, T) under many masks: 2**bits of them and more."""
    T = 1 << (bits - 2)
    values = np.tile(np.arange(-T, T), (max(8, (8 << bits) // (2 * T)), 1))
    secret = words(values)
    assert (run(sign.sign, secret, drop=0, bits=bits, way=way) == np.where(values >= 0, 1, -1)).all()
    assert (run(relu.relu, secret, drop=0, bits=bits, way=way) == np.maximum(values, 0)).all()
    assert (run(relu.absolute, secret, drop=0, bits=bits, way=way) == np.abs(values)).all()


@pytest.mark.parametrize(("way", "bits"), [("tables", 20), ("tables", 31), ("dcf", 20), ("dcf", 33), ("dcf", 62)])
def test_boundaries_of_wide_values_are_exact(way: str, bits: int) -> None:
    T = 1 << (bits - 2)
    edges = [-T, -T + 1, -T // 2, -1, 0, 1, T // 2, T - 1, *(s * (1 << n) + d for n in range(bits - 2)
             for s in (1, -1) for d in (-1, 0, 1))]  # fmt: skip
    values = np.tile(np.array([edge for edge in edges if -T <= edge < T]), (20, 1))
    assert (run(sign.sign, words(values), drop=0, bits=bits, way=way) == np.where(values >= 0, 1, -1)).all()
    (zero, one), _ = simulate(relu.relu, share_pair(words(values), 0), drop=0, bits=bits, way=way)
    assert (join(zero.words, one.words) == words(np.maximum(values, 0))).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("drop", [1, 4, 20])
def test_the_sign_is_that_of_the_integer_that_is_multiplied(way: str, drop: int) -> None:
    """Of values next to zero the rounding decides, and relu is that rounding or zero: never a small negative number."""
    x = np.random.default_rng(drop).integers(-(2 << drop), 2 << drop, (50, 40))
    result = run(relu.relu, words(x), drop=drop, bits=20, way=way, scale=30) * 2.0 ** (30 - drop)
    assert (result >= 0).all()
    assert (np.abs(result - np.maximum(x / 2.0**drop, 0)) < 1).all()
    assert set(np.unique(result)) <= {0.0, 1.0, 2.0}


@pytest.mark.parametrize("way", WAYS)
def test_a_share_of_a_smaller_ring_is_compared_in_it(way: str) -> None:
    values = np.arange(-50, 50).reshape(10, 10)
    secret = words(values) & np.uint64(2**30 - 1)
    shares, _ = simulate(relu.relu, share_pair(secret, 0, 30), drop=0, bits=16, way=way)
    assert (joined(shares) == np.maximum(values, 0)).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("classes", [2, 3, 8, 9, 10, 32, 33, 64, 65])
def test_ties_go_to_the_lower_place(way: str, classes: int) -> None:
    values = np.random.default_rng(classes).integers(-2, 3, (60, classes))
    values[:3] = 0
    found = run(argmax.argmax, words(values), drop=0, bits=16, way=way)
    assert (found == values.argmax(1)).all()


@pytest.mark.parametrize("way", WAYS)
def test_close_scores_always_have_a_winner(way: str) -> None:
    """Of scores within a unit of each other, however their shares round: one of them, not none and not a sum of two."""
    x = np.random.default_rng(1).integers(0, 1 << 10, (400, 3))
    found = run(argmax.argmax, words(x), drop=10, bits=12, way=way, scale=20)
    assert set(np.unique(found)) <= {0.0, 1.0, 2.0}
    best = np.take_along_axis(x, found.astype(int)[:, None], 1)[:, 0]
    assert (x.max(1) - best < 2 << 10).all()


@pytest.mark.parametrize("n", [1, 2, 3, 6, 9])
def test_the_largest_of_any_number_along_the_last_axis(n: int) -> None:
    values = np.random.default_rng(n).integers(-1000, 1000, (4, 3, n))
    assert (run(relu.largest, words(values), drop=0, bits=16) == values.max(-1)).all()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("n", [2, 8])
def test_of_equal_numbers_the_first_is_the_largest(way: str, n: int) -> None:
    values = np.random.default_rng(n).integers(-2, 3, (40, 3, n))
    values[:3] = 0

    def program(party, x):
        largest, won = yield from selection.winners(party, x, 16, way)
        return largest, (yield from sign.open_bit(party, won)).share(party)

    (zero, one), _ = simulate(program, share_pair(words(values), 0))
    largest, won = (joined(pair) for pair in zip(zero, one, strict=True))
    assert (largest[..., 0] == values.max(-1)).all()
    assert (won == (np.arange(n) == values.argmax(-1)[..., None])).all()
    plain = run_plaintext(program, Share(words(values), 0))
    assert (plain[0].words.view(np.int64)[..., 0] == values.max(-1)).all()
    assert (plain[1].words == won).all()


@pytest.mark.parametrize("way", WAYS)
def test_zero_is_not_positive(way: str) -> None:
    """And all others of few bits are what they are, under many masks."""
    values = np.tile(np.arange(-63, 65), (64, 1))

    def program(party, x):
        above, whole, b = yield from selection.positive(party, x, 8, way, 12)
        return above, whole, b.share(party)

    (zero, one), _ = simulate(program, share_pair(words(values), 0))
    above, whole, b = (joined(pair) for pair in zip(zero, one, strict=True))
    assert (above == np.maximum(values, 0)).all()
    assert (whole == values).all()
    assert (b == (values > 0)).all()


@pytest.mark.parametrize("shape", [(4, 3), (4, 1), (8,)])
def test_the_largest_is_chosen_among_powers_of_two(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError, match="2, 4, 8 and so on"):
        plan(selection.winners, blank_share(shape, 0), bits=16)


@pytest.mark.parametrize("name", COMPARING)
@pytest.mark.parametrize("way", WAYS)
def test_a_comparison_in_plaintext_gives_the_same_and_sees_what_is_out_of_range(name: str, way: str) -> None:
    function, call, counter = find(name), Call.of(name, way=way), Counter()
    count = 2 if name in ("greater_equal", "maximum", "minimum") else 1
    generator = np.random.default_rng(0)
    secrets = [words(generator.integers(-1000, 1000, (5, 6)) << 4) for _ in range(count)]
    result = run_plaintext(call.program, *(Share(secret, 16) for secret in secrets), counter=counter)
    exact = function.meaning(*(decode(secret, 16) for secret in secrets))
    found = decode(result.words & np.uint64((1 << result.bits) - 1), result.scale, result.bits)
    assert np.abs(found - exact).max() < 1e-3
    assert counter.out_of_range == 0
    run_plaintext(
        call.program, *(Share(words(np.full((5, 6), s * 2**24)), 16) for s in (1, -1)[:count]), counter=counter
    )
    assert (counter.out_of_range > 0) == (name not in ("max", "argmax")), "equal numbers differ by nothing"


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("program", "shape", "meaning"),
    [
        (relu.relu, (1, 10), lambda x: np.maximum(x, 0)),
        (argmax.argmax, (1, 10), lambda x: x.argmax(1)),
        (argmax.argmax, (1, 40), lambda x: x.argmax(1)),
        (relu.largest, (1, 3, 4), lambda x: x.max(-1)),
    ],
)
def test_material_is_dealt_per_row_in_any_chunks_and_any_batches_consume_it(program, shape, meaning, way) -> None:
    planned = [plan(program, blank_share(shape, 0), drop=0, way=way, rank=rank) for rank in (0, 1)]
    dealer, material = Dealer(), planned[0].material
    pools = [
        MaterialPool("work", material, rank, dealer.open("work", material, rank), planned[rank].precompute)
        for rank in (0, 1)
    ]
    for rank, chunks in ((0, (2, 7)), (1, (2, 7))):
        for executions in chunks:
            pool = pools[rank]
            pool.fill(pool.filled, executions, dealer.deal("work", pool.filled, executions, rank))
    for rows in (1, 6, 2):
        values = np.random.default_rng(rows).integers(-50, 50, (rows, *shape[1:]))
        allocations = tuple(pool.begin(rows) for pool in pools)
        shares, _ = simulate(program, share_pair(words(values), 0), allocations=allocations, drop=0, way=way)
        assert (joined(shares) == meaning(values)).all()
    with pytest.raises(MaterialExhausted):
        pools[0].begin(1)


def test_material_is_used_once_and_for_what_was_planned() -> None:
    x = share_pair(words(np.zeros((4, 3))), 0)
    material = plan(relu.relu, blank_share((4, 3), 0), drop=0).material
    allocations = deal(material)
    simulate(relu.relu, x, allocations=allocations, drop=0)
    with pytest.raises(MaterialReused, match="all are taken"):
        simulate(relu.relu, x, allocations=allocations, drop=0)
    for wrong in ({"bits": 16}, {"way": "dcf"}):
        with pytest.raises(MaterialReused, match="of the plan is"):
            simulate(relu.relu, x, allocations=deal(material), drop=0, **wrong)
    with pytest.raises(MaterialReused, match="only 3 of 4"):
        simulate(sign.sign, x, allocations=_without_products(), drop=0)


def _without_products():
    """Material for a sign, and one unit more."""
    material = plan(sign.sign, blank_share((4, 3), 0), drop=0).material
    return deal(type(material)((*material.needs, type(material.needs[0])(RandomBit((3,)), 4))))


@pytest.mark.parametrize(
    ("program", "shape", "parameters", "error", "said"),
    [
        (relu.relu, (2, 3), {"way": "magic"}, ModelError, "tables or dcf, not by 'magic'"),
        (relu.relu, (2, 3), {"bits": 32}, InputError, "3 to 31 bits, not of 32: use the way dcf"),
        (sign.sign, (2, 3), {"bits": 2}, InputError, "3 to 31 bits"),
        (sign.sign, (2, 3), {"bits": 64, "way": "dcf"}, InputError, "2 to 63 bits, not 64"),
        (relu.relu, (2, 3), {"drop": -1}, InputError, "cannot drop -1 bits"),
        (relu.relu, (2, 3), {"drop": 50}, InputError, "cannot drop 0 bits and keep 20"),
        (relu.clip, (2, 3), {"low": 2.0, "high": 1.0}, InputError, "got 2.0 to 1.0"),
        (relu.clip, (2, 3), {"low": 2.0, "high": 33.0}, InputError, "up to 32, not 33"),
        (sign.at_least, (2, 3), {"threshold": -33.0}, InputError, "up to 32, not -33"),
        (sign.at_least, (2, 3), {"threshold": float("nan")}, InputError, "up to 32, not nan"),
        (relu.largest, (3,), {}, InputError, "at least two axes"),
        (argmax.argmax, (3, 1), {}, InputError, "2 to 1024 numbers"),
        (argmax.argmax, (3, 1025), {}, InputError, "2 to 1024 numbers"),
        (argmax.argmax, (3, 4, 5), {}, InputError, "got shape"),
    ],
)
def test_what_cannot_be_compared_is_refused_while_planning(program, shape, parameters, error, said) -> None:
    with pytest.raises(error, match=said):
        plan(program, blank_share(shape, 16), **parameters)


@pytest.mark.parametrize("name", COMPARING)
def test_without_a_dealer_a_comparison_is_refused_by_name(name: str) -> None:
    shapes = [(2, 3)] * (2 if name in ("greater_equal", "maximum", "minimum") else 1)
    for way in WAYS:
        material = plan(Call.of(name, way=way).program, *(blank_share(shape, 16) for shape in shapes)).material
        limits.check_source(material, True)
        with pytest.raises(ModelError, match="start a dealer with `hdcos dealer`"):
            limits.check_source(material, False)


def test_only_keys_go_to_party_0() -> None:
    for way, kind in (("tables", SignTables), ("dcf", SignKeys)):
        planned = plan(relu.relu, blank_share((128, 1024), 16), way=way)
        assert any(type(need.kind) is kind for need in planned.material.needs)
        sent = [planned.material.dealt_bytes(1, rank) / (128 * 1024) for rank in (0, 1)]
        cipher = 16 / 1024  # for each row
        assert sent == {"tables": [0, 48.5], "dcf": [208 + cipher, 240.5 + cipher]}[way]


def test_inputs_that_would_wrap_are_refused_by_the_parameters() -> None:
    assert find("relu").right_on({"drop": 4, "bits": 20, "way": "tables"})[1] == pytest.approx(64, abs=1e-3)
    assert find("relu").right_on({"drop": 0, "bits": 18, "way": "tables"})[1] == pytest.approx(1, abs=1e-3)
    assert find("maximum").right_on({"drop": 4, "bits": 20, "way": "dcf"})[1] == pytest.approx(32, abs=1e-3)
