"""Who may ask for what.

A client has one secret and shows each party another token made of it. A party sees its own token only, so it cannot
pose as the client at the other party, and keeps nothing but a hash, so whoever reads its database cannot pose as the
client. Tokens have 256 bits: a plain hash of one cannot be searched.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from base64 import urlsafe_b64encode

ROLES = ("predict", "upload", "train", "reveal", "watch")


def new_secret() -> str:
    return f"hdcos-{secrets.token_urlsafe(32)}"


def token(secret: str, cluster: str, rank: int) -> str:
    """What the owner of a secret shows to one party of one cluster."""
    digest = hmac.digest(secret.encode(), f"hdcos token {cluster} party{rank}".encode(), hashlib.sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def token_hash(shown: str) -> str:
    """What a party keeps of a token."""
    return hashlib.sha256(shown.encode()).hexdigest()
