"""Write docs/images/digit.png: the digit page after a prediction, as a visitor sees it.

    python scripts/make_screenshot.py

Everything in the picture is real. The script makes a cluster for one machine, starts its three nodes, shares the
convolutional network that was trained on shifted digits, as people draw them, opens the page in headless Chromium,
draws a digit with the mouse and waits for the answer. Needs Chromium and the development extra, and takes less than a
minute.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from playwright.sync_api import Page, sync_playwright
from scipy.interpolate import CubicSpline

import hdcos

ROOT = Path(__file__).parent.parent
TARGET = ROOT / "docs" / "images" / "digit.png"
PAGE = ROOT / "src" / "hdcos" / "party" / "http" / "pages" / "digit.html"
MODEL = "convnet_mnist"
DIGIT = "3"
STROKES = [
    [(0.3, 0.24), (0.5, 0.17), (0.66, 0.3), (0.58, 0.44), (0.45, 0.49)],
    [(0.45, 0.49), (0.62, 0.54), (0.69, 0.69), (0.5, 0.85), (0.28, 0.76)],
]
NODES = {"dealer": "dealer", "party0": "party", "party1": "party"}
START_S = 60.0
WIDTH, HEIGHT = 1060, 900
MARGIN = 20


def main() -> None:
    TARGET.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "home"
        with nodes(folder), hdcos.connect(folder / "cluster.toml", token=secret(folder), timeout_s=START_S) as cluster:
            cluster.share(hdcos.nn.models.pretrained(MODEL), MODEL)
            photograph(folder)
    print(f"{TARGET}: {TARGET.stat().st_size / 1000:.0f} kB")


@contextmanager
def nodes(folder: Path) -> Iterator[None]:
    """A dealer and two parties on this machine; the parties answer pages that were opened from a file."""
    hdcos_command = (sys.executable, "-m", "hdcos")
    made = (*hdcos_command, "init", "--single-machine", folder)
    subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
    for party in ("party0", "party1"):
        settings = folder / party / "node.toml"
        settings.write_text(settings.read_text().replace("cors = []", 'cors = ["null"]'))
    with ExitStack() as running:
        for name, command in NODES.items():
            log = running.enter_context((folder / f"{name}.log").open("w"))
            started = (*hdcos_command, command, "--node", folder / name, "--cluster", folder / "cluster.toml")
            process = running.enter_context(subprocess.Popen(started, stderr=log))
            running.callback(process.terminate)
        yield


def secret(folder: Path) -> str:
    return (folder / "token").read_text().strip()


def photograph(folder: Path) -> None:
    """Draw on the page and save what it then shows."""
    known = tomllib.loads((folder / "cluster.toml").read_text())
    given = {party: f"https://{known[party]['http']}" for party in ("party0", "party1")}
    fragment = urlencode({**given, "model": MODEL, "secret": secret(folder)})
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        # The parties' certificates are their own: Python pins them, Chromium cannot.
        page = browser.new_page(
            ignore_https_errors=True, device_scale_factor=1.5, viewport={"width": WIDTH, "height": HEIGHT}
        )
        page.goto(f"{PAGE.as_uri()}#{fragment}")
        page.get_by_text("Connected").wait_for()
        draw(page)
        page.locator("#winner.known").wait_for(timeout=START_S * 1000)
        shown = page.locator("#winner").inner_text()
        if shown != DIGIT:
            raise SystemExit(f"the page reads {shown}, not {DIGIT}: nothing was saved")
        page.mouse.move(1, 1)
        below_the_heading = page.locator(".columns").bounding_box()
        whole = page.locator(".page").bounding_box()
        if below_the_heading is None or whole is None:
            raise SystemExit("the page is not laid out as it was")
        top = below_the_heading["y"] - MARGIN
        clip = {"x": 0, "y": top, "width": WIDTH, "height": whole["y"] + whole["height"] - top - MARGIN}
        page.screenshot(path=TARGET, full_page=True, clip=clip)
        browser.close()


def draw(page: Page) -> None:
    """As a hand does: the curve through the points, in small steps."""
    box = page.locator("#pad").bounding_box()
    if box is None:
        raise SystemExit("the page has no field to draw on")
    for stroke in STROKES:
        curve = CubicSpline(np.linspace(0, 1, len(stroke)), np.array(stroke))(np.linspace(0, 1, 12))
        places = np.array([box["x"], box["y"]]) + curve * np.array([box["width"], box["height"]])
        page.mouse.move(*places[0])
        page.mouse.down()
        for place in places[1:]:
            page.mouse.move(*place)
        page.mouse.up()


if __name__ == "__main__":
    main()
