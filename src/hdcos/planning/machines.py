"""A cluster in a simulation: pairs of workers, dealers, their cores and the lines between them.

What one execution takes of a pair, a batch or a step, comes in this order:

    its material must be there: more is ordered from the dealer of this pair when half of what is kept ahead is gone,
        by `hdcos.local` when an eighth is. Party 1 asks for an order when the one before it is unpacked; of an order,
        the dealer makes a piece, sends it while party 1 receives it, and makes the next while party 1 unpacks it
    both parties work and wait for a round, half a round-trip time, by turns; they share cores with the other pairs and
        with the unpacking of material, so each turn may begin with waiting for a core
    its bytes go over the line between the parties, which all pairs share

Really bytes go with the rounds; their sum is what counts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from math import inf

from hdcos.cluster.pair import least_order
from hdcos.link import Emulation
from hdcos.planning.costs import Costs, Piece
from hdcos.planning.events import Action, Clock, Line, Processor, Thread, after_all, in_turn

PARTS = ("work", "rounds", "line", "material", "client", "adding", "others", "idle")
"""What the time of a pair goes to: the last two are waiting for other pairs in a step, and for requests."""
TRIPS = 2
"""Ways between the parties before the first round: party 1 says what arrived there, party 0 what to begin."""
SENDING, RECEIVING = 0.5, 0.75
"""The part of the dealer's work on material that is encrypting and sending it, and the part of party 1's that is
receiving it: as traces of both showed for criteo_mlp."""
MOST_TURNS = 8
"""Turns of work and rounds that are simulated; of more rounds, several are waited for together."""


@dataclass(frozen=True)
class Machines:
    """What computes: pairs of workers, dealers, and the cores that they have."""

    pairs: int
    dealers: int
    party_cores: float = inf
    dealer_cores: float = inf
    on_one: bool = False
    """Whether both parties, the dealers and the one client that asks share `party_cores`, as with `hdcos.local`."""


class Pool:
    """Material at one pair, in rows or in steps, and the execution that waits for more of it."""

    def __init__(self, ahead: int, least: int) -> None:
        self._ahead, self._least = ahead, least
        self._available = self._expected = ahead
        self._wanted = 0
        self._go_on: Action | None = None

    def take(self, amount: int, go_on: Action) -> int:
        """Go on when this amount is there; returns how much to order now, which may be nothing."""
        self._wanted, self._go_on = amount, go_on
        self._expected -= amount
        ordered = self._ahead - self._expected if self._expected <= self._least else 0
        self._expected += ordered
        self.add(0)
        return ordered

    def add(self, amount: int) -> None:
        self._available += amount
        if self._go_on is not None and self._available >= self._wanted:
            self._available -= self._wanted
            go_on, self._go_on = self._go_on, None
            go_on()


class Pair:
    """A worker of each party, the dealer that they order from, and what their time went to."""

    def __init__(self, processors: Sequence[Processor], dealer: Thread, pools: list[Pool]) -> None:
        self.online = [Thread(processor) for processor in processors]
        self.supply = [Thread(processor) for processor in processors]
        self.dealer, self.pools = dealer, pools
        self._orders: deque[Action] = deque()
        """That party 1 has not asked for yet; the first one, if any, is on its way."""
        self.spent = dict.fromkeys(PARTS, 0.0)
        self._since = 0.0

    def order(self, begin: Action) -> None:
        """Have an order begun when those before it have arrived."""
        self._orders.append(begin)
        if len(self._orders) == 1:
            begin()

    def end_order(self) -> None:
        self._orders.popleft()
        if self._orders:
            self._orders[0]()

    def note(self, part: str, now: float) -> None:
        """What the time since the last note went to."""
        self.spent[part] += now - self._since
        self._since = now


class _Turns:
    """One execution: work and rounds in turns. Who ends a piece of work goes on when the other's message is there."""

    def __init__(self, clock: Clock, pair: Pair, work_s: float, rounds: int, trip_s: float, done: Action) -> None:
        self._clock, self._pair, self._work_s, self._rounds, self._trip_s = clock, pair, work_s, rounds, trip_s
        self._done = done
        self._sent, self._got = [0, 0], [0, 0]
        self._at_work = 0

    def begin(self) -> None:
        for rank in (0, 1):
            self._work(rank)

    def _work(self, rank: int) -> None:
        if not self._at_work:
            self._pair.note("rounds", self._clock.now)
        self._at_work += 1
        self._pair.online[rank].do(self._work_s, partial(self._worked, rank))

    def _worked(self, rank: int) -> None:
        self._at_work -= 1
        if not self._at_work:
            self._pair.note("work", self._clock.now)
        self._sent[rank] += 1
        if self._sent[rank] <= self._rounds:
            if self._got[rank] >= self._sent[rank]:
                self._work(rank)
            if self._trip_s:
                self._clock.after(self._trip_s, partial(self._get, 1 - rank))
            else:
                self._get(1 - rank)
        elif min(self._sent) > self._rounds:
            self._done()

    def _get(self, rank: int) -> None:
        """The other's message of a round; who has sent one as well goes on."""
        self._got[rank] += 1
        if self._got[rank] == self._sent[rank]:
            self._work(rank)


