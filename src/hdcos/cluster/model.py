"""A model that two parties hold in shares."""

from __future__ import annotations

import secrets
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from threading import Lock
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from hdcos.api.cost import Cost
from hdcos.checks import check_id, check_whole
from hdcos.cluster.transport import ModelRecord, Reply, RetryableError, Transport, ask_again, split_words
from hdcos.errors import HandshakeError, HdcosError, InputError, MaterialReused, ModelError
from hdcos.nn import Network
from hdcos.nn.columns import Rows
from hdcos.nn.prepared import Prepared, check_prepared
from hdcos.ring import Array, decode, encode, modulo
from hdcos.secure import compile_network
from hdcos.secure.labels import LABEL, LOGITS, PROBA, check_output, plan_label, probabilities
from hdcos.secure.program import plan_inference
from hdcos.secure.sizes import warn_of_range
from hdcos.sharing import join
from hdcos.tables.preparation import Preparation, join_rows, prepare_together

if TYPE_CHECKING:
    from hdcos.secure.calibrate import Calibration
    from hdcos.secure.training.watch import Epoch

BATCH_ROWS = 1024
"""Rows of one batch of rounds, unless the caller says otherwise: rounds are shared, memory stays small."""
MASKS_AT_ONCE = 4096


def join_replies(replies: Sequence[Reply]) -> Array:
    """A result from both parties' shares of it."""
    zero, one = replies
    if (zero.scale, zero.bits) != (one.scale, one.bits):
        raise HdcosError("the parties disagree about the scale of the result")
    return decode(join(zero.words, one.words, zero.bits), zero.scale, zero.bits)


