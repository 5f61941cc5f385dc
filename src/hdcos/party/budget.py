"""What an operator gives: memory to models and jobs, told from shapes alone, and answers to the clients of a model.

Security  answers tell a party that is also a client a little about hidden activations, the more of them the more
          (docs/security.md). Each party counts for itself and refuses what is too much: no client and no other party
          can make it answer more. Rows are set aside on disk in blocks before the first of them is answered, so that a
          crash can only count too many. New versions, new masks and forgetting a model do not change what was learnt
          of its weights: the count belongs to the name, and the operator alone resets it (`hdcos quota MODEL --reset`).
          Of names that are gone those with most rows are counted: to wash one away takes as many rows of 1024 others.
          Rows that are predicted to validate a training job are rows like others.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from threading import Lock
from typing import Any

from hdcos.api.commands import OpenFunction
from hdcos.api.quota import PART, allowed_queries
from hdcos.errors import PolicyRefused
from hdcos.nn import Network
from hdcos.nn.limits import Size
from hdcos.offline import MaterialPool, Plan, limits
from hdcos.party.config import Config
from hdcos.party.functions import Functions
from hdcos.party.store import Store, StoredModel
from hdcos.party.training import steps_ahead
from hdcos.secure import CompiledNetwork, compile_network
from hdcos.secure.program import plan_inference
from hdcos.secure.training import Rule
from hdcos.secure.training.shuffle import order_words
from hdcos.secure.training.step import plan_rule

COPIES = 4
"""Parameters are there as they were read, opened, masked and as they go; numbers of a row as what a layer takes, makes
and what lies between."""
BLOCK, LEAST_BLOCKS = 1024, 16
"""Rows that are set aside on disk at once, and a quota's least number of such blocks: what a crash leaves of a block
counts as answered."""
LEAST_AHEAD, MOST_AHEAD = 2, 8192
"""Rows whose material is kept available."""
MOST_SET_ASIDE = 256
"""Models of which such rows are left over; the one that was asked first gives its own back."""
LABEL_BYTES = 64_000_000
"""Of material that finds labels, for each model that was asked for some, besides its other material."""


@dataclass(frozen=True)
class Demand:
    """Bytes that a model takes at a party."""

    fixed: int
    row: int
    """For each row that material is kept for: it may also be in the batch that runs."""
    rows: int

    @classmethod
    def of(cls, model: Network, material: Plan, megabytes: float) -> Demand:
        """With material for as many rows as these megabytes hold, and as can be computed in some seconds."""
        size = Size.of(model.layers, model.shapes, model.inputs)
        row = 8 * (material.words + COPIES * size.row)
        quick = limits.MOST_MULTIPLICATIONS // max(1, size.multiplications)
        rows = min(MOST_AHEAD, quick, max(LEAST_AHEAD, int(megabytes * 1e6 / row)))
        return cls(8 * COPIES * (size.parameters + size.matrices), row, rows)

    @property
    def bytes(self) -> int:
        return self.fixed + self.rows * self.row


class Budget:
    """Decides what one party keeps in memory."""

    def __init__(self, config: Config, store: Store, has_dealer: bool) -> None:
        self._has_dealer, self._configured = has_dealer, config.policy.queries_per_model
        self._limits, self._material_mb, self._store = config.limits, config.stock.megabytes, store
        self._known: dict[tuple[str, str], Demand] = {}
        self.functions = Functions(config, has_dealer)

    def model(self, model: Network, chosen: CompiledNetwork) -> Demand:
        """What a network takes; PolicyRefused if that is more than one model may."""
        material = plan_inference(chosen).material
        limits.check(material)
        demand = Demand.of(model, material, self._material_mb)
        self._check_model(demand.bytes)
        return demand

    def load(self, model: Network, network: CompiledNetwork, rows: int) -> int:
        """Bytes of each row that material is kept for; PolicyRefused if that many rows are too much for one model."""
        demand = self.model(model, network)
        self._check_model(demand.fixed + rows * demand.row)
        return demand.row

    def function(self, command: OpenFunction) -> None:
        self.functions.check(command)

    def release(self, name: str) -> None:
        self.functions.drop(name.removeprefix("function "))

    def order(self, pool: MaterialPool, executions: int) -> None:
        """What is kept ahead was bounded when the model was loaded or the function was prepared."""

    def queries(self, network: CompiledNetwork) -> int:
        """Rows of a model that are answered in all."""
        return allowed_queries(network, self._configured)

    def label_rows(self, material: Plan) -> int:
        """The same at both parties, whatever their operators give: party 0 makes batches for both."""
        return min(MOST_AHEAD, max(LEAST_AHEAD, LABEL_BYTES // (8 * material.words)))

    def _check_model(self, size: int) -> None:
        if size > self._limits.model_mb * 1e6:
            raise PolicyRefused(
                f"this model takes {size / 1e6:.0f} MB of memory, this party gives {self._limits.model_mb:g} to one "
                f"([limits] model_mb): use smaller layers"
            )

    def another(self, name: str, demand: Demand) -> None:
        """PolicyRefused if a model of this name would be one too many."""
        size = demand.bytes + sum(known.bytes for other, known in self._stored().items() if other != name)
        size += self.functions.bytes
        if size > self._limits.models_mb * 1e6:
            raise PolicyRefused(
                f"with this model all models would take {size / 1e6:.0f} MB of memory, this party gives "
                f"{self._limits.models_mb:g} to them ([limits] models_mb): forget some first"
            )

    def free(self) -> int:
        """Bytes that stored models and open functions leave."""
        taken = sum(demand.bytes for demand in self._stored().values()) + self.functions.bytes
        return int(self._limits.models_mb * 1e6) - taken

    def _stored(self) -> dict[str, Demand]:
        """What the newest version of each model takes."""
        newest = {model.name: model for model in self._store.models()}
        keys = {(model.name, model.version): model for model in newest.values()}
        self._known = {key: self._known.get(key) or self._measure(model) for key, model in keys.items()}
        return {name: demand for (name, _), demand in self._known.items()}

    def _measure(self, stored: StoredModel) -> Demand:
        model = Network.outline(stored.architecture)
        return Demand.of(
            model,
            plan_inference(compile_network(model, stored.phase_bits, self._has_dealer)).material,
            self._material_mb,
        )

    def job(self, model: Network, spec: dict[str, Any], data_words: int, rows: int) -> None:
        """PolicyRefused if a job takes more than one may: its parameters, the material ahead, a step, and of its rows
        what is in memory at once, and their order."""
        scaled = spec.get("scale_diagonals", False)  # jobs that are older than the choice
        rule = Rule(min(spec["rates"]), spec["momentum"], spec["weight_decay"], scale_diagonals=scaled)
        weighted = bool(spec.get("weighted") or spec.get("class_weight"))
        step = plan_rule(model, spec["batch_size"], spec["loss"], rule, weighted).material
        limits.check(step)
        size = Size.of(model.layers, model.shapes, model.inputs)
        words = data_words + COPIES * (size.parameters + size.matrices)
        words += steps_ahead(step) * step.words + step.work.words
        words += order_words(rows, spec.get("shuffle", "rows"), bool(spec.get("flip") or spec.get("shift")))
        if 8 * words > self._limits.job_mb * 1e6:
            raise PolicyRefused(
                f"this job takes {8 * words / 1e6:.0f} MB of memory, this party gives {self._limits.job_mb:g} to one "
                f"([limits] job_mb): use smaller batches or layers"
            )


class Quota:
    """The counts of one party. Any thread may use it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._left: Counter[str] = Counter()
        """Rows that are set aside on disk and not answered yet."""
        self._lock = Lock()

    def covers(self, model: str, rows: int) -> bool:
        """Whether `take` needs no disk."""
        return self._left[model] >= rows

    def take(self, model: str, rows: int, allowed: int) -> None:
        """Count rows that are about to be answered; PolicyRefused if they are more than is allowed in all."""
        if not allowed:
            raise PolicyRefused(
                f"this party answers no row of {model}: fewer than {PART} queries are stated for its network "
                f"(docs/security.md), and a part in {PART} of that is none. Its operator may set [policy] "
                f"queries_per_model, and accepts then what that many answers tell"
            )
        with self._lock:
            missing = rows - self._left[model]
            if missing > 0:
                used = self._used(model)
                if used + rows > allowed:  # said before any row is set aside: what is refused must use up nothing
                    raise PolicyRefused(
                        f"{used} of the {allowed} rows that this party answers for {model} are "
                        f"used up, {rows} more are too many. Its operator may raise [policy] queries_per_model, or "
                        f"allow as many again with `hdcos quota {model} --reset`"
                    )
                block = min(BLOCK, allowed // LEAST_BLOCKS)
                self._left[model] += self._store.set_aside(model, max(missing, block), allowed)
            self._left[model] -= rows
            if len(self._left) > MOST_SET_ASIDE:
                first = next(iter(self._left))
                self._store.set_aside(first, -self._left.pop(first))

    def give_back(self, model: str, rows: int) -> None:
        """Rows that were counted and never began to be computed."""
        with self._lock:
            self._left[model] += rows

    def used(self, model: str) -> int:
        with self._lock:
            return self._used(model)

    def _used(self, model: str) -> int:
        return max(0, self._store.queries(model) - self._left[model])

    def close(self) -> None:
        """In good order nothing is lost: what was set aside and not used is free again."""
        with self._lock:
            for model, rows in self._left.items():
                self._store.set_aside(model, -rows)
            self._left.clear()
