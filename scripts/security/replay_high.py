"""`python -m scripts.security.replay_high [H2 …]`: tries again how somebody got in, on servers that it starts itself.

An attack is a function in `ATTACKS` whose name begins with its finding of docs/security.md. It attacks the `Ground`, a
local account with an endpoint in service, or a server that it starts itself, and returns how it got in, or None. Prints
a line for each. Exit code: 1 where one of them got in.
"""

import base64
import contextlib
import http.client
import json
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from local_aws.process.local_account import LocalAccount
from scripts.security import replay_archives
from tests.containers.neuron.stub_server import stub_server
from tests.local_aws.conftest import BUCKET, ECHO_CONFIG, IMAGE, ROLE, Endpoints, clients, tar_gz, upload

ENDPOINT = "attacked"
EVIL_MODEL = """
import pathlib
pathlib.Path({mark!r}).touch()
class TritonPythonModel:
    def execute(self, requests):
        return []
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ground:
    """The account and the files that are attacked, as its owner's neighbours on the machine see it."""

    account: LocalAccount
    endpoint: str
    folder: Path
    """The attacker's own folder. Code of the attacker's that runs in a server leaves `mark` here."""

    @property
    def mark(self) -> Path:
        return self.folder / "mark"

    def listening(self) -> list[tuple[str, int]]:
        """Returns what the account and all that it started listen on. Every user of the machine can see it."""
        root = psutil.Process(self.account.pid)
        processes = [root, *root.children(recursive=True)]
        sockets = [each for process in processes for each in process.net_connections("tcp")]
        return sorted({(each.laddr.ip, each.laddr.port) for each in sockets if each.status == psutil.CONN_LISTEN})


Attack = Callable[[Ground], str | None]


def h1_a_web_page(ground: Ground) -> str | None:
    """asks as a web page would, with an Origin, a name that resolves here, and a signature that anyone can make up"""
    for headers in (
        {"Origin": "https://evil.example"},
        {"Origin": "null", "Host": "evil.example"},
        {"Host": "evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"},
    ):
        if how := _run_a_model(ground, "local", "local", headers):
            return how
    return None


def h1_another_user(ground: Ground) -> str | None:
    """asks as another user of the machine would, with keys that everybody knows, and without one"""
    for key, secret in (
        ("local", "local"),
        ("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYzEXAMPLEKEY"),
        (ground.account.environment["AWS_ACCESS_KEY_ID"], "a guess"),
        (None, ""),
    ):
        if how := _run_a_model(ground, key, secret, {}):
            return how
    if _ask_account(ground, "POST", "/moto-api/reset", b"", "", None, "", {}) < 400:
        return "moto's own API reset the account"
    return None


def h1_what_lies_around(ground: Ground) -> str | None:
    """looks for the key in command lines, and for files of the account that others may read"""
    root = psutil.Process(ground.account.pid)
    secret = ground.account.environment["AWS_SECRET_ACCESS_KEY"]
    for process in (root, *root.children(recursive=True)):
        if any(secret in argument for argument in process.cmdline()):
            return f"process {process.pid} has the key in its command line"
    state = ground.account.log_file.parent
    if state.stat().st_mode & 0o077:
        return f"{state} is open to others"
    if secret in ground.account.log_file.read_text():
        return "the log has the key"
    return None


def _run_a_model(ground: Ground, key: str | None, secret: str, headers: Mapping[str, str]) -> str | None:
    """Makes seven calls: a bucket, an archive, a model, a configuration and an endpoint, whose code leaves the mark."""
    archive = tar_gz({"evil/config.pbtxt": ECHO_CONFIG, "evil/1/model.py": EVIL_MODEL.format(mark=str(ground.mark))})
    model = {
        "ModelName": "evil",
        "ExecutionRoleArn": ROLE,
        "PrimaryContainer": {"Image": IMAGE, "ModelDataUrl": "s3://evil/evil.tar.gz"},
    }
    variant = {"VariantName": "v", "ModelName": "evil", "InstanceType": "ml.c5.large", "InitialInstanceCount": 1}
    config = {"EndpointConfigName": "evil", "ProductionVariants": [variant]}
    requests = [
        ("PUT", "/evil", b"", "s3", None),
        ("PUT", "/evil/evil.tar.gz", archive, "s3", None),
        ("POST", "/", model, "", "CreateModel"),
        ("POST", "/", config, "", "CreateEndpointConfig"),
        ("POST", "/", {"EndpointName": "evil", "EndpointConfigName": "evil"}, "", "CreateEndpoint"),
        ("POST", "/", {"EndpointName": "evil"}, "", "DescribeEndpoint"),
        ("GET", f"/{BUCKET}/echo.tar.gz", b"", "s3", None),
    ]
    for method, path, content, service, action in requests:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        target = {"X-Amz-Target": f"SageMaker.{action}"} if action else {}
        status = _ask_account(ground, method, path, body, service or "sagemaker", key, secret, {**headers, **target})
        if status < 400:
            return f"{action or f'{method} {path}'} was answered with {status}"
    return "code of the attacker's ran in Triton" if ground.mark.exists() else None


def _ask_account(
    ground: Ground,
    method: str,
    path: str,
    body: bytes,
    service: str,
    key: str | None,
    secret: str,
    headers: Mapping[str, str],
) -> int:
    """Returns the status of the account's answer to a request that is signed with `key`, or with none."""
    request = AWSRequest(method, ground.account.endpoint_url + path, dict(headers), body)
    if key is not None:
        S3SigV4Auth(Credentials(key, secret), service, "us-east-1").add_auth(request)
    connection = http.client.HTTPConnection(
        "127.0.0.1", int(ground.account.endpoint_url.rpartition(":")[2]), timeout=60
    )
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(request.headers.items()))
        return connection.getresponse().status


