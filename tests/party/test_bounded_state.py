"""What a client may have kept is limited: what is over, what waits, and what only one party was told of."""

from __future__ import annotations

import json
import secrets
import sqlite3
import time
from collections import Counter
from contextlib import closing

import numpy as np
import pytest

from hdcos import nn
from hdcos.api.commands import Withhold
from hdcos.errors import DataMissing, InputError, PolicyRefused
from hdcos.party import database, kept_reveals
from hdcos.party.database import FILE, MIGRATIONS, migrate
from hdcos.party.engine import fingerprint
from hdcos.party.failures import Failures
from hdcos.party.kept_reveals import MOST_DECIDED, MOST_PENDING, PENDING_S
from hdcos.party.scheduler import Scheduler, inventory
from hdcos.party.service import Service
from hdcos.party.store import ENDED, MOST_ENDED, MOST_JOBS, MOST_MODELS, MOST_VERSIONS, Failure, Store, StoredReveal
from hdcos.secure.training import training_plan
from party.conftest import Raw, running_all

WORDS = {"w": np.arange(6, dtype=np.uint64).reshape(2, 3)}
SPEC = {"model": "m", "datasets": ["d"], "batch_size": 5, "rates": [0.125] * 10_000}
"""With as many rates as a job may have."""
DAY_S = 24 * 3600.0


@pytest.fixture
def store(tmp_path):
    opened = Store(tmp_path / "state")
    yield opened
    opened.close()


@pytest.fixture
def parsed(monkeypatch) -> Counter[str]:
    """How many values of each column are read as JSON."""
    counted, read = Counter[str](), database._read

    def count(name, value):
        counted[name] += name in database.JSON_COLUMNS
        return read(name, value)

    monkeypatch.setattr(database, "_read", count)
    return counted


def submit(store, owner="me", spec=SPEC) -> str:
    number = secrets.token_hex(16)
    store.keep_job(number, spec, owner, WORDS)
    return number


def ask(store, owner="me", model="m", version="v", state="waiting") -> str:
    number = secrets.token_hex(16)
    store.keep_reveal(StoredReveal(number, model, version, owner, state))
    return number


def count(store, table) -> int:
    return store._rows(f"SELECT count(*) FROM {table}")[0][0]


# ---- jobs


def test_jobs_that_are_submitted_and_cancelled_leave_a_bounded_table_and_cheap_looks(store, parsed) -> None:
    waiting = [submit(store, owner) for owner in ("me", "other")]
    ended = list[str]()
    for _ in range(3 * MOST_ENDED):
        ended.append(submit(store))
        store.note_job(ended[-1], state="cancelled")
    kept = [job.id for job in store.jobs()]
    assert sorted(kept) == sorted(waiting + ended[-MOST_ENDED:])
    (longest,) = store._rows("SELECT max(length(spec)) FROM jobs WHERE owner = 'me' AND ended > 0")[0]
    assert longest == len("{}")
    assert sorted(path.name for path in (store.folder / "jobs").iterdir() if list(path.iterdir())) == sorted(waiting)
    parsed.clear()
    failures = Failures(store)
    assert len(inventory(store, 0, failures)["jobs"]) == 2 + MOST_ENDED
    assert {job.id for job in store.unfinished()} == set(waiting)
    assert store.counted_as(f"job-{waiting[0]}") == "m"
    assert store.in_use() == set()
    assert store.job_record(waiting[0]).epochs == len(SPEC["rates"])
    submit(store)
    assert parsed["spec"] == 0
    assert store.job(waiting[0]).spec == SPEC


def test_a_job_that_ended_tells_what_it_was_until_it_is_one_of_too_many(store) -> None:
    first = submit(store)
    store.note_job(first, state="done", version="v", step=7)
    found = store.job(first)
    assert (found.model, found.epochs, found.step, found.version) == ("m", 10_000, 7, "v")
    assert (found.spec, found.said) == ({}, fingerprint(SPEC).hex())
    for _ in range(MOST_ENDED):
        store.note_job(submit(store, "other"), state="done")
    assert store.job(first) == found, "those of others do not count"
    for _ in range(MOST_ENDED):
        store.note_job(submit(store), state="failed", error="x")
    with pytest.raises(DataMissing):
        store.job(first)


