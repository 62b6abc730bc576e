"""TLS and passwords of PostgreSQL by its own conventions, against a server with a self-made certificate."""

from __future__ import annotations

import datetime
import ipaddress
import os
import shutil
import socket
import ssl
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from deltaplane.errors import LedgerUnavailable
from deltaplane.ledger import Ledger, Retries, connect
from ledger.conftest import SCHEMA, add
from postgres_server import PostgresServer

PASSWORD = "correct horse battery staple"
ONCE = Retries(attempts=1)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass(frozen=True)
class Authority:
    """Somebody who signs certificates."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @classmethod
    def new(cls, name: str) -> Authority:
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), _name(name), key.public_key())
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        return cls(key, builder.sign(key, hashes.SHA256()))

    def signs(self, key: ec.EllipticCurvePrivateKey, *names: x509.GeneralName) -> x509.Certificate:
        builder = _builder(_name("server"), self.certificate.subject, key.public_key())
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self.key, hashes.SHA256())

    def write(self, path: Path) -> Path:
        path.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))
        path.chmod(0o644)
        return path


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
    )


@dataclass(frozen=True)
class TlsServer:
    """A PostgreSQL that lets nobody in without TLS and a password.

    Attributes:
        port: Where it listens.
        authority: The certificate of who signed the server's.
        stranger: That of somebody else.
        gateway: What stands in front of a server that has no TLS itself.
    """

    port: int
    authority: Path
    stranger: Path
    gateway: Gateway | None = None

    def uri(self, host: str = "127.0.0.1", sslmode: str = "verify-full", root: Path | None = None) -> str:
        settings = f"sslmode={sslmode}&sslrootcert={root or self.authority}"
        return f"deltasql://postgres/keeper@{host}:{self.port}/vault?{settings}"


class Gateway:
    """Speaks TLS for a server that was built without it, the way a connection pooler does.

    A client asks for TLS with eight bytes and is answered with one; what follows is encrypted.
    """

    ASKED = bytes.fromhex("0000000804d2162f")
    WITH_KERBEROS = bytes.fromhex("0000000804d21630")

    def __init__(self, socket_path: Path, certificate: Path, key: Path) -> None:
        self._target = str(socket_path)
        self._tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._tls.load_cert_chain(certificate, key)
        self._door = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._door.getsockname()[1])
        self.versions: list[str | None] = []
        threading.Thread(target=self._receive, daemon=True).start()

    def close(self) -> None:
        self._door.close()

    def _receive(self) -> None:
        while True:
            try:
                client, _ = self._door.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            asked = client.recv(8)
            if asked == self.WITH_KERBEROS:
                client.sendall(b"N")
                asked = client.recv(8)
            if asked != self.ASKED:
                text = b"SFATAL\0C28000\0Mconnection without TLS: no encryption\0\0"
                client.sendall(b"E" + (len(text) + 4).to_bytes(4, "big") + text)
                return
            client.sendall(b"S")
            try:
                safe = self._tls.wrap_socket(client, server_side=True)
            except (ssl.SSLError, OSError):
                # The client did not like the certificate.
                return
            with safe, socket.socket(socket.AF_UNIX) as server:
                self.versions.append(safe.version())
                server.connect(self._target)
                back = threading.Thread(target=_pump, args=(server, safe), daemon=True)
                back.start()
                _pump(safe, server)
                back.join(10)


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        # Either side has hung up; the other hears of it when the sockets are closed.
        return


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write_certificate(folder: Path, authority: Authority) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = authority.signs(key, x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    form = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    files = (folder / "server.crt", folder / "server.key")
    files[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(key.private_bytes(serialization.Encoding.PEM, *form))
    owner = folder.stat()
    for path in files:
        path.chmod(0o600)
        os.chown(path, owner.st_uid, owner.st_gid)
    return files


def _prepare(conninfo: str) -> None:
    with psycopg.connect(conninfo, autocommit=True) as admin:
        admin.execute(f"CREATE ROLE keeper LOGIN PASSWORD '{PASSWORD}'")
        admin.execute("CREATE DATABASE vault OWNER keeper")


def _behind_a_gateway(authority: Authority, folder: Path) -> Iterator[TlsServer]:
    server = PostgresServer()
    try:
        _prepare(server.conninfo())
        hba = "local all postgres trust\nlocal all all scram-sha-256\n"
        (server.folder / "pg_hba.conf").write_text(hba, encoding="utf-8")
        server.control("reload")
        gateway = Gateway(server.folder / ".s.PGSQL.5432", *_write_certificate(folder, authority))
        yield TlsServer(gateway.port, folder / "ours.pem", folder / "stranger.pem", gateway)
        gateway.close()
    finally:
        server.stop()


def _tools_with_tls() -> Path | None:
    """Where this machine has a PostgreSQL of its own that was built with OpenSSL."""
    found = shutil.which("postgres")
    places = [Path(found).resolve().parent] if found else []
    for place in [*places, *sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)]:
        config = place / "pg_config"
        if (place / "initdb").exists() and config.exists():
            told = subprocess.run([config, "--configure"], capture_output=True, text=True, check=False)
            if "openssl" in told.stdout:
                return place
    return None


def _by_itself(authority: Authority, folder: Path, tools: Path, user: int | None) -> Iterator[TlsServer]:
    # The path of a socket may have about a hundred characters.
    data, port = Path(tempfile.mkdtemp(prefix="dptls")), _free_port()
    if user is not None:
        os.chown(data, user, user)

    def run(tool: str, *arguments: str) -> None:
        subprocess.run(
            [tools / tool, "-D", data, *arguments], check=True, user=user, cwd=data, stdout=subprocess.DEVNULL
        )

    run("initdb", "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-sync")
    _write_certificate(data, authority)
    hba = "local all postgres trust\nhostssl all all 127.0.0.1/32 scram-sha-256\n"
    (data / "pg_hba.conf").write_text(hba, encoding="utf-8")
    settings = {"listen_addresses": "127.0.0.1", "port": port, "ssl": "on", "unix_socket_directories": data}
    options = " ".join(f"-c {key}={value}" for key, value in settings.items())
    run("pg_ctl", "start", "-w", "-l", str(data / "log"), "-o", options)
    try:
        _prepare(f"host={data} port={port} user=postgres dbname=postgres")
        yield TlsServer(port, folder / "ours.pem", folder / "stranger.pem")
    finally:
        run("pg_ctl", "stop", "-m", "immediate")
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture(scope="module", params=["gateway", "server"])
def tls(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, postgres: PostgresServer
) -> Iterator[TlsServer]:
    """A server from PyPI behind a gateway, for it has no TLS, and the machine's own where it has one."""
    folder, authority = tmp_path_factory.mktemp("tls"), Authority.new("ours")
    authority.write(folder / "ours.pem")
    Authority.new("a stranger").write(folder / "stranger.pem")
    if request.param == "gateway":
        yield from _behind_a_gateway(authority, folder)
        return
    tools = _tools_with_tls()
    if tools is None:
        pytest.skip("no PostgreSQL that was built with OpenSSL is installed")
    user = postgres.folder.stat().st_uid if os.getuid() == 0 else None
    yield from _by_itself(authority, folder, tools, user)


