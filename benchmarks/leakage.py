"""What repeated queries of one row tell a party that is also a client: the attacks, run on the protocol itself.

The adversary is party 1 and knows its view: its own shares, all openings, the sharing of zero, its own share of the
result, and party 0's answer as it leaves. It asks for one row again and again and looks for what the errors of the
answers tell about the model's secrets. docs/security.md explains the channels and states the numbers.

carry     its own rounding of its share of a value that is opened or compared; tells the derivative of the outputs by it
table     the public rounding of the table of cosines at d; tells w cos y and w sin y of every hidden unit
dealt     the rounding of dealt cosines as a function of r = y - d; tells w, and y by a search over all of them
variance  the same, in the size of the noise instead of its mean

Each estimate is compared with the secret. Correlation r after N queries means that a correlation of one half takes
N (1 - r^2) / (3 r^2): information adds up.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from unittest import mock

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from hdcos import nn
from hdcos.nn.hadamard import sylvester
from hdcos.offline import Dealer, kinds
from hdcos.protocol.fourier import COEFFICIENT_SCALE, FINEST
from hdcos.protocol.hadamard import HadamardCosine
from hdcos.protocol.party import Party
from hdcos.protocol.plan import plan
from hdcos.ring import encode, modulo, trig_words
from hdcos.secure import answers, compile_network
from hdcos.secure.activations import Bent, Fourier
from hdcos.secure.compile import CompiledNetwork
from hdcos.secure.program import infer
from hdcos.sharing import Share, Stream, derive, refresh
from hdcos.testing import pair as private_simulation
from hdcos.testing.pair import deal, drive_pair

Array = npt.NDArray[np.float64]
BATCH = 1000
COMPILER = "hdcos.secure.compile"


def network(width: int = 256, outputs: int = 10, depth: int = 1, seed: int = 1) -> nn.Sequential:
    """Hidden layers of cosines and an output layer, all Hadamard-Diagonal, with random weights."""
    layers: list[nn.Layer] = [nn.HadamardDiagonal(width, width, bandwidth=4.0), nn.Cos()]
    for _ in range(depth - 1):
        layers += [nn.HadamardDiagonal(width, width, bandwidth=16 / 0.7), nn.Cos()]
    return nn.Sequential([*layers, nn.HadamardDiagonal(width, outputs)], seed=seed)


@dataclass(frozen=True)
class Setting:
    """The knobs of the arithmetic, and what may be broken on purpose."""

    phase_bits: int = 26
    table: int = 24
    dealt: int = 10
    coin_bits: int = 16
    coins: int = 4
    """Of the four uniform numbers that dither is the sum of; 0 rounds to the nearest."""
    answer_noise: bool = True

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Real code with other constants."""
        # A coin that is not used stays at its mean, so that the sum stays centred.
        keep = np.uint64(sum(0xFFFF << 16 * coin for coin in range(self.coins)))
        centre = np.uint64(sum(0x8000 << 16 * coin for coin in range(self.coins, 4)))
        real, no_noise = kinds.dither, lambda shape, scale: np.zeros(shape, np.uint64)
        with (
            mock.patch(f"{COMPILER}.DITHERED", compiler().DITHERED._replace(table=self.table, dealt=self.dealt)),
            mock.patch.object(kinds, "COIN_BITS", self.coin_bits),
            mock.patch.object(kinds, "dither", lambda x, coins, drop: real(x, coins & keep | centre, drop)),
            mock.patch.object(answers, "noise", answers.noise if self.answer_noise else no_noise),
        ):
            yield


def compiler():  # type: ignore[no-untyped-def]
    """The module, which its main function hides in its package."""
    import sys

    return sys.modules[COMPILER]


@dataclass
class Opening:
    """One opening as the two parties rounded it."""

    share: Array
    """What the adversary drops of its own share, in units of what is opened: its fraction."""
    secret: Array
    """The secret's fraction below the opened bits."""
    value: Array
    """The secret itself; turns where it is a phase."""


@dataclass
class Batch:
    """Answers as the adversary knows them, and the openings on the way."""

    seen: Array
    """Each output, known up to the other party's noise and rounding."""
    low: Array
    high: Array
    """The interval that the unrounded answer of the other party lies in."""
    openings: list[Opening]
    opened: list[npt.NDArray[np.unsignedinteger]] = field(default_factory=list)


