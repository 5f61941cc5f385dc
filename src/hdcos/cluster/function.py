"""A function of the catalogue, opened on a cluster for given shapes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Self

import numpy as np
from numpy.typing import ArrayLike

from hdcos.checks import check_whole
from hdcos.cluster.model import join_replies
from hdcos.cluster.transport import OpenFunction, Transport, ask_again, split_words
from hdcos.errors import HdcosError, InputError, PeerLost, RangeError
from hdcos.offline import limits
from hdcos.protocol import catalogue
from hdcos.protocol.catalogue import Call
from hdcos.protocol.plan import blank_share, plan
from hdcos.ring import Array, encode


class PrivateFunction:
    """A function of private inputs. An execution is one evaluation at the opened shapes; the end of a `with` block
    closes it, and what is left of its material is forgotten."""

    def __init__(self, transport: Transport, call: Call, shapes: tuple[tuple[int, ...], ...], ahead: int) -> None:
        self._call, self._shapes = call, shapes
        self._function = catalogue.find(call.function)
        if not all(isinstance(shape, tuple) and all(type(n) is int for n in shape) for shape in shapes):
            raise InputError(f"shapes are tuples of whole numbers, got {shapes}")
        if any(len(shape) == 0 or shape[0] == 0 for shape in shapes):
            raise InputError(f"inputs are arrays with at least one row, got shapes {shapes}")
        scale = self._function.input_scale
        # Planned here as well: shapes that do not fit are refused before anything is sent.
        try:
            self.planned = plan(call.program, *(blank_share(shape, scale) for shape in shapes))
        except TypeError as error:
            raise InputError(f"{call.function} cannot take {len(shapes)} inputs of shapes {shapes}") from error
        limits.check_source(self.planned.material, transport.has_dealer)
        self._transport, self._closed = transport, False
        self._opened = transport.function(call, shapes, scale, ahead)

    def prepare(self, executions: int, wait: bool = True) -> None:
        """Have material for more executions made; without `wait`, in the background."""
        self._require_open().prepare(check_whole(executions, "executions"), wait)

    @property
    def stock(self) -> int:
        """Executions that both parties have material for."""
        return self._require_open().stock()

    def close(self) -> None:
        """Forget it and what is left of its material."""
        self._require_open().close()
        self._closed = True

    def _require_open(self) -> OpenFunction:
        if self._closed:
            raise InputError(f"this {self._call.function} is closed: open it again with `cluster.function`")
        return self._opened

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        if self._closed or (kind is not None and issubclass(kind, PeerLost)):
            return  # a party that is gone has forgotten it, and need not be waited for
        with suppress(*() if kind is None else (HdcosError,)):
            self.close()

    def __repr__(self) -> str:
        return f"<PrivateFunction {self._call.function}>"

    def __call__(self, *inputs: ArrayLike) -> Array:
        """The function of private inputs; a batch of k times the opened rows takes k executions of material."""
        arrays = [np.asarray(values) for values in inputs]
        return self.run_words(self.encode(arrays), self._executions(arrays))

    def run_words(self, words: Sequence[Array], executions: int) -> Array:
        """The function of encoded inputs; a call that was lost on the way is made again, with inputs split freshly."""
        opened, inputs = self._require_open(), {f"input{index}": array for index, array in enumerate(words)}
        return ask_again(lambda: join_replies(opened.run(split_words(inputs), executions)), self._transport.timeout_s)

    def encode(self, arrays: Sequence[Array]) -> list[Array]:
        """Inputs as ring words, refused here if they do not fit."""
        function = self._function
        words = [encode(array, function.input_scale) for array in arrays]
        interval = function.right_on(self._call.parameters)
        for array in arrays:
            if interval is not None and array.size:
                low, high = interval
                if array.min() < low or array.max() > high:
                    raise RangeError(
                        f"{function.name} is right on [{low:g}, {high:g}] and folds back outside, "
                        f"got values from {array.min():g} to {array.max():g}"
                    )
        if function.largest is not None:
            result = self.planned.result
            largest = function.largest(*arrays, **self._call.parameters)
            limit = 2.0 ** (result.bits - 1 - result.scale)
            if largest >= limit:
                raise RangeError(f"the result of {function.name} may reach {largest:.3g}, the ring holds {limit:.3g}")
        return words

    def _executions(self, arrays: Sequence[Array]) -> int:
        if len(arrays) != len(self._shapes):
            raise InputError(f"{self._call.function} takes {len(self._shapes)} inputs, got {len(arrays)}")
        counts: set[int] = set()
        for array, shape in zip(arrays, self._shapes, strict=True):
            if array.ndim != len(shape) or array.shape[1:] != shape[1:] or array.shape[0] % shape[0]:
                raise InputError(f"{self._call.function} is open for rows of shape {shape}, got {array.shape}")
            counts.add(array.shape[0] // shape[0])
        if self.planned.material.one_by_one and counts != {1}:
            raise InputError(f"{self._call.function} is open for exactly the shapes {self._shapes}")
        if len(counts) != 1:
            raise InputError(f"the inputs have different numbers of rows: {[array.shape for array in arrays]}")
        return counts.pop()