@pytest.fixture(autouse=True)
def nothing_in_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith("PG")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)


def encryption(tls: TlsServer, ledger: Ledger) -> list[str | None]:
    """Of every connection that we have: how it is encrypted, if it is."""
    if tls.gateway is not None:
        return tls.gateway.versions
    with ledger._ctx.store.reading() as session:
        rows = session._connection.execute(  # type: ignore[attr-defined]
            "SELECT CASE WHEN s.ssl THEN s.version END FROM pg_stat_ssl s JOIN pg_stat_activity a USING (pid)"
            " WHERE a.datname = 'vault' AND a.backend_type = 'client backend'"
        ).fetchall()
    return [row[0] for row in rows]


@pytest.mark.usefixtures("password")
def test_rows_and_wide_reads_travel_encrypted(tls: TlsServer, tmp_path: Path) -> None:
    if tls.gateway is not None:
        tls.gateway.versions.clear()
    with connect(tls.uri()) as ledger:
        ledger.create(tmp_path / "t", SCHEMA)
        with ledger.transaction() as tx:
            tx.commit(str(tmp_path / "t"), [add(number) for number in range(100)])
        assert ledger.snapshot(tmp_path / "t").files().num_rows == 100
        found = encryption(tls, ledger)
    assert len(found) >= 2, "rows and Arrow have a connection each"
    assert set(found) == {"TLSv1.3"}