class Queries:
    """One row of a shared model, asked for again and again."""

    def __init__(
        self, model: nn.Sequential, setting: Setting, row: Array, chosen: CompiledNetwork | None = None
    ) -> None:
        self.model, self.setting, self.row = model, setting, row
        with setting.applied():
            self.network: CompiledNetwork = chosen or compile_network(model, setting.phase_bits)
        self._dealer, self._scope = Dealer(), f"model {secrets.token_hex(8)}"
        self._parameters = private_simulation._load(model, self.network, self._dealer, self._scope)
        self._words = encode(np.repeat(self.network.apply_front(row[None]), BATCH, 0), self.network.input_scale)
        self._pair_seed = secrets.token_bytes(32)
        self._planned = [plan(self._program, rank, self._words, rank=rank) for rank in (0, 1)]
        self._count = 0

    def _program(self, party: Party, rank: int, value):  # type: ignore[no-untyped-def]
        return (yield from infer(party, self.network, self._parameters[rank], value))

    def batch(self) -> Batch:
        """The next answers."""
        with self.setting.applied(), _recorded() as rounded:
            self._count += 1
            name = f"{self._scope} rows {self._count}"
            allocations = deal(
                self._planned[0].material, self._dealer, name, [each.precompute for each in self._planned]
            )
            for rank in (0, 1):
                self._dealer.close(name, rank)
            mask = sum(allocation.peek(0)[0].astype(np.uint64) for allocation in allocations)
            masked = modulo(self._words + mask, self.network.input_bits)
            programs = [self._program(Party(rank, allocations[rank]), rank, masked) for rank in (0, 1)]
            (share0, share1), transcript = drive_pair(*programs)
            scale, _, answered = answers.answer(refresh(share0, 0, self._pair_seed, name), 0)
        zero = Stream(derive(self._pair_seed, "refresh", name)).words(share1.shape)
        drop = np.uint64(share1.scale - scale)
        # Party 0 sent round((share0 + zero + noise) / 2**drop); everything but share0 and its noise is known.
        total = _signed((answered.astype(np.uint64) << drop) - zero + share1.words, share1.bits)
        unit = 2.0**-scale
        seen = total / 2.0**share1.scale
        openings = [_opening(*pair) for pair in zip(rounded[0], rounded[1], strict=True)]
        return Batch(seen, seen - unit / 2, seen + unit / 2, openings, [part.values for part in _parts(transcript)])


def _parts(transcript):  # type: ignore[no-untyped-def]
    return [part for parts in transcript.rounds for part in parts]


def _signed(words: npt.NDArray[np.uint64], bits: int) -> npt.NDArray[np.int64]:
    shift = 64 - bits
    return (words << np.uint64(shift)).view(np.int64) >> np.int64(shift)


@contextmanager
def _recorded() -> Iterator[tuple[list[tuple[Share, int, int]], list[tuple[Share, int, int]]]]:
    """What both parties round as they open, or before they compare: their shares, the bits dropped and those kept."""
    lists: tuple[list[tuple[Share, int, int]], list[tuple[Share, int, int]]] = ([], [])

    def recording(real):  # type: ignore[no-untyped-def]
        def rounded(self, opening):  # type: ignore[no-untyped-def]
            share = self.share() if isinstance(self, HadamardCosine) else self
            if opening.mask is not None:  # an answer is rounded in the same way, and not opened
                lists[not opening.ties_up].append((share, opening.drop, opening.bits))
            return real(self, opening)

        return rounded

    real_round = Party.round

    def before_comparing(self, x, drop):  # type: ignore[no-untyped-def]
        if drop:
            lists[self.rank].append((x, drop, x.bits - drop))
        return real_round(self, x, drop)

    with (
        mock.patch.object(Party, "round", before_comparing),
        mock.patch.object(Share, "round_open", recording(Share.round_open)),
        mock.patch.object(HadamardCosine, "round_open", recording(HadamardCosine.round_open)),
    ):
        yield lists


def _opening(zero: tuple[Share, int, int], one: tuple[Share, int, int]) -> Opening:
    (share0, drop, bits), (share1, _, _) = zero, one
    low = np.uint64((1 << drop) - 1)
    secret = share0.words + share1.words
    value = modulo(secret, drop + bits)
    return Opening(
        (share1.words & low) / 2.0**drop,
        (secret[0] & low) / 2.0**drop,
        value[0].astype(np.float64) / 2.0**share0.scale,
    )


def queries_for_half(correlation: float, queries: int) -> float:
    """How many queries give a correlation of one half, if `queries` give this one."""
    if correlation <= 0:
        return float("inf")
    return queries / 3 * (1 - correlation**2) / correlation**2


