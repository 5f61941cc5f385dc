"""Weights of rows: some count more than others, be it each for itself or all of a class alike.

Computes  [the loss's derivative g of each row], [its weight w] -> [w g], so that a step is made for the mean over the
          batch of w times the loss.
Offline   a mask of g and one of w per row and output, and the product of the two.
Online    1 round: g is opened; w is opened in the first round of the step, which is there anyway. A round more where
          the last layer is a matrix and the loss is not softmax: what comes from the product is lifted, for the ring.
Error     weights are rounded to 2**-WEIGHT_BITS by those who know them; g by less than 2**-GRADIENT_BITS, without bias.
Security  weights of rows are secrets like labels: their owner shares them, in a column behind the targets. Weights of
          classes are public numbers, and a row's own is a public linear function of its secret targets, so that nobody
          learns a class from it. Both g and w are opened under fresh masks, uniform in the ring they are opened in;
          nothing is revealed. Public are that a run is weighted, and the weights of classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hdcos.errors import InputError
from hdcos.protocol.masked import Masked, product
from hdcos.protocol.opening import open_masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array, Blank, encode
from hdcos.ring.device import constant_beside, contiguous
from hdcos.secure.training.plan import TARGET_SCALE
from hdcos.sharing import Public, Share

WEIGHT_BITS = 8
"""Fraction bits of a weight."""
GRADIENT_BITS = 14
"""Fraction bits of a derivative as it meets its weight."""
RING_BITS = 32
"""What both are opened modulo: products reach 2**(RING_BITS - 1 - GRADIENT_BITS - WEIGHT_BITS)."""
MOST_REACH = 256.0
"""The largest weight times the largest derivative, with as much to spare."""
BALANCED = "balanced"

ClassWeight = str | Mapping[int, float] | Sequence[float] | None
"""What people pass: "balanced", or a weight for each class."""


@dataclass(frozen=True)
class RowWeights:
    """Where the weights of a run come from; at most one of both."""

    column: bool = False
    """A column behind the targets."""
    classes: tuple[float, ...] = ()
    """Public weights of classes."""

    def __bool__(self) -> bool:
        return self.column or bool(self.classes)

    @property
    def scale(self) -> int:
        """Of the weights as a step takes them."""
        return TARGET_SCALE if self.column else TARGET_SCALE + WEIGHT_BITS

    def take(self, party: Party, words: Array, outputs: int) -> tuple[Share, Share | None]:
        """Targets and the weight of each row, from what a data set has behind its features."""
        targets = Share(contiguous(words[:, :outputs]), TARGET_SCALE)
        if self.column:
            return targets, Share(contiguous(words[:, outputs:]), TARGET_SCALE)
        return targets, self._of_classes(party, targets) if self.classes else None

    def _of_classes(self, party: Party, targets: Share) -> Share:
        """The weight of each row's class: a public linear function of its targets."""
        known = encode(np.array(self.classes), WEIGHT_BITS)
        if targets.shape[1] > 1:
            return Share(
                (targets.words * constant_beside(known, targets.words)).sum(1, dtype=np.uint64)[:, None], self.scale
            )
        first = party.constant(Public(known[:1] << np.uint64(TARGET_SCALE), self.scale))
        return Share(targets.words * (known[1] - known[0]), self.scale) + first


def open_weights(party: Party, weights: Share, outputs: int) -> Rounds[Masked]:
    """Each row's weight under masks, one for every output that it is multiplied with."""
    words = weights.words
    # A device would have the places copied to it, which cannot be recorded.
    columns = words[:, [0] * outputs] if isinstance(words, Blank) else words.repeat(outputs, 1)
    repeated = Share(columns, weights.scale, weights.bits)
    return open_masked(party, repeated, weights.scale - WEIGHT_BITS, RING_BITS)


def weigh(party: Party, gradient: Share, weights: Masked) -> Rounds[Share]:
    """The derivative of the loss by each output, times the weight of its row."""
    G = yield from open_masked(party, gradient, gradient.scale - GRADIENT_BITS, RING_BITS)
    return product(party, G, weights).raised(TARGET_SCALE)