@pytest.mark.usefixtures("password")
def test_a_certificate_of_another_authority_is_refused(tls: TlsServer) -> None:
    with pytest.raises(LedgerUnavailable) as refused:
        connect(tls.uri(root=tls.stranger))
    text = str(refused.value)
    assert "certificate verify failed" in text
    assert "Nothing was changed" in text
    assert PASSWORD not in text


@pytest.mark.usefixtures("password")
def test_a_wide_read_refuses_a_wrong_certificate_as_well(tls: TlsServer, tmp_path: Path) -> None:
    """The second driver has a connection of its own, and it must be as careful as the first."""
    with connect(tls.uri()) as ledger:
        ledger.create(tmp_path / "t", SCHEMA)
        snapshot = ledger.snapshot(tmp_path / "t")
        trusted = tls.authority.read_bytes()
        try:
            tls.authority.write_bytes(tls.stranger.read_bytes())
            with pytest.raises(LedgerUnavailable, match="certificate verify failed"):
                snapshot.files()
        finally:
            tls.authority.write_bytes(trusted)
        assert snapshot.files().num_rows == 0


@pytest.mark.usefixtures("password")
def test_a_certificate_for_another_host_is_refused_when_asked_to_look(tls: TlsServer) -> None:
    with pytest.raises(LedgerUnavailable, match='does not match host name "localhost"'):
        connect(tls.uri(host="localhost"))
    connect(tls.uri(host="localhost", sslmode="verify-ca")).close()


@pytest.mark.usefixtures("password")
def test_a_connection_without_tls_is_refused_by_the_server(tls: TlsServer) -> None:
    with pytest.raises(LedgerUnavailable, match="no encryption"):
        connect(tls.uri(sslmode="disable"))


@pytest.mark.usefixtures("password")
def test_an_authority_that_cannot_be_read_is_named(tls: TlsServer, tmp_path: Path) -> None:
    with pytest.raises(LedgerUnavailable, match=r"nowhere\.pem"):
        connect(tls.uri(root=tmp_path / "nowhere.pem"))


def test_a_password_may_stand_in_a_file(
    tls: TlsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "passwords"
    place.write_text(f"127.0.0.1:{tls.port}:vault:keeper:{PASSWORD}\n", encoding="utf-8")
    place.chmod(0o600)
    monkeypatch.setenv("PGPASSFILE", str(place))
    with connect(tls.uri()) as ledger:
        ledger.create(tmp_path / "t", SCHEMA)
        assert ledger.snapshot(tmp_path / "t").files().num_rows == 0
    with connect(tls.uri() + f"&passfile={place}") as ledger:
        assert PASSWORD not in repr(ledger)


def test_no_password_is_told_as_such(tls: TlsServer) -> None:
    with pytest.raises(LedgerUnavailable, match=r"no password supplied.*PGPASSWORD, PGPASSFILE"):
        connect(tls.uri())


def test_a_wrong_password_is_refused_and_not_shown(
    tls: TlsServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PGPASSWORD", "hunter2 is wrong")
    with caplog.at_level("DEBUG"), pytest.raises(LedgerUnavailable) as refused:
        connect(tls.uri(), retries=ONCE)
    text = str(refused.value)
    assert 'password authentication failed for user "keeper"' in text
    shown = text + repr(refused.value) + repr(refused.value.__cause__) + caplog.text
    assert "hunter2" not in shown


def test_a_password_that_changes_while_we_work_is_not_shown_by_a_wide_read(
    tls: TlsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    with connect(tls.uri()) as ledger:
        ledger.create(tmp_path / "t", SCHEMA)
        snapshot = ledger.snapshot(tmp_path / "t")
        monkeypatch.setenv("PGPASSWORD", "hunter2 is wrong")
        with pytest.raises(LedgerUnavailable, match="password authentication failed") as refused:
            snapshot.files()
    assert "hunter2" not in str(refused.value) + repr(refused.value.__cause__)