def bounded(found: float, secrets: int, queries: int) -> tuple[float, bool]:
    """Queries for a correlation of one half, if as many secrets were found with this one. A correlation that may be
    chance is no law: then they are more than the first number, for one that is three standard errors larger."""
    error = 1 / np.sqrt(secrets)
    sure = found > 3 * error
    return queries_for_half(found if sure else min(1.0, max(found, 0.0) + 3 * error), queries), bool(sure)


def correlation(estimate: Array, truth: Array) -> float:
    return float(np.corrcoef(estimate.ravel(), truth.ravel())[0, 1])


def slopes(model: nn.Sequential, index: int, value: Array) -> Array:
    """The derivative of every output by every value that enters a layer, by differences."""

    def tail(values: Array) -> Array:
        for number in range(index, len(model.layers)):
            values = model.layers[number].forward(model.parameters(number), values)
        return values

    step = np.eye(len(value)) * 1e-5
    return ((tail(value + step) - tail(value - step)) / 2e-5).T


def public_columns(model: nn.Sequential, index: int) -> Array | None:
    """Of the transform behind the last hidden layer: what each unit adds to the outputs is its weight times one of
    them. None if what enters layer `index` is further from the outputs."""
    last = model.layers[-1]
    if index < len(model.layers) - 2 or not isinstance(last, nn.HadamardDiagonal):
        return None
    return sylvester(last.size)[: last.out_features, : last.in_features].astype(np.float64)