def test_of_a_job_that_is_one_of_too_many_the_ledger_stays(store, monkeypatch) -> None:
    monkeypatch.setattr("hdcos.party.store.MOST_ENDED", 2)
    job = submit(store)
    found = store.checkpoints(store.job(job), 0, None)
    found.lock()
    found.begin(1, "scope")
    found.reserve(1, "scope", 0, 4)
    found.unlock()
    for number in (job, submit(store), submit(store)):
        store.note_job(number, state="done")
    left = [path.relative_to(store.folder).as_posix() for path in (store.folder / "jobs").rglob("*") if path.is_file()]
    assert left == [f"jobs/{job}/party0/ledger.jsonl"]
    assert store.checkpoints(store.jobs()[0], 0, None).reused() == []
    store.keep_job(job, SPEC, "me", WORDS)  # the same id again: its attempts go on where they were
    assert inventory(store, 0, Failures(store))["jobs"][-1][1]["attempt"] == 1


def test_of_jobs_that_were_forgotten_the_last_ledgers_stay(store, monkeypatch) -> None:
    monkeypatch.setattr("hdcos.party.store.MOST_LEDGERS", 3)
    begun, going = [submit(store) for _ in range(6)], submit(store)
    for number, job in enumerate((going, *begun)):
        found = store.checkpoints(store.job(job), 0, None)
        found.lock()
        found.begin(1, f"scope {number}")
        found.unlock()
    for job in begun:
        store.note_job(job, state="done")
        store.forget_job(job)
    ledgers = {path.parent.parent.name for path in (store.folder / "jobs").rglob("ledger.jsonl")}
    assert ledgers == {going, *begun[-3:]}


def test_a_worker_that_prepares_a_job_that_has_just_ended_is_told_so(store) -> None:
    job = submit(store)
    store.note_job(job, state="failed")
    with pytest.raises(DataMissing, match="has ended"):
        store.job_data(store.job(job), [["d", "v"]])


def test_a_list_of_jobs_leaves_out_those_that_are_forgotten_meanwhile(store) -> None:
    kept, gone = submit(store), submit(store)
    listed = store.jobs()
    store.note_job(gone, state="done")
    store.forget_job(gone)
    service = object.__new__(Service)
    service.store, service.session = store, None
    assert [job["id"] for job in service.job_statuses(listed)] == [kept]


def test_a_party_that_died_while_a_job_ended_goes_on_with_that(tmp_path) -> None:
    store = Store(tmp_path / "state")
    job = submit(store)
    with store._changing() as changing:
        store._update(changing, "jobs", job, state="done")
    assert store.unfinished() == []
    store.close()
    with closing(Store(tmp_path / "state")) as again:
        assert again.job(job).spec == {}
        assert not list((again.folder / "jobs").rglob("*.safetensors"))


def test_jobs_of_earlier_releases_are_cut_down_too_and_say_what_they_said(tmp_path) -> None:
    (tmp_path / "state").mkdir()
    old = sqlite3.connect(tmp_path / "state" / FILE, isolation_level=None)
    migrate(old, MIGRATIONS[:5])
    numbers = [f"{number:032x}" for number in range(MOST_ENDED + 20)]
    for at, number in enumerate(numbers):
        state = "waiting" if at == 0 else ENDED[at % 3]
        names = "id, spec, data, owner, state, step, error, cancelled, created, report, version, spared"
        known = (number, json.dumps(SPEC), '[["d", "v"]]', "me", state, 3, "why", 0, float(at), '{"best": 2}', "v", 1)
        old.execute(f"INSERT INTO jobs ({names}) VALUES ({', '.join('?' * 12)})", known)
    old.close()
    with closing(Store(tmp_path / "state")) as store:
        assert {job.id for job in store.jobs()} == {numbers[0], *numbers[-MOST_ENDED:]}
        assert {job.said for job in store.jobs()} == {fingerprint(SPEC).hex()}
        waiting, ended = store.job(numbers[0]), store.job(numbers[-1])
        assert (waiting.spec, waiting.model, waiting.epochs) == (SPEC, "m", 10_000)
        assert (ended.spec, ended.data, ended.report) == ({}, [["d", "v"]], {"best": 2})
        assert (ended.step, ended.error, ended.version, ended.spared) == (3, "why", "v", 1)


@pytest.mark.parametrize("forgetful", [0, 1])
def test_a_job_that_only_one_party_still_has_keeps_nobody_waiting(tmp_path, forgetful) -> None:
    with closing(Store(tmp_path / "0")) as zero, closing(Store(tmp_path / "1")) as one:
        job = submit(zero)
        one.keep_job(job, SPEC, "me", WORDS)
        for store in (zero, one):
            store.note_job(job, state="done")
        (zero, one)[forgetful].forget_job(job)
        choosing = object.__new__(Scheduler)
        choosing._store, choosing._alone, choosing._paused, choosing._step_s = zero, {}, {}, {}
        choosing._mine = inventory(zero, 0, Failures(zero))
        choosing._theirs = {**inventory(one, 1, Failures(one)), "carried": 1}
        assert list(choosing._jobs()) == []
        assert choosing._alone == {}


