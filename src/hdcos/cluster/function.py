"""A function of the catalogue, opened on a cluster for given shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from hdcos.cluster.opened import Opened, halves
from hdcos.errors import InputError, RangeError
from hdcos.protocol import catalogue
from hdcos.protocol.catalogue import Call
from hdcos.protocol.plan import blank_share, plan
from hdcos.ring import Array, encode

if TYPE_CHECKING:
    from hdcos.cluster.cluster import Cluster


class PrivateFunction(Opened):
    """A function of private inputs. An execution is one evaluation at the opened shapes."""

    def __init__(self, cluster: Cluster, call: Call, shapes: tuple[tuple[int, ...], ...], ahead: int) -> None:
        super().__init__(cluster, call.function)
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
        self._ask(
            "open",
            function=call.function,
            parameters=dict(call.parameters),
            shapes=shapes,
            scales=[scale] * len(shapes),
            ahead=ahead,
        )

    def __call__(self, *inputs: ArrayLike) -> Array:
        """The function of private inputs; a batch of k times the opened rows takes k executions of material."""
        arrays = [np.asarray(values) for values in inputs]
        return self.run_words(self.encode(arrays), self._executions(arrays))

    def run_words(self, words: Sequence[Array], executions: int) -> Array:
        """The function of encoded inputs."""
        with self._lock:
            return self._run(halves({f"input{index}": array for index, array in enumerate(words)}), executions)

    def encode(self, arrays: Sequence[Array]) -> list[Array]:
        """Inputs as ring words, refused here if they do not fit."""
        function = self._function
        words = [encode(array, function.input_scale) for array in arrays]
        for array in arrays:
            if function.bounded and function.interval is not None and array.size:
                low, high = function.interval
                if array.min() < low or array.max() > high:
                    raise RangeError(
                        f"{function.name} is fitted on [{low:g}, {high:g}] and folds back outside, "
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
