"""The label of each row instead of its logits, computed on shares: nobody sees a logit, the client included.

Computes  [logits], rows of k -> [the place of the largest of each row], the first of several that are equally large. Of
          two classes, or of one output against 0, that is one comparison: 1 where the second is larger, or the output
          above 0.
Offline   the material of `argmax`, or of `sign`, by keys; in a scope of its own, so that logits do not pay for it.
Online    3 rounds for 3 to 32 classes; 2 for two, or one output; 2 for each halving of more than 32 classes.
Error     none: it is exactly the label of the answer that logits would have been, noise and rounding included, as long
          as logits are not further apart than 2**(RANGE_BITS + 1), or a quarter of what the ring has left of them.
Security  the parties open values under masks that are uniform and used once, as `argmax` and `sign` say: the masked
          differences of logits, masked bits, masked counts of wins. Scores, signs and counts are never opened bare. The
          client gets the label alone: a sharing modulo a small power of two, refreshed by a sharing of zero.

          A party that is also a client learns at most what logits would tell it. Each party adds its own fresh noise to
          its share of the logits *before* it compares, the noise of `answers`, and rounds as answers are rounded. So a
          label is a function of the very numbers that output="logits" would have shown, and any attack with labels can
          be made with logits. Without the noise, a row that lies between two classes would show an error of
          any size: the label is a comparison, and a comparison has no tolerance.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from hdcos.errors import InputError, ModelError
from hdcos.offline import limits
from hdcos.offline.sign_kinds import MOST_CLASSES
from hdcos.protocol.argmax import argmax, label_bits
from hdcos.protocol.party import Party
from hdcos.protocol.plan import Planned, plan
from hdcos.protocol.rounds import Rounds, named
from hdcos.protocol.sign import KEYS, masked_sign
from hdcos.ring import Array
from hdcos.secure.activations import RANGE_BITS
from hdcos.secure.answers import add_noise
from hdcos.secure.compile import OUTPUT_SCALE, CompiledNetwork
from hdcos.secure.program import infer
from hdcos.secure.stages import Parameters
from hdcos.sharing import Public, Share

LOGITS: Final = "logits"
LABEL: Final = "label"
PROBA: Final = "proba"
OUTPUTS = (LOGITS, LABEL, PROBA)
"""What a caller may ask for. Probabilities are logits to the parties: the caller computes them."""


def infer_label(
    party: Party, label_party: Party, network: CompiledNetwork, parameters: Parameters, x: Share | Array
) -> Rounds[Share]:
    """The label of each row; `party` takes the material of the network, `label_party`, the same one, that of labels."""
    logits = yield from infer(party, network, parameters, x)
    return (yield from named(LABEL, label(label_party, logits)))


def label(party: Party, logits: Share) -> Rounds[Share]:
    """The place of the largest of each row, modulo a power of two."""
    noisy = add_noise(logits)
    v = party.round(noisy, max(0, noisy.scale - OUTPUT_SCALE))
    bits, classes = min(v.bits, v.scale + RANGE_BITS + 3), v.shape[1]
    if classes > 2:
        return (yield from argmax(party, v, 0, bits, KEYS))
    ahead = v if classes == 1 else v[:, 1:] - v[:, :1]
    above = ahead - party.constant(Public(np.ones((), np.uint64), v.scale))  # at least one unit: a tie is the first's
    second = yield from masked_sign(party, above, bits, KEYS, label_bits(2))
    return second.share(party).reshape(len(v))


def plan_label(logits: Share, has_dealer: bool) -> Planned | None:
    """What the label of one row takes, for logits as a planned inference leaves them; None if there can be none."""
    if not has_dealer or not _are_classes(logits.shape[1:]):
        return None
    planned = plan(label, logits)
    limits.check(planned.material)
    return planned


def check_output(output: str, network: CompiledNetwork, has_dealer: bool) -> None:
    """Refuse what a network's rows cannot be answered with, before anything is sent."""
    if output not in OUTPUTS:
        raise InputError(f"an answer is {', '.join(OUTPUTS[:-1])} or {OUTPUTS[-1]}, not {str(output)[:40]!r}")
    if output != LOGITS and not _are_classes(network.output_shape):
        raise ModelError(
            f"labels and probabilities are of 1 to {MOST_CLASSES} classes, one output each, and this network's outputs "
            f"have the shape {network.output_shape}: ask for logits"
        )
    if output == LABEL and not has_dealer:
        raise ModelError(
            "labels are found by comparing, which needs a dealer: start one with `hdcos dealer`, or ask for logits"
        )


def _are_classes(output_shape: tuple[int, ...]) -> bool:
    return len(output_shape) == 1 and 1 <= output_shape[0] <= MOST_CLASSES


def probabilities(logits: Array) -> Array:
    """What the caller makes of logits: softmax over the classes, or the sigmoid of a single output."""
    if logits.shape[1] == 1:
        return np.asarray(np.exp(-np.logaddexp(0, -logits)))
    raised = np.exp(logits - logits.max(axis=1, keepdims=True, initial=-np.inf))
    return np.asarray(raised / raised.sum(axis=1, keepdims=True))