def test_a_job_that_ended_at_one_party_is_ended_at_the_other_as_well(tmp_path) -> None:
    """Its fingerprint is known, though what it was told to do is gone."""
    with closing(Store(tmp_path / "0")) as zero, closing(Store(tmp_path / "1")) as one:
        job = submit(zero)
        one.keep_job(job, SPEC, "me", WORDS)
        zero.note_job(job, state="done")
        choosing = object.__new__(Scheduler)
        choosing._store, choosing._alone, choosing._paused, choosing._step_s = zero, {}, {}, {}
        choosing._mine = inventory(zero, 0, Failures(zero))
        choosing._theirs = {**inventory(one, 1, Failures(one)), "carried": 1}
        assert [(item.job, item.state) for item in choosing._jobs()] == [(job, "done")]


def test_both_parties_keep_the_same_jobs_of_a_client_who_submits_and_cancels(folder) -> None:
    few = "import hdcos.party.store as store; store.MOST_ENDED = 5"
    model = nn.models.mlp([6, 8, 3])
    tensors = {tensor.name: np.zeros(tensor.shape, np.uint64) for tensor in training_plan(model, "softmax").tensors}
    with running_all(folder, changed={"party0": few, "party1": few}), closing(Raw(folder)) as raw:
        numbers = []
        for _ in range(4):
            for _ in range(MOST_JOBS):
                numbers.append(secrets.token_hex(16))
                told = {"id": numbers[-1], "model": "m", "datasets": ["missing"], "rates": [0.1] * 100, "seed": 1}
                asked = {**told, "architecture": model.architecture(), "phase_bits": 16, "batch_size": 5}
                found = raw.both("POST", "/v2/jobs", {"parameters": asked}, tensors)
                assert [status for status, _, _ in found] == [201, 201], found
            for number in numbers[-MOST_JOBS:]:
                raw.both("POST", f"/v2/jobs/{number}/cancel", {"keep": False})
            limit = time.monotonic() + 30
            while any(said["jobs"] for _, said, _ in raw.both("GET", "/v2/status")) and time.monotonic() < limit:
                time.sleep(0.1)
        zero, one = (sorted(job["id"] for job in said["jobs"]) for _, said, _ in raw.both("GET", "/v2/jobs"))
        assert zero == one
        assert len(zero) == 5
        assert set(zero) <= set(numbers[-MOST_JOBS:])
        assert raw(0, "GET", f"/v2/jobs/{numbers[0]}")[0] == 404
        assert [said["session"] for _, said, _ in raw.both("GET", "/v2/status")] == [1, 1]


# ---- reveals


def test_what_waits_for_operators_is_limited_for_each_client(store) -> None:
    asked = [ask(store, state=("waiting", "approved")[number % 2]) for number in range(MOST_PENDING)]
    with pytest.raises(PolicyRefused, match=r"16 models that me asked to reveal wait.*hdcos approve list"):
        ask(store)
    ask(store, "other")
    store.decide_reveal(asked[0], "refused")
    ask(store)


def test_of_reveals_that_were_decided_the_last_ones_are_kept_with_their_shares(store) -> None:
    released = []
    for _ in range(4 * MOST_DECIDED):
        released.append(ask(store, state="approved"))
        store.release(released[-1], WORDS)
    assert [item.id for item in store.reveals()] == released[-MOST_DECIDED - 1 :]
    files = {path.stem for path in (store.folder / "reveals").iterdir()}
    assert files == set(released[-MOST_DECIDED - 1 :])
    assert np.array_equal(store.released_words(released[-1])["w"], WORDS["w"])


def test_who_approved_may_refuse_while_nothing_is_released(store) -> None:
    asked, released = ask(store, state="approved"), ask(store, state="approved")
    store.decide_reveal(asked, "refused")
    assert store.reveal(asked).state == "refused"
    store.release(released, WORDS)
    for state in ("refused", "approved"):
        with pytest.raises(InputError, match="is released already"):
            store.decide_reveal(released, state)
    store.withhold(released)
    assert store.reveal(released).state == "released"


@pytest.mark.parametrize(("zero", "one"), [("approved", "refused"), ("refused", "approved"), ("waiting", "refused")])
def test_what_one_operator_refuses_waits_at_neither_party(tmp_path, zero, one) -> None:
    with closing(Store(tmp_path / "0")) as first, closing(Store(tmp_path / "1")) as second:
        asked = ask(first, state=zero)
        second.keep_reveal(StoredReveal(asked, "m", "v", "me", one))
        choosing = object.__new__(Scheduler)
        choosing._mine, choosing._theirs = inventory(first, 0, Failures(first)), inventory(second, 1, Failures(second))
        assert list(choosing._reveals()) == [Withhold(asked)]
        for store in (first, second):
            store.withhold(asked)
            assert store.reveal(asked).state == "refused"
        choosing._mine, choosing._theirs = inventory(first, 0, Failures(first)), inventory(second, 1, Failures(second))
        assert list(choosing._reveals()) == []


