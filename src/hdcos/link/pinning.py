"""Which peers TLS lets in: exactly the certificates this node was given, and what to say about all others.

A self-signed certificate is its own anchor, so OpenSSL proves that the peer owns the key of one of the
trusted certificates; the fingerprint is then compared once more with those allowed for the expected role, so
that no rule of chain building can ever admit another.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping

from hdcos.errors import FrameError, HandshakeError
from hdcos.link.identity import Certificate, Identity

_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_CERTIFICATE_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR", "HANDSHAKE_FAILURE")
_COMPARE = "Compare the fingerprints in cluster.toml with those that `hdcos node init` printed."


def settings(identity: Identity, trusted: Iterable[Certificate], server: bool) -> ssl.SSLContext:
    """TLS settings of this node: TLS 1.3, exactly these peer certificates, no names, no tickets."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.check_hostname = False  # peers are pinned by certificate, wherever they run
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # a pinned certificate is its own anchor
    made.load_verify_locations(cadata="".join(certificate.pem for certificate in trusted))
    with identity.chain_file() as path:
        made.load_cert_chain(path)
    if server:
        made.num_tickets = 0
    return made


def pinned(certificate: Certificate, names: Mapping[str, str]) -> str:
    """The name that belongs to a peer's certificate. `names` maps fingerprints."""
    name = names.get(certificate.fingerprint)
    if name is None:
        raise HandshakeError(f"the peer's certificate {certificate.fingerprint[:16]} is not allowed here. {_COMPARE}")
    return name


def unverified(error: ssl.SSLCertVerificationError) -> HandshakeError:
    """Why the peer's certificate was refused here."""
    if error.verify_code == _EXPIRED:
        return HandshakeError("the peer's certificate has expired. Make a new one there with `hdcos node init`.")
    return HandshakeError(
        f"the peer's certificate is not one this node was told to trust ({error.verify_message}). {_COMPARE}"
    )


def explained(error: ssl.SSLError, kind: type[HandshakeError] | type[FrameError]) -> HandshakeError | FrameError:
    """What an OpenSSL error means to a user. An alert is what the peer says about us."""
    reason = error.reason or "unknown reason"
    if "ALERT" in reason and any(word in reason for word in _CERTIFICATE_ALERTS):
        words = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return HandshakeError(f"the peer refused this node's certificate ({words}). {_COMPARE}")
    return kind(f"TLS failed: {reason.replace('_', ' ').lower()}.")
