"""Certificates as hdcos 0.2 made them, which issue none for workers."""

from __future__ import annotations

import datetime
from dataclasses import replace

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from hdcos.link import Certificate, Identity


def older(identity: Identity) -> Identity:
    """The same key, with the certificate that hdcos 0.2 would have made for it."""
    key = serialization.load_pem_private_key(identity.key_pem, None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    public, now = key.public_key(), datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"hdcos {identity.name}")])
    usage = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    signed = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=3650))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usage), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
        .sign(key, hashes.SHA256())
    )
    return replace(identity, certificate=Certificate(signed.public_bytes(serialization.Encoding.DER)))
