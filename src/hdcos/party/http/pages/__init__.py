"""The pages a party serves, and the hashes by which people can trust a copy of one.

A page served by a party can be changed by that party: it could send both shares of a drawing home. So the digit page
is also published as a file of its own, with its SHA-256 in the documentation. Opening a file with that hash runs the
code that was reviewed, wherever the file came from. A page cannot vouch for itself: the hash must come from elsewhere.
"""

from __future__ import annotations

import base64
import hashlib
import re
from importlib import resources


def digit() -> bytes:
    """The page on which a person draws a digit; it talks to both parties."""
    return _read("digit.html")


def status() -> bytes:
    """The page that shows how this party is doing."""
    return _read("status.html")


def security_policy(page: bytes, connect: str) -> str:
    """The Content-Security-Policy to serve a page with: its own script and style by hash, connections to `connect`.

    That is "https:" for the digit page, which talks to both parties, and "'self'" for the status page.
    """

    def sources(tag: str) -> str:
        bodies: list[bytes] = re.findall(rf"<{tag}>(.*?)</{tag}>".encode(), page, re.DOTALL)
        return " ".join(f"'sha256-{base64.b64encode(hashlib.sha256(body).digest()).decode()}'" for body in bodies)

    return (
        f"default-src 'none'; script-src {sources('script')}; style-src {sources('style')}; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )


def _read(name: str) -> bytes:
    return resources.files(__package__).joinpath(name).read_bytes()
