"""Servers that prove who they are, and what whoever does not believe them is told."""

import asyncio
import socket
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from duly.client.aio import AsyncClient
from duly.client.retry import Patience
from duly.client.sync import Client
from duly.errors import ConfigError, Unreachable
from duly.launch.tls import Certificate, find_certificate
from tests.launch.place import Place
from tests.launch.running_up import DULY

NO_RETRIES = Patience(total=timedelta(0))
EC = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]


def openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, capture_output=True, check=True)


class Authority:
    """Somebody who signs certificates for this machine."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.file = folder / "ca.pem"
        openssl(
            folder, "req", "-x509", *EC, "-nodes", "-keyout", "ca.key", "-out", "ca.pem",
            "-subj", "/CN=a test's authority", "-days", "2",
        )  # fmt: skip
        (folder / "names").write_text("subjectAltName=IP:127.0.0.1")

    def sign(self, name: str, *, days: int = 1) -> Certificate:
        openssl(
            self.folder, "req", *EC, "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.csr",
            "-subj", f"/CN={name}",
        )  # fmt: skip
        openssl(
            self.folder, "x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key",
            "-CAcreateserial", "-days", str(days), "-extfile", "names", "-out", f"{name}.pem",
        )  # fmt: skip
        return Certificate(self.folder / f"{name}.pem", self.folder / f"{name}.key")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


@pytest.fixture(scope="module")
def certificate(authority: Authority) -> Certificate:
    return authority.sign("server")


@pytest.fixture
def place(tmp_path: Path, dsn: str) -> Place:
    return Place(tmp_path, dsn)


def test_a_task_runs_with_tls_all_the_way(
    place: Place, authority: Authority, certificate: Certificate
) -> None:
    ca_file = str(authority.file)
    with place.server(certificate) as url:
        assert url.startswith("https://127.0.0.1:")
        with place.start(*place.agent(url, "--ca-file", ca_file)) as agent:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "joined\n"
            env = place.env | {"DULY_URL": url, "DULY_CA_FILE": ca_file}
            command = [DULY, "run", "--cpu", "0.1", "--memory", "32MiB", "--", "echo", "hi"]
            done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60)
            assert (done.returncode, done.stdout) == (0, "hi\n")
        with place.start(*place.agent(url), DULY_CA_FILE=ca_file) as agent:
            assert agent.stdout is not None
            assert agent.stdout.readline() == "joined\n"


def what_clients_say(url: str, key: str, ca_file: Path | None) -> list[str]:
    """Return what both clients say about a server that they cannot speak to."""

    async def ask() -> None:
        async with AsyncClient(url, key, ca_file=ca_file, patience=NO_RETRIES) as client:
            await client.list_servers()

    with pytest.raises(Unreachable) as async_error:
        asyncio.run(ask())
    with (
        Client(url, key, ca_file=ca_file, patience=NO_RETRIES) as client,
        pytest.raises(Unreachable) as error,
    ):
        client.list_servers()
    return [error.value.message, async_error.value.message]


def test_clients_say_why_they_cannot_speak_to_a_server(
    place: Place, authority: Authority, certificate: Certificate, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path / "stranger").file
    with place.server(certificate) as url:
        for ca_file in (None, stranger):
            for said in what_clients_say(url, place.key, ca_file):
                assert "its certificate is not trusted" in said
                assert "DULY_CA_FILE" in said
        for said in what_clients_say(url, place.key, tmp_path / "nothing"):
            assert "cannot be loaded" in said
        for said in what_clients_say(url.replace("https:", "http:"), place.key, None):
            assert "use an https:// URL" in said


def test_an_expired_certificate_is_called_so(place: Place, authority: Authority) -> None:
    with place.server(authority.sign("old", days=-1)) as url:
        for said in what_clients_say(url, place.key, authority.file):
            assert "certificate has expired" in said
        command = place.agent(url, "--ca-file", str(authority.file))
        with place.start(*command, stderr=subprocess.PIPE) as agent:
            assert agent.stderr is not None
            assert any("certificate has expired" in line for line in agent.stderr)


def test_a_server_without_tls_is_not_spoken_to_in_tls(place: Place, authority: Authority) -> None:
    with place.server(None) as url:
        secure = url.replace("http:", "https:")
        for said in what_clients_say(secure, place.key, authority.file):
            assert "use an http:// URL" in said


def test_what_cannot_be_used_is_refused_before_anything_starts(
    authority: Authority, certificate: Certificate, tmp_path: Path
) -> None:
    assert find_certificate(None, None) is None
    other = authority.sign("other")
    locked = authority.folder / "locked.key"
    openssl(
        authority.folder, "ec", "-in", "server.key", "-aes128", "-passout", "pass:secret",
        "-out", "locked.key",
    )  # fmt: skip
    text = tmp_path / "text"
    text.write_text("hello")
    for chain, key, problem in (
        (certificate.chain, None, "needs both"),
        (None, certificate.key, "needs both"),
        (tmp_path / "gone", certificate.key, "No such file"),
        (certificate.chain, other.key, "belongs to another certificate"),
        (certificate.chain, locked, "passphrase"),
        (text, certificate.key, "PEM form"),
    ):
        with pytest.raises(ConfigError, match=problem):
            find_certificate(chain, key)


def test_the_port_of_a_server_with_tls_takes_no_plain_request(
    place: Place, certificate: Certificate
) -> None:
    with place.server(certificate) as url:
        port = int(url.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"ok" not in plain.recv(4096)
