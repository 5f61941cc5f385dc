"""What a model or a job takes of a party's memory, told from shapes alone, and what its operator gives to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hdcos.errors import PolicyRefused
from hdcos.nn import Sequential
from hdcos.nn.limits import Size
from hdcos.offline import Plan, limits
from hdcos.party.allotment import LEAST_AHEAD, MOST_AHEAD
from hdcos.party.config import Config
from hdcos.party.store import Store, StoredModel
from hdcos.party.training import steps_ahead
from hdcos.secure import CompiledNetwork, compile_network
from hdcos.secure.program import plan_inference
from hdcos.secure.training.step import plan_step

COPIES = 4
"""Parameters are there as they were read, opened, masked and as they go; numbers of a row as what a layer takes, makes
and what lies between."""


@dataclass(frozen=True)
class Demand:
    """Bytes that a model takes at a party."""

    fixed: int
    row: int
    """For each row that material is kept for: it may also be in the batch that runs."""
    rows: int

    @classmethod
    def of(cls, model: Sequential, material: Plan, megabytes: float) -> Demand:
        """With as many rows in stock as these megabytes hold, and as can be computed in some seconds."""
        size = Size.of(model.layers, model.shapes)
        row = 8 * (material.words + COPIES * size.row)
        quick = limits.MOST_MULTIPLICATIONS // max(1, size.multiplications)
        rows = min(MOST_AHEAD, quick, max(LEAST_AHEAD, int(megabytes * 1e6 / row)))
        return cls(8 * COPIES * (size.parameters + size.matrices), row, rows)

    @property
    def bytes(self) -> int:
        return self.fixed + self.rows * self.row


class Budget:
    """Decides what one party keeps in memory."""

    def __init__(self, config: Config, store: Store, dealt: bool) -> None:
        self._dealt = dealt
        self._limits, self._stock_mb, self._store = config.limits, config.stock.megabytes, store
        self._known: dict[tuple[str, str], Demand] = {}

    def model(self, model: Sequential, chosen: CompiledNetwork) -> Demand:
        """What a network takes; PolicyRefused if that is more than one model may."""
        material = plan_inference(chosen).material
        limits.check(material)
        demand = Demand.of(model, material, self._stock_mb)
        self.check_model(demand.bytes)
        return demand

    def check_model(self, size: int) -> None:
        if size > self._limits.model_mb * 1e6:
            raise PolicyRefused(
                f"this model takes {size / 1e6:.0f} MB of memory, this party gives {self._limits.model_mb:g} to one "
                f"([limits] model_mb): use smaller layers"
            )

    def another(self, name: str, demand: Demand) -> None:
        """PolicyRefused if a model of this name would be one too many."""
        size = demand.bytes + sum(known.bytes for other, known in self._stored().items() if other != name)
        if size > self._limits.models_mb * 1e6:
            raise PolicyRefused(
                f"with this model all models would take {size / 1e6:.0f} MB of memory, this party gives "
                f"{self._limits.models_mb:g} to them ([limits] models_mb): forget some first"
            )

    def free(self) -> int:
        """Bytes that the stored models leave."""
        return int(self._limits.models_mb * 1e6) - sum(demand.bytes for demand in self._stored().values())

    def _stored(self) -> dict[str, Demand]:
        """What the newest version of each model takes."""
        newest = {model.name: model for model in self._store.models()}
        keys = {(model.name, model.version): model for model in newest.values()}
        self._known = {key: self._known.get(key) or self._measured(model) for key, model in keys.items()}
        return {name: demand for (name, _), demand in self._known.items()}

    def _measured(self, stored: StoredModel) -> Demand:
        model = Sequential.outline(stored.architecture)
        return Demand.of(
            model, plan_inference(compile_network(model, stored.phase_bits, self._dealt)).material, self._stock_mb
        )

    def job(self, model: Sequential, spec: dict[str, Any], data_words: int) -> None:
        """PolicyRefused if a job takes more than one may: its rows, its parameters, the material ahead, and a step."""
        rule = min(spec["rates"]), spec["momentum"], spec["weight_decay"]
        step = plan_step(model, spec["batch_size"], spec["loss"], *rule).material
        limits.check(step)
        size = Size.of(model.layers, model.shapes)
        words = 2 * data_words + COPIES * (size.parameters + size.matrices)  # rows of several owners are put together
        words += steps_ahead(step) * step.words + step.work.words
        if 8 * words > self._limits.job_mb * 1e6:
            raise PolicyRefused(
                f"this job takes {8 * words / 1e6:.0f} MB of memory, this party gives {self._limits.job_mb:g} to one "
                f"([limits] job_mb): use fewer rows, smaller batches or smaller layers"
            )
