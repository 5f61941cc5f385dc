"""Headless Chromium that trusts a certificate authority made for the test, and nothing it would not trust otherwise.

Chromium reads additional authorities from the NSS database in its HOME, so each browser gets a HOME of its own. It is
driven by the DevTools protocol over two pipes: JSON messages, each ended by a zero byte.
"""

from __future__ import annotations

import base64
import datetime
import fcntl
import ipaddress
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from select import select
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
CERTUTIL = shutil.which("certutil")
ANSWER_S = 30.0
WIDTHS = {"desktop": (1280, 900), "tablet": (768, 1024), "phone": (375, 812)}
TAB_KEY = 9


def missing() -> str:
    """Why these tests cannot run here, or nothing."""
    if CHROMIUM is None:
        return "chromium is not installed: apt-get install chromium"
    if CERTUTIL is None:
        return "certutil is not installed: apt-get install libnss3-tools"
    return ""


class Authority:
    """A certificate authority for one test run, and the certificates of servers on this machine that it signs."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._key = ec.generate_private_key(ec.SECP256R1())
        name = _name("hdcos test authority")
        usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
        self._certificate = (
            _certificate(name, name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(usage, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.path = folder / "authority.pem"
        self.path.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, name: str) -> tuple[Path, Path]:
        """The files of a certificate for 127.0.0.1 and localhost, and of its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        here = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        )
        certificate = (
            _certificate(_name(name), self._certificate.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(here, critical=False)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        paths = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        paths[1].write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return paths


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=2))
    )


def trust(home: Path, authority: Path) -> None:
    """Puts an authority into the NSS database that a Chromium with this HOME reads."""
    database = home / ".pki" / "nssdb"
    database.mkdir(parents=True)
    certutil = [str(CERTUTIL), "-d", f"sql:{database}"]
    subprocess.run([*certutil, "-N", "--empty-password"], check=True)
    subprocess.run([*certutil, "-A", "-n", "hdcos test", "-t", "C,,", "-i", str(authority)], check=True)


@contextmanager
def chromium(home: Path, authority: Path) -> Iterator[Browser]:
    """A running browser, ended with everything it started."""
    home.mkdir(parents=True, exist_ok=True)
    trust(home, authority)
    commands, answers = os.pipe(), os.pipe()
    theirs = [fcntl.fcntl(fd, fcntl.F_DUPFD, 20) for fd in (commands[0], answers[1])]
    # Chromium expects its pipes at the file descriptors 3 and 4.
    launch = f'exec "$@" 3<&{theirs[0]} 4>&{theirs[1]} {theirs[0]}<&- {theirs[1]}>&-'
    options = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={home / 'profile'}", "--no-first-run"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")  # Chromium's sandbox cannot be set up by root
    with open(home / "chromium.log", "wb") as log:
        process = subprocess.Popen(
            ["bash", "-c", launch, "chromium", str(CHROMIUM), *options, "about:blank"],
            pass_fds=theirs,
            env={**os.environ, "HOME": str(home)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    for fd in (commands[0], answers[1], *theirs):
        os.close(fd)
    try:
        yield Browser(commands[1], answers[0])
    finally:
        os.close(commands[1])
        os.close(answers[0])
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


class Browser:
    """The DevTools protocol, one command after another. Events are passed over."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._last = 0

    def call(self, method: str, session: str | None = None, **parameters: Any) -> dict[str, Any]:
        self._last += 1
        message = {"id": self._last, "method": method, "params": parameters}
        if session is not None:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self._receive()).get("id") != self._last:
            pass
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        result: dict[str, Any] = answer["result"]
        return result

    def _receive(self) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            if not select([self._answers], [], [], ANSWER_S)[0]:
                raise TimeoutError(f"chromium did not answer within {ANSWER_S} s")
            received = os.read(self._answers, 1 << 16)
            if not received:
                raise ConnectionError("chromium has ended; see chromium.log in its HOME")
            self._buffer += received
        message, self._buffer = self._buffer.split(b"\0", 1)
        answer: dict[str, Any] = json.loads(message)
        return answer

    @contextmanager
    def tab(self, url: str, width: int = 1280, height: int = 900, dark: bool = False) -> Iterator[Tab]:
        """A tab in a profile of its own: nothing is kept from one to the next."""
        context = self.call("Target.createBrowserContext")["browserContextId"]
        target = self.call("Target.createTarget", url="about:blank", browserContextId=context)["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab = Tab(self, session)
        tab.show(width, height, dark)
        tab.open(url)
        try:
            yield tab
        finally:
            self.call("Target.disposeBrowserContext", browserContextId=context)


@dataclass(frozen=True)
class Tab:
    browser: Browser
    session: str

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **parameters)

    def show(self, width: int, height: int, dark: bool) -> None:
        """The size of the window (touch below 600 pixels) and the person's preference for dark pages."""
        phone = width < 600
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=2 if phone else 1,
            mobile=phone,
        )
        self.call("Emulation.setScrollbarsHidden", hidden=True)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", features=[scheme])

    def open(self, url: str) -> None:
        self.call("Page.navigate", url=url)
        # Another document, or the same with another fragment.
        self.wait(f"document.readyState === 'complete' && location.href.startsWith({json.dumps(url.split('#')[0])})")

    def eval(self, expression: str) -> Any:
        """The value of a JavaScript expression, promises awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, condition: str, timeout_s: float = 20.0) -> Any:
        """Until a JavaScript expression is true."""
        deadline = time.monotonic() + timeout_s
        while not (value := self.eval(condition)):
            if time.monotonic() > deadline:
                raise TimeoutError(f"not within {timeout_s} s: {condition}\nthe page: {self.text('body')}")
            time.sleep(0.05)
        return value

    def text(self, selector: str) -> str:
        return str(self.eval(f"document.querySelector({json.dumps(selector)}).innerText"))

    def click(self, selector: str) -> None:
        """A real click of the mouse, so that what lies on top gets it."""
        find = f"document.querySelector({json.dumps(selector)})"
        self.eval(f"{find}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        box = self.eval(f"{find}.getBoundingClientRect().toJSON()")
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, times: int = 1) -> None:
        """A key of the keyboard, down and up."""
        more: dict[str, Any] = {"Tab": {"windowsVirtualKeyCode": TAB_KEY}, "Enter": {"text": "\r"}}.get(key, {})
        for _ in range(times):
            self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=key, **more)
            self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=key)

    def draw(self, selector: str, strokes: Sequence[Sequence[tuple[float, float]]]) -> None:
        """Strokes of the mouse; points run from (0, 0) to (1, 1) of the element."""
        self.eval(
            f"document.querySelector({json.dumps(selector)}).scrollIntoView({{block: 'center', behavior: 'instant'}})"
        )
        box = self.eval(f"document.querySelector({json.dumps(selector)}).getBoundingClientRect().toJSON()")
        for stroke in strokes:
            places = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in stroke]
            for kind, (x, y) in [
                ("mousePressed", places[0]),
                *(("mouseMoved", place) for place in places),
                ("mouseReleased", places[-1]),
            ]:
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1, clickCount=1)

    def screenshot(self, path: Path) -> None:
        """The whole page, beyond the window as well."""
        picture = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(picture))
