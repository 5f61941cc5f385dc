"""Certificates of nodes and of their workers: what they say, and how they are signed."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hdcos.errors import DataMissing, InputError
from hdcos.files import read_bytes

_Extension = TypeVar("_Extension", bound=x509.ExtensionType)


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
            return cls.from_pem(read_pem(Path(path)))
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
    def begins(self) -> datetime.datetime:
        return self._parsed.not_valid_before_utc

    @property
    def expires(self) -> datetime.datetime:
        return self._parsed.not_valid_after_utc

    @cached_property
    def names(self) -> tuple[str, ...] | None:
        """The DNS names it is for, none for a node's own; None if it is for something else besides."""
        found = self._extension(x509.SubjectAlternativeName)
        if found is None:
            return ()
        return tuple(name.value for name in found) if all(isinstance(name, x509.DNSName) for name in found) else None

    @cached_property
    def issues(self) -> bool:
        """Whether it may issue certificates of workers, and those alone. Those that hdcos 0.2 made may not."""
        basic, usage = self._extension(x509.BasicConstraints), self._extension(x509.KeyUsage)
        return basic is not None and basic.ca and basic.path_length == 0 and usage is not None and usage.key_cert_sign

    @cached_property
    def is_leaf(self) -> bool:
        """Whether it says of itself that it issues nothing."""
        basic = self._extension(x509.BasicConstraints)
        return basic is not None and not basic.ca

    def is_signed_by(self, issuer: Certificate) -> bool:
        """Whether the issuer's key made the signature on this one, and this one names it as its issuer."""
        try:
            self._parsed.verify_directly_issued_by(issuer._parsed)
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            return False
        return True

    def has_key_of(self, other: Certificate) -> bool:
        return self.public_key == other.public_key

    @property
    def public_key(self) -> object:
        return self._parsed.public_key()

    @property
    def common_name(self) -> str:
        names = self._parsed.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        return str(names[0].value if names else "")

    def _extension(self, kind: type[_Extension]) -> _Extension | None:
        try:
            return self._parsed.extensions.get_extension_for_class(kind).value
        except x509.ExtensionNotFound:
            return None
        except (ValueError, x509.DuplicateExtension) as error:
            raise InputError(f"a certificate with extensions that make no sense ({type(error).__name__})") from None

    @cached_property
    def _parsed(self) -> x509.Certificate:
        return x509.load_der_x509_certificate(self.der)


def sign_own(name: str, key: ec.EllipticCurvePrivateKey, days: float, start: datetime.datetime | None) -> Certificate:
    """A node's own certificate: for itself and to issue those of its workers."""
    public = key.public_key()
    return _sign(
        _describe(name, name, public, public, days, start)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(issues=True), critical=True),
        key,
    )


def sign_worker(
    name: str,
    public: ec.EllipticCurvePublicKey,
    issuer: Certificate,
    issuer_name: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    days: float,
    start: datetime.datetime | None,
) -> Certificate:
    """A worker's certificate: for this one name, and to issue nothing."""
    return _sign(
        _describe(name, issuer_name, public, issuer_key.public_key(), days, start, issuer.expires)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(issues=False), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False),
        issuer_key,
    )


def _describe(
    name: str,
    issuer: str,
    public: ec.EllipticCurvePublicKey,
    issuer_key: ec.EllipticCurvePublicKey,
    days: float,
    start: datetime.datetime | None,
    limit: datetime.datetime | None = None,
) -> x509.CertificateBuilder:
    """What certificates of nodes and of workers have in common."""
    if not days > 0:
        raise InputError(f"a certificate is valid for more than 0 days, got {days}.")
    begin = datetime.datetime.now(datetime.UTC) if start is None else start
    end = begin + datetime.timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(_common_name(name))
        .issuer_name(_common_name(issuer))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin - datetime.timedelta(hours=1))  # clocks differ
        .not_valid_after(end if limit is None else min(end, limit))
        .add_extension(
            x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False
        )
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False)
    )


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"hdcos {name}")])


def _usage(issues: bool) -> x509.KeyUsage:
    """Signatures in TLS and, of a node, on certificates."""
    other = ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign")
    unused = dict.fromkeys((*other, "encipher_only", "decipher_only"), False)
    return x509.KeyUsage(digital_signature=True, key_cert_sign=issues, **unused)


def _sign(builder: x509.CertificateBuilder, key: ec.EllipticCurvePrivateKey) -> Certificate:
    return Certificate(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER))


def read_pem(path: Path) -> bytes:
    if not path.exists():
        raise DataMissing(f"{path} does not exist. Make an identity with `hdcos node init`.")
    return read_bytes(path, "a key or certificate in PEM")
