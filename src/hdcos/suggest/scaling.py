"""Columns of mean 0 and size 1, for training; and the trained network with that put back, so that it takes rows as they
were. Numbers that are to be guessed are scaled likewise.

The first layer is linear: L ((x - m) / s) + b = (L / s) x + (L (-m / s) + b). So is the last, for what is guessed.

Security  means and sizes are the caller's: they are computed where all rows are, applied before rows are shared, and in
          the network that is saved. No party learns them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.nn.layer import Layer
from hdcos.ring import Array

NONE, STANDARD = "none", "standard"
SCALINGS = (NONE, STANDARD)


@dataclass(frozen=True)
class Scaling:
    """What is subtracted from columns and what they are divided by, and the same of numbers to be guessed."""

    mean: Array
    size: Array
    target_mean: float = 0.0
    target_size: float = 1.0

    @classmethod
    def of(cls, kind: str, x: Array, y: Array, regression: bool) -> Scaling:
        """That of rows which are trained on; columns that never change are left as wide as they are."""
        if kind not in SCALINGS:
            raise InputError(f"columns are scaled by {' or '.join(map(repr, SCALINGS))}, not by {kind!r}")
        if kind == NONE:
            return cls(np.zeros(x.shape[1]), np.ones(x.shape[1]))
        if x.ndim != 2:
            raise InputError(f"columns of tables are scaled, these are rows of shape {x.shape[1:]}: leave `scale` out")
        deviation = x.std(axis=0)
        known = x.mean(axis=0), np.where(deviation > 0, deviation, 1.0)
        return cls(*known, float(y.mean()), float(y.std()) or 1.0) if regression else cls(*known)

    def rows(self, x: Array) -> Array:
        return np.asarray((x - self.mean) / self.size)

    def targets(self, y: Array) -> Array:
        if (self.target_mean, self.target_size) == (0.0, 1.0):
            return y  # labels of classes are left as they are
        return np.asarray((y - self.target_mean) / self.target_size)

    def unscaled(self, model: nn.Network) -> nn.Network:
        """A network that was trained on scaled rows, for rows as they were."""
        state, last = model.state(), len(model.layers) - 1
        name = _weight(model.layers[0])
        shifted = model.layers[0].forward(model.parameters(0), (-self.mean / self.size)[None])
        state |= {f"0.{name}": state[f"0.{name}"] / self.size, "0.bias": shifted[0]}
        name = f"{last}.{_weight(model.layers[last])}"
        state |= {name: state[name] * self.target_size}
        state[f"{last}.bias"] = state[f"{last}.bias"] * self.target_size + self.target_mean
        return model.with_state(state)


def check_scalable(model: nn.Network) -> None:
    """ModelError for a network that scaling cannot be put into."""
    for layer in (model.layers[0], model.layers[-1]):
        _weight(layer)


def _weight(layer: Layer) -> str:
    """What is multiplied with a layer's input, once, element by element or column by column."""
    if isinstance(layer, nn.Dense):
        return "weight"
    if isinstance(layer, nn.HadamardDiagonal) and layer.blocks == 1:
        return "diagonal"
    raise ModelError(f"`scale` takes networks that begin and end dense or Hadamard-Diagonal, not with {layer.kind}")
