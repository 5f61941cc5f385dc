"""Inference over shapes alone: what one row takes, before anything is shared."""

from __future__ import annotations

from hdcos.nn.private.layout import Layout
from hdcos.nn.private.program import infer
from hdcos.nn.private.stages import Parameters
from hdcos.offline import Reference
from hdcos.protocol.masked import Masked
from hdcos.protocol.plan import Planned, blank_share, plan
from hdcos.ring import Blank


def plan_inference(chosen: Layout) -> Planned:
    """Drive a layout over the shapes of one row: whatever cannot run raises its error here."""
    return plan(infer, chosen, blank_parameters(chosen), Blank((1, *chosen.input_shape)))


def blank_parameters(chosen: Layout) -> Parameters:
    """A layout's parameters as shapes."""
    weights, biases = {}, {}
    for position, tensor in enumerate(chosen.tensors):
        share = blank_share(tensor.shape, tensor.scale, tensor.bits)
        if tensor.masked:
            weights[tensor.name] = Masked(share.words, share, Reference(position, "model", whole=True))
        else:
            biases[tensor.name] = share
    return Parameters(weights, biases)
