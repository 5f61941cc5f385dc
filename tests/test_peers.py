"""The comparison with peers: how measurements are merged, checked, tabulated and drawn. Nothing is installed."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import tables
from benchmarks.peers import __main__ as driver
from benchmarks.peers import report
from benchmarks.peers.work import WORK, Way, Work, job, model, plaintext, rows, ways
from benchmarks.peers.worker import socket_bytes
from benchmarks.record import RESULTS

STEP = Work("step", "a step", "train", "higgs_mlp", steps=(2, 3), rate=0.1)


def measured(work: str, system: str, wall_s: float, **others: Any) -> dict[str, Any]:
    figures = {"way": "dense, ReLU", "online_s": None, "party_bytes": 2e6, "dealer_bytes": 0, "caller_bytes": 0}
    return {**figures, "work": work, "system": system, "wall_s": wall_s, "rounds": 4, "error": 1e-3, **others}


@pytest.fixture
def recorded() -> dict[str, Any]:
    """A result as it is written to the file: hdcos in two ways, one piece of work that it cannot do."""
    records = [
        measured("LeNet-5, batch 128", "hdcos", 0.5, way="Hadamard-diagonal, cosine", online_s=0.0123, error=3e-3),
        measured("LeNet-5, batch 128", "hdcos", 0.4, way="dense, cosine", rounds=8, dealer_bytes=5e3),
        measured("LeNet-5, batch 128", "CrypTen", 8.0, rounds=42, party_bytes=1.5e8),
        measured("LeNet-5, batch 128", "SPU", 16.0, rounds=44, error=2e-5),
        measured("ReLU of 128 x 1024", "CrypTen", 0.6),
        measured("ReLU of 128 x 1024", "SPU", 0.7, party_bytes=1e6),
    ]
    versions = {system: {"version": "1.2.3", "numpy": "2.0"} for system in ("hdcos", "CrypTen", "SPU")}
    context = {"command": "make peers", "commit": "abc", "machine": "a machine", "load": 0.5, "seed": 1, "turns": 3}
    return {**context, "slow_s": 15.0, "versions": versions, "records": records}


def row(table: str, *starts: str) -> list[str]:
    (found,) = [
        line.strip("| ").split(" | ") for line in table.splitlines() if line.startswith("| " + " | ".join(starts))
    ]
    return found


def test_the_table_has_every_record_and_says_what_hdcos_has_not(recorded: dict[str, Any]) -> None:
    table = report.table(recorded)
    assert sum(line.startswith("| ") for line in table.splitlines()) == 1 + len(recorded["records"]) + 1
    assert row(table, "ReLU of 128 x 1024", "hdcos")[2] == "not measured yet"
    assert row(table, "LeNet-5, batch 128", "hdcos", "Hadamard") == [
        *("LeNet-5, batch 128", "hdcos", "Hadamard-diagonal, cosine", "500 ms", "12.3 ms", "**2 MB**", "-", "**4**"),
        *("3.0e-03", "dealer with a party"),
    ]


def test_the_best_figure_is_bold_wherever_it_is(recorded: dict[str, Any]) -> None:
    table = report.table(recorded)
    assert row(table, "LeNet-5, batch 128", "hdcos", "dense")[3] == "**400 ms**"
    assert row(table, "LeNet-5, batch 128", "SPU")[8] == "**2.0e-05**"
    assert row(table, "ReLU of 128 x 1024", "CrypTen")[3] == "**600 ms**"
    assert row(table, "ReLU of 128 x 1024", "SPU")[5] == "**1 MB**"


def test_one_sentence_per_peer_says_where_it_is_better(recorded: dict[str, Any]) -> None:
    crypten, spu = report.better(recorded)
    assert crypten.startswith("- CrypTen is better than hdcos in: wall time (ReLU of 128 x 1024)")
    assert "LeNet" not in crypten
    assert "largest error (LeNet-5, batch 128; ReLU of 128 x 1024)" in spu
    recorded["records"] = recorded["records"][:3]
    assert "CrypTen is better than hdcos in: none of these figures." in "\n".join(report.better(recorded))


def test_the_short_table_takes_each_system_at_its_quickest(recorded: dict[str, Any]) -> None:
    table = report.brief(recorded)
    assert len(table.splitlines()) == 2 + 6
    assert row(table, "LeNet-5, batch 128")[1:] == ["400 ms (dense, cosine)", "8 s (dense, ReLU)", "16 s (dense, ReLU)"]
    assert row(table, "Higgs")[1:] == ["-", "-", "-"]
    titles = {work.title for work in WORK}
    assert set(report.BRIEF) <= titles


def test_the_plot_names_all_systems_and_can_be_read_on_black(recorded: dict[str, Any], tmp_path: Path) -> None:
    report.draw(recorded, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    assert all(text in drawn for text in ("hdcos: none yet", "CrypTen", "SPU", "LeNet-5, batch 128", "16 s"))
    assert report.INK in drawn
    assert "fill: #ffffff" not in drawn
    report.draw(recorded, tmp_path / "again.svg")
    assert (tmp_path / "again.svg").read_text() == drawn


def case(tmp_path: Path, work: Work = STEP, **expected: Any) -> driver.Case:
    wanted = {name: np.asarray(value, float) for name, value in expected.items()}
    return driver.Case(work, Way("SPU", "relu", "dense"), "a case", tmp_path / "out.npz", wanted)


def test_a_record_has_medians_per_step_and_the_largest_error(tmp_path: Path) -> None:
    taken = case(tmp_path)
    taken.turns = [3.0, 1.0, 2.0]
    for sent, error in ((10, 0.1), (20, 0.3), (60, 0.2)):
        taken.runs.append({"seconds": 1.0, "online_s": None, "sent": sent, "dealt": 8, "rounds": 6, "error": error})
    found = driver.record(taken)
    assert (found["wall_s"], found["party_bytes"], found["dealer_bytes"], found["rounds"]) == (2.0, 10.0, 4.0, 3.0)
    assert (found["online_s"], found["error"], found["caller_bytes"]) == (None, 0.3, 0)


def test_a_result_is_compared_with_plaintext_once(tmp_path: Path) -> None:
    taken = case(tmp_path, a=[1.0, 2.0], b=[[0.5]])
    np.savez(taken.outputs, a=[1.0, 2.25], b=[0.5])
    assert taken.check() == 0.25
    assert not taken.outputs.exists()  # an old result cannot pass for a new one
    np.savez(taken.outputs, a=[1.0, 2.0])
    with pytest.raises(SystemExit, match="a case: results"):
        taken.check()


class Scripted(driver.Process):
    """A worker that answers from a list."""

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers = [{"ready": True}, *answers]
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def receive(self) -> dict[str, Any]:
        return self.answers.pop(0)


def test_the_answers_of_a_system_become_one() -> None:
    zero = Scripted({"seconds": 2.0, "sent": 5, "rounds": 90})
    one = Scripted({"seconds": 9.0, "sent": 7, "rounds": 4})
    third = Scripted({"sent_so_far": 100}, {"sent_so_far": 130})
    answer = driver.System([zero, one], third).ask({"run": "x"})
    assert answer == {"seconds": 2.0, "sent": 7, "rounds": 4, "dealt": 30}
    assert zero.sent == one.sent == [{"run": "x"}]


def test_slow_work_is_done_once_and_quick_work_fills_each_turn(tmp_path: Path) -> None:
    def turns(seconds: float) -> list[int]:
        taken, counts = case(tmp_path, a=[0.0]), []
        for turn in range(3):
            before = len(taken.runs)
            system = driver.System([Scripted(*[{"seconds": seconds, "sent": 1, "rounds": 1}] * 20)])
            ask = system.ask

            def answer(message: Any, ask: Any = ask) -> dict[str, Any]:
                np.savez(taken.outputs, a=[0.0])
                return ask(message)

            system.ask = answer  # type: ignore[method-assign]
            driver.take_turn(taken, system, turn)
            counts.append(len(taken.runs) - before)
        return counts

    assert turns(driver.SLOW_S + 1) == [1, 0, 0]
    assert turns(driver.TURN_S / 2) == [0, 2, 2]


def test_a_worker_that_fails_is_named_with_its_last_words(tmp_path: Path) -> None:
    program = "import sys; print('because', file=sys.stderr); raise SystemExit(3)"
    with (
        driver.process("crypten1", [sys.executable, "-c", program], tmp_path) as worker,
        pytest.raises(SystemExit, match=r"(?s)crypten1: no answer.*because"),
    ):
        worker.receive()


def test_a_worker_answers_jobs_and_keeps_chatter_out_of_its_answers(tmp_path: Path) -> None:
    program = "from worker import serve; serve(lambda job: print('chatter') or {'twice': 2 * job['n']})"
    with driver.process("w", [sys.executable, "-c", program], tmp_path, PYTHONPATH=str(driver.HERE)) as worker:
        assert worker.receive() == {"ready": True}
        worker.send({"n": 21})
        assert worker.receive() == {"twice": 42}
        worker.send({})
        with pytest.raises(SystemExit, match="w: KeyError: 'n'"):
            worker.receive()


def test_bytes_are_those_of_the_kernel() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as client:
        other, _ = server.accept()
        with other:
            before = socket_bytes()
            client.sendall(bytes(12_345))
            assert len(other.recv(12_345, socket.MSG_WAITALL)) == 12_345
            sent, received = (now - then for now, then in zip(socket_bytes(), before, strict=True))
    assert (sent, received) == (12_345, 12_345)


def test_a_peer_that_cannot_be_installed_ends_with_a_clear_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "BUILD", driver.ROOT / "build" / tmp_path.name)
    with pytest.raises(SystemExit, match=r"SPU needs Python 1\.5: none is on the path\. Nothing was measured\."):
        driver.install(driver.Peer("SPU", ("1.5",), (("spu==0.9.5",),)))
    monkeypatch.setattr(driver, "find_python", lambda versions: sys.executable)
    real = subprocess.run

    def run(command: Any, **options: Any) -> Any:
        if "pip" in command:
            return subprocess.CompletedProcess(command, 1, "", "no matching distribution")
        return real([sys.executable, "-c", "pass"], check=True)

    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(SystemExit, match=r"(?s)SPU cannot be installed on this platform .*no matching distribution"):
        driver.install(driver.SPU)


@pytest.mark.parametrize("work", WORK, ids=lambda work: work.key)
def test_every_way_has_inputs_weights_and_a_plaintext_result(work: Work) -> None:
    given = rows(work)
    for way in ways(work):
        expected, told = plaintext(work, way, given), job(work, way)
        json.dumps(told)
        if work.kind == "train":
            start = model(work.network, way.activation, way.structure).state()
            assert set(expected) == set(start)
            assert all(np.abs(expected[name] - start[name]).max() > 0 for name in start)
        else:
            assert set(expected) == {"result"}
            assert len(expected["result"]) == work.rows
    assert {way.system for way in ways(work)} >= {"CrypTen", "SPU"}


def test_the_committed_results_are_those_of_all_work() -> None:
    results = json.loads((RESULTS / "peers.json").read_text())
    assert report.works(results) == [work.title for work in WORK]
    assert [(record["system"], record["way"]) for record in results["records"]] == [
        (way.system, way.title) for work in WORK for way in ways(work)
    ]
    assert tables.rendered("<!-- generated: peers_brief -->\n<!-- end -->").count("\n") == 1 + 2 + 6
