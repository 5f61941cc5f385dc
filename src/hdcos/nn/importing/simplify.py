"""What is computed before a network is shared: constants that follow one another, BatchNorm, padding; what is left out.

Everything here is exact but for the rounding of float64. An affine operation, which is what BatchNorm is at inference,
goes into the linear layer before it, else into the one behind it; where neither is possible it stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod, sqrt
from typing import Any

import numpy as np

from hdcos import nn
from hdcos.nn.importing.operations import Description, Operation
from hdcos.ring import Array

CLIENT = "left to the client"
UNREAD = "its result is not used"
INSIDE = "use it at the end of the network, where the client computes it"


class Simplifier:
    """The operations that are left, by the number of their value, and what became of the others."""

    def __init__(self, description: Description) -> None:
        self.operations = {each.number: each for each in description.operations}
        self.output = description.output
        self.result = description.output
        """The value of the source that the network gives."""
        self.notes: dict[int, str] = {}
        """What became of an operation that is no layer, or why it is a special one."""
        self.absorbed: dict[int, int] = {}
        """Operations that became part of another."""
        self._leave_out()
        self._products()
        while self._fold():
            pass
        self._refuse_rest()

    def readers(self, number: int) -> list[Operation]:
        return [each for each in self.operations.values() if number in each.inputs]

    def reader(self, number: int) -> Operation | None:
        """The only one that reads a value."""
        readers = self.readers(number)
        return readers[0] if len(readers) == 1 and number != self.output else None

    def _remove(self, operation: Operation, value: int, note: str, into: Operation | None = None) -> None:
        """Read another value instead of what an operation gives."""
        gone = operation.number
        del self.operations[gone]
        for each in self.readers(gone):
            inputs = tuple(value if number == gone else number for number in each.inputs)
            self.operations[each.number] = replace(each, inputs=inputs)
        self.output = value if self.output == gone else self.output
        self.notes[gone] = note
        if into is not None:
            self.absorbed[gone] = into.number

    def _change(self, operation: Operation, **changes: Any) -> None:
        self.operations[operation.number] = replace(operation, **changes)

    # ---- what is not computed

    def _leave_out(self) -> None:
        for each in list(self.operations.values()):
            if each.kind == "skip":
                self._remove(self.operations[each.number], self.operations[each.number].inputs[0], each.options["why"])
        last = self.operations.get(self.output)
        if last is not None and last.kind == "softmax":
            self.result = last.inputs[0]
            self._remove(last, last.inputs[0], f"{CLIENT}: results are logits")
        self._leave_out_unread()

    def _leave_out_unread(self, note: str = UNREAD) -> None:
        needed = {self.output}
        for each in reversed(self.operations.values()):
            if each.number in needed:
                needed |= set(each.inputs)
        for number in [number for number in self.operations if number not in needed]:
            del self.operations[number]
            self.notes[number] = note

    # ---- products of two values

    def _products(self) -> None:
        """x sigmoid(x) is SiLU, and x (1 + erf(x / sqrt 2)) is twice GELU."""
        for each in [each for each in self.operations.values() if each.kind == "multiply"]:
            for one, other in (each.inputs, each.inputs[::-1]):
                if self._silu(each, one, other) or self._gelu(each, one, other):
                    break
        self._leave_out_unread("part of the activation that follows")

    def _silu(self, product: Operation, x: int, factor: int) -> bool:
        other = self.operations.get(factor)
        if other is None or not isinstance(other.options.get("layer"), nn.Sigmoid) or other.inputs != (x,):
            return False
        self._change(product, kind="layer", inputs=(x,), options={"layer": nn.SiLU()})
        return True

    def _gelu(self, product: Operation, x: int, factor: int) -> bool:
        """c x times a (1 + erf(y)) with y = x / sqrt 2, constants anywhere."""
        for a, shift, number in self._scalings(factor):
            erf = self.operations.get(number)
            if erf is None or erf.kind != "erf" or a != shift:
                continue
            bases = {base: (c, none) for c, none, base in self._scalings(x)}
            for inner, nothing, base in self._scalings(erf.inputs[0]):
                c, none = bases.get(base, (0.0, 1.0))
                if nothing == none == 0 and abs(inner * sqrt(2) - 1) < 1e-6:
                    self._change(erf, kind="layer", inputs=(base,), options={"layer": nn.GELU()})
                    channels = product.shape[0]
                    gain = {"scale": np.full(channels, 2 * a * c), "shift": np.zeros(channels)}
                    self._change(product, kind="affine", inputs=(erf.number,), arrays=gain, options={})
                    return True
        return False

    def _scalings(self, number: int) -> Iterator[tuple[float, float, int]]:
        """A value as a number times another value plus a number, in all ways: the first is itself."""
        scale, shift = 1.0, 0.0
        yield scale, shift, number
        while (each := self.operations.get(number)) is not None and each.kind == "affine":
            if any(len(set(array.tolist())) > 1 for array in each.arrays.values()):
                return
            shift += scale * float(each.arrays["shift"][0])
            scale *= float(each.arrays["scale"][0])
            number = each.inputs[0]
            yield scale, shift, number

    # ---- constants

    def _fold(self) -> bool:
        """Take one operation away, if there is one that another can take over."""
        return any(
            self._fold_padding(each) if each.kind == "pad" else self._fold_affine(each)
            for each in list(self.operations.values())
            if each.kind in ("pad", "affine")
        )

    def _fold_padding(self, pad: Operation) -> bool:
        reader = self.reader(pad.number)
        if reader is None or reader.kind != "conv":
            return False
        sides = tuple(one + two for one, two in zip(pad.options["padding"], reader.options["padding"], strict=True))
        self._change(reader, options={**reader.options, "padding": sides})
        self._remove(pad, pad.inputs[0], f"part of {reader.name}", reader)
        return True

    def _fold_affine(self, affine: Operation) -> bool:
        scale, shift = affine.arrays["scale"], affine.arrays["shift"]
        if (scale == 1).all() and (shift == 0).all():
            self._remove(affine, affine.inputs[0], "changes nothing")
            return True
        return self._fold_back(affine, scale, shift) or self._fold_ahead(affine, scale, shift)

    def _fold_back(self, affine: Operation, scale: Array, shift: Array) -> bool:
        """Into what makes the value, through pooling: the mean of scaled pixels is the scaled mean."""
        for target in self._before(affine):
            if target.kind in ("linear", "conv", "affine"):
                gain = "scale" if target.kind == "affine" else "weight"
                offset = "shift" if target.kind == "affine" else "bias"
                rows = scale.reshape(-1, *[1] * (target.arrays[gain].ndim - 1))
                arrays = {gain: target.arrays[gain] * rows, offset: target.arrays[offset] * scale + shift}
                self._change(target, arrays=arrays)
                self._remove(affine, affine.inputs[0], f"folded into {target.name}", self.operations[target.number])
                return True
            positive = isinstance(target.options.get("layer"), nn.MaxPool2d) and (scale > 0).all()
            if not (_averages(target) or positive):
                return False
        return False

    def _before(self, operation: Operation) -> Iterator[Operation]:
        """The operations before it, as long as nothing else reads their values."""
        number = operation.inputs[0]
        while self.reader(number) is not None and number in self.operations:
            yield self.operations[number]
            if len(self.operations[number].inputs) != 1:
                return
            number = self.operations[number].inputs[0]

    def _fold_ahead(self, affine: Operation, scale: Array, shift: Array) -> bool:
        """Into what reads the value, through pooling and flattening; not where zeros are padded beside a shift."""
        reader = self.reader(affine.number)
        while reader is not None and (_averages(reader) or isinstance(reader.options.get("layer"), nn.Flatten)):
            if isinstance(reader.options["layer"], nn.Flatten):
                repeats = prod(reader.shape) // len(scale)
                scale, shift = np.repeat(scale, repeats), np.repeat(shift, repeats)
            reader = self.reader(reader.number)
        if reader is None or reader.kind not in ("linear", "conv"):
            return False
        weight, bias = reader.arrays["weight"], reader.arrays["bias"]
        if reader.kind == "linear":
            arrays = {"weight": weight * scale, "bias": bias + weight @ shift}
        elif any(reader.options["padding"]) and shift.any():
            return False
        else:
            group = np.arange(len(weight)) // (len(weight) // reader.options["groups"])
            channel = group[:, None] * weight.shape[1] + np.arange(weight.shape[1])
            arrays = {
                "weight": weight * scale[channel][:, :, None, None],
                "bias": bias + (weight.sum(axis=(2, 3)) * shift[channel]).sum(axis=1),
            }
        self._change(reader, arrays=arrays)
        self._remove(affine, affine.inputs[0], f"folded into {reader.name}", self.operations[reader.number])
        return True

    # ---- what nothing took over

    def _refuse_rest(self) -> None:
        reasons = {
            "multiply": (
                "multiplies two values with each other",
                "use an addition, or an activation such as SiLU, GELU or x * x",
            ),
            "erf": ("computes the error function", "use GELU, or Tanh"),
            "pad": ("pads what is not a convolution's input", "use the padding of a convolution"),
            "softmax": ("is a softmax inside of the network", INSIDE),
        }
        for each in list(self.operations.values()):
            if each.kind in reasons:
                reason, remedy = reasons[each.kind]
                self._change(each, kind="refused", options={"reason": reason, "remedy": remedy})


def _averages(operation: Operation) -> bool:
    """Whether it takes means of pixels alone, without zeros around the image."""
    layer = operation.options.get("layer")
    return isinstance(layer, nn.AdaptiveAvgPool2d) or (isinstance(layer, nn.AvgPool2d) and not layer.padding)
