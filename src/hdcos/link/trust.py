"""Whom a node talks to: the certificates it was given, and the workers that they vouch for.

Certificates are pinned. OpenSSL proves that the peer owns the key of a certificate that is pinned, or that was issued
by a pinned one; then everything is checked once more here, so that no rule of chain building can ever admit another.
What is accepted as worker i of a role is
  for i = 0   the pinned certificate of that role, byte for byte;
  otherwise   a certificate signed by the key of the pinned one, which must be allowed to issue (path length 0), both
              valid now, itself not allowed to issue, and with the one name that was asked for: `w3.party1`.
So party 0 cannot vouch for a worker of party 1, nor one worker for another, and none passes for its node.

Security  names and certificates are public; in TLS 1.3 an eavesdropper sees the server name of a connection and not
          the certificates. Nothing is opened here.
"""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Mapping

from hdcos.errors import FrameError, HandshakeError, InputError, PolicyRefused
from hdcos.link.base import LostError
from hdcos.link.certificate import Certificate
from hdcos.link.identity import RENEW, Identity
from hdcos.link.names import split_name

Allowed = Mapping[Certificate, str | tuple[str, ...]]
"""The names that a pinned certificate stands for: a node's own, or those of its workers."""

_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_CERTIFICATE_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR", "HANDSHAKE_FAILURE")
_COMPARE = (
    "Compare the fingerprints: of nodes, those in cluster.toml with those that `hdcos node init` printed; of owners "
    "who join tables, what `hdcos identity` shows on both sides."
)


class Trust:
    """Finds the name of a peer by its certificate, or refuses it."""

    def __init__(self, allowed: Allowed) -> None:
        if not allowed:
            raise InputError("a link needs at least one allowed peer certificate.")
        self._names = {pin: (names,) if isinstance(names, str) else names for pin, names in allowed.items()}
        for pin, names in self._names.items():
            for name in names:
                role, worker = split_name(name)
                if worker and not pin.issues:
                    raise PolicyRefused(
                        f"the certificate of {role} in the cluster file is from before workers and issues none, so "
                        f"{name} cannot be known. At {role}: {RENEW}"
                    )

    @property
    def only_name(self) -> str:
        """The name of the one worker that is allowed, if it is one."""
        every = [name for names in self._names.values() for name in names]
        return every[0] if len(every) == 1 and split_name(every[0])[1] else ""

    def settings(self, identity: Identity, server: bool) -> ssl.SSLContext:
        """TLS settings of a node: TLS 1.3, these peers, no tickets."""
        made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        made.minimum_version = ssl.TLSVersion.TLSv1_3
        made.check_hostname = False  # `find` compares names, with more care
        made.verify_mode = ssl.CERT_REQUIRED
        made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a pinned certificate is its own anchor
        made.load_verify_locations(cadata="".join(pin.pem for pin in self._names))
        with identity.chain_file() as path:
            made.load_cert_chain(path)
        if server:
            made.num_tickets = 0
        return made

    def find(self, certificate: Certificate) -> str:
        """The name of the peer that has proven to own this certificate."""
        if certificate in self._names:
            for name in self._names[certificate]:
                if not split_name(name)[1]:
                    return name
            raise HandshakeError(f"the peer is the node itself, not {_either(self._names[certificate])}.")
        for pin, names in self._names.items():
            if certificate.is_signed_by(pin):
                return _check_worker(certificate, pin, names)
        raise HandshakeError(f"the peer's certificate {certificate.fingerprint[:16]} is not allowed here. {_COMPARE}")


def _check_worker(leaf: Certificate, pin: Certificate, names: tuple[str, ...]) -> str:
    """The name of a worker whose certificate was signed by the pinned one."""
    now = datetime.datetime.now(datetime.UTC)
    for certificate in (pin, leaf):
        if not certificate.begins <= now <= certificate.expires:
            raise HandshakeError(
                f"the certificate of {_either(names)} is valid from {certificate.begins:%Y-%m-%d} to "
                f"{certificate.expires:%Y-%m-%d}. Start that worker again for a new one; compare the hosts' clocks."
            )
    try:
        if not pin.issues:
            raise HandshakeError(f"the certificate that signed the peer's issues none. {RENEW}")
        if not leaf.is_leaf:
            raise HandshakeError("the peer's certificate could issue others, which a worker's must not.")
        if leaf.names is None or len(leaf.names) != 1:
            raise HandshakeError("the peer's certificate has not exactly one name, as a worker's has.")
    except InputError as error:
        raise HandshakeError(f"the peer shows {error}.") from None
    (name,) = leaf.names
    if name not in names or not split_name(name)[1]:
        raise HandshakeError(f"the peer is {name!r}, not {_either(names)}. Look at what routes names to workers.")
    return name


def _either(names: tuple[str, ...]) -> str:
    return names[0] if len(names) == 1 else f"one of {len(names)} names, {names[0]} the first"


def refuse_other_names(settings: ssl.SSLContext, identity: Identity) -> None:
    """Have a server refuse callers that ask for another name. A node itself need not be asked for by name."""
    served = {identity.name} if identity.worker else {identity.name, None}

    def look(_connection: ssl.SSLObject, name: str | None, _settings: ssl.SSLContext) -> int | None:
        return None if name in served else ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME

    settings.sni_callback = look


def explain_unverified(error: ssl.SSLCertVerificationError) -> HandshakeError:
    """Why the peer's certificate was refused here."""
    if error.verify_code == _EXPIRED:
        return HandshakeError("the peer's certificate has expired. Make a new one there with `hdcos node init`.")
    return HandshakeError(
        f"the peer's certificate is not one this node was told to trust ({error.verify_message}). {_COMPARE}"
    )


def explain_alert(
    error: ssl.SSLError, kind: type[HandshakeError] | type[FrameError]
) -> HandshakeError | FrameError | LostError:
    """What an OpenSSL error means to a user. An alert is what the peer says about us."""
    reason = error.reason or "unknown reason"
    if "UNRECOGNIZED_NAME" in reason:
        return LostError("serves no such name")  # or not yet: a worker may be starting
    if reason == "CALLBACK_FAILED":
        return HandshakeError("the peer asks for a name that is not served here. Look at what routes names to workers.")
    if "ALERT" in reason and any(word in reason for word in _CERTIFICATE_ALERTS):
        words = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return HandshakeError(f"the peer refused this node's certificate ({words}). {_COMPARE}")
    return kind(f"TLS failed: {reason.replace('_', ' ').lower()}.")
