"""What is measured of a network."""

from __future__ import annotations

import pytest

from hdcos import nn
from hdcos.errors import InputError
from hdcos.offline.limits import check
from hdcos.planning.measure import most_part
from hdcos.secure.training.step import plan_step


def test_steps_are_measured_with_no_more_rows_than_a_dealer_makes_material_for() -> None:
    for model in (nn.models.criteo_mlp(), nn.models.lenet5()):
        rows = most_part(model)
        check(plan_step(model, rows).material)
        with pytest.raises(InputError, match="of material at once"):
            check(plan_step(model, 2 * rows).material)
