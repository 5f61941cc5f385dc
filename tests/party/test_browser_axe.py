"""The pages for people who see, hear or point otherwise: axe-core finds no violation in any state, width or theme."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

import pytest

from party.browser import WIDTHS, Browser, Tab, missing
from party.fake_pair import Party, Refusal
from party.hand import connected_page, fragment, predicted, problem
from party.test_browser_status import remembered, status

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing())

AXE = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text()
SETTLED = "Promise.all(document.getAnimations().map((each) => each.finished)).then(() => true)"
FOUND = (
    "axe.run(document, {resultTypes: ['violations']}).then(({violations, passes}) => ({passed: passes.length, violated:"
    " violations.flatMap(({id, nodes}) => nodes.map((node) => `${id} ${node.target}: ${node.failureSummary}`))}))"
)


def violations(tab: Tab) -> list[str]:
    """What axe-core, with all its rules, objects to in the page as it is shown now."""
    if not tab.eval("'axe' in window"):
        tab.eval(f"{AXE}; 0")
    tab.eval(SETTLED)
    found = tab.eval(FOUND)
    assert found["passed"] > 10, "axe found hardly anything to look at"
    violated: list[str] = found["violated"]
    return violated


def fresh(tab: Tab, parties: list[Party]) -> None:
    tab.wait("document.querySelector('#message').innerText.includes('No servers yet')")


def settings_with_an_error(tab: Tab, parties: list[Party]) -> None:
    tab.click("#open-settings")
    tab.eval("document.querySelector('#tokens').open = true")
    tab.click("#connect")
    tab.wait("document.querySelector('#wrong').innerText")


def answered(tab: Tab, parties: list[Party]) -> None:
    predicted(tab, 3)


def failed_after_an_answer(tab: Tab, parties: list[Party]) -> None:
    predicted(tab, 3)
    for party in parties:
        party.next_refusal = Refusal(503, "PeerLost", "party1 is away; ask again", retryable=True)
    tab.click("#predict")
    problem(tab)


def drawn_by_keys(tab: Tab, parties: list[Party]) -> None:
    connected_page(tab)
    tab.press("Tab", 2)
    tab.press(" ")
    tab.press("ArrowDown", 3)


def watched(tab: Tab, parties: list[Party]) -> None:
    tab.wait("document.querySelector('#ready').innerText === 'Ready'")


def not_ready(tab: Tab, parties: list[Party]) -> None:
    parties[0].status |= {"ready": False, "reason": "the dealer is away", "dealer": {"up": False}}
    tab.wait("document.querySelector('#ready').innerText === 'Not ready'")


def silent(tab: Tab, parties: list[Party]) -> None:
    watched(tab, parties)
    tab.call("Network.enable")
    tab.call("Network.emulateNetworkConditions", offline=True, latency=0, downloadThroughput=-1, uploadThroughput=-1)
    tab.wait("document.querySelector('#ready').innerText.startsWith('No answer')")


def wrong_token(tab: Tab, parties: list[Party]) -> None:
    tab.wait("!document.querySelector('#key').hidden")
    tab.eval("document.querySelector('#token').focus()")
    tab.call("Input.insertText", text="wrong")
    tab.press("Enter")
    tab.wait("document.querySelector('#wrong').innerText")


Reach = Callable[[Tab, list[Party]], None]


def check(browser: Browser, url: str, parties: list[Party], reach: Reach) -> None:
    found = []
    with browser.tab(url) as tab:
        reach(tab, parties)
        for name, size in WIDTHS.items():
            for dark in (False, True):
                tab.show(*size, dark)
                found += [f"{name}, {'dark' if dark else 'light'}: {each}" for each in violations(tab)]
    assert found == []


@pytest.mark.parametrize("reach", [fresh, settings_with_an_error], ids=lambda reach: reach.__name__)
def test_the_digit_page_without_servers_has_no_violation(
    browser: Browser, parties: list[Party], standalone: str, reach: Reach
) -> None:
    check(browser, standalone, parties, reach)


@pytest.mark.parametrize("reach", [answered, failed_after_an_answer, drawn_by_keys], ids=lambda reach: reach.__name__)
def test_the_digit_page_has_no_violation(browser: Browser, parties: list[Party], standalone: str, reach: Reach) -> None:
    check(browser, standalone + fragment(parties), parties, reach)


def test_the_digit_page_that_a_party_serves_has_no_violation(browser: Browser, parties: list[Party]) -> None:
    check(browser, f"{parties[0].url}/digit{fragment(parties)}", parties, lambda tab, _: connected_page(tab))


@pytest.mark.parametrize("reach", [watched, not_ready, silent], ids=lambda reach: reach.__name__)
def test_the_status_page_has_no_violation(browser: Browser, parties: list[Party], reach: Reach) -> None:
    parties[0].token_hash = None
    parties[0].status, parties[0].history = status(0, 250), remembered(250)
    check(browser, f"{parties[0].url}/", parties, reach)


def test_the_status_page_that_asks_for_a_token_has_no_violation(browser: Browser, parties: list[Party]) -> None:
    check(browser, f"{parties[0].url}/", parties, wrong_token)


def test_violations_would_be_found(browser: Browser, parties: list[Party], standalone: str) -> None:
    with browser.tab(standalone) as tab:
        tab.eval("document.querySelector('#clear').textContent = ''")
        tab.eval("document.querySelector('#keys').style.color = '#bbb'")
        tab.eval("document.querySelector('main').replaceWith(...document.querySelector('main').childNodes)")
        found = {each.split(" ")[0] for each in violations(tab)}
        assert {"button-name", "color-contrast", "region"} <= found
