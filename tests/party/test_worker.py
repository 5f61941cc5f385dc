"""Workers in one process: each owns one pair of links, and both parties do the same, command by command."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from threading import Thread
from time import monotonic, sleep

import numpy as np
import pytest

from hdcos import nn
from hdcos.api.commands import (
    AddRows,
    CountMaterial,
    EndData,
    Idle,
    Infer,
    KeepData,
    KeepJob,
    KeepModel,
    Load,
    OpenFunction,
    OpenJob,
    Order,
    Steps,
    Unload,
)
from hdcos.cluster.fit import check_run
from hdcos.cluster.transport import split_words
from hdcos.errors import DataMissing, HandshakeError, HdcosError, InputError, MaterialReused
from hdcos.link import Meter
from hdcos.offline import Dealer
from hdcos.offline.source import DealerClient, serve_dealer
from hdcos.party.engine import Engine
from hdcos.party.local_front import LocalFront
from hdcos.ring import decode, encode
from hdcos.secure import compile_network
from hdcos.sharing import join
from hdcos.testing.pair import memory_pair


class Pair:
    """Worker i of party 0 and worker i of party 1, with a dealer in threads of this process."""

    def __init__(self, dealer: Dealer) -> None:
        self.dealer = dealer
        self._links = memory_pair(timeout_s=10.0)
        self.fronts = [LocalFront(self._engine(rank)) for rank in (0, 1)]
        self._pool = ThreadPoolExecutor(2)

    def _engine(self, rank: int) -> Engine:
        def dial(meter: Meter):
            here, there = memory_pair()
            here.meter = meter
            Thread(target=self._deal, args=(there, rank), daemon=True).start()
            return here

        return Engine(rank, lambda meter: (self._links[rank], bytes(32)), DealerClient(dial, rank), Meter(), 10.0)

    def _deal(self, link, rank: int) -> None:
        with suppress(HdcosError):
            serve_dealer(self.dealer, link, rank)

    def do(self, *commands, arrays=({}, {})):
        """Both parties execute the same commands; a tuple has one for each party."""

        def run(rank: int):
            answer = {}, {}
            for command in commands:
                mine = command[rank] if isinstance(command, tuple) else command
                answer = self.fronts[rank]._answer(mine, dict(arrays[rank]))
            return answer

        return [future.result() for future in [self._pool.submit(run, rank) for rank in (0, 1)]]

    def stop(self) -> None:
        for front in self.fronts:
            front._worker.stop()
        self._pool.shutdown()


@pytest.fixture
def pairs():
    dealer = Dealer()
    made = [Pair(dealer), Pair(dealer)]
    yield made
    for pair in made:
        pair.stop()


def result(answers):
    (zero, words0), (one, words1) = answers
    assert (zero["scale"], zero["bits"]) == (one["scale"], one["bits"])
    return decode(join(words0["words"], words1["words"], zero["bits"]), zero["scale"], zero["bits"])


def load(pairs, model, rows):
    """Have pairs hold a model as "m", with material for eight rows; returns its scales, and rows as words."""
    network, state = compile_network(model, 26), model.state()
    shares = split_words({tensor.name: tensor.words(state[tensor.name]) for tensor in network.tensors})
    for number, pair in enumerate(pairs):
        kept = KeepModel("m", "v", model.architecture(), 26)
        pair.do(kept, Load("m", "v", f"model m {number}", {"shares": 8}), arrays=shares)
    return network, encode(network.apply_front(rows), network.input_scale)


def test_two_pairs_serve_one_model_side_by_side_with_material_of_their_own(pairs) -> None:
    model, rows = nn.models.mlp([6, 8, 3]), np.random.default_rng(0).uniform(-1, 1, (4, 6))
    network, words = load(pairs, model, rows)
    with ThreadPoolExecutor(2) as pool:

        def predict(pair):
            found = pair.do(Infer("m", "shares", ["x"], 0, 8), arrays=split_words({"input": words}))
            return result(found).reshape(4, 3) * network.output_gain

        for outputs in pool.map(predict, pairs):
            assert np.abs(outputs - model(rows)).max() < 1e-2
    for pair in pairs:
        assert [facts["used"] for facts, _ in pair.do(CountMaterial("m"))] == [4, 4]
        with pytest.raises(MaterialReused, match="was used before"):
            pair.do(Infer("m", "shares", ["x"], 3, 8), arrays=split_words({"input": words}))


def test_material_of_labels_is_used_once_and_only_where_labels_are_asked_for(pairs) -> None:
    pair, model = pairs[0], nn.models.mlp([6, 8, 3])
    rows = np.random.default_rng(0).uniform(-6, 6, (2, 6))
    _, words = load([pair], model, rows)
    worker = pair.fronts[0]._worker
    pair.do(Infer("m", "shares", ["x"], 0, 8), arrays=split_words({"input": words}))
    assert worker.opened["m"].labels is None
    found = result(pair.do(Infer("m", "shares", ["x"], 2, 8, "label", 0, 5), arrays=split_words({"input": words})))
    assert (found == model(rows).argmax(axis=1)).all()
    assert [facts["used"] for facts, _ in pair.do(CountMaterial("m", "label"))] == [2, 2]
    with pytest.raises(MaterialReused, match="was used before"):
        pair.do(Infer("m", "shares", ["x"], 4, 8, "label", 1, 5), arrays=split_words({"input": words}))


def test_parties_that_are_told_different_outputs_open_nothing(pairs) -> None:
    pair = pairs[0]
    _, words = load([pair], nn.models.mlp([6, 8, 3]), np.zeros((2, 6)))
    told = (Infer("m", "shares", ["x"], 0, 8, "label", 0, 2), Infer("m", "shares", ["x"], 0, 8))
    with pytest.raises(HandshakeError, match="another program"):
        pair.do(told, arrays=split_words({"input": words}))


def test_a_party_does_not_give_logits_to_a_client_that_asked_it_for_labels(pairs) -> None:
    pair = pairs[0]
    _, words = load([pair], nn.models.mlp([6, 8, 3]), np.zeros((2, 6)))
    for front in pair.fronts:
        front.take = lambda ids, take=front.take: [replace(request, output="label") for request in take(ids)]
    with pytest.raises(InputError, match="another output than the clients of these requests asked for"):
        pair.do(Infer("m", "shares", ["x"], 0, 8), arrays=split_words({"input": words}))


def test_parties_that_were_told_differently_stop_at_the_first_frame(pairs) -> None:
    pair, other = pairs
    opened = OpenFunction("f", "f", "cos", {}, [[1, 4]], [16])
    pair.do(opened, Order("f", "shares", 4, wait=True))
    inputs = split_words({"input0": encode(np.zeros((1, 4)), 16)})
    with pytest.raises(HandshakeError, match="another program"):
        pair.do((Infer("f", "shares", ["x"], 0, 4), Infer("f", "shares", ["y"], 0, 4)), arrays=inputs)
    with pytest.raises(MaterialReused, match="opened the material of f before"):  # whichever pair asks
        other.do(opened)


@pytest.mark.parametrize(
    ("command", "error", "words"),
    [
        (Idle(), InputError, "does not know the command Idle"),
        (Load("none", "v", "scope", {}), DataMissing, "version v of none is not here"),
        (Order("none", "shares", 1), InputError, "nothing is open under the name none"),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(pairs, command, error, words) -> None:
    with pytest.raises(error, match=words):
        pairs[0].do(command)
    pairs[0].do(Unload("none"))


def open_job(pair, epochs: int) -> None:
    """A job of two steps an epoch, on rows of zeros."""
    x = np.random.default_rng(0).uniform(-1, 1, (32, 6))
    run = check_run(nn.models.mlp([6, 8, 3]), x, np.arange(32) % 3, 26, epochs=epochs, batch_size=16, lr=0.1, seed=1)
    rows = split_words({"rows": np.zeros((32, 9), np.uint64)})
    pair.do(KeepData("d", "v", 6, 3), AddRows("d", "v"), EndData("d", "v", 32), arrays=rows)
    pair.do(KeepJob("j", run.spec), OpenJob("j", "first", [["d", "v"]], 1, None), arrays=split_words(run.words))


def test_material_of_later_steps_arrives_while_one_runs(pairs) -> None:
    """Party 0 waits in the first round of a step for party 1, and makes what the next ones need meanwhile."""
    open_job(pairs[0], 10)
    zero, one = pairs[0].fronts
    material = zero._worker.jobs["j"].training.pool
    with ThreadPoolExecutor(1) as pool:
        step = pool.submit(zero._answer, Steps("j", 0, 1, 0.1), {})
        deadline = monotonic() + 10
        while material.available < 5 and monotonic() < deadline:
            sleep(0.01)
        assert (material.used, material.available >= 5, step.done()) == (1, True, False)
        one._answer(Steps("j", 0, 1, 0.1), {})
        step.result(10)


def test_a_job_that_is_opened_again_takes_the_place_of_an_attempt_that_nobody_ended(pairs) -> None:
    pair = pairs[0]
    open_job(pair, 1)
    pair.do(Steps("j", 0, 1, 0.1))
    pair.do(OpenJob("j", "second", [["d", "v"]], 2, None))
    assert set(pair.dealer._scopes) == {"second"}, "its material is let go of"
    pair.do(Steps("j", 0, 2, 0.1))
    assert [front._worker.jobs["j"].step for front in pair.fronts] == [2, 2]
