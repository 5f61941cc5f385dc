"""What a party remembers of its last ten minutes."""

from __future__ import annotations

from hdcos.party.http.watch import EVERY_S, KEPT_S, MOST_MODELS, History


def status(at: float, models: int = 1):
    return {
        "ready": True,
        "models": [{"name": f"m{i}", "stock": 7, "rows": 1, "version": "v"} for i in range(models)],
        "counters": {"requests": at},
        "latency_ms": {"p50": None, "p99": None},
    }


def test_samples_come_oldest_first_with_their_ages() -> None:
    history = History()
    for at in (100.0, 102.0, 104.5):
        history.note(status(at), now=at)
    told = history.tell(now=105.0)
    assert told["every_s"] == EVERY_S
    assert [sample["age_s"] for sample in told["samples"]] == [5.0, 3.0, 0.5]
    assert [sample["counters"]["requests"] for sample in told["samples"]] == [100.0, 102.0, 104.5]
    assert told["samples"][0]["models"] == [{"name": "m0", "stock": 7}]


def test_ten_minutes_are_kept_and_no_more_however_many_models_there_are() -> None:
    history = History()
    for step in range(1000):
        history.note(status(step, models=100), now=EVERY_S * step)
    samples = history.tell(now=EVERY_S * 999)["samples"]
    assert len(samples) == KEPT_S / EVERY_S
    assert all(len(sample["models"]) == MOST_MODELS for sample in samples)
    assert history.tell(now=EVERY_S * 999 + KEPT_S / 2)["samples"][0]["age_s"] <= KEPT_S
    assert not history.tell(now=EVERY_S * 1000 + KEPT_S)["samples"]
