"""A party that is also a client asks for one row again and again: what it learns, and what it would without the noise.

Every attack runs on the protocol itself, and each is shown to work where the protection is taken away: an attack that
finds nothing anywhere would prove nothing. The numbers of docs/security.md come from `make prove SUITE=hardening`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from benchmarks.leakage import (
    Attack,
    OpeningAttack,
    Queries,
    Setting,
    VarianceAttack,
    bounded,
    network,
    queries_for_half,
)
from hdcos import nn
from hdcos.offline import kinds
from hdcos.secure import compile_network
from hdcos.secure.compile import DITHERED, PHASE_BITS
from hdcos.secure.stages import Product

WIDTH = 32
ROW = np.random.default_rng(5).uniform(0, 1, WIDTH)
NO_NOISE = {"coins": 0, "answer_noise": False}
COARSE = Setting(phase_bits=18, table=16)


def attack(setting: Setting, queries: int) -> Attack:
    made = Attack(Queries(network(WIDTH), setting, ROW))
    made.ask(queries)
    return made


def chance(queries: int) -> float:
    """Fewer queries than this for a correlation of one half would be four standard errors from nothing."""
    return queries_for_half(4 / np.sqrt(WIDTH), queries)


def found_nothing(needed: tuple[float, bool], queries: int) -> bool:
    least, sure = needed
    return not sure or least > chance(queries)


def test_what_may_be_chance_is_a_bound_that_can_be_missed_and_never_infinite() -> None:
    """With 256 secrets one standard error is 1/16."""
    assert bounded(0.5, 256, 3000) == (queries_for_half(0.5, 3000), True)
    assert bounded(0.04, 256, 3000) == (queries_for_half(0.04 + 3 / 16, 3000), False)
    assert bounded(-0.1, 256, 3000) == (queries_for_half(3 / 16, 3000), False)
    assert bounded(0.2, 4, 3000) == (0, False), "four secrets say nothing"


def test_what_is_attacked_is_the_arithmetic_of_parties() -> None:
    assert Setting() == Setting(PHASE_BITS, DITHERED.table, DITHERED.dealt, kinds.COIN_BITS, coins=4, answer_noise=True)


@pytest.mark.parametrize("way", ["regression", "likelihood"])
@pytest.mark.parametrize("channel", ["carry", "table"])
def test_known_roundings_tell_secrets_where_no_noise_hides_them_and_nothing_where_it_does(channel, way) -> None:
    """At the same coarse roundings, by as many queries: the noise alone makes the difference."""
    bare, hidden = (attack(setting, 1000) for setting in (replace(COARSE, dealt=20, **NO_NOISE), COARSE))
    assert bare.needed(channel, way) < (chance(1000), True)
    assert found_nothing(hidden.needed(channel, way), 1000)


def test_each_phase_bit_costs_the_adversary_four_times_as_many_queries() -> None:
    coarse, fine = (attack(Setting(phase_bits=bits), 20_000).needed("carry", "regression")[0] for bits in (12, 14))
    assert 4 < fine / coarse < 64  # 16, give or take what 32 units can say


def test_cosines_rounded_to_the_nearest_tell_the_weights() -> None:
    assert attack(Setting(coins=0), 2000).needed("dealt", "regression") < (500, True)


def test_dithered_cosines_do_not() -> None:
    """With twelve bits of coins, four fewer than there are, so that there is a known error to look for at all."""
    assert found_nothing(attack(Setting(coin_bits=12), 4000).needed("dealt", "regression"), 4000)


def test_one_coin_per_cosine_tells_the_weights_by_the_size_of_the_noise() -> None:
    single = VarianceAttack(Queries(network(WIDTH), Setting(coins=1, answer_noise=False), ROW))
    single.ask(5000)
    assert single.correlation() > 0.9


def test_four_do_not() -> None:
    real = VarianceAttack(Queries(network(WIDTH), Setting(answer_noise=False), ROW))
    real.ask(5000)
    assert abs(real.correlation()) < 4 / np.sqrt(WIDTH)


def dense() -> nn.Sequential:
    return nn.Sequential(
        [nn.HadamardDiagonal(WIDTH, WIDTH, bandwidth=4.0), nn.Cos(), nn.Dense(WIDTH, 10)],
        seed=1,
    )


def test_a_dense_layer_after_a_cosine_is_opened_unrounded() -> None:
    for dealer in (True, False):
        chosen = compile_network(dense(), dealer=dealer)
        assert [stage.drop for stage in chosen.stages if isinstance(stage, Product)] == [0]


def test_if_it_were_rounded_its_weights_would_be_told() -> None:
    queries = Queries(dense(), Setting(), ROW)
    coarse = [
        replace(stage, drop=24, bits=stage.bits - 24, bias=None) if isinstance(stage, Product) else stage
        for stage in queries.network.stages
    ]
    rounded = Queries(dense(), Setting(), ROW, chosen=replace(queries.network, stages=tuple(coarse)))
    found = OpeningAttack(rounded, opening=1, index=2)
    found.ask(4000)
    assert found.needed() < (4000, True)


@pytest.mark.parametrize("layer", [nn.ReLU(compare="dcf"), nn.HardTanh(-0.5, 0.5), nn.Square()])
def test_what_is_rounded_before_it_is_compared_tells_who_knows_the_rounding(monkeypatch, layer) -> None:
    """At few bits and without noise; a unit that is cut off tells nothing, and neither does one nobody rounds."""
    monkeypatch.setattr("hdcos.secure.activations.COMPARED_SCALE", 6)
    monkeypatch.setattr("hdcos.secure.compile.SQUARE_SCALE", 6)
    model = nn.Sequential([nn.HadamardDiagonal(WIDTH, WIDTH), layer, nn.HadamardDiagonal(WIDTH, 10)], seed=1)
    found = OpeningAttack(Queries(model, Setting(answer_noise=False), ROW), opening=0, index=1)
    found.ask(4000)
    assert found.needed() < (1000, True)


def test_the_last_of_several_hidden_layers_tells_less_than_a_single_one() -> None:
    """Its table of outputs is as public; what hides it is the dealer's noise of the layers before."""
    coarse = replace(COARSE, phase_bits=12)
    single, last = (
        OpeningAttack(Queries(network(WIDTH, depth=depth), coarse, ROW), depth - 1, 2 * depth - 1) for depth in (1, 3)
    )
    single.ask(4000)
    last.ask(4000)
    assert single.needed() < (100, True)
    assert last.needed()[0] > 4 * single.needed()[0]


