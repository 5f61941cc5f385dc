"""Plans for loads and for runs of training: what they say can be checked against the simulation and against shapes."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.link import Emulation
from hdcos.planning.costs import serving_costs, training_costs
from hdcos.planning.figures import Figures, Measured, NetworkFigures, Work, read_figures
from hdcos.planning.machines import Machines
from hdcos.planning.needs import LARGEST, SPARE, fewest
from hdcos.planning.prices import Prices
from hdcos.planning.serving import Load, Serving
from hdcos.planning.serving_plan import plan_serving
from hdcos.planning.training import Training
from hdcos.planning.training_plan import Run, plan_training
from hdcos.secure import compile_network
from hdcos.secure.calibrate import compare_by
from hdcos.secure.estimate import estimate, total
from hdcos.secure.program import plan_inference
from hdcos.secure.training.step import plan_step

pytestmark = pytest.mark.usefixtures("short_plans")
MODEL = nn.models.higgs_mlp()
NOTHING = Work(0.0, 0.0)
STEP = Measured(Work(2e-3, 1e-4), (NOTHING, NOTHING), NOTHING, NOTHING)
BATCH = Measured(Work(1e-3, 1e-3), (NOTHING, NOTHING), Work(0.0, 5e-4), NOTHING)
FIGURES = Figures(
    "a machine",
    "0",
    Work(1e-5, 0.0),
    {MODEL.fingerprint: NetworkFigures("higgs", BATCH, STEP, 1e-3, 0.0, 3e-3, 1e-4, 60.0, 60.0)},
)


def test_bytes_and_rounds_are_those_that_hdcos_cost_plans() -> None:
    for model in (MODEL, nn.models.criteo_mlp(), compare_by(nn.models.higgs_mlp(activation="relu"), "dcf")):
        costs = serving_costs(model, FIGURES.of(MODEL))
        material = plan_inference(compile_network(model)).material
        for rows in (1, 100, 256):
            online = total(estimate(model, rows, masked=False)).online
            assert costs.rounds == online.rounds
            assert costs.wire.of(rows) == pytest.approx(online.wire_bytes_sent, rel=0.01)
            assert costs.dealt.of(rows) == pytest.approx(material.dealt_bytes(rows), rel=0.02)
            assert costs.common.of(rows) == pytest.approx(material.dealt_bytes(rows, 0), rel=0.02)
    assert costs.dealer_row > 1.5 * costs.dealt.row, "keys go to both parties"
    step, planned = training_costs(MODEL, FIGURES.of(MODEL), 100), plan_step(MODEL, 100)
    assert step.rounds == planned.rounds
    assert step.wire.of(100) == pytest.approx(planned.online_bytes, rel=0.02)
    assert step.dealt.of(100) == pytest.approx(planned.material.packed_bytes(1), rel=0.02)


def test_a_batch_that_comes_alone_waits_until_all_that_take_part_are_awake() -> None:
    known = FIGURES.of(MODEL)
    sleepy = msgspec.structs.replace(known, inference=msgspec.structs.replace(BATCH, waiting_s=3e-3))
    soon, late = (
        Serving(serving_costs(MODEL, each), Machines(1, 1, on_one=True), Emulation(), Load(0.5), batches=20).run()
        for each in (known, sleepy)
    )
    assert late.quantile(0.5) - soon.quantile(0.5) == pytest.approx(3e-3)


@pytest.mark.parametrize("rate", [300.0, 5000.0])
def test_a_plan_carries_its_load_with_time_to_spare_and_one_pair_less_would_not(rate: float) -> None:
    made, costs = plan_serving(MODEL, FIGURES, Load(rate), Emulation()), serving_costs(MODEL, FIGURES.of(MODEL))
    assert made.full_rows_per_s >= rate / (1 - SPARE)
    assert made.pairs == pytest.approx(rate / (1 - SPARE) * 1e-3, abs=1), "a row takes a millisecond"
    assert made.dealers == pytest.approx(rate / (1 - SPARE) * 5e-4, abs=1), "and half a one of a dealer"
    assert made.limit == "the processors of the parties"
    if made.pairs > 1:
        fewer = Serving(costs, Machines(made.pairs - 1, made.pairs - 1), Emulation(), Load(), batches=400).run()
        assert fewer.rows_per_s < rate / (1 - SPARE)
    party0, party1, dealer = made.needs
    assert party1.gbit_in - party0.gbit_in == pytest.approx(dealer.gbit_out)
    assert party0.cores >= rate * 1e-3
    assert dealer.cores == made.dealers


def test_a_large_cluster_is_planned_by_a_part_of_it() -> None:
    small, large = (plan_serving(MODEL, FIGURES, Load(rate), Emulation()) for rate in (9_800.0, 980_000.0))
    assert small.pairs <= LARGEST < large.pairs
    assert large.pairs == pytest.approx(100 * small.pairs, rel=0.1)
    assert large.needs[0].gbit_out == pytest.approx(100 * small.needs[0].gbit_out, rel=0.2)


def test_more_pairs_answer_sooner_until_nothing_is_waited_for() -> None:
    network, load = Emulation(rtt_ms=40), Load(50.0)
    slow = plan_serving(MODEL, FIGURES, load, network)
    fast = plan_serving(MODEL, FIGURES, load, network, p99_s=0.2)
    assert slow.p99_s > 0.2 >= fast.p99_s
    assert fast.pairs > slow.pairs
    with pytest.raises(InputError, match="waits for nobody"):
        plan_serving(MODEL, FIGURES, load, network, p99_s=0.1)


def test_what_cannot_be_planned_says_why() -> None:
    with pytest.raises(InputError, match=r"Mbit/s on the line .*: it has 1$"):
        plan_serving(MODEL, FIGURES, Load(5000.0), Emulation(mbps=1))
    with pytest.raises(InputError, match="1 pairs do at most"):
        plan_serving(MODEL, FIGURES, Load(5000.0), Emulation(), pairs=1)
    with pytest.raises(ModelError, match="nothing was measured of this network, only of higgs: add --measure"):
        plan_serving(nn.models.mlp([3, 4, 1]), FIGURES, Load(1.0), Emulation())
    with pytest.raises(InputError, match="do not fill a batch"):
        plan_training(MODEL, FIGURES, Run(10, 1, 100), Emulation())
    with pytest.raises(InputError, match="5 pairs cannot divide a batch of 79 rows, 16 or more to each"):
        plan_training(MODEL, FIGURES, Run(1000, 1, 79), Emulation(), pairs=5)
    with pytest.raises(InputError, match="choose a larger batch, or more hours"):
        plan_training(MODEL, FIGURES, Run(10**7, 1, 64), Emulation(rtt_ms=40), hours=0.01)
    network = msgspec.structs.replace(FIGURES.of(MODEL), training=None)
    with pytest.raises(ModelError, match="cannot be trained"):
        plan_training(MODEL, FIGURES.with_network(MODEL, network), Run(1000, 1, 64), Emulation())


def test_a_step_of_several_pairs_takes_its_largest_part_its_rounds_and_the_adding() -> None:
    costs = training_costs(MODEL, FIGURES.of(MODEL), 64)
    seen = Training(costs, Machines(4, 4), Emulation(rtt_ms=10), adding_s=3e-3).run()
    assert seen.step_s == pytest.approx(2e-3 + 64 * 1e-4 + costs.rounds * 5e-3 + 3e-3)


def test_a_dealer_that_is_slower_than_the_steps_sets_their_pace() -> None:
    dealt = replace(training_costs(MODEL, FIGURES.of(MODEL), 64), measured=replace_dealer(Work(0.0, 1e-3)))
    seen = Training(dealt, Machines(4, 2), Emulation(), adding_s=0.0).run()
    assert seen.step_s == pytest.approx(2 * 64e-3, rel=0.05), "each dealer makes the material of two pairs"
    assert seen.use.spent["material"] + seen.use.spent["others"] > 0.8


def test_pairs_need_not_divide_a_batch() -> None:
    made, costs = (
        plan_training(MODEL, FIGURES, Run(1000, 1, 100), Emulation(), pairs=3),
        training_costs(MODEL, FIGURES.of(MODEL), 34),
    )
    assert made.step_s == pytest.approx(2e-3 + 34 * 1e-4 + 2 * 1e-3), "all wait for the one with a row more"
    sent = 3 * costs.wire.fixed + 100 * costs.wire.row
    assert made.needs[0].gbit_out == pytest.approx(8 * sent / 1e9 / made.step_s)


def replace_dealer(work: Work) -> Measured:
    return msgspec.structs.replace(STEP, dealer=work)


def test_a_run_of_training_ends_in_time_with_the_fewest_pairs() -> None:
    run, hours = Run(10**6, 2, 1000), 0.03
    made = plan_training(MODEL, FIGURES, run, Emulation(), hours=hours)
    assert made.steps == 2000
    assert made.hours <= hours * (1 - SPARE)
    assert plan_training(MODEL, FIGURES, run, Emulation(), pairs=made.pairs - 1).hours > hours * (1 - SPARE)
    assert made.needs[0].disk_gb == pytest.approx(8 * 10**6 * 29 / 1e9)


def test_the_fewest_is_found_between_two_numbers() -> None:
    assert [fewest(1, 100, lambda count, least=least: count >= least) for least in (1, 2, 57, 100)] == [1, 2, 57, 100]


def test_prices_add_up(tmp_path) -> None:
    (tmp_path / "prices.toml").write_text('currency = "EUR"\ncore_hour = 0.5\ngb_hour = 0.1\ngb_out = 0.01\n')
    prices, made = Prices.read(tmp_path / "prices.toml"), plan_serving(MODEL, FIGURES, Load(300.0), Emulation())
    need = made.needs[2]
    expected = 0.5 * need.cores + 0.1 * need.memory_gb + 0.01 * need.gbit_out / 8 * 3600
    assert prices.hour(need) == pytest.approx(expected)
    (tmp_path / "prices.toml").write_text("core_hours = 0.5\n")
    with pytest.raises(InputError, match="core_hour is missing"):
        Prices.read(tmp_path / "prices.toml")


def test_the_figures_that_come_with_hdcos_have_every_ready_network() -> None:
    figures = read_figures()
    for name, make in nn.models.READY.items():
        found = figures.of(make())
        assert found.name == name
        assert found.inference.online.row > 0
        assert found.inference.dealer.row > 0
    assert figures.request.fixed > 0
    assert "kernels native" in figures.machine


def test_figures_are_read_as_they_were_written_and_others_are_named(tmp_path) -> None:
    path = tmp_path / "figures.json"
    FIGURES.write(path)
    assert read_figures(path) == FIGURES
    for content, wrong in ((b"\xff\xfe", "it is not JSON"), (b"{}", "machine is missing"), (b"[1]", "the body is")):
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"figures.json has no measured figures: {wrong}"):
            read_figures(path)
