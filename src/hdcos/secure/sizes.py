"""Rows that are too large: nobody sees it on shares, so their owner is told before they are split.

Training steps suit features of size about 1: others learn slowly or not at all, with the same rate. And where a layer
feeds anything but a cosine, values of 2**RANGE_BITS and more leave the ring: answers are then wrong without a word.
"""

from __future__ import annotations

import warnings

import numpy as np

from hdcos import nn
from hdcos.errors import HdcosWarning
from hdcos.nn.activations import Activation
from hdcos.nn.network import Network
from hdcos.ring import Array
from hdcos.secure.activations import RANGE_BITS

LARGE, SHARE = 4.0, 0.9
"""A feature is called large if it is larger than this in a tenth of the rows: single rows may be outliers."""
MOST_ROWS = 4096
"""Rows that are looked at."""


def warn_of_large_features(rows: Array, names: tuple[str, ...] | None, stacklevel: int = 2) -> None:
    """Before training: say which features are far from the size that learning rates are made for."""
    sizes = np.quantile(np.abs(np.asarray(rows[:MOST_ROWS], np.float64)), SHARE, axis=0).ravel()
    large = np.flatnonzero(sizes > LARGE)
    if not len(large):
        return
    worst = int(sizes.argmax())
    which = f"column {names[worst]}" if names and len(names) == len(sizes) else f"feature {worst}"
    about = float(f"{sizes[worst]:.3g}")
    others = f", and {len(large) - 1} more are large" if len(large) > 1 else ""
    warnings.warn(
        f"{which} is about {about:,g} in size{others}: networks learn from features of size about 1, and may learn "
        f'nothing from others. Standardise them first, (x - mean) / deviation: scale = "standard" in [data] of a '
        f"configuration, or a preparation (docs/tables.md)",
        HdcosWarning,
        stacklevel + 1,
    )


def warn_of_equal_labels(targets: Array, stacklevel: int = 2) -> None:
    """Before training: say that there is nothing to tell apart."""
    if len(targets) > 1 and (targets == targets[0]).all():
        warnings.warn(
            f"the labels of all {len(targets):,} rows are the same: there is nothing to learn from them. Look at the "
            f"column of labels, or at how the rows were chosen",
            HdcosWarning,
            stacklevel + 1,
        )


def warn_of_range(network: Network, rows: Array, stacklevel: int = 2) -> None:
    """Before a prediction: say that rows, as they leave the public layers in front, may leave the ring."""
    largest = float(np.abs(rows).max(initial=0))
    first = next((layer for layer in network.layers if isinstance(layer, Activation)), None)
    if largest >= 2**RANGE_BITS and not isinstance(first, nn.Cos | nn.Sin):
        warnings.warn(
            f"these rows reach {largest:,.6g} in size: what feeds anything but a cosine must stay below "
            f"{2**RANGE_BITS:,}, or answers are wrong without a word. Scale them as those that it was trained on",
            HdcosWarning,
            stacklevel + 1,
        )
