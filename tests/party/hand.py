"""A person at the digit page: the settings, the strokes of a hand, and what the page then shows."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any
from urllib.parse import urlencode

import numpy as np
from scipy.interpolate import CubicSpline

from hdcos import nn
from party.browser import Tab
from party.fake_pair import CLUSTER, Model, Party

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


def party_token(number: int) -> str:
    digest = hmac.digest(SECRET.encode(), f"hdcos token {CLUSTER} party{number}".encode(), hashlib.sha256)
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


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


def connected_page(tab: Tab) -> None:
    tab.wait("document.querySelector('#message').innerText.includes('Connected')")


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
