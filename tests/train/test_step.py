"""One private step against autograd, parameter by parameter, and its price."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from hdcos import nn
from hdcos.errors import ModelError
from hdcos.protocol.simulate import share_pair, simulate
from hdcos.ring import encode
from hdcos.sharing import Share, join
from hdcos.train import sgd_step, training_form
from hdcos.train.form import INPUT_SCALE, PHASE_SCALE, TARGET_SCALE


def private_step(model, x, targets, rate, loss):
    """The model after one step on shares, and the transcript."""
    form = training_form(model)
    state = model.state()
    pairs = {tensor.name: share_pair(tensor.words(state[tensor.name]), tensor.scale) for tensor in form.tensors}
    names = list(pairs)
    target_scale = PHASE_SCALE if loss == "squared" else TARGET_SCALE

    def program(party, *shares):
        held = dict(zip(names, shares, strict=False))
        after = yield from sgd_step(party, form, held, shares[-2], shares[-1], rate, loss)
        return tuple(after[name] for name in names)

    inputs = [*pairs.values(), share_pair(encode(x, INPUT_SCALE), INPUT_SCALE)]
    inputs.append(share_pair(encode(targets, target_scale), target_scale))
    (zero, one), transcript = simulate(program, *inputs)
    after = {
        tensor.name: tensor.parameter(join(a.words, b.words))
        for tensor, a, b in zip(form.tensors, zero, one, strict=True)
    }
    assert all(isinstance(share, Share) for share in zero)
    return model.with_state(after), transcript


def plain_step(model, x, targets, rate, loss):
    twin = model.to_torch(torch.float64)
    logits = twin(torch.from_numpy(x))
    wanted = torch.from_numpy(targets)
    if loss == "squared":
        value = 0.5 * ((logits - wanted) ** 2).sum() / len(x)
    else:
        value = torch.nn.functional.binary_cross_entropy_with_logits(logits, wanted, reduction="sum") / len(x)
    value.backward()
    with torch.no_grad():
        for parameter in twin.parameters():
            parameter -= rate * parameter.grad
    return nn.from_torch(twin)


CASES = {
    "1 layer": ([12, 8, 3], 1),
    "2 layers": ([12, 16, 8, 3], 2),
    "4 layers": ([28, 16, 16, 16, 16, 1], 4),
    "wide": ([64, 64, 10], 1),
}


@pytest.mark.parametrize("loss", ["logistic", "squared"])
@pytest.mark.parametrize("name", CASES)
def test_a_private_step_is_the_plain_step(name: str, loss: str) -> None:
    sizes, depth = CASES[name]
    model = nn.models.mlp(sizes, "cos", "hadamard", seed=1)
    generator = np.random.default_rng(2)
    x = np.rint(generator.uniform(-1, 1, (64, sizes[0])) * 2**16) / 2**16
    targets = (generator.random((64, sizes[-1])) < 0.5).astype(float)
    rate = 0.3
    private, transcript = private_step(model, x, targets, rate, loss)
    plain = plain_step(model, x, targets, rate, loss)
    before = model.state()
    assert len(transcript.rounds) == 3 * depth + 3 - (loss == "squared")
    for parameter, after in plain.state().items():
        moved = after - before[parameter]
        error = private.state()[parameter] - after
        # Rounding noise lies far below the step, in the mean square.
        assert np.sqrt((error**2).mean()) <= 1e-2 * np.sqrt((moved**2).mean()), parameter


def test_networks_that_cannot_be_trained_yet_are_named() -> None:
    for model in (
        nn.models.lenet5(),
        nn.models.mlp([4, 4, 2], "cos", "dense"),
        nn.models.mlp([4, 4, 2], "tanh", "hadamard"),
    ):
        with pytest.raises(ModelError, match="cannot be trained on shares yet"):
            training_form(model)