class PrivateModel:
    """Predictions that no party sees, of a model that no party holds.

    Material and input masks are made ahead with `prepare`. A newer version under the same name takes its place.
    """

    def __init__(self, transport: Transport, record: ModelRecord) -> None:
        self._transport = transport
        self.history: list[Epoch] = []
        """What was learned about each epoch, for a model that was trained here."""
        self.calibration: Calibration | None = None
        """What the intervals of its series were chosen by, for a model that was calibrated here."""
        self.cost: Cost | None = None
        """What its training cost, for a model that was trained here."""
        self.best_epoch: int | None = None
        """The epoch whose weights it has, for a model that was trained here with patience."""
        self._lock = Lock()
        self._take(record)

    def _take(self, record: ModelRecord) -> None:
        """Use what the parties say of the model now."""
        self._record = record
        self._outline = Network.outline(record.architecture)
        self.network = compile_network(self._outline, record.phase_bits, self._transport.has_dealer)
        if record.input_scale not in (None, (self.network.input_scale, self.network.input_bits)):
            raise HandshakeError("the parties compute this network with other scales: install the same hdcos version")
        self._mask_ids: list[Any] = []
        self._masks = np.empty((0, *self.network.input_shape), np.uint64)
        self._masks_until = 0.0

    @property
    def name(self) -> str:
        return self._record.name

    @property
    def version(self) -> str:
        return self._record.version

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Of one row."""
        return self._outline.input_shape

    @property
    def feature_names(self) -> tuple[str, ...] | None:
        """Of the columns of a row, if the model knows them."""
        return self._outline.feature_names

    @property
    def prepared(self) -> tuple[Prepared, ...]:
        """What made the features of the rows it was trained on, if something did: whose, their names, a digest."""
        return self._outline.prepared

    @property
    def rounds(self) -> dict[str, int]:
        """Rounds between the parties for a batch, by the mode in which its rows come."""
        masked = plan_inference(self.network).rounds
        return {"masked": masked, "shares": masked + 1}

    @property
    def stock(self) -> int:
        """Rows that both parties have material for."""
        return self._transport.stock(self._record)

    @property
    def label_rounds(self) -> int:
        """Rounds that labels take besides those of logits; ModelError if this model gives no labels."""
        self._check_output(LABEL)
        planned = plan_label(plan_inference(self.network).result, self._transport.has_dealer)
        assert planned is not None
        return planned.rounds

    def prepare(self, rows: int, wait: bool = True, output: str = LOGITS) -> None:
        """Have material for these rows made, and fetch their input masks: predictions then take a round less.

        Without `wait` the material is made in the background, and no masks are fetched. Labels take material of their
        own, which is made along with it for `output="label"`.
        """
        rows = check_whole(rows, "rows")
        self._check_output(output)
        with self._lock:
            self._transport.prepare(self._record, rows, wait, LABEL if output == LABEL else LOGITS)
            if wait:
                ask_again(lambda: self._fetch_masks(rows), self._transport.timeout_s)

    def keep_ahead(self, rows: int, output: str = LOGITS) -> None:
        """Have material for this many rows kept available from now on, for `output="label"` that of labels too."""
        self._check_output(output)
        self._transport.keep_ahead(self._record, check_whole(rows, "rows"), LABEL if output == LABEL else LOGITS)

    def predict(
        self,
        x: Rows,
        progress: bool = False,
        batch_rows: int = BATCH_ROWS,
        mode: str | None = None,
        output: str = LOGITS,
        preparation: Preparation | Sequence[Preparation] = (),
    ) -> Array:
        """The network's outputs (logits) for rows x, which no party sees; nor does any see the outputs.

        A model that was trained on prepared rows takes the table that rows are made of, with the `preparation`, or
        those of all owners of columns. Columns with names that something else prepared, or nothing, are refused.

        With `output="label"` the parties go on and find the largest output of each row on shares, in a few rounds more
        (`label_rounds`): what is returned is one whole number for each row, the first of the largest, or for a network
        of one output whether it is above 0. Nobody sees a logit, not even this caller; it needs a dealer. With
        `output="proba"` this caller makes probabilities of the logits: softmax, or for one output the sigmoid.

        In mode "masked" rows travel masked, by masks of their own; in mode "shares" as two shares, for one round more.
        By default masks are used where `prepare` fetched them. `batch_rows` rows share their rounds; `progress` shows a
        bar on a terminal. Material that was not prepared is made on the way, and a batch that was lost on the way is
        sent again, split freshly.
        """
        self._check_output(output)
        if preparation:
            given = [preparation] if isinstance(preparation, Preparation) else preparation
            x = join_rows(list(prepare_together(given, x)))
        check_prepared(x, self.prepared, self.name)
        rows = self._outline.rows(x)
        if mode not in (None, "masked", "shares"):
            raise InputError(f"inputs go out masked or as shares, not {mode!r}")
        check_whole(batch_rows, "batch_rows")
        fronted = self.network.apply_front(rows)
        warn_of_range(self._outline, fronted)
        words = encode(fronted, self.network.input_scale)  # all of them, before any is sent
        asked, size = LOGITS, min(batch_rows, self._record.most_rows)
        if output == LABEL:
            asked, size = LABEL, min(size, self._record.label_rows)
        if len(rows) > size:
            self._transport.order(self._record, len(rows), asked)
        outputs = [
            self._batch(rows[start : start + size], words[start : start + size], mode, asked)
            for start in _track(range(0, len(rows), size), progress)
        ]
        joined = np.concatenate(outputs) if outputs else np.empty(0)
        if output == LABEL:
            return joined.reshape(len(rows)).astype(np.int64)
        logits = joined.reshape(len(rows), *self.network.output_shape) * self.network.output_gain
        return probabilities(logits) if output == PROBA else logits

    def _check_output(self, output: str) -> None:
        """Refuse what this model does not answer, before anything is sent."""
        check_output(output, self.network, self._transport.has_dealer)
        if output == LABEL and not self._record.label_rows:
            raise ModelError(f"the parties of this cluster give no labels of {self.name}: they need a newer hdcos")

    def reveal(self, wait_s: float = 5.0, request: str | None = None) -> Network:
        """The model itself, joined from both shares: weights as they were rounded when they were shared.

        Both operators must agree; a cluster on this machine does. `request` goes on with one that was asked for before.
        """
        number = check_id(request or secrets.token_hex(16), "reveal")
        zero, one = self._transport.reveal(self._record, number, request is not None, wait_s)
        joined = [(tensor, join(zero[tensor.name], one[tensor.name])) for tensor in self.network.tensors]
        return self._outline.with_state({tensor.name: tensor.parameter(words) for tensor, words in joined})

    def close(self) -> None:
        """Let go of it, as the end of a `with` block does. The model stays, and so do its material and the masks that
        were fetched: this cluster's `model` finds them again. `delete` ends it."""

    def delete(self) -> None:
        """Have both parties forget the model and what is left of its material; its name is free again."""
        self._drop_masks()
        self._transport.delete_model(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<PrivateModel {self.name}>"

    # ---- one batch

    def _batch(self, rows: Array, words: Array, mode: str | None, output: str) -> Array:
        """Rows sent and answers joined; whatever may be asked again is asked again, with fresh randomness."""
        record = self._record

        def once() -> Array:
            sent = words
            if self._record != record:  # replaced meanwhile, perhaps by a network that takes its rows otherwise
                sent = encode(self.network.apply_front(rows), self.network.input_scale)
            try:
                replies = self._send(sent, mode, output)
                if output == LABEL and replies[0].scale:
                    raise HdcosError("the parties answered with something else than labels")
                return join_replies(replies).reshape(len(rows), -1)
            except RetryableError:
                self._read_again(rows, output)
                raise

        return ask_again(once, self._transport.timeout_s)

    def _read_again(self, rows: Array, output: str) -> None:
        """Take over the version that the parties serve now, if that is another one."""
        now = self._transport.model(self.name)
        if now.version != self.version:
            names = self._outline.feature_names
            self._take(now)
            self._outline.rows(rows)  # a network that takes other rows is no replacement
            self._check_output(output)
            if self._outline.feature_names != names:
                raise InputError(f"{self.name} was replaced by a network of other columns: ask again")

    def _send(self, words: Array, mode: str | None, output: str) -> list[Reply]:
        taken = None if mode == "shares" else self._take_masks(len(words), fetch=mode == "masked")
        if taken is None:
            return self._transport.infer(self._record, split_words({"input": words}), None, output)
        mask_ids, masks = taken
        opened = modulo(words + masks, self.network.input_bits)
        try:
            return self._transport.infer(self._record, [{"input": opened}] * 2, mask_ids, output)
        except MaterialReused as error:
            # The masks belong to rows that were passed over, or to an earlier session: all that are left do.
            self._drop_masks()
            raise RetryableError(error) from None

    # ---- masks: fetched ahead, used once

    def _fetch_masks(self, rows: int) -> None:
        while rows > 0:
            masks = self._transport.masks(self._record, min(rows, MASKS_AT_ONCE))
            zero, one = masks.shares
            self._mask_ids += masks.ids
            self._masks = np.concatenate([self._masks, zero.astype(np.uint64) + one.astype(np.uint64)])
            self._masks_until = time.monotonic() + 0.8 * masks.valid_s
            rows -= len(masks.ids)

    def _take_masks(self, rows: int, fetch: bool) -> tuple[list[Any], Array] | None:
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
            with suppress(HdcosError):  # a party that is lost has dropped them
                self._transport.drop_masks(self._record)


def _track(starts: range, progress: bool) -> Iterable[int]:
    """The starts of batches, with a bar on a terminal."""
    if not (progress and sys.stderr.isatty()):
        return starts
    from rich.console import Console  # a client without a terminal does without it
    from rich.progress import track

    return track(starts, "Predicting", transient=True, console=Console(stderr=True))
