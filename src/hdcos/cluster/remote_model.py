"""A shared model on a remote cluster."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from hdcos.api.names import check_id, check_name
from hdcos.cluster.https import Answer, Parties, RetryableError
from hdcos.cluster.remote_cost import Cost
from hdcos.cluster.shares import halves
from hdcos.errors import HandshakeError, HdcosError, InputError, MaterialReused, PolicyRefused
from hdcos.nn import Sequential
from hdcos.nn.columns import Rows
from hdcos.ring import Array, decode, encode, modulo
from hdcos.secure import layout

if TYPE_CHECKING:
    from hdcos.secure.calibrate import Calibration
    from hdcos.secure.training.watch import Epoch

BATCH_ROWS = 256
MASKS_AT_ONCE = 4096
WAIT_S = 0.2


class RemoteModel:
    """Predictions that no party sees, of a model that no party holds."""

    def __init__(self, parties: Parties, name: str) -> None:
        self._parties, self.name = parties, check_name(name, "model name")
        self._path = f"/v2/models/{name}"
        self.history: list[Epoch] = []
        self.calibration: Calibration | None = None
        """What the intervals of its series were chosen by, for a model that was calibrated here."""
        self.cost: Cost | None = None
        """What its training cost, for a model that was trained by this caller."""
        self._lock = Lock()
        self._read()

    def _read(self) -> None:
        """What the parties say of the model now."""
        zero = self._parties.again(self._agreed)[0]
        known = zero["parameters"]
        self.version: str = zero["versions"][0]
        self._form = Sequential.outline(known["architecture"])
        self.layout = layout(self._form, known["phase_bits"], known["has_dealer"])
        if (known["scale_bits"], known["input_bits"]) != (self.layout.input_scale, self.layout.input_bits):
            raise HandshakeError("the parties compute this network with other scales: install the same hdcos version")
        self.rounds: dict[str, int] = known["rounds"]
        self._most_rows = int(known["most_rows"])
        self._mask_ids: list[str] = []
        self._masks = np.empty((0, *self.layout.input_shape), np.uint64)
        self._masks_until = 0.0

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one row."""
        return self._form.input_shape

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Of the columns of a row, if the model knows them."""
        return self._form.feature_names

    def _agreed(self) -> list[dict[str, Any]]:
        both = [answer.meta for answer in self._parties.ask("GET", self._path)]
        if _without_own(both[0]) != _without_own(both[1]):  # one of them is replacing it just now
            raise RetryableError(HandshakeError(f"the parties hold different versions of {self.name}"))
        return both

    def prepare(self, rows: int, wait: bool = True) -> None:
        """Have material for so many rows made, and fetch their input masks: predictions then take a round less."""
        if isinstance(rows, bool) or not isinstance(rows, int | np.integer) or rows < 1:
            raise InputError(f"material is prepared for a whole number of at least 1, got {rows!r}")
        with self._lock:
            self._parties.ask("POST", f"{self._path}/prepare", {"rows": int(rows), "mode": "masked"})
            if wait:
                self._parties.again(lambda: self._fetch_masks(int(rows)))

    def predict(self, x: Rows, progress: bool = False, batch_rows: int = BATCH_ROWS, mode: str | None = None) -> Array:
        """The network's outputs (logits) for rows x, which no party sees; nor does any see the outputs.

        `mode` is "shares", or "masked" for a round less; by default masks are used where `prepare` fetched them. A
        batch that was lost on the way is sent again, split anew.
        """
        rows = self._form.rows(x)
        if mode not in (None, "masked", "shares"):
            raise InputError(f"inputs go out masked or as shares, not {mode!r}")
        if batch_rows < 1:
            raise InputError(f"a batch has at least one row, not {batch_rows}")
        outputs = [self._batch(part, mode) for part in _parts(rows, min(batch_rows, self._most_rows), progress)]
        joined = np.concatenate(outputs) if outputs else np.empty(0)
        return joined.reshape(len(rows), *self.layout.output_shape) * self.layout.output_gain

    def reveal(self, wait_s: float = 5.0, request: str | None = None) -> Sequential:
        """The model itself, if both operators agree. `request` goes on with one that was asked for before."""
        number = check_id(request or secrets.token_hex(16), "reveal")
        if request is None:
            self._parties.ask("POST", "/v2/reveals", {"id": number, "model": self.name})
        deadline = time.monotonic() + wait_s
        while True:
            states = [answer.meta["state"] for answer in self._parties.patiently("GET", f"/v2/reveals/{number}")]
            if states == ["released", "released"]:
                break
            if "refused" in states:
                raise PolicyRefused(f"an operator refused to reveal {self.name}")
            if time.monotonic() > deadline:
                waiting = [f"party {rank}" for rank, state in enumerate(states) if state == "waiting"]
                raise PolicyRefused(
                    f"reveal {number} waits for {' and '.join(waiting) or 'the parties'}: each operator runs "
                    f"`hdcos approve {number} --node FOLDER`; then ask again with request={number} (--request)"
                )
            time.sleep(WAIT_S)
        zero, one = (answer.tensors for answer in self._parties.ask("GET", f"/v2/reveals/{number}/shares"))
        state = {tensor.name: tensor.parameter(zero[tensor.name] + one[tensor.name]) for tensor in self.layout.tensors}
        return self._form.with_state(state)

    @property
    def stock(self) -> int:
        """Rows that both parties have material for."""
        answers = self._parties.patiently("GET", self._path)
        return min(int(sum(answer.meta["parameters"]["stock"].values())) for answer in answers)

    def close(self) -> None:
        """Let go of it, as leaving a `with` block does: masks fetched through it are dropped. The model stays."""
        self._drop_masks()

    def delete(self) -> None:
        """Have both parties forget the model and what is left of its material; its name is free again."""
        self._drop_masks()
        self._parties.ask("DELETE", self._path)

    def __enter__(self) -> RemoteModel:
        return self

    def __exit__(self, *rest: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<RemoteModel {self.name}>"

    # ---- one batch

    def _batch(self, rows: Array, mode: str | None) -> Array:
        """Rows sent and answers joined; whatever may be asked again is asked again, with fresh randomness."""

        def once() -> Array:
            words = encode(self.layout.prepared(rows), self.layout.input_scale)
            try:
                return self._join(self._send(words, mode), len(words))
            except RetryableError as error:
                if "another version" in str(error):
                    names = self._form.feature_names
                    self._read()
                    self._form.rows(rows)  # a network that takes other rows is no replacement
                    if self._form.feature_names != names:
                        raise InputError(f"{self.name} was replaced by a network of other columns: ask again") from None
                raise

        return self._parties.again(once)

    def _send(self, words: Array, mode: str | None) -> list[Answer]:
        parameters: dict[str, Any] = {"request_id": secrets.token_hex(16), "mode": "shares", "version": self.version}
        taken = None if mode == "shares" else self._take_masks(len(words), fetch=mode == "masked")
        if taken is None:
            inputs = halves({"input": words})
        else:
            mask_ids, masks = taken
            opened = modulo(words + masks, self.layout.input_bits)
            inputs = [{"input": opened}] * 2
            parameters |= {"mode": "masked", "mask_ids": mask_ids}
        try:
            return self._parties.ask("POST", f"{self._path}/infer", {"parameters": parameters}, inputs)
        except MaterialReused as error:
            if taken is None:
                raise
            # The masks belong to an earlier session of the parties: all that are left do.
            self._drop_masks()
            raise RetryableError(error) from None

    def _join(self, answers: list[Answer], rows: int) -> Array:
        forms = [answer.meta["parameters"] for answer in answers]
        if forms[0] != forms[1]:
            raise HdcosError("the parties disagree about the form of the result")
        scale, bits = forms[0]["scale_bits"], forms[0]["bits"]
        total = modulo(answers[0].tensors["output"] + answers[1].tensors["output"], bits)
        values: Array = decode(total, scale, bits).reshape(rows, -1)
        return values

    # ---- masks: fetched ahead, used once

    def _fetch_masks(self, rows: int) -> None:
        while rows > 0:
            count = min(rows, MASKS_AT_ONCE)
            path, (zero, one) = f"{self._path}/masks", self._parties.both
            first = zero.ask("POST", path, {"rows": count}, None)
            second = one.ask("POST", path, {"mask_ids": first.meta["mask_ids"]}, None)
            self._mask_ids += first.meta["mask_ids"]
            self._masks = np.concatenate([self._masks, first.tensors["mask"] + second.tensors["mask"]])
            self._masks_until = time.monotonic() + 0.8 * float(first.meta["expires_s"])
            rows -= count

    def _take_masks(self, rows: int, fetch: bool) -> tuple[list[str], Array] | None:
        with self._lock:
            if time.monotonic() > self._masks_until:
                self._mask_ids, self._masks = [], self._masks[:0]
            if len(self._mask_ids) < rows:
                if not fetch:
                    return None
                self._fetch_masks(rows - len(self._mask_ids))
            ids, self._mask_ids = self._mask_ids[:rows], self._mask_ids[rows:]
            masks, self._masks = self._masks[:rows], self._masks[rows:]
            return ids, masks

    def _drop_masks(self) -> None:
        with self._lock:
            self._mask_ids, self._masks = [], self._masks[:0]


def _without_own(meta: dict[str, Any]) -> dict[str, Any]:
    """A model's metadata without what differs between the parties."""
    known = {name: value for name, value in meta["parameters"].items() if name not in ("party", "stock")}
    return {**meta, "parameters": known}


def _parts(words: Array, batch_rows: int, progress: bool) -> Iterator[Array]:
    parts = [words[start : start + batch_rows] for start in range(0, len(words), batch_rows)]
    if progress:
        from rich.progress import track

        yield from track(parts, "Predicting", transient=True)
    else:
        yield from parts