def test_with_noise_and_all_bits_it_does_not() -> None:
    model = nn.Sequential([nn.HadamardDiagonal(WIDTH, WIDTH), nn.ReLU(), nn.HadamardDiagonal(WIDTH, 10)], seed=1)
    hidden = OpeningAttack(Queries(model, Setting(), ROW), opening=0, index=1)
    hidden.ask(4000)
    assert not hidden.needed()[1], "no correlation that is more than chance"


def test_with_noise_as_coarse_a_rounding_tells_nothing_either(monkeypatch) -> None:
    monkeypatch.setattr("hdcos.secure.activations.COMPARED_SCALE", 15)
    model = nn.Sequential([nn.HadamardDiagonal(WIDTH, WIDTH), nn.ReLU(), nn.HadamardDiagonal(WIDTH, 10)], seed=1)
    bare, hidden = (OpeningAttack(Queries(model, Setting(answer_noise=on), ROW), 0, 1) for on in (False, True))
    for each in (bare, hidden):
        each.ask(1000)
    assert bare.needed() < (chance(1000), True)
    assert found_nothing(hidden.needed(), 1000)


def test_a_whole_turn_leaves_no_low_bits_to_know() -> None:
    exact = Queries(network(WIDTH), Setting(phase_bits=64), ROW)
    for opening in exact.batch().openings:
        assert not opening.share.any()
        assert not opening.secret.any()
