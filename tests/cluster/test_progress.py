"""The live display says where a run is, on a terminal only."""

import io
from types import SimpleNamespace

import pytest
from rich.console import Console

from hdcos.cluster import job
from hdcos.secure.training.watch import Epoch

STATUS = {
    **{"state": "running", "step": 10, "total_steps": 40, "epoch": 0, "epochs": 2, "available": 7},
    "report": {"cost": {"online": {"rounds": 110, "bytes_sent": 20_000_000}}},
}


@pytest.mark.parametrize("terminal", [True, False])
def test_epoch_speed_rounds_megabytes_and_material_are_shown(monkeypatch, terminal) -> None:
    written, times = io.StringIO(), iter([5.0, 7.0])
    monkeypatch.setattr(
        "rich.console.Console",
        lambda stderr: Console(file=written, force_terminal=True, width=200, color_system=None),
    )
    monkeypatch.setattr("sys.stderr", SimpleNamespace(isatty=lambda: terminal, write=lambda _: None))
    monkeypatch.setattr(job, "perf_counter", lambda: next(times))
    with job.show_progress(True) as display:
        display.update(STATUS)
        display.note(Epoch(1, 3.0, 0.875, 0.25, "training rows"))
    text = written.getvalue()
    if not terminal:
        assert text == ""
        return
    seen = "loss 0.25, accuracy 87.50% of your training rows"
    for words in ("epoch 1/2", "5.0 steps/s", "110 rounds", "20 MB each way", "material for 7 steps", seen):
        assert words in text


def test_no_party_is_asked_for_a_model_before_both_have_ended_the_job(monkeypatch) -> None:
    """Party 1 ends it later than party 0: asked at once, it would not know the model yet."""
    monkeypatch.setattr(job, "POLL_S", 0.01)
    ended = STATUS | {"state": "done", "step": 40, "error": "", "model": "m", "version": "v"}
    ended["report"] = {"ended": [], "cost": {}}
    ended["interim"] = {"version": ""}
    behind = [STATUS] * 5
    asked = list[tuple[int, str]]()

    def model(name: str, wanted) -> SimpleNamespace:
        asked.append((len(behind), wanted()))
        return SimpleNamespace()

    transport = SimpleNamespace(
        events=lambda _: iter([ended]), job=lambda _: (ended, behind.pop() if behind else ended)
    )
    monkeypatch.setattr(job.Job, "cost", None)
    running = job.Job(SimpleNamespace(transport=transport, model=model), "j")
    running.follow(progress=False)
    running.result(5)
    assert asked == [(0, "v")]
