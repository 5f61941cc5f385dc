"""Time in a simulation, against what can be worked out by hand."""

from __future__ import annotations

import pytest

from hdcos.planning.events import Clock, Line, Processor, Thread, after_all


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
