"""Everything two parties can be asked to compute, once, with all randomness drawn from a public stream.

`python tests/golden/cases.py` writes golden.json: rounds, bytes and a hash of all messages of each case.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np

from hdcos import nn
from hdcos.protocol.catalogue import FUNCTIONS, Call
from hdcos.ring import encode
from hdcos.secure.calibrate import compare_by
from hdcos.secure.compile import WHOLE_TURN
from hdcos.secure.training import Rule, sgd_step, training_plan
from hdcos.secure.training.plan import INPUT_SCALE
from hdcos.testing.pair import Transcript, share_pair, simulate, simulate_transcript
from hdcos.testing.steps import public_randomness

FILE = Path(__file__).with_name("golden.json")
SHAPES = {
    "multiply": ((3, 5), (3, 5)),
    "matmul": ((3, 5), (5, 2)),
    "conv2d": ((2, 3, 6, 6), (4, 3, 3, 3)),
    "greater_equal": ((3, 5), (3, 5)),
    "maximum": ((3, 5), (3, 5)),
    "minimum": ((3, 5), (3, 5)),
}
ACTIVATIONS = ("cos", "square", "expm1", "polyfit3", "growing_cos", "sigmoid", "tanh")
STRUCTURES = tuple(nn.models.STRUCTURES)
LOSSES = ("logistic", "softmax", "squared")


def _rows(*shape: int) -> np.ndarray:
    """Numbers between -1 and 1 that are exact in few bits: no library decides how they round."""
    count = int(np.prod(shape))
    return ((np.arange(count) * 37 % 255) / 128.0 - 1.0).reshape(shape)


def _exact(model: nn.Network) -> nn.Network:
    """The network with weights of few bits."""
    return model.with_state({name: np.rint(values * 256) / 256 for name, values in model.state().items()})


def _function(name: str, **parameters: object) -> Transcript:
    call = Call.of(name, **parameters)
    scale = FUNCTIONS[name].input_scale
    inputs = [share_pair(encode(_rows(*shape), scale), scale) for shape in SHAPES.get(name, ((4, 6),))]
    _, transcript = simulate(call.program, *inputs)
    return transcript


def _inference(model: nn.Network, rows: int = 2, **options: object) -> Transcript:
    _, transcript = simulate_transcript(_exact(model), _rows(rows, *model.input_shape), **options)
    return transcript


def _step(model: nn.Network, loss: str, rows: int = 4) -> Transcript:
    model = _exact(model)
    training, state = training_plan(model, loss), model.state()
    pairs = {
        tensor.name: share_pair(tensor.words(state[tensor.name]), tensor.scale, tensor.bits)
        for tensor in training.tensors
    }
    x = share_pair(encode(_rows(rows, *model.input_shape).reshape(rows, -1), INPUT_SCALE), INPUT_SCALE)
    outputs = training.outputs
    wanted = share_pair(
        encode(np.eye(max(outputs, 2))[np.arange(rows) % 2, :outputs], training.target_scale), training.target_scale
    )
    names, rule = list(pairs), Rule(0.125, scale_diagonals=False)

    def program(party, *shares):
        after = yield from sgd_step(
            party, training, dict(zip(names, shares, strict=False)), shares[-2], shares[-1], rule
        )
        return tuple(after.values())

    _, transcript = simulate(program, *pairs.values(), x, wanted)
    return transcript


def _terms(*sizes: int, terms: int = 3) -> nn.Sequential:
    """A network of cosines between layers of several terms."""
    layers = [
        layer for ins, outs in pairwise(sizes) for layer in (nn.HadamardDiagonal(ins, outs, terms=terms), nn.Cos())
    ]
    return nn.Sequential(layers[:-1])


def _compared() -> nn.Sequential:
    """A network of pictures that compares in every way."""
    front = [nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU(), nn.Conv2d(2, 3, 2), nn.LeakyReLU(0.125), nn.MaxPool2d(2)]
    return nn.Sequential([*front, nn.Flatten(), nn.Dense(3, 2)], input_shape=(1, 9, 9))


def _pictures() -> nn.Graph:
    """A residual network: rows that are read twice, a value that is opened once for two products, groups, dilation."""
    layers = [
        nn.Conv2d(1, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 4, 3, padding=2, groups=2, dilation=2),
        nn.Conv2d(4, 4, 1),
        nn.Add(),
        nn.Conv2d(1, 2, 1),
        nn.Concat(),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Affine(6),
        nn.Add(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dense(6, 3),
    ]
    inputs = [[0], [1], [2], [2], [3, 4], [0], [5, 6], [7], [8], [9], [10, 9], [11], [12], [13]]
    return nn.Graph(layers, inputs, input_shape=(1, 6, 6))


def _branches() -> nn.Graph:
    """Cosines between sums: fused within a chain, rounded where one ends."""
    layers = [nn.HadamardDiagonal(12, 16), nn.Cos(), nn.HadamardDiagonal(16, 12), nn.Add(), nn.Cos(), nn.Dense(12, 3)]
    return nn.Graph(layers, [[0], [1], [2], [3, 0], [4], [5]])


def _pooled() -> nn.Sequential:
    """A network of pictures that is trained through comparisons of every kind."""
    front = [nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(2, 3, 3, padding=1), nn.MaxPool2d(2)]
    return nn.Sequential([*front, nn.LeakyReLU(0.125), nn.Flatten(), nn.Dense(12, 3)], input_shape=(1, 8, 8))


def cases() -> Iterator[tuple[str, Callable[[], Transcript]]]:
    models = nn.models
    for name in FUNCTIONS:
        yield f"function {name}", lambda name=name: _function(name)
        if "way" in FUNCTIONS[name].parameters:
            yield f"function {name} dcf", lambda name=name: _function(name, way="dcf")
    for structure in STRUCTURES:
        for activation in ACTIVATIONS:
            model = models.mlp([12, 16, 16, 3], activation, structure)
            yield f"infer {structure} {activation}", lambda model=model: _inference(model)
    for masked in (True, False):
        mode = "masked" if masked else "shares"
        for name, make in models.READY.items():
            yield f"infer {name} {mode}", lambda make=make, masked=masked: _inference(make(), masked=masked)
        for name in models.PRETRAINED:
            model = models.pretrained(name)
            yield f"infer {name} {mode}", lambda model=model, masked=masked: _inference(model, masked=masked)
    for structure in ("dense", "hadamard"):
        model = models.mlp([12, 16, 16, 3], "relu", structure)
        yield f"infer {structure} relu", lambda model=model: _inference(model)
    for masked in (True, False):
        mode = "masked" if masked else "shares"
        yield f"infer largest {mode}", lambda masked=masked: _inference(_compared(), masked=masked)
    for classes in (1, 2, 10, 40):
        model = models.mlp([12, 16, classes], "cos", "dense")
        yield f"label {classes}", lambda model=model: _inference(model, output="label")
    for activation in ("gelu", "silu", "softplus", "relu6", "hardtanh"):
        model = models.mlp([12, 16, 16, 3], activation, "dense")
        yield f"infer dense {activation}", lambda model=model: _inference(model)
    yield "infer largest dcf", lambda: _inference(compare_by(_compared(), "dcf"))
    exact = models.mlp([12, 16, 16, 3])
    yield "infer exact", lambda: _inference(exact, phase_bits=WHOLE_TURN)
    for masked in (True, False):
        mode = "masked" if masked else "shares"
        yield f"infer terms {mode}", lambda masked=masked: _inference(_terms(12, 16, 16, 3), masked=masked)
        for name, make in {"pictures": _pictures, "branches": _branches}.items():
            yield f"infer {name} {mode}", lambda make=make, masked=masked: _inference(make(), masked=masked)
    for loss in LOSSES:
        yield f"step terms {loss}", lambda loss=loss: _step(_terms(12, 16, 8, 3), loss)
    for structure in STRUCTURES:
        for loss in LOSSES:
            model = models.mlp([12, 16, 3], "cos", structure)
            yield f"step {structure} {loss}", lambda model=model, loss=loss: _step(model, loss)
    for structure in ("dense", "hadamard"):
        model = models.mlp([12, 16, 16, 3], "relu", structure)
        yield f"step {structure} relu", lambda model=model: _step(model, "logistic")
    yield "step largest", lambda: _step(_pooled(), "softmax")
    yield "step lenet5", lambda: _step(models.lenet5(), "softmax")
    yield "step higgs_mlp", lambda: _step(models.higgs_mlp(), "logistic")


def measured(name: str, run: Callable[[], Transcript]) -> dict[str, object]:
    with public_randomness(name):
        transcript = run()
    return {
        "rounds": len(transcript.sent_bytes),
        "bytes": sum(transcript.sent_bytes),
        "sha256": transcript.words.hexdigest()[:32],
    }


if __name__ == "__main__":
    kept = {name: measured(name, run) for name, run in cases()}
    FILE.write_text(json.dumps(kept, indent=1) + "\n")
