"""Who may ask for what.

A client has one secret and shows each party another token made of it. A party sees its own token only, so it cannot
pose as the client at the other party, and keeps nothing but a hash, so a reader of its database cannot pose as the
client. Tokens have 256 bits: a plain hash of one cannot be searched.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64encode

from hdcos.errors import InputError

ROLES = ("predict", "upload", "train", "reveal", "watch")


def new_secret() -> str:
    return f"hdcos-{secrets.token_urlsafe(32)}"


def token(secret: str, cluster: str, rank: int) -> str:
    """What the owner of a secret shows to one party of one cluster."""
    digest = hmac.digest(secret.encode(), f"hdcos token {cluster} party{rank}".encode(), hashlib.sha256)
    return urlsafe_b64encode(digest).rstrip(b"=").decode()


def fingerprint(secret: str, cluster: str, rank: int) -> str:
    """What the operator of one party is told of a secret; it says which party it is for."""
    return f"party{rank}-{token_hash(token(secret, cluster, rank))}"


def check_fingerprint(text: str, role: str) -> str:
    """The hash of a token, from a fingerprint that was made for this party."""
    found = re.fullmatch("(party[01])-([0-9a-f]{64})", text)
    if found is None:
        raise InputError(
            "a fingerprint is party0- or party1- and 64 hexadecimal digits: `hdcos token new` prints one for each party"
        )
    if found[1] != role:
        raise InputError(f"this fingerprint is for {found[1]}, and this node is {role}: take the other line")
    return found[2]


def token_hash(shown: str) -> str:
    """What a party keeps of a token."""
    return hashlib.sha256(shown.encode()).hexdigest()
