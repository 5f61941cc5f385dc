"""Workers of a node: certificates that it issues, and that nobody else's pass for them."""

from __future__ import annotations

import datetime
import socket
import ssl
import threading
from dataclasses import replace

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from hdcos.errors import HandshakeError, InputError, PeerLost, PolicyRefused
from hdcos.link import Certificate, Identity, Listener, connect
from hdcos.link.identity import make_key
from hdcos.link.names import split_name, worker_name
from hdcos.link.trust import Trust
from old_identity import older

NOW = datetime.datetime.now(datetime.UTC)
DAY = datetime.timedelta(days=1)


@pytest.fixture(scope="module")
def parties() -> dict[str, Identity]:
    return {name: Identity.create(name) for name in ("party0", "party1", "dealer")}


def forge(
    issuer: Identity,
    names: list[x509.GeneralName],
    *,
    ca: bool | None = False,
    days: tuple[float, float] = (-1, 30),
    issuer_subject: str = "",
) -> Identity:
    """What an issuer could sign if it did not keep to the rules: any names, times and rights."""
    key = ec.generate_private_key(ec.SECP256R1())
    signer = serialization.load_pem_private_key(issuer.key_pem, None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)

    def subject(name: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"hdcos {name}")])

    builder = (
        x509.CertificateBuilder()
        .subject_name(subject("forged"))
        .issuer_name(subject(issuer_subject or issuer.name))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(NOW + days[0] * DAY)
        .not_valid_after(NOW + days[1] * DAY)
    )
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if ca is not None:
        builder = builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
    made = builder.sign(signer, hashes.SHA256())
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return Identity("forged", Certificate(made.public_bytes(serialization.Encoding.DER)), pem)


def meet(both, server, admits, client, trusts, server_name=""):
    """What a listener gives, and what a caller gives that then says and hears one word."""
    with Listener(server, admits, handshake_s=1.0) as listener:

        def accept():
            with listener.accept(0.6) as link:
                link.exchange([b"word"])
                return link.peer

        def call():
            with connect(client, trusts, "127.0.0.1", listener.port, 1.0, retry=False, server_name=server_name) as link:
                link.exchange([b"word"])
                return link.peer

        return both(accept, call)


# ---- names


def test_the_name_of_a_worker_is_a_dns_name_and_worker_0_is_the_node():
    assert worker_name("party1", 3) == "w3.party1"
    assert worker_name("party1", 0) == "party1"
    for name in ("party1", "w3.party1", "w999.dealer"):
        assert worker_name(*split_name(name)) == name
    for name in ("w0.party1", "w03.party1", "w3.party 1", "W3.party1", "w3.w3.party1", "w3party1", "w1000.party1"):
        assert split_name(name) == (name, 0)
    for role, worker in (("party 1", 3), ("party1", -1), ("party1", 1000), ("", 1), ("w3.party1", 1)):
        with pytest.raises(InputError, match="a worker is number"):
            worker_name(role, worker)


# ---- what is issued


def test_a_node_issues_for_its_own_workers_alone(parties):
    worker = parties["party1"].issue("w3.party1")
    assert worker.worker == 3
    assert worker.certificate.names == ("w3.party1",)
    assert worker.certificate.is_signed_by(parties["party1"].certificate)
    assert worker.certificate.is_leaf
    assert not worker.certificate.issues
    for name in ("w3.party0", "party1", "w0.party1", "other", ""):
        with pytest.raises(InputError, match="has no worker called"):
            parties["party1"].issue(name)
    with pytest.raises(InputError, match="has no worker called"):
        worker.issue("w4.party1")
    with pytest.raises(InputError, match="is no worker's"):
        Identity.create("w3.party1")


def test_a_workers_key_may_be_made_on_its_own_machine(parties, both, tmp_path):
    key, public = make_key()
    assert b"PRIVATE" not in public
    worker = Identity("w1.party1", parties["party1"].certify("w1.party1", public), key)
    worker.save(tmp_path)
    assert Identity.load(tmp_path) == worker
    results = meet(
        both,
        parties["party0"].issue("w1.party0"),
        {parties["party1"].certificate: "w1.party1"},
        worker,
        {parties["party0"].certificate: "w1.party0"},
    )
    assert results == ("w1.party1", "w1.party0")
    with pytest.raises(InputError, match="not a public key in PEM"):
        parties["party1"].certify("w1.party1", b"nonsense")


def test_a_workers_certificate_ends_no_later_than_its_nodes():
    node = Identity.create("party0", days=5)
    assert node.issue("w1.party0", days=30).certificate.expires == node.certificate.expires
    past = Identity.create("party0", days=1, start=NOW - 3 * DAY)
    with pytest.raises(HandshakeError, match="expired on"):
        past.issue("w1.party0")


