"""Images of a batch, mirrored and shifted otherwise in every epoch.

Computes  [x] -> [x'], each row with its pixels in other places and zeros where none came from.
Online    nothing: each party moves its own words, and its share of a pixel that comes in is 0.
Error     none.
Security  nothing is opened. Which rows are mirrored and shifted, and how far, is drawn from the public seed of the run,
          as the batches are; both parties hash what they drew with every step, and no choice depends on a secret.

A shift is what cropping a padded image at random is. The zero that comes in is that of the shared numbers: black where
pixels lie from 0 to 1, the mean where they were standardised. Plaintext training moves floats by the same function.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hdcos.checks import check_whole
from hdcos.errors import InputError, ModelError
from hdcos.nn import AvgPool2d, Flatten, Network
from hdcos.nn.layer import Layer
from hdcos.ring import Array


@dataclass(frozen=True)
class Augment:
    """How images may be moved, and what shape they have."""

    flip: bool
    """Whether each is mirrored, left to right, or not, both equally likely."""
    shift: int
    """By how many pixels each is moved at most, up or down and left or right."""
    shape: tuple[int, ...]
    """Channels, height, width."""

    @classmethod
    def of(cls, model: Network, front: tuple[Layer, ...], flip: bool, shift: int) -> Augment | None:
        """As wanted for the rows that a network is trained on, if it is; they must be images when they are shared."""
        if not isinstance(flip, bool):
            raise InputError(f"flip is True or False, got {flip!r}")
        shift = check_whole(shift, "shift", 0)
        if not (flip or shift):
            return None
        shape = model.input_shape
        for layer in front:
            if not isinstance(layer, AvgPool2d | Flatten):
                raise ModelError(f"flip and shift move pixels, and behind the leading {layer.kind} there are none")
            shape = layer.output_shape(shape) if isinstance(layer, AvgPool2d) else shape
        if len(shape) != 3:
            raise ModelError(
                f"flip and shift are for images, (channels, height, width), and this network takes {shape}"
            )
        if shift >= min(shape[1:]):
            raise InputError(f"a shift of {shift} would move images of {shape[1]} x {shape[2]} out of sight")
        return cls(flip, shift, shape)

    def draw(self, seed: int, epoch: int, rows: int) -> Array:
        """For each row of an epoch: whether it is mirrored, how far down, how far to the right."""
        generator = np.random.default_rng([seed, epoch, 1])  # batches are drawn from [seed, epoch]
        mirrored = generator.integers(0, 2 if self.flip else 1, (rows, 1))
        return np.hstack([mirrored, generator.integers(-self.shift, self.shift + 1, (rows, 2))])

    def move(self, rows: Array, drawn: Array) -> Array:
        """Rows of pixels, words or floats, moved as drawn for each."""
        channels, height, width = self.shape
        s, (mirrored, down, right) = self.shift, drawn.T[:, :, None]
        images = np.pad(rows.reshape(-1, *self.shape), ((0, 0), (0, 0), (s, s), (s, s)))
        y, x = s + np.arange(height) - down, s + np.arange(width) - right
        x = np.where(mirrored, width + 2 * s - 1 - x, x)
        chosen = (np.arange(len(rows))[:, None, None, None], np.arange(channels)[:, None, None])
        moved: Array = images[(*chosen, y[:, None, :, None], x[:, None, None, :])]
        return moved.reshape(rows.shape)
