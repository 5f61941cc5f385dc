"""One entry of the paper's tables, and the network behind it.

A cell is trained at every learning rate with several seeds. All of these models have one architecture, so they are
trained together; the paper reports the learning rate with the best mean over the seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from hdcos.errors import InputError
from hdcos.nn import models
from hdcos.nn.hadamard import HadamardDiagonal
from hdcos.nn.layer import Layer
from hdcos.nn.sequential import Sequential

LEARNING_RATES = (1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.5)
IMAGES = ("mnist", "fashion_mnist")
HIGGS_FEATURES, HIGGS_WIDTH, HIGGS_DEPTH = 28, 16, 4


@dataclass(frozen=True)
class Cell:
    """Models that differ in learning rate and seed only.

    depth    hidden layers of the Higgs network; LeNet-5 has none to choose
    blocks   H D blocks in each Hadamard-Diagonal layer
    inputs   "unit": pixels in [0, 1] and Higgs features as they are; "standardised": mean 0 and variance 1 besides
    """

    dataset: str
    activation: str
    structure: str
    optimizer: str = "sgd"
    depth: int | None = None
    blocks: int = 1
    inputs: str = "unit"

    def network(self, seed: int) -> Sequential:
        """The untrained network; equal seeds start from equal parameters at every learning rate."""
        if self.dataset in IMAGES:
            plain = models.lenet5(self.activation, self.structure, seed)
        elif self.dataset == "higgs" and self.depth is not None:
            sizes = [HIGGS_FEATURES, *[HIGGS_WIDTH] * self.depth, 1]
            plain = models.mlp(sizes, self.activation, self.structure, seed)
        else:
            raise InputError(f"no network of the paper is for {self.dataset!r} with depth {self.depth}")
        if self.blocks == 1:
            return plain
        return Sequential([self._deepened(layer) for layer in plain.layers], seed, plain.input_shape)

    def _deepened(self, layer: Layer) -> Layer:
        return replace(layer, blocks=self.blocks) if isinstance(layer, HadamardDiagonal) else layer
