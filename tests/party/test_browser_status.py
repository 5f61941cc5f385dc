"""The status page in headless Chromium. Screenshots go to the folder that HDCOS_SCREENSHOTS names, else to pytest's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from party.browser import WIDTHS, Browser, missing
from party.fake_pair import CLUSTER, Party
from party.hand import SECRET, party_token

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


def status(number: int, at: int) -> dict[str, Any]:
    """What a party might say after this many answers."""
    busy = int(60 * at + 40 * np.sin(at / 3))
    return {
        "ready": True,
        "reason": "",
        "party": number,
        "cluster": CLUSTER,
        "version": "0.2.0",
        "uptime_s": 7380.0 + 2 * at,
        "session": 2,
        "peer": {"up": True, "rtt_ms": 40.3},
        "dealer": {"up": True},
        "workers": [
            {
                **{"index": index, "up": index < 2, "reason": "" if index < 2 else "its process is gone", "starts": 1},
                **{"rows": busy, "batches": busy // 3, "steps": 700, "models": 2, "available": 3200 - 9 * at},
                **{"rows_per_s": 25.0 * (index + 1), "steps_per_s": 0.0},
            }
            for index in range(3)
        ],
        "models": [
            {
                **{"name": "lenet5_mnist", "version": "3", "ready": True, "stock": 3200 - 9 * at, "mark": 400},
                **{"rows": busy, "queries": 4 * busy, "queries_allowed": 1_000_000, "error": ""},
            },
            {
                **{"name": "digits", "version": "1", "ready": False, "stock": 120, "mark": 400, "rows": 12},
                **{"queries": 1_000_000, "queries_allowed": 1_000_000, "error": ""},
            },
        ],
        "jobs": [{"id": "a1b2" * 8, "model": "digits", "state": "running", "step": 120 + at, "total_steps": 560}],
        "storage": {"free_bytes": 41_000_000_000, "full": False},
        "counters": {
            "requests": busy,
            "rows": 2 * busy,
            "batches": busy // 3,
            "rounds": 2 * busy,
            "bytes_sent": 9000 * busy,
            "bytes_received": 8000 * busy,
            "aborts": 0,
            "errors": at // 20,
        },
        "latency_ms": {"p50": 48.0 + at % 5, "p99": 92.0 + at % 11},
    }


def remembered(samples: int, until: int = 250) -> list[dict[str, Any]]:
    """What a party might remember: a sample every two seconds, the newest two seconds old."""
    kept = ("counters", "latency_ms", "models")
    return [
        {"age_s": 2.0 * (until - at), **{name: status(0, at)[name] for name in kept}}
        for at in range(until - samples, until)
    ]


def test_the_status_page_shows_what_the_party_says(browser: Browser, parties: list[Party]) -> None:
    party = parties[0]
    party.token_hash = None
    party.status = status(0, 0)
    with browser.tab(party.url + "/") as tab:
        tab.wait("document.querySelector('#ready').innerText === 'Ready'")
        assert tab.text("#title") == "Party 0 of cluster 5eed5eed"
        assert "40" in tab.text("#peer")
        assert "lenet5_mnist" in tab.text("#models")
        assert "120 of 560 steps" in tab.text("#jobs")
        workers = tab.eval("[...document.querySelector('#workers').rows].map((row) => row.innerText.split('\\t'))")
        assert [row[:5] for row in workers] == [
            ["0", "up", "3,200", "25 /s", "0 /s"],
            ["1", "up", "3,200", "50 /s", "0 /s"],
            ["2", "its process is gone", "3,200", "75 /s", "0 /s"],
        ]
        assert tab.text("#disk") == "41 GB free"
        away = {"ready": False, "reason": "the dealer is away", "dealer": {"up": False}}
        party.status = status(0, 3) | away | {"storage": {"free_bytes": 70_000, "full": True}}
        tab.wait("document.querySelector('#ready').innerText === 'Not ready'")
        assert tab.text("#reason") == "the dealer is away"
        assert tab.text("#dealer") == "down"
        assert tab.text("#disk") == "full"
        tab.wait("samples.length >= 3 && document.querySelectorAll('.curve')[1].getAttribute('d') !== ''")


def test_the_status_page_asks_for_a_token_where_one_is_needed(browser: Browser, parties: list[Party]) -> None:
    parties[0].status = status(0, 0)
    with browser.tab(parties[0].url + "/") as tab:
        tab.wait("!document.querySelector('#key').hidden")
        tab.eval("document.querySelector('#token').focus()")
        tab.call("Input.insertText", text=party_token(0))
        tab.click("#key button")
        tab.wait("document.querySelector('#ready').innerText === 'Ready'")
        assert tab.eval("document.querySelector('#key').hidden")


def test_a_wrong_token_is_told_below_its_field_and_not_shown_again(browser: Browser, parties: list[Party]) -> None:
    parties[0].status = status(0, 0)
    with browser.tab(parties[0].url + "/") as tab:
        tab.wait("!document.querySelector('#key').hidden")
        assert tab.text("#wrong") == ""
        assert "--party 0" in tab.wait("!/N/.test(number.textContent) && document.querySelector('#how').innerText")
        for entered, told in (("wrong", "no client has this token"), (f"hdcos-{SECRET}", "This is a secret")):
            tab.eval("document.querySelector('#token').select()")
            tab.call("Input.insertText", text=entered)
            tab.press("Enter")
            tab.wait(f"document.querySelector('#wrong').innerText.includes('{told}')")
            assert tab.eval("document.activeElement.id + document.activeElement.ariaInvalid") == "tokentrue"
            gap = "wrong.getBoundingClientRect().top - token_.getBoundingClientRect().bottom"
            assert 0 <= tab.eval(gap.replace("token_", "document.querySelector('#token')")) < 20
        asked = parties[0].asked
        tab.eval("new Promise((done) => setTimeout(done, 2 * EVERY_MS))")
        assert parties[0].asked == asked
        assert SECRET not in tab.eval("JSON.stringify(sessionStorage)")


def test_the_charts_show_what_the_party_remembers_at_once(browser: Browser, parties: list[Party]) -> None:
    parties[0].token_hash = None
    parties[0].status, parties[0].history = status(0, 250), remembered(250)
    with browser.tab(parties[0].url + "/") as tab:
        tab.wait("document.querySelector('#ready').innerText === 'Ready'")
        assert tab.eval("samples.length") in (251, 252)
        for curve in tab.eval("[...document.querySelectorAll('.curve')].map((curve) => curve.getAttribute('d'))"):
            assert curve.count("L") >= 248
        # 250 samples, two seconds apart, of 300 that the width stands for
        first = tab.eval("Number(document.querySelector('.curve').getAttribute('d').match(/M([0-9.]+)/)[1])")
        whole = tab.eval("[CHART.left, CHART.width - CHART.right]")
        assert abs((whole[1] - first) / (whole[1] - whole[0]) - 500 / 600) < 0.02


def test_what_a_page_missed_is_filled_in_and_what_it_saw_before_a_restart_stays(
    browser: Browser, parties: list[Party]
) -> None:
    parties[0].token_hash = None
    parties[0].status, parties[0].history = status(0, 250), remembered(250)
    with browser.tab(parties[0].url + "/") as tab:
        tab.wait("document.querySelector('#ready').innerText === 'Ready'")
        # The page slept for a minute: its last answer is that old, and the party remembers forty seconds.
        parties[0].history = remembered(20)
        tab.eval("samples = samples.map(({ at, status }) => ({ at: at - 60000, status })); answeredAt -= 60000; 0")
        tab.wait("Date.now() - answeredAt < 10000")
        times = tab.eval("samples.map(({ at }) => (Date.now() - at) / 1000)")
        assert times == sorted(times, reverse=True)
        assert sum(age > 50 for age in times) > 200
        assert sum(1 < age < 45 for age in times) >= 20


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_status_page_fits_its_window(
    browser: Browser, parties: list[Party], screenshots: Path, width: str, dark: bool
) -> None:
    parties[0].token_hash = None
    parties[0].status, parties[0].history = status(0, 250), remembered(250)
    with browser.tab(parties[0].url + "/", *WIDTHS[width], dark=dark) as tab:
        tab.wait("document.querySelector('#ready').innerText === 'Ready'")
        assert tab.eval("document.documentElement.scrollWidth <= innerWidth")
        tab.screenshot(screenshots / f"status-{width}-{'dark' if dark else 'light'}.png")
