"""The least learning rate is exactly what the arithmetic can take."""

import math

import pytest

from hdcos import nn
from hdcos.errors import InputError, RateRaised
from hdcos.secure.training.rates import epoch_rates, least_rate
from hdcos.secure.training.step import plan_step


@pytest.mark.parametrize("model", [nn.models.higgs_mlp(), nn.models.mlp([30, 64, 64, 1]), nn.models.lenet5()])
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_a_step_at_the_least_rate_can_be_planned_and_below_it_cannot(model, momentum) -> None:
    least = least_rate(model, 128, "logistic", momentum)
    plan_step(model, 128, rate=least, momentum=momentum)
    with pytest.raises(InputError, match="too small"):
        plan_step(model, 128, rate=least / 1.001, momentum=momentum)


def test_a_schedule_that_falls_to_nothing_is_kept_at_the_least_rate() -> None:
    """The configuration of the README, with forty epochs."""
    model = nn.models.mlp([30, 64, 64, 1])
    least = least_rate(model, 128, "logistic", 0.9)
    with pytest.warns(RateRaised, match="kept at") as said:
        rates = epoch_rates(
            model, "logistic", 128, 0.05, lambda n: 0.5 * (1 + math.cos(math.pi * n / 40)), 40, 0.9, 0.0
        )
    assert len(said) == 1
    assert (len(rates), rates[-1], rates[0]) == (40, least, 0.05)
    plan_step(model, 128, rate=min(rates), momentum=0.9)
