"""Time in a simulation, against what can be worked out by hand."""

from __future__ import annotations

from math import exp

import pytest

from hdcos.planning.events import COOLING_S, Clock, Line, Processor, Thread, after_all, coldness


def ends(clock: Clock, starts: list) -> list[float]:
    """When each of some pieces of work ends."""
    found: list[float] = [0.0] * len(starts)
    for place, start in enumerate(starts):
        start(lambda place=place: found.__setitem__(place, clock.now))
    clock.run(lambda: True)
    return found


def test_threads_share_the_cores_of_a_processor_equally() -> None:
    clock = Clock()
    processor = Processor(clock, 2)
    works = [lambda done, work=work: processor.run(work, done) for work in (1.0, 1.0, 2.0)]
    # Three threads on two cores: 2/3 each until 1.5 s, when the first two end; the third has 1 s left, on its own core.
    assert ends(clock, works) == pytest.approx([1.5, 1.5, 2.5])


def test_a_thread_that_comes_later_slows_the_others_from_then_on() -> None:
    clock = Clock()
    processor = Processor(clock, 1)
    works = [
        lambda done: processor.run(1.0, done),
        lambda done: clock.after(0.5, lambda: processor.run(1.0, done)),
    ]
    # Alone until 0.5 s, then halved: the first needs another 1 s, the second has 0.5 s left then.
    assert ends(clock, works) == pytest.approx([1.5, 2.0])


def test_with_a_slice_threads_take_turns_and_fill_their_caches_again() -> None:
    clock = Clock()
    processor = Processor(clock, 1, slice_s=2.0, switch_s=0.25)
    works = [lambda done: processor.run(3.0, done), lambda done: processor.run(1.0, done)]
    # The first has its slice, the second its work, and then the first the second that is left: both of these waited.
    assert ends(clock, works) == pytest.approx([2.0 + 1.25 + 1.25, 2.0 + 1.25])


def test_caches_are_the_colder_the_longer_a_thread_waited() -> None:
    clock = Clock()
    processor = Processor(clock, 1, slice_s=1.0, switch_s=2e-4)
    works = [lambda done, work=work: processor.run(work, done) for work in (COOLING_S, 1e-3, 1e-3)]
    first, later = COOLING_S, COOLING_S + 1e-3 + 2e-4 * coldness(COOLING_S)
    last = later + 1e-3 + 2e-4 * coldness(later)
    assert ends(clock, works) == pytest.approx([first, later, last])
    assert coldness(COOLING_S) == pytest.approx(1 - exp(-1))
    assert [coldness(0.0), coldness(1.0)] == pytest.approx([0.0, 1.0])


def test_a_slice_that_ends_while_nobody_waits_costs_nothing() -> None:
    clock = Clock()
    assert ends(clock, [lambda done: Processor(clock, 1, 0.1, 0.05).run(1.0, done)] * 2) == pytest.approx([1.0, 1.0])


def test_a_thread_that_goes_on_keeps_its_core() -> None:
    clock = Clock()
    processor = Processor(clock, 1, slice_s=10.0)
    first, second = Thread(processor), Thread(processor)
    works = [lambda done, thread=thread: thread.do(1.0, done) for thread in (first, second, first)]
    assert ends(clock, works) == pytest.approx([1.0, 3.0, 2.0])


def test_parts_of_cores_are_shared_by_those_who_run() -> None:
    clock = Clock()
    processor = Processor(clock, 1.5, slice_s=10.0)
    # Two run, at three quarters of a core each; the third begins when they end, and has one of its own.
    assert ends(clock, [lambda done: processor.run(0.75, done)] * 3) == pytest.approx([1.0, 1.0, 1.75])


def test_work_that_comes_first_is_done_before_what_waits() -> None:
    clock = Clock()
    thread = Thread(Processor(clock))
    works = [lambda done, first=first: thread.do(1.0, done, first) for first in (False, False, True)]
    assert ends(clock, works) == pytest.approx([1.0, 3.0, 2.0])


def test_with_cores_enough_nobody_waits() -> None:
    clock = Clock()
    processor = Processor(clock)
    assert ends(clock, [lambda done: processor.run(0.3, done)] * 50) == pytest.approx([0.3] * 50)


def test_a_thread_does_one_thing_after_another_and_a_line_by_its_rate() -> None:
    clock = Clock()
    thread, line = Thread(Processor(clock, 8)), Line(clock, 80)
    works = [lambda done: thread.do(1.0, done), lambda done: thread.do(2.0, done)]
    works += [lambda done: line.send(1e7, done), lambda done: line.send(2e7, done)]  # 10 MB/s
    assert ends(clock, works) == pytest.approx([1.0, 3.0, 1.0, 3.0])
    assert thread.worked_s == 3.0


def test_the_last_part_ends_the_whole() -> None:
    called: list[int] = []
    end = after_all(3, lambda: called.append(1))
    end()
    end()
    assert called == []
    end()
    assert called == [1]
