"""Which epoch is the best so far, and when enough was seen."""

from __future__ import annotations

from hdcos.cluster.job import judge
from hdcos.secure.training.watch import Epoch


def test_epochs_are_judged_by_those_before_them() -> None:
    epochs = {number: Epoch(number, 1.0, loss=loss) for number, loss in enumerate([0.5, 0.3, 0.3, 0.4, 0.2], 1)}
    assert [judge(epochs, number, 2) for number in range(1, 6)] == [
        (True, False),
        (True, False),
        (False, False),
        (False, True),
        (True, False),
    ]
    assert judge({}, 1, 2) == (True, False)
