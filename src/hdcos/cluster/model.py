"""A model that two parties hold in shares."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.progress import track

from hdcos.api.cost import Cost
from hdcos.cluster.opened import Opened, halves
from hdcos.errors import InputError
from hdcos.nn import Sequential
from hdcos.nn.columns import Rows
from hdcos.ring import Array, encode, modulo
from hdcos.secure import CompiledNetwork, layout
from hdcos.secure.planning import plan_inference
from hdcos.sharing import join

if TYPE_CHECKING:
    from hdcos.cluster.cluster import Cluster
    from hdcos.secure.calibrate import Calibration
    from hdcos.secure.training.watch import Epoch

BATCH_ROWS = 1024
"""Rows of one batch of rounds, unless the caller says otherwise: rounds are shared, memory stays small."""


class PrivateModel(Opened):
    """A shared model. An execution is one row; material and input masks are made ahead with `prepare`."""

    def __init__(self, cluster: Cluster, name: str, model: Sequential, chosen: CompiledNetwork) -> None:
        super().__init__(cluster, f"model {name}")
        self.name, self.layout = name, chosen
        self._form = model
        self.history: list[Epoch] = []
        """What was learned about each epoch, for a model that was trained here."""
        self.calibration: Calibration | None = None
        """What the intervals of its series were chosen by, for a model that was calibrated here."""
        self.cost: Cost | None = None
        """What its training cost, for a model that was trained here."""
        self._first_mask = 0
        self._masks = np.empty((0, *chosen.input_shape), np.uint64)

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Of the columns of a row, if the model knows them."""
        return self._form.feature_names

    @classmethod
    def share(cls, cluster: Cluster, model: Sequential, name: str, phase_bits: int, ahead: int = 0) -> PrivateModel:
        """Split a model's parameters between the parties; ModelError before anything is sent if one does not fit."""
        chosen = layout(model, phase_bits, cluster.has_dealer)
        plan_inference(chosen)  # what cannot be planned is refused before anything is sent
        state = model.state()
        words = {tensor.name: tensor.words(state[tensor.name]) for tensor in chosen.tensors}
        private = cls(cluster, name, Sequential.outline(model.architecture()), chosen)
        private._ask(
            "share_model", halves(words), architecture=model.architecture(), phase_bits=phase_bits, ahead=ahead
        )
        return private

    def prepare(self, executions: int, wait: bool = True) -> None:
        """Have material made for so many more rows, and fetch their input masks."""
        with self._lock:
            super().prepare(executions, wait)
            self._fetch_masks(executions)

    def close(self) -> None:
        """Let go of it, as leaving a `with` block does. The model stays, and so do masks and material: they are its own
        here, and whoever asks `cluster.model` for it finds them. `delete` ends it."""

    def delete(self) -> None:
        """Have both parties forget the model and what is left of its material; its name is free again."""
        super().close()
        self._cluster.forget(self.name)

    def predict(self, x: Rows, progress: bool = False, batch_rows: int = BATCH_ROWS, mode: str = "masked") -> Array:
        """The network's outputs (logits) for rows x, which no party sees; nor does any see the outputs.

        `batch_rows` rows share their rounds; `progress` shows a bar on a terminal. In mode "masked" rows travel masked
        by masks fetched ahead; in mode "shares" as two shares, for one round more. Material that was not prepared is
        made on the way.
        """
        rows = self._form.rows(x)
        words = encode(self.layout.prepared(rows), self.layout.input_scale)
        if mode not in ("masked", "shares"):
            raise InputError(f"inputs go out masked or as shares, not {mode!r}")
        if batch_rows < 1:
            raise InputError(f"a batch has at least one row, not {batch_rows}")
        with self._lock:
            self._ensure_material(len(rows), mode)
            outputs = [
                self._predict(words[start:end], mode) for start, end in _batches(len(rows), batch_rows, progress)
            ]
        joined = np.concatenate(outputs) if outputs else np.empty(0)
        return joined.reshape(len(rows), *self.layout.output_shape) * self.layout.output_gain

    def reveal(self) -> Sequential:
        """The model itself, joined from both halves: weights as they were rounded when they were shared."""
        zero, one = (arrays for _, arrays in self._ask("reveal", token=secrets.token_hex(16)))
        state = {
            tensor.name: tensor.parameter(join(zero[tensor.name], one[tensor.name])) for tensor in self.layout.tensors
        }
        return self._form.with_state(state)

    def _predict(self, words: Array, mode: str) -> Array:
        if mode == "shares":
            # Rows whose masks this caller holds cannot come as shares: they are passed over.
            self._next = max(self._next, self._first_mask + len(self._masks))
            self._first_mask, self._masks = self._next + len(words), self._masks[:0]
            return self._run(halves({"input0": words}), len(words), mode=mode)
        masks = self._take_masks(len(words))
        opened = modulo(words + masks, self.layout.input_bits)
        try:
            return self._run([{"masked": opened}] * 2, len(words), mode=mode)
        finally:
            # Rows that were sent masked are spent, whatever became of them: a retry takes other masks.
            self._next = max(self._next, self._first_mask)

    # ---- input masks: single use, numbered like the rows they are for

    def _fetch_masks(self, rows: int) -> None:
        """Masks for the rows behind those whose masks are here."""
        (_, zero), (_, one) = self._ask("masks", start=self._first_mask + len(self._masks), rows=rows)
        self._masks = np.concatenate([self._masks, zero["masks"].astype(np.uint64) + one["masks"]])

    def _take_masks(self, rows: int) -> Array:
        """Masks for the next rows; those of rows that a failed run passed over are dropped."""
        passed = self._next - self._first_mask
        self._first_mask, self._masks = self._next, self._masks[passed:]
        if len(self._masks) < rows:
            self._fetch_masks(rows - len(self._masks))
        taken, self._masks = self._masks[:rows], self._masks[rows:]
        self._first_mask += rows
        return taken

    def _ensure_material(self, rows: int, mode: str) -> None:
        """Order what was not prepared; rows that a change of mode passes over count."""
        start = self._next if mode == "masked" else max(self._next, self._first_mask + len(self._masks))
        missing = start + rows - min(meta["expected"] for meta, _ in self._ask("stock"))
        if missing > 0:
            super().prepare(missing, wait=False)


def _batches(rows: int, batch_rows: int, progress: bool) -> Iterator[tuple[int, int]]:
    starts = range(0, rows, batch_rows)
    shown = progress and sys.stderr.isatty()
    for start in track(starts, "Predicting", transient=True, console=Console(stderr=True), disable=not shown):
        yield start, min(rows, start + batch_rows)
