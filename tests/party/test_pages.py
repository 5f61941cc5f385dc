"""The pages as files: whole in themselves, and the same for everybody. How they behave is tested in test_browser.py."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from hdcos.party.http import pages

PAGES = {"digit": pages.digit, "status": pages.status}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_one_file_that_loads_nothing(name: str) -> None:
    text = PAGES[name]().decode()
    assert text.startswith("<!doctype html>")
    loaded = re.findall(r"""(?:src|href|action|data|poster)\s*=\s*["']([^"']*)["']""", text)
    assert set(loaded) <= {"data:,"}
    assert not re.search(r"@import|url\(|\bimport\s*\(|importScripts|new Worker|sendBeacon|WebSocket|EventSource", text)
    # The examples in the settings and the name of SVG are no addresses that anything is fetched from.
    addresses = set(re.findall(r"https?://[\w.:/-]+", text))
    assert {address for address in addresses if "example" not in address} <= {"http://www.w3.org/2000/svg"}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs_in_strict_mode_and_makes_no_markup_of_strings(name: str) -> None:
    text = PAGES[name]().decode()
    assert '<script>\n"use strict";' in text
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function", text)
    assert not re.search(r"<[^>]*\s(?:on\w+|style)=", text), "the policy forbids inline handlers and style attributes"


def test_the_digit_page_keeps_nothing_and_draws_shares_from_the_systems_source() -> None:
    text = pages.digit().decode()
    assert not re.search(r"localStorage|document\.cookie|indexedDB|Math\.random", text)
    assert "crypto.getRandomValues(new BigUint64Array" in text


def test_the_digit_page_says_that_a_served_page_cannot_be_trusted() -> None:
    text = " ".join(pages.digit().decode().split())
    assert "A page served by a party could send both shares home" in text
    assert "sha256sum digit.html" in text


@pytest.mark.parametrize("name", PAGES)
def test_the_security_policy_admits_the_pages_own_script_and_style_alone(name: str) -> None:
    page = PAGES[name]()
    policy = dict(part.strip().split(" ", 1) for part in pages.security_policy(page, "https:").split(";"))
    for tag in (b"script", b"style"):
        [body] = re.findall(b"<%s>(.*?)</%s>" % (tag, tag), page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(body).digest()).decode()
        assert policy[f"{tag.decode()}-src"] == f"'sha256-{digest}'"
    assert policy["default-src"] == "'none'"
    assert policy["connect-src"] == "https:"
