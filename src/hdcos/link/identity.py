"""Who a node is: its own key, a self-signed certificate, and the certificates it was told to trust.

There is no authority that could be tricked into signing a second "party 1". Operators compare fingerprints
once, and from then on a node talks to exactly the certificates it was given: an eavesdropper or a man in the
middle would need the private key itself, which never leaves the machine that made it.

A self-signed certificate is its own anchor, so OpenSSL proves that the peer owns the key of one of the trusted
certificates; the fingerprint is then compared once more with those allowed for the expected role, so that no rule of
chain building can ever admit another.
"""

from __future__ import annotations

import datetime
import os
import ssl
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hdcos.errors import DataMissing, FrameError, HandshakeError, InputError, PolicyRefused
from hdcos.files import read_bytes

KEY_FILE = "key.pem"
CERTIFICATE_FILE = "certificate.pem"
_EXPIRED = 10  # X509_V_ERR_CERT_HAS_EXPIRED
_CERTIFICATE_ALERTS = ("CERTIFICATE", "UNKNOWN_CA", "ACCESS_DENIED", "DECRYPT_ERROR", "HANDSHAKE_FAILURE")
_COMPARE = "Compare the fingerprints in cluster.toml with those that `hdcos node init` printed."


@dataclass(frozen=True)
class Certificate:
    """An X.509 certificate, equal to another exactly if their bytes are."""

    der: bytes = field(repr=False)

    @classmethod
    def from_pem(cls, pem: str | bytes) -> Certificate:
        data = pem.encode() if isinstance(pem, str) else pem
        try:
            return cls(x509.load_pem_x509_certificate(data).public_bytes(serialization.Encoding.DER))
        except ValueError as error:
            raise InputError("not a PEM certificate, which begins with -----BEGIN CERTIFICATE-----") from error

    @classmethod
    def read(cls, path: str | Path) -> Certificate:
        try:
            return cls.from_pem(_read(Path(path)))
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 of the certificate's bytes, in hex: what operators compare."""
        return sha256(self.der).hexdigest()

    @cached_property
    def pem(self) -> str:
        return self._parsed.public_bytes(serialization.Encoding.PEM).decode()

    @property
    def expires(self) -> datetime.datetime:
        return self._parsed.not_valid_after_utc

    @cached_property
    def _parsed(self) -> x509.Certificate:
        return x509.load_der_x509_certificate(self.der)


@dataclass(frozen=True)
class Identity:
    """A node's name, private key and certificate."""

    name: str
    certificate: Certificate
    key_pem: bytes = field(repr=False)

    @classmethod
    def create(
        cls,
        name: str,
        directory: str | Path | None = None,
        days: float = 3650,
        start: datetime.datetime | None = None,
    ) -> Identity:
        """A new key and certificate, valid from `start` (now) for `days`, saved if a directory is given."""
        if not name or len(name) > 48 or not name.isprintable():
            raise InputError(f"a node's name has 1 to 48 printable characters, got {name!r}.")
        if not days > 0:
            raise InputError(f"a certificate is valid for more than 0 days, got {days}.")
        begin = datetime.datetime.now(datetime.UTC) if start is None else start
        key = ec.generate_private_key(ec.SECP256R1())
        public = key.public_key()
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"hdcos {name}")])
        usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        signed = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(subject)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(begin - datetime.timedelta(hours=1))  # clocks differ
            .not_valid_after(begin + datetime.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
            .sign(key, hashes.SHA256())
        )
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        identity = cls(name, Certificate(signed.public_bytes(serialization.Encoding.DER)), pem)
        if directory is not None:
            identity.save(directory)
        return identity

    @property
    def fingerprint(self) -> str:
        return self.certificate.fingerprint

    def save(self, directory: str | Path) -> None:
        """Write key (from its first byte on readable by its owner only) and certificate; never overwrite."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        _write_new(folder / KEY_FILE, self.key_pem, 0o600)
        _write_new(folder / CERTIFICATE_FILE, self.certificate.pem.encode(), 0o644)

    @classmethod
    def load(cls, directory: str | Path) -> Identity:
        """Read what `save` wrote. A key that others can read is refused."""
        folder = Path(directory)
        pem = _read(folder / KEY_FILE)
        mode = (folder / KEY_FILE).stat().st_mode & 0o777
        if mode & 0o077:
            raise PolicyRefused(f"{folder / KEY_FILE} has mode {mode:o}: others can read it. Run `chmod 600` on it.")
        try:
            key = serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise InputError(f"{folder / KEY_FILE} is not a key in PEM: restore it from a backup") from None
        certificate = Certificate.read(folder / CERTIFICATE_FILE)
        if key.public_key() != certificate._parsed.public_key():
            raise InputError(f"{folder / KEY_FILE} is not the key of {CERTIFICATE_FILE} beside it: restore it")
        names = certificate._parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return cls(str(names[0].value if names else "").removeprefix("hdcos "), certificate, pem)

    def require_valid(self) -> None:
        """HandshakeError if this node's own certificate has expired: peers would refuse it."""
        if self.certificate.expires < datetime.datetime.now(datetime.UTC):
            raise HandshakeError(
                f"the certificate of {self.name} expired on {self.certificate.expires:%Y-%m-%d}. "
                "Make a new one with `hdcos node init` and give it to the other operators."
            )

    @contextmanager
    def chain_file(self) -> Iterator[str]:
        """A path from which OpenSSL can read certificate and key. It lives in memory, never on a disk."""
        handle = os.memfd_create("hdcos", os.MFD_CLOEXEC)
        try:
            os.write(handle, self.certificate.pem.encode() + self.key_pem)
            yield f"/proc/self/fd/{handle}"
        finally:
            os.close(handle)


def _read(path: Path) -> bytes:
    if not path.exists():
        raise DataMissing(f"{path} does not exist. Make an identity with `hdcos node init`.")
    return read_bytes(path, "a key or certificate in PEM")


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except FileExistsError:
        raise InputError(f"{path} exists already: an identity is never overwritten.") from None
    with os.fdopen(handle, "wb") as file:
        file.write(data)


def tls_settings(identity: Identity, trusted: Iterable[Certificate], server: bool) -> ssl.SSLContext:
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


def find_pinned(certificate: Certificate, names: Mapping[str, str]) -> str:
    """The name that belongs to a peer's certificate. `names` maps fingerprints."""
    name = names.get(certificate.fingerprint)
    if name is None:
        raise HandshakeError(f"the peer's certificate {certificate.fingerprint[:16]} is not allowed here. {_COMPARE}")
    return name


def explain_unverified(error: ssl.SSLCertVerificationError) -> HandshakeError:
    """Why the peer's certificate was refused here."""
    if error.verify_code == _EXPIRED:
        return HandshakeError("the peer's certificate has expired. Make a new one there with `hdcos node init`.")
    return HandshakeError(
        f"the peer's certificate is not one this node was told to trust ({error.verify_message}). {_COMPARE}"
    )


def explain_alert(error: ssl.SSLError, kind: type[HandshakeError] | type[FrameError]) -> HandshakeError | FrameError:
    """What an OpenSSL error means to a user. An alert is what the peer says about us."""
    reason = error.reason or "unknown reason"
    if "ALERT" in reason and any(word in reason for word in _CERTIFICATE_ALERTS):
        words = reason.partition("ALERT_")[2].replace("_", " ").lower()
        return HandshakeError(f"the peer refused this node's certificate ({words}). {_COMPARE}")
    return kind(f"TLS failed: {reason.replace('_', ' ').lower()}.")
