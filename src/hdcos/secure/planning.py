"""Inference over shapes alone: what one row takes, before anything is shared."""

from __future__ import annotations

from hdcos.offline import Mask, Need, Plan, Reference
from hdcos.protocol.masked import Masked
from hdcos.protocol.plan import Planned, blank_share, plan
from hdcos.ring import Blank
from hdcos.secure.layout import CompiledNetwork
from hdcos.secure.program import infer
from hdcos.secure.stages import Parameters

MODEL = "model"
"""The scope of the weights' masks in a plan."""


def plan_inference(chosen: CompiledNetwork) -> Planned:
    """Drive a layout over the shapes of one row: whatever cannot run raises its error here."""
    return plan(infer, chosen, blank_parameters(chosen), Blank((1, *chosen.input_shape)))


def plan_weights(chosen: CompiledNetwork) -> Plan:
    """The masks of a model's weights, at the positions that `plan_inference` refers to."""
    return Plan(tuple(Need(Mask(tensor.shape, tensor.bits), 1) for tensor in chosen.tensors))


def blank_parameters(chosen: CompiledNetwork) -> Parameters:
    """A layout's parameters as shapes."""
    weights, biases = {}, {}
    for position, tensor in enumerate(chosen.tensors):
        share = blank_share(tensor.shape, tensor.scale, tensor.bits)
        if tensor.masked:
            weights[tensor.name] = Masked(share.words, share, Reference(position, MODEL, whole=True))
        else:
            biases[tensor.name] = share
    return Parameters(weights, biases)
