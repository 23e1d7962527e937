"""The command line in this process, and a server's certificate that only those trust who are told to."""

import datetime
import ipaddress
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from inference_recommender.__main__ import main


class Ended(NamedTuple):
    """A command's exit code and output."""

    returncode: int
    stdout: str
    stderr: str


class Cli:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str], program: Callable[[list[str]], int] = main) -> None:
        self._capsys, self._program = capsys, program

    def __call__(self, *arguments: str) -> Ended:
        try:
            code = self._program([*arguments])
        except SystemExit as ended:  # of argparse
            code = int(ended.code or 0)
        return Ended(code, *self._capsys.readouterr())

    def out(self, *arguments: str, code: int = 0) -> str:
        """Returns what a command prints to stdout, if it ends with `code`."""
        ended = self(*arguments)
        assert ended.returncode == code, ended.stderr
        return ended.stdout

    def err(self, *arguments: str, code: int = 2) -> str:
        """Returns what a command prints to stderr, if it ends with `code`."""
        ended = self(*arguments)
        assert ended.returncode == code, ended.stderr
        return ended.stderr

    def json(self, *arguments: str, code: int = 0) -> Any:
        return json.loads(self.out(*arguments, code=code))


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    return Cli(capsys)


@pytest.fixture
def credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets keys of no account and a region."""
    for name, value in {"ACCESS_KEY_ID": "x", "SECRET_ACCESS_KEY": "x", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, ssl.SSLContext]:
    """A self-signed certificate for 127.0.0.1, made now: its file, and a server's context with it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.datetime.now(datetime.UTC)
    later = now + datetime.timedelta(hours=1)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number(), now, later)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )
    file, key_file = tmp_path / "certificate.pem", tmp_path / "key.pem"
    file.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    key_file.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file, key_file)
    return file, context