# ---- at the caller


def class_weights(given: ClassWeight, outputs: int, loss: str, labels: Array | None = None) -> tuple[float, ...]:
    """A weight for each class, rounded as they are computed with; none if none are wanted.

    "balanced" gives each class the same weight in all: rows / (classes times rows of the class), as scikit-learn does.
    """
    if given is None:
        return ()
    classes = max(2, outputs)
    if loss == "squared":
        raise InputError("class weights are for the logistic loss and softmax: with loss='squared' weigh the rows")
    if isinstance(given, str):
        if given != BALANCED:
            raise InputError(f"class weights are a number for each class, or {BALANCED!r}, not {given!r}")
        if labels is None:
            raise InputError(
                f"{BALANCED!r} counts the rows of each class, which the caller cannot see in uploaded data sets: give "
                f"a number for each class"
            )
        counts = np.bincount(labels.astype(np.int64), minlength=classes)
        if not counts.all():
            missing = np.flatnonzero(counts == 0).tolist()
            raise InputError(f"{BALANCED!r} class weights need a row of each class, and classes {missing} have none")
        given = (len(labels) / (classes * counts)).tolist()
    if isinstance(given, Mapping):
        unknown = sorted(str(key) for key in given if key not in range(classes))
        if unknown:
            raise InputError(f"class weights name the classes {unknown}, there are 0 to {classes - 1}")
        given = [float(given.get(key, 1.0)) for key in range(classes)]
    if len(given) != classes:
        raise InputError(f"{classes} classes cannot have {len(given)} weights")
    return tuple(check_weights(given, outputs, loss, "class weights").tolist())


def check_weights(given: ArrayLike, outputs: int, loss: str | None, what: str, targets: Array | None = None) -> Array:
    """Weights that can be computed with, rounded as they will be."""
    weights: Array = np.asarray(given)
    if weights.ndim != 1 or weights.dtype.kind not in "iubf":
        raise InputError(f"{what} are a row of numbers, got {weights.dtype} of shape {weights.shape}")
    weights = weights.astype(np.float64)
    if not np.isfinite(weights).all() or weights.min(initial=0.0) < 0:
        raise InputError(f"{what} are numbers of at least 0")
    reach = 1.0
    if loss == "softmax" or (loss is None and outputs > 1):
        reach = max(1.0, outputs - 1.0)
    elif loss == "squared" and targets is not None:
        reach = max(1.0, 2 * float(np.abs(targets).max(initial=0.0)))
    if weights.max(initial=0.0) * reach > MOST_REACH:
        raise InputError(
            f"{what} may reach {MOST_REACH / reach:.3g} here, these reach {weights.max():.3g}: divide them by their "
            f"mean, {weights.mean():.3g}, which is the same as a rate that is larger by as much"
        )
    return np.asarray(np.rint(weights * 2.0**WEIGHT_BITS) / 2.0**WEIGHT_BITS)


def row_weights(given: ArrayLike | None, classes: Sequence[float], targets: Array, loss: str) -> Array | None:
    """The weight of each of the caller's own rows: its own times that of its class; None if there are none."""
    if given is None and not classes:
        return None
    rows: Any = np.ones(len(targets)) if given is None else np.asarray(given)
    if np.shape(rows) != (len(targets),):
        raise InputError(f"{len(targets)} rows cannot have weights of shape {np.shape(rows)}")
    if classes:
        if targets.shape[1] > 1 and not (((targets == 0) | (targets == 1)).all() and (targets.sum(1) == 1).all()):
            raise InputError("class weights take one class per row: labels, or rows of zeros with a single one")
        each = targets[:, 0] if targets.shape[1] == 1 else targets @ np.array(classes)
        if targets.shape[1] == 1:
            each = classes[0] + (classes[1] - classes[0]) * each
        rows = np.asarray(rows, np.float64) * each
    return check_weights(rows, targets.shape[1], loss, "weights", targets)
