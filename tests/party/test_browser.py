"""The digit page in headless Chromium, against two servers with certificates of a test authority that it trusts.

Screenshots go to the folder that HDCOS_SCREENSHOTS names, else to pytest's.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from party.browser import WIDTHS, Authority, Browser, missing
from party.fake_pair import SCALE_BITS, Party, Refusal, fake_pair
from party.hand import (
    MODELS,
    SECRET,
    STROKES,
    connected_page,
    draw,
    fragment,
    logits,
    party_token,
    picture,
    predicted,
    problem,
)

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())


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
        assert (first.token, second.token) == (party_token(0), party_token(1))
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


def test_the_same_drawing_is_split_again_each_time(browser: Browser, parties: list[Party], standalone: str) -> None:
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


@pytest.mark.parametrize("width", WIDTHS)
def test_a_wrong_secret_is_told_where_it_was_entered(
    browser: Browser, parties: list[Party], standalone: str, width: str
) -> None:
    told = re.compile("Party [01] does not accept this secret: no client has this token. ")
    seen = (
        "(() => {const b = document.querySelector('#wrong').getBoundingClientRect(),"
        "f = document.querySelector('[name=secret]').getBoundingClientRect();"
        "return b.height > 0 && b.top >= f.bottom && b.top - f.bottom < 20 && b.bottom <= innerHeight})()"
    )
    with browser.tab(standalone + fragment(parties, secret=""), *WIDTHS[width]) as tab:
        tab.wait("document.querySelector('#message').classList.contains('bad')")
        tab.click("#open-settings")
        tab.eval("document.querySelector('[name=secret]').focus()")
        tab.call("Input.insertText", text="wrong")
        tab.press("Enter")
        tab.wait("document.querySelector('#wrong').innerText")
        assert tab.eval("document.querySelector('#settings').open")
        assert told.match(tab.text("#wrong"))
        assert tab.eval(seen)
        assert tab.eval("document.activeElement.name + document.activeElement.ariaInvalid") == "secrettrue"
        assert tab.eval("sessionStorage.getItem('hdcos.digit')").count("wrong") == 0
        tab.call("Input.insertText", text=SECRET)  # what was wrong is selected: typing replaces it
        tab.press("Enter")
        tab.wait("!document.querySelector('#settings').open")
        connected_page(tab)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_problem_is_in_view_wherever_the_page_was_scrolled(
    browser: Browser, parties: list[Party], standalone: str, width: str
) -> None:
    with browser.tab(standalone + fragment(parties, secret="wrong"), WIDTHS[width][0], 600) as tab:
        problem(tab)
        button = "document.querySelector('#message button').getBoundingClientRect()"
        assert tab.eval(f"{button}.top >= 0 && {button}.bottom <= innerHeight")
        tab.click("#message button")
        assert "does not accept this secret" in tab.text("#wrong")


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
        connected_page(tab)
        assert tab.eval("localStorage.length") == 0
        tab.call("Page.reload")
        tab.wait("document.querySelector('#message')?.innerText.includes('Connected')")


def test_the_fragment_leaves_the_address_bar_and_takes_no_secret_along(
    browser: Browser, parties: list[Party], standalone: str
) -> None:
    with browser.tab(standalone + fragment(parties)) as tab:
        connected_page(tab)
        assert tab.eval("location.hash") == ""
        tab.eval(f"location.hash = {json.dumps(fragment(parties, secret=''))}")
        assert "no client has this token" in problem(tab)


def test_keys_alone_reach_every_button(browser: Browser, parties: list[Party], standalone: str) -> None:
    with browser.tab(standalone + fragment(parties)) as tab:
        reached = []
        for _ in range(4):
            tab.press("Tab")
            reached.append(tab.eval("document.activeElement.id"))
        assert reached == ["open-settings", "pad", "clear", "predict"]


def test_keys_alone_draw_a_digit_and_ask_for_it(browser: Browser, parties: list[Party], standalone: str) -> None:
    with browser.tab(standalone + fragment(parties)) as tab:
        connected_page(tab)
        tab.press("Tab", 2)
        tab.press("ArrowLeft", 6)
        tab.press("ArrowUp", 7)
        assert tab.text("#pen") == "Pen up, 26 % from the left, 22 % from the top."
        tab.press(" ")
        tab.press("ArrowRight", 12)
        for _ in range(7):
            tab.press("End")
            tab.press("ArrowDown")
        assert tab.text("#pen") == "Drawing, 46 % from the left, 78 % from the top."
        tab.press(" ")
        tab.press("ArrowLeft", 3)  # nothing is drawn by a pen that is up
        time.sleep(1)
        assert not parties[0].received
        tab.press("Enter")
        tab.wait("document.querySelector('#winner').classList.contains('known')")
        assert tab.text("#winner") == "7"
        assert tab.eval("scrollY") == 0
        tab.press("Delete")
        assert tab.eval("page.strokes.length") == 0
        assert tab.text("#winner") == "\N{EN DASH}"


def test_two_arrows_at_once_go_diagonally(browser: Browser, standalone: str) -> None:
    with browser.tab(standalone) as tab:
        tab.eval("document.querySelector('#pad').focus()")
        tab.call("Input.dispatchKeyEvent", type="keyDown", key="ArrowLeft", code="ArrowLeft")
        tab.press("ArrowUp")
        tab.call("Input.dispatchKeyEvent", type="keyUp", key="ArrowLeft", code="ArrowLeft")
        tab.press("ArrowUp")
        assert tab.text("#pen") == "Pen up, 42 % from the left, 42 % from the top."


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
def test_the_drawing_area_is_square_in_low_windows_too(browser: Browser, standalone: str, width: str) -> None:
    with browser.tab(standalone, WIDTHS[width][0], 480) as tab:
        box = tab.eval("document.querySelector('#pad').getBoundingClientRect().toJSON()")
        assert abs(box["width"] - box["height"]) < 1
        assert box["width"] > 250


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
        connected_page(tab)
        before = tab.eval(positions)
        predicted(tab, 3)
        assert tab.eval(positions) == before
        assert tab.eval("document.documentElement.scrollWidth <= innerWidth")
        time.sleep(0.4)  # bars grow
        tab.screenshot(screenshots / f"digit-{width}-{'dark' if dark else 'light'}.png")
