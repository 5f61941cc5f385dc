"""Who a node is: its own key and a self-signed certificate, with which it vouches for its own workers.

There is no authority that could be tricked into signing a second "party 1". Operators compare fingerprints
once, and from then on a node talks to exactly the certificates it was given (`hdcos.link.trust`): an eavesdropper or a
man in the middle would need the private key itself, which never leaves the machine that made it.

A node's certificate may issue certificates, but no chain of them (path length 0): one for each of its workers, with a
key made where the worker runs and the worker's name in it. Those who pin the node's certificate know its workers too.

Security  a worker's key stands for that worker alone: it can neither issue another nor pass for the node or for
          another worker. The node's own key stays where the node's certificate is made and workers are started.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from hdcos.errors import HandshakeError, InputError, PolicyRefused
from hdcos.link.certificate import Certificate, read_pem, sign_own, sign_worker
from hdcos.link.names import split_name

KEY_FILE = "key.pem"
CERTIFICATE_FILE = "certificate.pem"
NODE_DAYS = 3650
WORKER_DAYS = 365
"""A worker gets a new certificate each time it is started."""
RENEW = "Renew it with `hdcos node renew`, and combine the node cards again with `hdcos init --replaces`."


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
        days: float = NODE_DAYS,
        start: datetime.datetime | None = None,
    ) -> Identity:
        """A new key and certificate, valid from `start` (now) for `days`, saved if a directory is given."""
        if not name or len(name) > 48 or not name.isprintable() or split_name(name)[1]:
            raise InputError(f"a node's name has 1 to 48 printable characters and is no worker's, got {name!r}.")
        key = ec.generate_private_key(ec.SECP256R1())
        identity = cls(name, sign_own(name, key, days, start), _key_pem(key))
        if directory is not None:
            identity.save(directory)
        return identity

    def renewed(self, days: float = NODE_DAYS) -> Identity:
        """A new certificate for the same key. It is another certificate: the cluster file must have it."""
        return replace(self, certificate=sign_own(self.name, self._key, days, None))

    def issue(self, name: str, days: float = WORKER_DAYS, start: datetime.datetime | None = None) -> Identity:
        """A new key for the worker of this name, and a certificate issued by this node."""
        key, public = make_key()
        return Identity(name, self.certify(name, public, days, start), key)

    def certify(
        self, name: str, public_pem: bytes, days: float = WORKER_DAYS, start: datetime.datetime | None = None
    ) -> Certificate:
        """A certificate for a worker's key that was made elsewhere; valid for `days`, never longer than this node's."""
        role, worker = split_name(name)
        if role != self.name or not worker:
            raise InputError(f"{self.name} has no worker called {name!r}: worker 3 is w3.{self.name}.")
        if not self.certificate.issues:
            raise PolicyRefused(f"the certificate of {self.name} is from before workers and issues none. {RENEW}")
        self.require_valid()
        try:
            public = serialization.load_pem_public_key(public_pem)
        except (ValueError, UnsupportedAlgorithm):
            raise InputError(f"the key of {name} is not a public key in PEM") from None
        if not isinstance(public, ec.EllipticCurvePublicKey):
            raise InputError(f"the key of {name} is not one of an elliptic curve, as `make_key` makes it")
        return sign_worker(name, public, self.certificate, self.name, self._key, days, start)

    @property
    def _key(self) -> ec.EllipticCurvePrivateKey:
        key = serialization.load_pem_private_key(self.key_pem, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise InputError(f"the key of {self.name} is not one that `hdcos node init` made, and signs nothing here")
        return key

    @property
    def worker(self) -> int:
        """Which of its node's workers this is; 0 is the node itself."""
        return split_name(self.name)[1]

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
        pem = read_pem(folder / KEY_FILE)
        mode = (folder / KEY_FILE).stat().st_mode & 0o777
        if mode & 0o077:
            raise PolicyRefused(f"{folder / KEY_FILE} has mode {mode:o}: others can read it. Run `chmod 600` on it.")
        try:
            key = serialization.load_pem_private_key(pem, None)
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise InputError(f"{folder / KEY_FILE} is not a key in PEM: restore it from a backup") from None
        certificate = Certificate.read(folder / CERTIFICATE_FILE)
        if key.public_key() != certificate.public_key:
            raise InputError(f"{folder / KEY_FILE} is not the key of {CERTIFICATE_FILE} beside it: restore it")
        return cls(certificate.common_name.removeprefix("hdcos "), certificate, pem)

    def require_valid(self) -> None:
        """HandshakeError if this node's own certificate has expired: peers would refuse it."""
        if self.certificate.expires < datetime.datetime.now(datetime.UTC):
            remedy = "Make a new one with `hdcos node init` and give it to the other operators."
            if self.worker:
                remedy = "Start this worker again: its party issues a new one."
            raise HandshakeError(
                f"the certificate of {self.name} expired on {self.certificate.expires:%Y-%m-%d}. {remedy}"
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


def make_key() -> tuple[bytes, bytes]:
    """A worker's new key, which stays where it is made, and its public part for `Identity.certify`, both in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    return _key_pem(key), public


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write_new(path: Path, data: bytes, mode: int) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    except FileExistsError:
        raise InputError(f"{path} exists already: an identity is never overwritten.") from None
    with os.fdopen(handle, "wb") as file:
        file.write(data)
