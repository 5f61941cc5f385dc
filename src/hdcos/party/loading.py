"""How a party makes a shared model ready, and what leaves it: the same for every way of asking.

Security  weights are opened once per scope, each under a mask of its own; loading a model again takes a new scope and
          so new masks. What leaves is refreshed with a sharing of zero; answers of models have noise besides
          (`nn.private.answers`).
"""

from __future__ import annotations

from collections.abc import Mapping

from hdcos.nn import Sequential
from hdcos.party.engine import Engine
from hdcos.party.training import Training
from hdcos.party.work import ModelWork, Work, fingerprint
from hdcos.protocol.plan import plan
from hdcos.ring import Array, Blank
from hdcos.secure import CompiledNetwork, infer, open_weights
from hdcos.secure.training.convert import to_inference
from hdcos.sharing import Share, refresh


def load_model(
    engine: Engine, scope: str, model: Sequential, chosen: CompiledNetwork, shares: dict[str, Share], ahead: int
) -> ModelWork:
    """Open a model's weights under masks, once, plan its inference and order material for `ahead` rows."""
    weights_scope = f"{scope} weights"
    record: list[object] = [model.architecture(), chosen.record()]
    with engine.meter.section("offline"):
        parameters = engine.once(
            weights_scope,
            plan(open_weights, chosen, shares, weights_scope, rank=engine.rank),
            record,
            lambda party: open_weights(party, chosen, shares, weights_scope),
        )
    planned = plan(infer, chosen, parameters, Blank((1, *chosen.input_shape)), rank=engine.rank)
    stock = engine.open(scope, planned)
    agreed = fingerprint(record, planned.material.fingerprint.hex())
    work = ModelWork(stock, ahead, agreed, chosen, parameters, shares, planned)
    engine.order(stock, ahead)
    return work


def trained_shares(engine: Engine, scope: str, training: Training, chosen: CompiledNetwork) -> dict[str, Share]:
    """The parameters of a run as they are now, at the scales of inference; training may go on."""
    state = {tensor.name: training.state[tensor.name] for tensor in training.form.tensors}
    with engine.meter.section("offline"):
        return engine.once(
            f"{scope} scales",
            plan(to_inference, training.form, chosen, state, rank=engine.rank),
            [training.step],
            lambda party: to_inference(party, training.form, chosen, state),
        )


def refresh_for_client(engine: Engine, result: Share, work: Work, address: str) -> tuple[int, int, Array]:
    """A result as it leaves for the client: its scale, its bits and its words, refreshed, then as `work` answers."""
    return work.answer(refresh(result, engine.rank, engine.pair_seed, address), engine.rank)


def revealed(engine: Engine, shares: Mapping[str, Share], token: str) -> dict[str, Array]:
    """This party's share of a model's parameters, refreshed; both parties must use the same token, once."""
    return {
        name: refresh(share, engine.rank, engine.pair_seed, f"reveal {token} {name}").words
        for name, share in shares.items()
    }
