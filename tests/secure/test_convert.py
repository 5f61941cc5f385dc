"""A trained state becomes the shares that inference wants: same parameters, one or two rounds, nothing revealed."""

from __future__ import annotations

import numpy as np
import pytest

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.secure import compile_network
from hdcos.secure.training import training_plan
from hdcos.secure.training.convert import to_inference
from hdcos.sharing import join
from hdcos.testing.pair import share_pair, simulate

IMAGES = nn.Sequential(
    [nn.Conv2d(1, 2, 3, padding=1), nn.Cos(), nn.AvgPool2d(2), nn.Flatten(), nn.HadamardDiagonal(8, 3)], 0, (1, 4, 4)
)
MODELS = {
    "diagonal": (nn.models.mlp([6, 8, 3]), 1),
    "terms": (nn.Sequential([nn.HadamardDiagonal(6, 8, terms=3), nn.Cos(), nn.HadamardDiagonal(8, 3, terms=2)]), 1),
    "dense": (nn.models.mlp([6, 8, 3], "cos", "dense"), 1),
    "values": (nn.models.mlp([6, 8, 3], "tanh", "low_rank"), 1),
    "pooled": (IMAGES, 2),
}


@pytest.mark.parametrize("name", MODELS)
def test_parameters_stay_what_they_were(name: str) -> None:
    model, rounds = MODELS[name]
    training, chosen = training_plan(model), compile_network(model)
    state = model.state()
    names = [tensor.name for tensor in training.tensors]
    pairs = [share_pair(t.words(state[t.name]), t.scale, t.bits) for t in training.tensors]

    def program(party, *shares):
        made = yield from to_inference(party, training, chosen, dict(zip(names, shares, strict=True)))
        return tuple(made[tensor.name] for tensor in chosen.tensors)

    (zero, one), transcript = simulate(program, *pairs)
    assert len(transcript.rounds) <= rounds
    for tensor, a, b in zip(chosen.tensors, zero, one, strict=True):
        assert (a.scale, a.bits) == (tensor.scale, 64)
        error = tensor.parameter(join(a.words, b.words)) - state[tensor.name]
        # One unit of each scale on the way: training's opened copy has 18 bits or more, inference's its own.
        units = 2.0**-tensor.scale / abs(tensor.factor) + 2.0**-29 / min(abs(t.factor) for t in training.tensors)
        assert np.abs(error).max() <= units


def test_another_network_is_refused() -> None:
    model, other = nn.models.mlp([6, 8, 3]), nn.models.mlp([6, 8, 3], structure="dense")
    training = training_plan(model)
    pairs = [share_pair(t.words(model.state()[t.name]), t.scale, t.bits) for t in training.tensors]

    def program(party, *shares):
        return (
            yield from to_inference(party, training, compile_network(other), dict(zip("abcd", shares, strict=True)))
        )

    with pytest.raises(ModelError, match="other parameters"):
        simulate(program, *pairs)