class OpeningAttack:
    """The carry channel of any rounding: what enters layer `index`, rounded as the given one of all.

    Where the last layer has public columns, the outputs are projected on them: K outputs tell K times as much. With
    `labels` the adversary sees no logit, only which is the largest, of a row for which all of them tie: no row could
    tell more. Where what is rounded is not what enters a layer, `by` has the derivative of every output by it; where it
    is not what the last layer takes, `columns` has the public one of each value.
    """

    def __init__(
        self,
        queries: Queries,
        opening: int,
        index: int,
        labels: bool = False,
        by: Array | None = None,
        columns: Array | None = None,
    ) -> None:
        self.queries, self.count, self._labels, self._by = queries, 0, labels, by
        self._opening, self._index = opening, index
        self._columns = public_columns(queries.model, index) if columns is None else columns
        self._sum: Array | float = 0.0
        self._truth: Array | None = None

    def ask(self, queries: int) -> None:
        centre = np.concatenate([self.queries.batch().seen for _ in range(4)]).mean(0)
        for _ in range(queries // BATCH):
            batch = self.queries.batch()
            opening, outputs = batch.openings[self._opening], batch.seen - centre
            if self._labels:
                outputs = np.eye(outputs.shape[1])[outputs.argmax(1)] - 1 / outputs.shape[1]
            known = np.sin(2 * np.pi * opening.share).reshape(len(outputs), -1)
            projected = None if self._columns is None else (outputs @ self._columns * known).sum(0)
            self._sum = self._sum + (outputs.T @ known if projected is None else projected)
            if self._truth is None:
                by_unit = -(slopes(self.queries.model, self._index, self._entering()) if self._by is None else self._by)
                secret = by_unit if self._columns is None else (by_unit * self._columns).sum(0)
                self._truth = secret * np.sin(np.pi * opening.secret.ravel()) ** 2
            self.count += BATCH

    def _entering(self) -> Array:
        model = self.queries.model
        value = model.rows(self.queries.row[None])
        for number in range(self._index):
            value = model.layers[number].forward(model.parameters(number), value)
        return np.asarray(value[0])

    def needed(self) -> tuple[float, bool]:
        """Queries for a correlation of one half; False if that is only a lower bound, three standard errors off."""
        assert self._truth is not None
        return bounded(correlation(np.asarray(self._sum), self._truth), self._truth.size, self.count)


class Attack:
    """All channels of the first hidden layer at once, by regression and by likelihood of the rounded answers.

    For one hidden layer the outputs are projected on each unit's public column of H; for deeper networks, whose tail is
    secret, every output is looked at by itself.
    """

    CHANNELS = ("carry", "table", "dealt")

    def __init__(self, queries: Queries) -> None:
        self.queries, self.count = queries, 0
        self._centre: Array | None = None
        self._spread: Array | None = None
        self._sums: dict[tuple[str, str], Array] = {}
        self._truth: dict[str, Array] = {}
        model = queries.model
        last = model.layers[-1]
        assert isinstance(last, nn.HadamardDiagonal)
        self._columns = sylvester(last.size)[: last.out_features, : last.in_features].astype(np.float64)
        self._shallow = len(model.layers) == 3
        self._weight = model.state()[f"{len(model.layers) - 1}.diagonal"]

    def ask(self, queries: int) -> None:
        """Ask this many times more."""
        if self._centre is None:  # the mean and the spread of the answers, from the adversary's own data
            first = np.concatenate([self.queries.batch().seen for _ in range(20)])
            self._centre, self._spread = first.mean(0), first.std(0)
        for _ in range(queries // BATCH):
            self._add(self.queries.batch())

    def _add(self, batch: Batch) -> None:
        assert self._centre is not None
        assert self._spread is not None
        first, d = batch.openings[0], batch.opened[0]
        regressors = {"carry": np.sin(2 * np.pi * first.share), **self._factors(first, d)}
        for way, outputs in (("regression", batch.seen - self._centre), ("likelihood", self._score(batch))):
            for name, known in regressors.items():
                made = (outputs @ self._columns * known).sum(0) if self._shallow else outputs.T @ known
                self._sums[way, name] = self._sums.get((way, name), 0.0) + made
        if not self._truth:
            self._truth = self._secrets(first)
        self.count += len(d)

    def _score(self, batch: Batch) -> Array:
        """The derivative of the log-likelihood of the interval that an answer lies in, by its centre."""
        low, high = ((edge - self._centre) / self._spread for edge in (batch.low, batch.high))
        chance = np.maximum(ndtr(high) - ndtr(low), 1e-12)
        return (np.exp(-(low**2) / 2) - np.exp(-(high**2) / 2)) / chance

    def _factors(self, first: Opening, d: npt.NDArray[np.unsignedinteger]) -> dict[str, Array]:
        setting, bits = self.queries.setting, self.queries.setting.phase_bits
        angle = 2 * np.pi * d / 2.0**bits
        cos, sin = (words / 2.0**setting.table - exact for words, exact in _rounded(d, bits, setting.table, angle))
        turned = {
            "table cos": cos * np.cos(angle) + sin * np.sin(angle),
            "table sin": cos * np.sin(angle) - sin * np.cos(angle),
        }
        if setting.coin_bits > 12 and setting.coins:
            return turned
        # The deterministic part of the dealt cosines' error, for the true phase: a search can do no better.
        fine = setting.dealt + (setting.coin_bits if setting.coins else 0)
        r = (np.floor(first.value * 2.0**bits).astype(np.int64) - d.astype(np.int64)) % (1 << bits)
        wrong = [words / 2.0**fine - exact for words, exact in _rounded(r, bits, fine, 2 * np.pi * r / 2.0**bits)]
        return {**turned, "dealt": np.cos(angle) * wrong[0] - np.sin(angle) * wrong[1]}

    def _secrets(self, first: Opening) -> dict[str, Array]:
        y = 2 * np.pi * first.value
        slopes = self._slopes(y)
        truth = {"carry": -slopes * np.sin(np.pi * first.secret) ** 2}
        if self._shallow:
            w = self._weight
            truth |= {"table cos": w * np.cos(y), "table sin": w * np.sin(y), "dealt": w}
        return truth

    def _slopes(self, y: Array) -> Array:
        """The derivative of the outputs by the hidden units' angles; of one layer without its public factor."""
        return -np.sin(y) * self._weight if self._shallow else slopes(self.queries.model, 1, y)

    def add(self, other: Attack) -> None:
        """What another attack on the same model found, with queries of its own: information adds up."""
        self._sums = {key: made + other._sums[key] for key, made in self._sums.items()}
        self.count += other.count

    def needed(self, channel: str, way: str) -> tuple[float, bool]:
        """Queries for a correlation of one half in a channel; False if that is only a lower bound (`bounded`)."""
        names = [name for name in self._truth if name.startswith(channel) and (way, name) in self._sums]
        found = [correlation(self._sums[way, name], self._truth[name]) for name in names]
        return bounded(float(np.mean(found)), sum(self._truth[name].size for name in names), self.count)


class VarianceAttack:
    """Does the size of the noise depend on r = y - d? Rounding up or down by one coin does: p (1 - p), p the fraction.

    For the true phases, which a search would have to find; compared with the squared weights, which set the amount.
    """

    def __init__(self, queries: Queries) -> None:
        self.queries, self.count = queries, 0
        self._attack = Attack(queries)
        self._sum = self._square = self._known = self._both = 0.0

    def ask(self, queries: int) -> None:
        setting, bits = self.queries.setting, self.queries.setting.phase_bits
        centre = np.concatenate([self.queries.batch().seen for _ in range(4)]).mean(0)
        for _ in range(queries // BATCH):
            batch = self.queries.batch()
            d = batch.opened[0]
            squares = ((batch.seen - centre) @ self._attack._columns) ** 2
            angle = 2 * np.pi * d / 2.0**bits
            r = 2 * np.pi * batch.openings[0].value - angle
            spreads = [(p := np.mod(part * 2.0**setting.dealt, 1)) * (1 - p) for part in (np.cos(r), np.sin(r))]
            known = np.cos(angle) ** 2 * spreads[0] + np.sin(angle) ** 2 * spreads[1]
            self._sum, self._square = self._sum + known.sum(0), self._square + squares.sum(0)
            self._both, self._known = self._both + (known * squares).sum(0), self._known + (known**2).sum(0)
            self.count += len(d)

    def correlation(self) -> float:
        """Of the estimated dependence with the squared weights."""
        mean = self._sum / self.count
        slope = (self._both - mean * self._square) / (self._known - self.count * mean**2)
        return correlation(np.asarray(slope), self._attack._weight**2)


class SeriesAttack:
    """The table channel of a series: the public factors of every harmonic are rounded, by how much is known.

    It tells w cos ky and w sin ky of each harmonic k; the least over all of them counts.
    """

    def __init__(self, queries: Queries) -> None:
        self.queries, self.count = queries, 0
        model = queries.model
        (self._stage,) = [stage for stage in queries.network.stages if isinstance(stage, Fourier)]
        self._phase = int(isinstance(self._stage, Bent) and bool(self._stage.bits))
        """The opening of the phase: x itself may be rounded beside it."""
        last = model.layers[-1]
        assert isinstance(last, nn.HadamardDiagonal)
        self._columns = sylvester(last.size)[: last.out_features, : last.in_features].astype(np.float64)
        self._weight = model.state()[f"{len(model.layers) - 1}.diagonal"]
        self._sums: dict[tuple[int, str], Array] = {}
        self._angle: Array | None = None

    def ask(self, queries: int) -> None:
        centre = np.concatenate([self.queries.batch().seen for _ in range(4)]).mean(0)
        series, precision = self._stage.series, self._stage.precision
        bits, mask = precision.phase_bits, (1 << precision.phase_bits) - 1
        shift = COEFFICIENT_SCALE + FINEST - precision.table
        for _ in range(queries // BATCH):
            batch = self.queries.batch()
            d = batch.opened[self._phase].astype(np.int64)
            outputs = (batch.seen - centre) @ self._columns
            for k, a, b in zip(series.harmonics, series.cos, series.sin, strict=True):
                turned = d * k & mask
                words = trig_words(turned.astype(np.uint32), bits, FINEST)
                angle = 2 * np.pi * turned / 2.0**bits
                exact = np.cos(angle), np.sin(angle)
                # The factors of cos kr and sin kr as they are rounded, less what they should be.
                pairs = ((a, b), (b, -a))
                wrong = [
                    ((p * words[0] + q * words[1] + (1 << shift - 1) >> shift) / 2.0**precision.table)
                    - (p * exact[0] + q * exact[1]) / 2.0**COEFFICIENT_SCALE
                    for p, q in pairs
                ]
                known = {
                    "cos": wrong[0] * exact[0] - wrong[1] * exact[1],
                    "sin": wrong[0] * exact[1] + wrong[1] * exact[0],
                }
                for name, factor in known.items():
                    self._sums[k, name] = self._sums.get((k, name), 0.0) + (outputs * factor).sum(0)
            if self._angle is None:
                self._angle = 2 * np.pi * batch.openings[self._phase].value / 1.0
            self.count += BATCH

    def needed(self) -> tuple[float, bool]:
        """Queries for a correlation of one half with the easiest harmonic; False if that is only a lower bound."""
        assert self._angle is not None
        found = {}
        for k, name in self._sums:
            secret = np.cos(k * self._angle) if name == "cos" else np.sin(k * self._angle)
            found[k, name] = abs(correlation(self._sums[k, name], self._weight * secret))
        best, error = max(found.values()), 1 / np.sqrt(len(self._weight))
        sure = best > 4 * error
        return queries_for_half(best if sure else min(1.0, best + 3 * error), self.count), bool(sure)


def _rounded(phase, bits: int, scale: int, angle: Array):  # type: ignore[no-untyped-def]
    """Cosine and sine as integers, each with its exact value at that scale."""
    words = trig_words(np.ascontiguousarray(phase).astype(np.uint32 if bits > 16 else np.uint16), bits, scale)
    return zip(words, (np.cos(angle), np.sin(angle)), strict=True)
