"""What can be trained on shares so far, and the scale of every tensor.

Networks of Hadamard-Diagonal layers with cosines between them. Weights are in turns, w / (2 pi sqrt(n)), except
those of the last layer, which are w / sqrt(n); biases likewise. They are kept at a high scale, where updates need no
truncation, and opened rounded at the start of each step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import log2, pi, sqrt

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.nn.private.tensor import Tensor

INPUT_SCALE = 16
TRIG_SCALE = 16
PHASE_BITS = 20
MASTER_SCALE = 60
"""Weights as the parties keep them: |w| < 8."""
WEIGHT_SCALE = 22
"""Weights as they are opened, in WEIGHT_BITS bits: |w| < 4."""
WEIGHT_BITS = 26
PHASE_SCALE = 2 * TRIG_SCALE + WEIGHT_SCALE
"""Pre-activations, logits and biases: one turn is 2**54."""
TARGET_SCALE = 2 * TRIG_SCALE
"""Labels, and the error they are compared in."""
ACTIVATION_GRADIENT_SCALE = 12
SLOPE_SCALE = 8
"""Of the public factor 2 pi sin d of the backward pass."""
GRADIENT_BITS = 32


@dataclass(frozen=True)
class TrainedLayer:
    """One Hadamard-Diagonal layer of a network that is trained."""

    index: int
    inputs: int
    outputs: int
    size: int
    last: bool

    @property
    def gradient_scale(self) -> int:
        """Of the gradient before the transform, which grows with sqrt(n)."""
        return 14 - round(log2(self.size) / 2)

    @property
    def unit(self) -> float:
        """One turn (or one) in units of a pre-activation: parameters are divided by it."""
        return 1.0 if self.last else 2 * pi

    @property
    def weight(self) -> Tensor:
        factor = 1 / (self.unit * sqrt(self.size))
        return Tensor(f"{self.index}.diagonal", (self.inputs,), MASTER_SCALE, factor, limit=3.9)

    @property
    def bias(self) -> Tensor:
        return Tensor(f"{self.index}.bias", (self.outputs,), PHASE_SCALE, 1 / self.unit, masked=False)


@dataclass(frozen=True)
class Form:
    """A network that can be trained on shares."""

    layers: tuple[TrainedLayer, ...]

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        return tuple(tensor for layer in self.layers for tensor in (layer.weight, layer.bias))


def training_form(model: nn.Sequential) -> Form:
    """The form of a network, or ModelError naming the layer that cannot be trained on shares yet."""
    made = []
    for index, layer in enumerate(model.layers):
        expected = nn.HadamardDiagonal if index % 2 == 0 else nn.Cos
        if not isinstance(layer, expected) or (isinstance(layer, nn.HadamardDiagonal) and layer.blocks != 1):
            raise ModelError(
                f"layer {index}, {layer.kind}, cannot be trained on shares yet: networks of HadamardDiagonal layers "
                f"of one block with Cos between them can"
            )
        if isinstance(layer, nn.HadamardDiagonal):
            last = index == len(model.layers) - 1
            made.append(TrainedLayer(index, layer.in_features, layer.out_features, layer.size, last))
    if len(made) < 2 or not made[-1].last:
        raise ModelError("a network that is trained on shares has at least one Cos and ends with a linear layer")
    return Form(tuple(made))
