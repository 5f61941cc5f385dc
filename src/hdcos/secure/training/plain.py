"""Plaintext training in NumPy: Hadamard-Diagonal and dense layers, cosines and ReLU, every loss, SGD.

The yardstick of the demo, which has no PyTorch, and what `hdcos suggest` tries settings with: the same initial weights,
batches and rates as on shares, in floats.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hdcos import nn
from hdcos.errors import InputError, ModelError
from hdcos.nn.hadamard import moved_places, pad_features, walsh_hadamard
from hdcos.ring import Array
from hdcos.secure.training.augment import Augment
from hdcos.secure.training.plan import LOSSES
from hdcos.secure.training.rule import first_averaged
from hdcos.secure.training.shuffle import batches, block_rows


def plain_fit(
    model: nn.Network,
    x: Array,
    targets: Array,
    epochs: int,
    batch_size: int,
    rate: Callable[[int], float],
    seed: int,
    scale_diagonals: bool = True,
    momentum: float = 0.0,
    flip: bool = False,
    shift: int = 0,
    average: int = 0,
    shuffle: str = "rows",
    loss: str = "logistic",
    weight_decay: float = 0.0,
    weights: Array | None = None,
    after_epoch: Callable[[int, nn.Network], bool] = lambda number, model: False,
    before_step: Callable[[dict[str, Array]], None] = lambda state: None,
) -> nn.Network:
    """The model after SGD on rows and one-hot targets, drawn, moved and averaged as `cluster.fit` does it.

    `weights` has one for each row. `after_epoch` sees the model after each epoch, and may say that it is enough;
    `before_step` sees the parameters that a step begins with, which the step then changes in place.
    """
    for layer in model.layers:
        known = isinstance(layer, nn.HadamardDiagonal | nn.Dense | nn.Cos | nn.ReLU | nn.LeakyReLU | nn.Flatten)
        if not known or getattr(layer, "blocks", 1) != 1:
            raise ModelError(f"{layer.kind} is not trained here: PyTorch does, with model.to_torch()")
    if loss not in LOSSES:
        raise InputError(f"no loss is called {loss!r}: choose from {', '.join(LOSSES)}")
    state = model.state()
    velocity = {name: np.zeros_like(value) for name, value in state.items()}
    factors = model.rate_factors() if scale_diagonals else dict.fromkeys(state, 1.0)
    augment = Augment.of(model, tuple(layer for layer in model.layers if isinstance(layer, nn.Flatten)), flip, shift)
    block = block_rows(x[0].size + targets[0].size) if shuffle == "blocks" else 0
    seen: list[dict[str, Array]] = []
    for epoch in range(epochs):
        moves = augment.draw(seed, epoch, len(x)) if augment else None
        for rows in batches(seed, epoch, len(x), batch_size, block):
            before_step(state)
            if epoch >= first_averaged(average, epochs):
                seen.append({name: value.copy() for name, value in state.items()})
            batch = x[rows] if augment is None or moves is None else augment.move(x[rows], moves[rows])
            each = None if weights is None else weights[rows]
            for name, gradient in _gradients(model, state, batch, targets[rows], loss, each).items():
                velocity[name] = momentum * velocity[name] + gradient / batch_size + weight_decay * state[name]
                state[name] -= rate(epoch) * factors[name] * velocity[name]
        if after_epoch(epoch + 1, model.with_state(state)):
            break
    return model.with_state({name: np.mean([each[name] for each in seen], 0) for name in state} if seen else state)


def _error(logits: Array, targets: Array, loss: str) -> Array:
    """The derivative of a loss by the logits; see `loss`."""
    if loss == "squared":
        return logits - targets
    if loss == "logistic":
        return np.asarray(1 / (1 + np.exp(-logits)) - targets)
    label = (logits * targets).sum(1, keepdims=True)
    against = (1 - targets) / (1 + np.exp(label - logits))
    return np.asarray(against - targets * against.sum(1, keepdims=True))


def _gradients(
    model: nn.Network, state: dict[str, Array], x: Array, targets: Array, loss: str, weights: Array | None
) -> dict[str, Array]:
    """Of a loss, summed over the rows."""
    inputs = [x]
    for index, layer in enumerate(model.layers):
        own = {name.split(".")[1]: value for name, value in state.items() if name.startswith(f"{index}.")}
        inputs.append(layer.forward(own, inputs[-1]))
    gradient = _error(inputs[-1], targets, loss)
    if weights is not None:
        gradient = gradient * weights[:, None]
    made: dict[str, Array] = {}
    for index in range(len(model.layers) - 1, -1, -1):
        layer, before = model.layers[index], inputs[index]
        if isinstance(layer, nn.HadamardDiagonal):
            made[f"{index}.bias"] = gradient.sum(0)
            mixed, diagonal = walsh_hadamard(pad_features(gradient, layer.size)), state[f"{index}.diagonal"]
            terms = [mixed[:, moved_places(layer.in_features, term)] for term in range(layer.terms)]
            made[f"{index}.diagonal"] = np.stack([(before * term).sum(0) for term in terms]).reshape(diagonal.shape)
            gradient = np.sum(np.stack(terms) * diagonal.reshape(layer.terms, 1, -1), 0)
        elif isinstance(layer, nn.Dense):
            made[f"{index}.bias"], made[f"{index}.weight"] = gradient.sum(0), gradient.T @ before
            gradient = gradient @ state[f"{index}.weight"]
        elif isinstance(layer, nn.Cos):
            gradient = -np.sin(before) * gradient
        elif isinstance(layer, nn.ReLU | nn.LeakyReLU):
            below = layer.slope if isinstance(layer, nn.LeakyReLU) else 0.0
            gradient = np.where(before > 0, 1.0, below) * gradient
    return made