def test_a_nodes_own_certificate_is_fit_for_clients_that_are_strict(parties):
    """Python 3.13 checks HTTPS certificates this way unless told otherwise."""
    settings = ssl.create_default_context(cadata=parties["party0"].certificate.pem)
    settings.verify_flags |= ssl.VERIFY_X509_STRICT
    settings.check_hostname = False
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with parties["party0"].chain_file() as path:
        serving.load_cert_chain(path)
    one, other = socket.socketpair()
    server = threading.Thread(target=lambda: serving.wrap_socket(one, server_side=True).close())
    server.start()
    with settings.wrap_socket(other) as wrapped:
        assert wrapped.getpeercert(True) == parties["party0"].certificate.der
    server.join(5)


# ---- certificates from before workers


def test_a_node_with_an_older_certificate_works_alone_and_is_told_what_to_do_about_workers(parties, both):
    before, one = older(Identity.create("party0")), parties["party1"]
    assert meet(both, before, {one.certificate: "party1"}, one, {before.certificate: "party0"}) == ("party1", "party0")
    with pytest.raises(PolicyRefused, match="hdcos node renew"):
        before.issue("w1.party0")
    with pytest.raises(PolicyRefused, match=r"At party0: Renew it with `hdcos node renew`"):
        connect(one, {before.certificate: "w1.party0"}, "127.0.0.1", 1)
    with pytest.raises(PolicyRefused, match="hdcos init --replaces"):
        Listener(one, {before.certificate: "w1.party0"})


def test_an_older_certificate_vouches_for_nobody_whatever_its_key_signs(parties, both):
    before, one = older(Identity.create("party0")), parties["party1"]
    leaf = forge(before, [x509.DNSName("w1.party0")])
    assert leaf.certificate.is_signed_by(before.certificate)
    with pytest.raises(HandshakeError, match="issues none"):
        Trust({before.certificate: "party0"}).find(leaf.certificate)
    results = meet(both, leaf, {one.certificate: "party1"}, one, {before.certificate: "party0"})
    assert [type(result) for result in results] == [HandshakeError, HandshakeError]


def test_a_renewed_certificate_has_the_same_key_and_issues(parties, both):
    before, one = older(Identity.create("party0")), parties["party1"]
    after = before.renewed()
    assert after.key_pem == before.key_pem
    assert after.certificate != before.certificate
    assert after.certificate.is_signed_by(before.certificate)
    worker = after.issue("w1.party0")
    results = meet(
        both, worker, {one.certificate: "w1.party1"}, one.issue("w1.party1"), {after.certificate: "w1.party0"}
    )
    assert results == ("w1.party1", "w1.party0")
    results = meet(both, after, {one.certificate: "party1"}, one, {before.certificate: "party0"})
    assert isinstance(results[1], HandshakeError), "the cluster file has the old one: both sides must have the new file"


# ---- attacks: each is refused by the rules written here, and by a whole handshake

FORGERIES = {
    "issued by the other party": lambda p: forge(p["party0"], [x509.DNSName("w3.party1")]),
    "issued by the other party in the name of this one": lambda p: forge(
        p["party0"], [x509.DNSName("w3.party1")], issuer_subject="party1"
    ),
    "issued by an authority of its own": lambda p: forge(Identity.create("party1"), [x509.DNSName("w3.party1")]),
    "issued by another worker": lambda p: forge(
        replace(p["party1"].issue("w2.party1"), name="w2.party1"), [x509.DNSName("w3.party1")]
    ),
    "issued by the worker of this name": lambda p: forge(p["party1"].issue("w3.party1"), [x509.DNSName("w3.party1")]),
    "two names": lambda p: forge(p["party1"], [x509.DNSName("w3.party1"), x509.DNSName("w2.party1")]),
    "the name twice": lambda p: forge(p["party1"], [x509.DNSName("w3.party1"), x509.DNSName("w3.party1")]),
    "a name of another kind besides": lambda p: forge(p["party1"], [x509.DNSName("w3.party1"), x509.RFC822Name("a@b")]),
    "the name as one of another kind": lambda p: forge(p["party1"], [x509.UniformResourceIdentifier("w3.party1")]),
    "no name": lambda p: forge(p["party1"], []),
    "the name of another worker": lambda p: p["party1"].issue("w2.party1"),
    "a name with a wildcard": lambda p: forge(p["party1"], [x509.DNSName("*.party1")]),
    "a longer name": lambda p: forge(p["party1"], [x509.DNSName("w3.party1.example")]),
    "the name in capitals": lambda p: forge(p["party1"], [x509.DNSName("W3.PARTY1")]),
    "the name of the other party's worker": lambda p: forge(p["party1"], [x509.DNSName("w3.party0")]),
    "the name of the node": lambda p: forge(p["party1"], [x509.DNSName("party1")]),
    "expired": lambda p: forge(p["party1"], [x509.DNSName("w3.party1")], days=(-30, -1)),
    "not valid yet": lambda p: forge(p["party1"], [x509.DNSName("w3.party1")], days=(1, 30)),
    "able to issue others": lambda p: forge(p["party1"], [x509.DNSName("w3.party1")], ca=True),
    "silent about whether it issues others": lambda p: forge(p["party1"], [x509.DNSName("w3.party1")], ca=None),
    "the node itself": lambda p: p["party1"],
    "the other party itself": lambda p: p["party0"],
}