def h2_a_foreign_address(ground: Ground) -> str | None:
    """connects to every port from an address other than 127.0.0.1"""
    for address, port in ground.listening():
        # Loopback is the whole of 127.0.0.0/8, so what is bound to all addresses answers at this one, too.
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.2", port), timeout=5):
            return f"port {port} listens on {address}"
    return None


def h2_load_a_model_as_for_a_multi_model_endpoint(ground: Ground) -> str | None:
    """asks for a model in a folder of the attacker's at POST /models"""
    model = ground.folder / "models" / "evil" / "1"
    model.mkdir(parents=True, exist_ok=True)
    (model / "model.py").write_text(EVIL_MODEL.format(mark=str(ground.mark)))
    (model.parent / "config.pbtxt").write_text(ECHO_CONFIG)
    body = json.dumps({"model_name": "evil", "url": str(model.parent.parent)})
    for _, port in ground.listening():
        _post(port, "/models", body, {"X-Amzn-SageMaker-Target-Model": "evil"})
    return "code of the attacker's ran in Triton" if ground.mark.exists() else None


def h2_a_million_chunks(ground: Ground) -> str | None:
    """sends a body of a million chunks of one byte to every port"""
    before = ground.listening()
    for _, port in before:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
            head = "POST /invocations HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.sendall(head.encode() + b"1\r\n \r\n" * 1_000_000 + b"0\r\n\r\n")
            connection.recv(1024)
    gone = [port for address, port in before if (address, port) not in ground.listening()]
    return f"what listened on {gone} is gone" if gone else None


def h3_load_a_model_through_tritons_own_api(ground: Ground) -> str | None:
    """sends a model's code to /v2/repository in a request that any web page can send"""
    code = base64.b64encode(EVIL_MODEL.format(mark=str(ground.mark)).encode()).decode()
    config = {"backend": "python", "max_batch_size": 0, "input": [], "output": []}
    body = json.dumps({"parameters": {"config": json.dumps(config), "file:1/model.py": code}})
    for _, port in ground.listening():
        _post(port, "/v2/repository/models/evil/load", body)
    return "code of the attacker's ran in Triton" if ground.mark.exists() else None


def h4_an_archive_that_leaves_its_folder(ground: Ground) -> str | None:
    """gives all that read archives one that writes over the file beside the folder it is unpacked to"""
    takers = replay_archives.taken(ground.folder)
    return f"taken by {', '.join(takers)}" if takers else None


def h5_the_same_output_again_and_again(ground: Ground) -> str | None:
    """asks the Neuron server for one output 46,000 times, in a request of 0.8 MB"""
    outputs = ",".join(['{"name":"LABEL"}'] * 46_000)
    row = '{"name":"TEXT","shape":[1,1],"datatype":"BYTES","data":["red shoes"]}'
    with stub_server(ground.folder / "neuron.log") as server:
        before = server.memory()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        connection.request("POST", "/invocations", f'{{"inputs":[{row}],"outputs":[{outputs}]}}')
        size = len(connection.getresponse().read())
        connection.close()
        grown = server.memory() - before
    return f"it took {grown >> 20} MiB for {size >> 10} KiB of answer" if grown > 64 << 20 or size > 1 << 16 else None


ATTACKS: list[Attack] = [
    h1_a_web_page,
    h1_another_user,
    h1_what_lies_around,
    h2_a_foreign_address,
    h2_load_a_model_as_for_a_multi_model_endpoint,
    h3_load_a_model_through_tritons_own_api,
    h4_an_archive_that_leaves_its_folder,
    h5_the_same_output_again_and_again,
    h2_a_million_chunks,  # ended Triton, so it comes last
]


def main(findings: list[str]) -> int:
    chosen = [attack for attack in ATTACKS if not findings or _finding(attack) in findings]
    got_in = 0
    with ground() as attacked:
        for attack in chosen:
            attacked.mark.unlink(missing_ok=True)
            how = attack(attacked)
            got_in += how is not None
            print(f"{'GOT IN' if how else 'failed'}  {_finding(attack)} {attack.__doc__}{f': {how}' if how else ''}")
    print(f"{got_in} of {len(chosen)} attacks got in")
    return int(got_in > 0)


@contextlib.contextmanager
def ground() -> Iterator[Ground]:
    """Starts an account with an endpoint that answers, in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="replay_") as folder:
        own, attackers = Path(folder, "account"), Path(folder, "attacker")
        attackers.mkdir()
        with LocalAccount.start(state=own) as account:
            upload(account)
            made = Endpoints(clients(account)("sagemaker"))
            told = made.settled(made.create(ENDPOINT, config=made.config(ENDPOINT)))
            assert told["EndpointStatus"] == "InService", told
            yield Ground(account=account, endpoint=ENDPOINT, folder=attackers)


def _finding(attack: Attack) -> str:
    return attack.__name__.partition("_")[0].upper()


def _post(port: int, path: str, body: str, headers: Mapping[str, str] | None = None) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.suppress(OSError, http.client.HTTPException):
        connection.request("POST", path, body, {"Content-Type": "text/plain", **(headers or {})})
        connection.getresponse().read()
    connection.close()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