@dataclass(frozen=True)
class Reading:
    """What all pairs together had done at some time."""

    at_s: float
    spent: dict[str, float]
    worked_s: list[float]
    """Of each party."""
    dealt_s: float


@dataclass(frozen=True)
class Use:
    """What was used of a cluster between two readings."""

    passed_s: float
    spent: dict[str, float]
    """The shares of PARTS in the time of the pairs."""
    party_cores: float
    """That were busy at the party that had more to do."""
    dealer_cores: float


class SimulatedCluster:
    """Pairs at work. Each has a pool of material for each of some models."""

    def __init__(self, costs: Costs, machines: Machines, network: Emulation, trips: int = 0, models: int = 1) -> None:
        """`trips` are ways between the parties besides the rounds."""
        self.costs, self.clock = costs, Clock()
        turns = (costs.slice_s, costs.switch_s)
        self.processor = Processor(self.clock, machines.party_cores, *turns)
        alone, cores = machines.on_one, machines.party_cores
        processors = [self.processor, self.processor if alone else Processor(self.clock, cores, *turns)]
        dealing = self.processor if alone else Processor(self.clock, machines.dealer_cores, *turns)
        self._dealers = [Thread(dealing) for _ in range(machines.dealers)]
        least = costs.ahead - (least_order(costs.ahead) if alone else (costs.ahead + 1) // 2)
        self.pairs = [
            Pair(processors, dealer, [Pool(costs.ahead, least) for _ in range(models)])
            for _, dealer in zip(range(machines.pairs), cycle(self._dealers), strict=False)
        ]
        self._line, self._dealer_line = Line(self.clock, network.mbps), Line(self.clock, network.mbps)
        trip_s = network.delay_s + costs.round_s
        self._turns = min(costs.rounds, MOST_TURNS)
        self._before_s, self._turn_s = trips * trip_s, trip_s * costs.rounds / max(1, self._turns)

    def execute(self, pair: Pair, pool: Pool, rows: int, amount: int, done: Action) -> None:
        """Rows at a pair, for which it takes this amount from a pool."""
        ordered = pool.take(amount, partial(self._work, pair, rows, done))
        if not ordered:
            return
        pieces = [(piece, after_all(2, partial(pool.add, piece.amount))) for piece in self.costs.pieces(ordered)]
        for piece, made in pieces:  # party 0 makes its part from a seed, but for keys of comparisons
            pair.supply[0].do(piece.of(self.costs.measured.material[0]), made)
        pair.order(partial(self._deal, pair, pieces))

    def _deal(self, pair: Pair, pieces: Sequence[tuple[Piece, Action]]) -> None:
        """What comes from the dealer: party 1's part, and keys of comparisons."""
        ended = after_all(len(pieces), pair.end_order)
        for piece, made in pieces:
            pair.dealer.do(
                (1 - SENDING) * piece.of(self.costs.measured.dealer),
                partial(self._deliver, pair, piece, in_turn(made, ended)),
            )

    def _deliver(self, pair: Pair, piece: Piece, done: Action) -> None:
        """A piece that was made: the dealer sends it while party 1 receives it, which then unpacks it."""
        measured, size = self.costs.measured, piece.of(self.costs.dealt) + piece.of(self.costs.common)
        sending_s, taking_s = SENDING * piece.of(measured.dealer), piece.of(measured.material[1])
        delivered = after_all(2, partial(pair.supply[1].do, (1 - RECEIVING) * taking_s, done, first=True))
        pair.dealer.do(sending_s, delivered, first=True)
        self._dealer_line.send(size, partial(pair.supply[1].do, RECEIVING * taking_s, delivered))

    def _work(self, pair: Pair, rows: int, done: Action) -> None:
        pair.note("material", self.clock.now)
        work_s = self.costs.measured.online.of(rows) / (self._turns + 1)
        turns = _Turns(self.clock, pair, work_s, self._turns, self._turn_s, partial(self._send, pair, rows, done))
        if self._before_s:
            self.clock.after(self._before_s, turns.begin)
        else:
            turns.begin()

    def _send(self, pair: Pair, rows: int, done: Action) -> None:
        self._line.send(self.costs.wire.of(rows), partial(self._end, pair, done))

    def _end(self, pair: Pair, done: Action) -> None:
        pair.note("line", self.clock.now)
        done()

    def read(self) -> Reading:
        return Reading(
            self.clock.now,
            {part: sum(pair.spent[part] for pair in self.pairs) for part in PARTS},
            [sum(pair.online[rank].worked_s + pair.supply[rank].worked_s for pair in self.pairs) for rank in (0, 1)],
            sum(dealer.worked_s for dealer in self._dealers),
        )

    def used(self, begun: Reading) -> Use:
        """Since a reading."""
        ended = self.read()
        passed_s = ended.at_s - begun.at_s
        return Use(
            passed_s,
            {part: (ended.spent[part] - begun.spent[part]) / (passed_s * len(self.pairs)) for part in PARTS},
            max(after - before for before, after in zip(begun.worked_s, ended.worked_s, strict=True)) / passed_s,
            (ended.dealt_s - begun.dealt_s) / passed_s,
        )