def test_what_the_forgeries_differ_from_is_accepted(parties, both):
    right = forge(parties["party1"], [x509.DNSName("w3.party1")])
    admits = {parties["party1"].certificate: "w3.party1"}
    assert Trust(admits).find(right.certificate) == "w3.party1"
    zero = parties["party0"].issue("w3.party0")
    results = meet(both, zero, admits, right, {parties["party0"].certificate: "w3.party0"})
    assert results == ("w3.party1", "w3.party0")


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forgery_is_refused_by_name(parties, forgery):
    forged = FORGERIES[forgery](parties)
    with pytest.raises(HandshakeError):
        Trust({parties["party1"].certificate: "w3.party1"}).find(forged.certificate)
    with pytest.raises(HandshakeError):
        Trust(
            {parties["party1"].certificate: "w3.party1", parties["dealer"].certificate: ("dealer", "w3.dealer")}
        ).find(forged.certificate)


@pytest.mark.parametrize("side", ["server", "client"])
@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forgery_is_refused_by_a_handshake(parties, both, forgery, side, monkeypatch):
    forged = replace(FORGERIES[forgery](parties), name="w3.party1")  # serves the name that is asked for
    monkeypatch.setattr(Identity, "require_valid", lambda self: None)  # its clock is wrong
    zero = parties["party0"].issue("w3.party0")
    theirs = {parties["party1"].certificate: "w3.party1"}
    mine = {parties["party0"].certificate: "w3.party0"}
    if side == "client":
        checked, told = meet(both, zero, theirs, forged, mine)
        assert isinstance(checked, HandshakeError), checked
        assert isinstance(told, HandshakeError | PeerLost), told
    else:
        told, checked = meet(both, forged, mine, zero, theirs)
        assert isinstance(checked, HandshakeError), checked
        assert isinstance(told, HandshakeError | PeerLost), told


def test_a_chain_that_ends_in_a_worker_is_refused_although_the_worker_sends_the_whole_chain(parties, both, monkeypatch):
    middle = parties["party1"].issue("w2.party1")
    leaf = forge(middle, [x509.DNSName("w3.party1")])
    chain = replace(leaf, name="w3.party1", key_pem=middle.certificate.pem.encode() + leaf.key_pem)
    server, client = meet(
        both,
        parties["party0"].issue("w3.party0"),
        {parties["party1"].certificate: "w3.party1"},
        chain,
        {parties["party0"].certificate: "w3.party0"},
    )
    assert isinstance(server, HandshakeError)
    assert "not one this node was told to trust" in str(server)
    assert isinstance(client, HandshakeError)


def test_a_worker_does_not_pass_for_its_node(parties, both):
    worker = parties["party1"].issue("w3.party1")
    with pytest.raises(HandshakeError, match=r"the peer is 'w3\.party1', not party1"):
        Trust({parties["party1"].certificate: "party1"}).find(worker.certificate)
    server, _ = meet(
        both,
        parties["party0"],
        {parties["party1"].certificate: "party1"},
        worker,
        {parties["party0"].certificate: "party0"},
    )
    assert isinstance(server, HandshakeError)


def test_a_node_may_allow_itself_and_any_number_of_its_workers(parties):
    one = parties["party1"]
    trust = Trust({one.certificate: ("party1", "w1.party1", "w2.party1")})
    assert trust.find(one.certificate) == "party1"
    assert [trust.find(one.issue(f"w{i}.party1").certificate) for i in (1, 2)] == ["w1.party1", "w2.party1"]
    with pytest.raises(HandshakeError, match=r"the peer is 'w3\.party1', not one of 3 names"):
        trust.find(one.issue("w3.party1").certificate)


# ---- server names


@pytest.mark.parametrize("asked", ["w2.party0", "party0", "w3.party1", "other.example"])
def test_a_worker_that_is_asked_for_another_name_says_so(parties, both, asked):
    server, client = meet(
        both,
        parties["party0"].issue("w3.party0"),
        {parties["party1"].certificate: "w3.party1"},
        parties["party1"].issue("w3.party1"),
        {parties["party0"].certificate: "w3.party0"},
        server_name=asked,
    )
    assert isinstance(server, HandshakeError)
    assert "asks for a name that is not served here" in str(server)
    assert isinstance(client, PeerLost)
    assert f"serves no such name ({asked} was asked for)" in str(client)


def test_a_node_itself_is_reached_with_its_name_or_with_none(parties, both):
    zero, one = parties["party0"], parties["party1"]
    for asked in ("", "party0"):
        results = meet(both, zero, {one.certificate: "party1"}, one, {zero.certificate: "party0"}, asked)
        assert results == ("party1", "party0")
    server, client = meet(both, zero, {one.certificate: "party1"}, one, {zero.certificate: "party0"}, "w1.party0")
    assert isinstance(server, HandshakeError)
    assert isinstance(client, PeerLost)
