"""The pages in headless Chromium, against two servers with certificates of a test authority that the browser trusts.

Screenshots go to the folder that HDCOS_SCREENSHOTS names, else to pytest's.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from scipy.interpolate import CubicSpline

from hdcos import nn
from hdcos.service import pages
from service.browser import Authority, Browser, Tab, chromium, missing
from service.fake_pair import CLUSTER, SCALE_BITS, Model, Party, Refusal, fake_pair

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

SECRET = "hdcos-a+secret/of the test"
MODELS = {
    "lenet5_mnist": Model(nn.models.pretrained("lenet5_mnist"), (1, 28, 28)),
    "digits": Model(nn.models.pretrained("digits"), (64,)),
}
STROKES = {
    2: [[(0.28, 0.32), (0.45, 0.17), (0.65, 0.3), (0.55, 0.55), (0.3, 0.8)], [(0.3, 0.8), (0.52, 0.8), (0.74, 0.8)]],
    3: [
        [(0.3, 0.24), (0.5, 0.17), (0.66, 0.3), (0.58, 0.44), (0.45, 0.49)],
        [(0.45, 0.49), (0.62, 0.54), (0.69, 0.69), (0.5, 0.85), (0.28, 0.76)],
    ],
    7: [[(0.25, 0.2), (0.5, 0.2), (0.75, 0.2)], [(0.75, 0.2), (0.6, 0.5), (0.45, 0.85)]],
}
WIDTHS = {"desktop": (1280, 900), "phone": (390, 844)}


def token(number: int) -> str:
    digest = hmac.digest(SECRET.encode(), f"hdcos token {CLUSTER} party{number}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("browser"), authority.path) as running:
        yield running


@pytest.fixture
def parties(authority: Authority) -> Iterator[list[Party]]:
    with fake_pair(MODELS, (authority.server("party0"), authority.server("party1"))) as pair:
        for number, party in enumerate(pair):
            party.expect(token(number))
        yield pair


@pytest.fixture
def standalone(tmp_path: Path) -> str:
    """The digit page as a local file."""
    path = tmp_path / "digit.html"
    path.write_bytes(pages.digit())
    return path.as_uri()


@pytest.fixture
def screenshots(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("HDCOS_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fragment(parties: list[Party], **changed: str) -> str:
    given = {"party0": parties[0].url, "party1": parties[1].url, "model": "lenet5_mnist", "secret": SECRET, **changed}
    return "#" + urlencode(given).replace("+", "%20")


def draw(tab: Tab, digit: int) -> None:
    """As a hand does: the curve through the points, in steps."""
    along = np.linspace(0, 1, 12)
    tab.draw(
        "#pad",
        [
            [(x, y) for x, y in CubicSpline(np.linspace(0, 1, len(stroke)), np.array(stroke))(along).tolist()]
            for stroke in STROKES[digit]
        ],
    )


def predicted(tab: Tab, digit: int) -> None:
    draw(tab, digit)
    tab.wait("document.querySelector('#winner').classList.contains('known')")


def problem(tab: Tab) -> str:
    tab.wait("document.querySelector('#message').classList.contains('bad')")
    return tab.text("#message")


def picture(tab: Tab, canvas: str) -> np.ndarray[Any, Any]:
    """The opacity of each pixel of a canvas, 0 to 255."""
    data = tab.eval(
        f"(() => {{const c = document.querySelector('{canvas}');"
        "return [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 === 3)})()"
    )
    return np.array(data)


def logits(tab: Tab) -> list[float]:
    cells = tab.eval("[...document.querySelectorAll('#scores .logit')].map((cell) => cell.textContent)")
    return [float(cell.replace("\N{MINUS SIGN}", "-")) for cell in cells]


def test_the_two_shares_add_up_to_the_drawing_and_the_two_answers_to_the_networks(
    browser: Browser, parties: list[Party], standalone: str
) -> None:
    with browser.tab(standalone + fragment(parties)) as tab:
        predicted(tab, 3)
        [first], [second] = (party.received for party in parties)
        row = (first.words + second.words).astype(np.int64) / 2.0**SCALE_BITS
        assert np.abs(picture(tab, "#image") - 255 * row).max() <= 0.5 + 1e-9
        assert row.min() == 0
        assert 0.9 < row.max() <= 1
        expected = MODELS["lenet5_mnist"].network(row.reshape(1, 1, 28, 28))[0]
        assert np.abs(np.array(logits(tab)) - expected).max() <= 0.005 + 2.0**-20
        assert tab.text("#winner") == str(expected.argmax()) == "3"
        assert tab.text("#scores tr.best th") == "3"
        assert first.origin == "null"


def test_a_share_alone_says_nothing_about_the_drawing(browser: Browser, parties: list[Party], standalone: str) -> None:
    with browser.tab(standalone + fragment(parties)) as tab:
        predicted(tab, 3)
        row = picture(tab, "#image")
        for number, party in enumerate(parties):
            words = party.received[0].words
            top = (words >> np.uint64(56)).astype(np.float64)
            # The correlation of n independent pairs has the standard deviation 1 / sqrt(n); six: once in 10^9 times.
            assert abs(np.corrcoef(row, top)[0, 1]) < 6 / np.sqrt(row.size)
            # Bits of uniform words: 64 n fair coins.
            ones = np.unpackbits(words.view(np.uint8)).mean()
            assert abs(ones - 0.5) < 6 * 0.5 / np.sqrt(64 * words.size)
            assert (picture(tab, f"#view{number}") == top).all()
            assert tab.text(f"#words{number}").split() == [f"{word:016x}" for word in words[:4]]


def test_requests_are_what_the_interface_asks_for(browser: Browser, parties: list[Party], standalone: str) -> None:
    with browser.tab(standalone + fragment(parties)) as tab:
        predicted(tab, 7)
        [first], [second] = (party.received for party in parties)
        assert (first.token, second.token) == (token(0), token(1))
        assert first.token != second.token
        assert first.request == second.request
        assert first.request["parameters"]["mode"] == "shares"
        assert len(bytes.fromhex(first.request["parameters"]["request_id"])) == 16
        [tensor] = first.request["inputs"]
        assert (tensor["datatype"], tensor["shape"]) == ("UINT64", [1, 1, 28, 28])
        assert tensor["parameters"]["binary_data_size"] == 8 * 784
        assert tab.text("#rounds") == "6"
        assert tab.text("#sent0") == tab.text("#sent1") == f"{8 * 784 + len(compact(first.request)):,} B"


def compact(request: dict[str, Any]) -> str:
    return json.dumps(request, separators=(",", ":"))


def test_the_same_drawing_is_split_anew_each_time(browser: Browser, parties: list[Party], standalone: str) -> None:
    with browser.tab(standalone + fragment(parties)) as tab:
        predicted(tab, 3)
        tab.click("#predict")
        tab.wait("!page.busy")
        before, after = parties[0].received
        assert before.request["parameters"]["request_id"] != after.request["parameters"]["request_id"]
        assert (before.words != after.words).all()


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("digit", STROKES)
def test_drawn_digits_look_like_those_the_networks_were_trained_on(
    browser: Browser, parties: list[Party], standalone: str, model: str, digit: int
) -> None:
    with browser.tab(standalone + fragment(parties, model=model)) as tab:
        predicted(tab, digit)
        assert tab.text("#winner") == str(digit)
        side = {"lenet5_mnist": 28, "digits": 8}[model]
        assert picture(tab, "#image").size == side * side


def test_a_drawing_fills_the_box_and_its_mass_is_centred(
    browser: Browser, parties: list[Party], standalone: str
) -> None:
    with browser.tab(standalone + fragment(parties)) as tab:
        tab.draw("#pad", [[(0.7, 0.7), (0.8, 0.7), (0.8, 0.9)]])
        tab.wait("document.querySelector('#winner').classList.contains('known')")
        grey = picture(tab, "#image").reshape(28, 28) / 255
        rows, columns = (np.nonzero(grey.sum(axis) > 0.01)[0] for axis in (1, 0))
        assert rows.max() - rows.min() + 1 in (20, 21)
        for axis in (0, 1):
            centre = (grey.sum(1 - axis) * (np.arange(28) + 0.5)).sum() / grey.sum()
            assert abs(centre - 14) < 0.05
        assert columns.max() < 28


@pytest.mark.parametrize("other", ["", "/"])
def test_one_server_for_both_shares_is_refused(
    browser: Browser, parties: list[Party], standalone: str, other: str
) -> None:
    with browser.tab(standalone + fragment(parties, party1=parties[0].url + other)) as tab:
        assert "Both addresses are the same server" in problem(tab)
        draw(tab, 3)
        time.sleep(1)
        assert not parties[0].received


def test_one_party_under_two_names_is_refused(browser: Browser, parties: list[Party], standalone: str) -> None:
    alias = parties[0].url.replace("127.0.0.1", "localhost")
    with browser.tab(standalone + fragment(parties, party1=alias)) as tab:
        assert "Both addresses lead to one party" in problem(tab)


def test_swapped_parties_and_other_clusters_are_refused(
    browser: Browser, parties: list[Party], standalone: str
) -> None:
    with browser.tab(standalone + fragment(parties, party0=parties[1].url, party1=parties[0].url)) as tab:
        assert "swapped" in problem(tab)
    parties[1].cluster = "another"
    with browser.tab(standalone + fragment(parties)) as tab:
        assert "not of one cluster" in problem(tab)


def test_addresses_without_tls_are_refused(browser: Browser, parties: list[Party], standalone: str) -> None:
    with browser.tab(standalone + fragment(parties, party0=parties[0].url.replace("https", "http"))) as tab:
        assert "must look like https://" in problem(tab)


def test_a_server_that_the_browser_does_not_trust_gets_nothing(
    browser: Browser, parties: list[Party], standalone: str, tmp_path: Path, authority: Authority
) -> None:
    stranger = Authority(tmp_path / "stranger").server("party1")
    with (
        fake_pair(MODELS, (authority.server("party0"), stranger)) as pair,
        browser.tab(standalone + fragment(pair)) as tab,
    ):
        assert "No answer from party 1" in problem(tab)


def test_a_retryable_error_offers_another_try_with_new_shares(
    browser: Browser, parties: list[Party], standalone: str, screenshots: Path
) -> None:
    text = "party1 closed the connection; ask again with a new request id"
    parties[0].next_refusal = parties[1].next_refusal = Refusal(503, "PeerLost", text, retryable=True)
    with browser.tab(standalone + fragment(parties)) as tab:
        draw(tab, 3)
        assert "PeerLost" in problem(tab)
        assert text in tab.text("#message")
        assert tab.text("#message button") == "Try again"
        assert tab.text("#words0").split()[0] == f"{parties[0].received[0].words[0]:016x}"
        tab.screenshot(screenshots / "digit-error.png")
        tab.click("#message button")
        tab.wait("document.querySelector('#winner').classList.contains('known')")
        failed, answered = parties[0].received
        assert failed.request["parameters"]["request_id"] != answered.request["parameters"]["request_id"]
        assert (failed.words != answered.words).all()


def test_an_error_that_stays_offers_the_settings(browser: Browser, parties: list[Party], standalone: str) -> None:
    with browser.tab(standalone + fragment(parties, secret="wrong")) as tab:
        assert "no client has this token" in problem(tab)
        assert tab.text("#message button") == "Open settings"
    with browser.tab(standalone + fragment(parties, model="unknown")) as tab:
        assert "no model is called 'unknown'" in problem(tab)


def test_settings_are_entered_by_hand_and_kept_in_the_tab_alone(
    browser: Browser, parties: list[Party], standalone: str, screenshots: Path
) -> None:
    with browser.tab(standalone) as tab:
        tab.click("#open-settings")
        entered = {"party0": parties[0].url, "party1": parties[0].url, "model": "digits", "secret": SECRET}
        for name, value in entered.items():
            tab.eval(f"document.querySelector('[name={name}]').focus()")
            tab.call("Input.insertText", text=value)
        tab.click("#form .primary")
        assert "same server" in tab.text("#wrong")
        tab.screenshot(screenshots / "digit-settings.png")
        tab.eval("document.querySelector('[name=party1]').select()")
        tab.call("Input.insertText", text=parties[1].url)
        tab.click("#form .primary")
        tab.wait("document.querySelector('#message').innerText.includes('Connected')")
        assert tab.eval("localStorage.length") == 0
        tab.call("Page.reload")
        tab.wait("document.querySelector('#message')?.innerText.includes('Connected')")


def test_the_fragment_leaves_the_address_bar_and_takes_no_secret_along(
    browser: Browser, parties: list[Party], standalone: str
) -> None:
    with browser.tab(standalone + fragment(parties)) as tab:
        tab.wait("document.querySelector('#message').innerText.includes('Connected')")
        assert tab.eval("location.hash") == ""
        tab.eval(f"location.hash = {json.dumps(fragment(parties, secret=''))}")
        assert "no client has this token" in problem(tab)


def test_keys_alone_reach_every_button(browser: Browser, parties: list[Party], standalone: str) -> None:
    with browser.tab(standalone + fragment(parties)) as tab:
        reached = []
        for _ in range(3):
            for kind in ("keyDown", "keyUp"):
                tab.call("Input.dispatchKeyEvent", type=kind, key="Tab", code="Tab", windowsVirtualKeyCode=9)
            reached.append(tab.eval("document.activeElement.id"))
        assert reached == ["open-settings", "clear", "predict"]


def test_a_finger_draws_as_well(browser: Browser, parties: list[Party], standalone: str) -> None:
    with browser.tab(standalone + fragment(parties), *WIDTHS["phone"]) as tab:
        tab.call("Emulation.setTouchEmulationEnabled", enabled=True)
        tab.eval("document.querySelector('#pad').scrollIntoView({block: 'center', behavior: 'instant'})")
        box = tab.eval("document.querySelector('#pad').getBoundingClientRect().toJSON()")
        scrolled = tab.eval("scrollY")
        points = [{"x": box["x"] + box["width"] / 2, "y": box["y"] + part * box["height"]} for part in (0.2, 0.5, 0.8)]
        for kind, point in zip(("touchStart", "touchMove", "touchMove"), points, strict=True):
            tab.call("Input.dispatchTouchEvent", type=kind, touchPoints=[point])
        tab.call("Input.dispatchTouchEvent", type="touchEnd", touchPoints=[])
        tab.wait("document.querySelector('#winner').classList.contains('known')")
        assert tab.text("#winner") == "1"
        assert tab.eval("scrollY") == scrolled


def test_a_page_that_a_party_serves_warns_of_that_party(browser: Browser, parties: list[Party]) -> None:
    with browser.tab(f"{parties[0].url}/digit{fragment(parties)}") as tab:
        predicted(tab, 7)
        assert tab.text("#winner") == "7"
        assert parties[0].url.removeprefix("https://") in tab.text("#notice strong")
        assert tab.eval("document.querySelector('#notice').classList.contains('served')")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_digit_page_fits_its_window_and_stands_still(
    browser: Browser, parties: list[Party], standalone: str, screenshots: Path, width: str, dark: bool
) -> None:
    positions = (
        "['#pad', '#clear', '#result', '.stats', '#image', '#view1'].map("
        "(id) => {const b = document.querySelector(id).getBoundingClientRect(); return b.top + scrollY})"
    )
    with browser.tab(standalone + fragment(parties), *WIDTHS[width], dark=dark) as tab:
        tab.wait("document.querySelector('#message').innerText.includes('Connected')")
        before = tab.eval(positions)
        predicted(tab, 3)
        assert tab.eval(positions) == before
        assert tab.eval("document.documentElement.scrollWidth <= innerWidth")
        time.sleep(0.4)  # bars grow
        tab.screenshot(screenshots / f"digit-{width}-{'dark' if dark else 'light'}.png")


def status(number: int, at: int) -> dict[str, Any]:
    """What a party might say after so many answers."""
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
        "models": [
            {"name": "lenet5_mnist", "version": "3", "ready": True, "stock": 3200 - 9 * at, "mark": 400, "rows": busy},
            {"name": "digits", "version": "1", "ready": False, "stock": 120, "mark": 400, "rows": 12},
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


def test_the_status_page_shows_what_the_party_says(browser: Browser, parties: list[Party]) -> None:
    party = parties[0]
    party.token_hash = None
    party.status = status(0, 0)
    with browser.tab(party.url + "/") as tab:
        tab.wait("document.querySelector('#ready').innerText === 'Ready'")
        assert tab.text("#title") == "Party 0 of cluster 5eed5eed"
        assert "40" in tab.text("#peer")
        assert tab.text("#disk") == "41 GB free"
        assert "lenet5_mnist" in tab.text("#models")
        assert "120 of 560 steps" in tab.text("#jobs")
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
        tab.call("Input.insertText", text=token(0))
        tab.click("#key button")
        tab.wait("document.querySelector('#ready').innerText === 'Ready'")
        assert tab.eval("document.querySelector('#key').hidden")


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_status_page_fits_its_window(
    browser: Browser, parties: list[Party], screenshots: Path, width: str, dark: bool
) -> None:
    parties[0].token_hash = None
    parties[0].status = status(0, 250)
    with browser.tab(parties[0].url + "/", *WIDTHS[width], dark=dark) as tab:
        tab.wait("document.querySelector('#ready').innerText === 'Ready'")
        # Eight minutes of answers, as if they had come in.
        past = [status(0, at) for at in range(250)]
        tab.eval(
            f"(() => {{const now = Date.now(); samples = {json.dumps(past)}.map("
            "(status, i) => ({at: now - 2000 * (250 - i), status: i > 90 && i < 105 ? null : status}));"
            "CHARTS.forEach(drawChart)})()"
        )
        assert tab.eval("document.documentElement.scrollWidth <= innerWidth")
        tab.screenshot(screenshots / f"status-{width}-{'dark' if dark else 'light'}.png")
