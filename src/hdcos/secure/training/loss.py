"""The derivative of a loss by the logits, as a share.

squared    half the sum of (logit - target)^2: logits less targets, no round (one after a matrix, for the ring, and
           where rows have weights).
logistic   one against all: sigmoid(logit) - target through a one-round Fourier sigmoid, wide because logits of training
           pass 16 and a narrow fit folds back: to 56, of networks that are a single layer to 120.
softmax    cross-entropy by the one-against-each bound (Titsias 2016): softmax_k >= prod over j of sigmoid(z_k - z_j),
           so the loss is the sum over j != label of log(1 + exp(z_j - z_label)). Exact for two classes, an upper bound
           of the cross-entropy otherwise, with the same minimum where classes separate. Derivative by z_k:
           sum over j of t_j sigmoid(z_k - z_j) - t_k sigmoid(z_j - z_k). Two rounds: the sigmoids of all differences,
           then their products with the shared targets (and one after a matrix).

Offline   a TrigPair of 40 harmonics (56 of a single layer) per logit, or per pair of logits; for softmax masks of
          sigmoids and targets.
Security  openings under fresh masks; see fourier, opening and masked. Nothing is revealed.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from hdcos.protocol import fit
from hdcos.protocol.cosine import even
from hdcos.protocol.fourier import Series, fourier
from hdcos.protocol.masked import Masked, product
from hdcos.protocol.opening import open_masked
from hdcos.protocol.party import Party
from hdcos.protocol.rounds import Rounds
from hdcos.ring import Array, matmul
from hdcos.ring.device import constant_beside
from hdcos.secure.stages import settle
from hdcos.secure.training.plan import LOSS_PHASE_BITS, TARGET_SCALE, TrainingPlan
from hdcos.sharing import Share

PRECISION = even(LOSS_PHASE_BITS, TARGET_SCALE // 2)
PAIR_SCALE = 14
"""Sigmoids of differences as they meet the targets."""


def error(
    party: Party, plan: TrainingPlan, logits: Share, targets: Share, pairs: Masked | None = None
) -> Rounds[Share]:
    """The derivative by the logits; softmax needs the targets' `pairs`."""
    if plan.loss == "squared":
        if logits.bits < 64 or logits.scale != targets.scale:
            logits = yield from settle(party, logits, targets.scale)
        return logits - targets
    series = fit.loss_sigmoid(plan.largest_logit)
    if plan.loss == "logistic":
        return (yield from fourier(party, logits, series, PRECISION, plan.error_bits)) - targets
    assert pairs is not None
    return (yield from _one_against_each(party, logits, targets, pairs, series))


def open_pairs(party: Party, targets: Share) -> Rounds[Masked]:
    """t_i + t_j of each pair of classes under a mask, as whole numbers modulo 2**32."""
    first, second = (constant_beside(each, targets.words) for each in _pairs(targets.shape[1]))
    sums = Share(targets.words[:, first] + targets.words[:, second], targets.scale)
    return (yield from open_masked(party, sums, TARGET_SCALE, 32))


def _one_against_each(party: Party, logits: Share, targets: Share, pairs: Masked, series: Series) -> Rounds[Share]:
    """With s = sigmoid(z_i - z_j), the pair (i, j) adds v = (t_i + t_j) s - t_i to class i and -v to class j."""
    places = _pairs(logits.shape[1])
    first, second = (constant_beside(each, logits.words) for each in places)
    differences = Share(logits.words[:, first] - logits.words[:, second], logits.scale, logits.bits)
    s = yield from fourier(party, differences, series, PRECISION)
    S = yield from open_masked(party, s, s.scale - PAIR_SCALE)
    weighted = product(party, S, pairs)
    raised = TARGET_SCALE - weighted.scale
    words = (weighted.words << np.uint64(raised)) - targets.words[:, first]
    signs = np.zeros((len(first), logits.shape[1]), np.int64)
    for place, sign in zip(places, (1, -1), strict=True):
        signs[np.arange(len(place)), place] = sign
    return Share(matmul(words, constant_beside(signs.view(np.uint64), words)), TARGET_SCALE, weighted.bits + raised)


def _pairs(classes: int) -> tuple[Array, Array]:
    first, second = zip(*combinations(range(classes), 2), strict=True)
    return np.array(first), np.array(second)