def test_what_nobody_decides_is_forgotten_after_a_while(store, monkeypatch) -> None:
    asked, refused = ask(store), ask(store)
    store.decide_reveal(refused, "refused")
    store.tidy()
    assert len(store.reveals()) == 2
    now = time.time() + PENDING_S + DAY_S
    monkeypatch.setattr(kept_reveals.time, "time", lambda: now)
    store.tidy()
    assert [item.id for item in store.reveals()] == [refused]
    with pytest.raises(DataMissing):
        store.reveal(asked)


# ---- models


def test_versions_that_only_one_party_holds_are_limited(store) -> None:
    for _ in range(MOST_VERSIONS):
        store.keep_model("m", secrets.token_hex(16), {"layers": []}, 16, "me", WORDS)
    with pytest.raises(PolicyRefused, match=r"32 versions of m are here.*hdcos forget m"):
        store.keep_model("m", secrets.token_hex(16), {"layers": []}, 16, "me", WORDS)
    with pytest.raises(PolicyRefused, match="32 versions of m are here"):
        store.check_versions("m")
    store.check_versions("other")
    store.keep_model("other", secrets.token_hex(16), {"layers": []}, 16, "me", WORDS)
    ask(store, "somebody", "m", store.models("m")[0].version)
    store.keep_model("m", secrets.token_hex(16), {"layers": []}, 16, "me", WORDS)  # what they pin is their number
    store.forget_model("m")
    store.keep_model("m", secrets.token_hex(16), {"layers": []}, 16, "me", WORDS)


def test_who_has_as_many_models_as_there_may_be_shares_new_versions_of_them(store) -> None:
    for number in range(MOST_MODELS):
        store.keep_model(f"m-{number}", "0" * 32, {"layers": []}, 16, "me", WORDS)
    store.keep_model("job-1", "0" * 32, {"layers": []}, 16, "me", WORDS, True)
    store.keep_model("m-1", "1" * 32, {"layers": []}, 16, "me", WORDS)
    with pytest.raises(PolicyRefused, match="me has 64 models"):
        store.keep_model("more", "0" * 32, {"layers": []}, 16, "me", WORDS)
    store.keep_model("more", "0" * 32, {"layers": []}, 16, "other", WORDS)


def test_of_models_after_epochs_that_nobody_loads_the_last_are_kept(store) -> None:
    made = [secrets.token_hex(16) for _ in range(2 * MOST_VERSIONS)]
    for version in made:
        store.keep_model("job-1", version, {"layers": []}, 16, "me", WORDS, True)
    assert [model.version for model in store.models("job-1")] == made[-MOST_VERSIONS:]


# ---- counts, failures, ledger


def test_rows_of_models_that_are_gone_are_counted_for_those_with_most_of_them(store, monkeypatch) -> None:
    """Names that are used once and forgotten do not wash away the count of a model that is shared again."""
    monkeypatch.setattr("hdcos.party.store.MOST_COUNTED", 8)
    store.keep_model("live", "0" * 32, {"layers": []}, 16, "me", WORDS)
    submit(store, spec={"model": "coming"})
    store.set_aside("forgotten", 90, 100)
    for name in ("live", "coming", *(f"gone-{number}" for number in range(50))):
        store.set_aside(name, 3, 100)
    assert set(store.all_queries()) == {"live", "coming", "forgotten", *(f"gone-{n}" for n in range(42, 50))}
    assert store.queries("live") == store.queries("coming") == 3
    assert store.set_aside("forgotten", 20, 100) == 10


def test_what_failed_and_is_gone_is_not_held_against_anybody(store) -> None:
    store.keep_model("m", "0" * 32, {"layers": []}, 16, "me", WORDS)
    job, here = submit(store), Failure("load", "m", "0" * 32, 1, "no")
    for failure in (here, Failure("load", "m", "1" * 32), Failure("job", job, ""), Failure("job", "gone", "", 3, "no")):
        store.note_failure(failure)
    store.tidy()
    assert store.failures() == [here, Failure("job", job, "")]


def test_the_ledger_keeps_its_last_lines(store, monkeypatch) -> None:
    monkeypatch.setattr("hdcos.party.store.MOST_RESERVED", 5)
    for number in range(20):
        store.reserve(f"scope {number // 10}", 10 * number, 10)
    assert count(store, "ledger") == 5
    assert store.reused() == []
    store.reserve("scope 1", 195, 10)
    assert store.reused() == ["scope 1: 195"]
