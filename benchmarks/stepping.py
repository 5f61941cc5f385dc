"""Training whose steps are asked for one by one, for measurements."""

from __future__ import annotations

from hdcos import nn
from hdcos.cluster.cluster import Cluster
from hdcos.cluster.fit import check_run
from hdcos.cluster.link_jobs import LinkJob
from hdcos.cluster.link_transport import LinkTransport
from hdcos.cluster.transport import split_words
from hdcos.secure.training.step import plan_step


def bytes_of_pair(model: nn.Sequential, momentum: float = 0.0, decay: float = 0.0) -> int:
    """What a party sends in a step, however few rows it has: the weights, which every pair opens for itself."""
    few, many = (plan_step(model, rows, momentum=momentum, decay=decay).online_bytes for rows in (256, 512))
    return 2 * few - many


class Training:
    """A run on the data set "rows" of a cluster on this machine, whose steps are asked for from here."""

    def __init__(self, cluster: Cluster, model: nn.Sequential, batch: int, epochs: int, scaled: bool = True) -> None:
        options = {"epochs": epochs, "batch_size": batch, "lr": 0.1, "seed": 0, "scale_diagonals": scaled}
        run = check_run(model, "rows", None, cluster.phase_bits, **options)
        links = cluster.transport
        assert isinstance(links, LinkTransport)
        links.submit(run.spec, split_words(run.words))
        self._job: LinkJob = links._job(run.spec["id"])
        self._job._open()

    def steps(self, count: int) -> float:
        """Take this many steps; returns the seconds they took."""
        return self._job._train(count, 0.1)

    @property
    def rounds_per_step(self) -> int:
        """As metered."""
        return self._online["rounds"] // self._job.step

    @property
    def bytes_per_step(self) -> int:
        """That a party sent, as metered."""
        return self._online["bytes_sent"] // self._job.step

    @property
    def _online(self) -> dict[str, int]:
        counted: dict[str, int] = self._job.statuses()[0]["report"]["cost"]["online"]
        return counted
