"""Serves a role's credentials to a process over HTTP on loopback, as CodeBuild and ECS do.

    with ContainerCredentials.serve(account.environment, role_arn) as environment:
        subprocess.run(command, env={"PATH": path, **environment})

Every AWS SDK reads AWS_CONTAINER_CREDENTIALS_FULL_URI and sends AWS_CONTAINER_AUTHORIZATION_TOKEN as the Authorization
header. The answer is a session of the role, renewed before an SDK asks for a newer one. Source:
https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html
"""

import contextlib
import hmac
import json
import secrets
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import botocore.session
from botocore.exceptions import BotoCoreError, ClientError

from workloads import Unavailable

SESSION_S = 3600
RENEWED_BEFORE = timedelta(minutes=20)
"""How long before its end a session is replaced. botocore asks for a newer one 15 minutes before."""
PATH = "/credentials"
PASSED_ON = ("AWS_ENDPOINT_URL", "AWS_DEFAULT_REGION", "AWS_REGION", "AWS_EC2_METADATA_DISABLED")
"""The account's exports that are no credentials of its owner."""


class ContainerCredentials:
    """One session of a role at the local account, which is renewed where it ends soon."""

    def __init__(self, sts: Any, role_arn: str, session_name: str) -> None:
        """`sts` is botocore's client, with the owner's key."""
        self._sts = sts
        self._role_arn = role_arn
        self._session_name = session_name
        self._held: dict[str, Any] | None = None
        self._lock = threading.Lock()

    @classmethod
    @contextlib.contextmanager
    def serve(
        cls, account_environment: Mapping[str, str], role_arn: str, *, session_name: str = "AWSCodeBuild"
    ) -> Iterator[dict[str, str]]:
        """Serves until the block ends, and yields the variables for the process. Raises `Unavailable`.

        `account_environment` is the account's exports, with the owner's key; that key is not among the variables.
        """
        sts = botocore.session.Session().create_client(
            "sts",
            endpoint_url=account_environment["AWS_ENDPOINT_URL"],
            region_name=account_environment["AWS_REGION"],
            aws_access_key_id=account_environment["AWS_ACCESS_KEY_ID"],
            aws_secret_access_key=account_environment["AWS_SECRET_ACCESS_KEY"],
        )
        credentials = cls(sts, role_arn, session_name)
        credentials.document(datetime.now(UTC))
        with _Server(credentials) as server:
            # Much shorter than the standard library's half a second, which would be the time that each step ends in.
            thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
            thread.start()
            try:
                yield {
                    **{name: account_environment[name] for name in PASSED_ON if name in account_environment},
                    "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"http://127.0.0.1:{server.server_port}{PATH}",
                    "AWS_CONTAINER_AUTHORIZATION_TOKEN": server.token,
                }
            finally:
                server.shutdown()
                thread.join()

    def document(self, now: datetime) -> dict[str, str]:
        """Returns AccessKeyId, SecretAccessKey, Token and Expiration of a session. Raises `Unavailable`."""
        with self._lock:
            if self._held is None or self._held["Expiration"] - now < RENEWED_BEFORE:
                self._held = self._assumed()
            held = self._held
        return {
            "AccessKeyId": held["AccessKeyId"],
            "SecretAccessKey": held["SecretAccessKey"],
            "Token": held["SessionToken"],
            "Expiration": held["Expiration"].astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }

    def _assumed(self) -> dict[str, Any]:
        try:
            answer = self._sts.assume_role(
                RoleArn=self._role_arn, RoleSessionName=self._session_name, DurationSeconds=SESSION_S
            )
        except (BotoCoreError, ClientError) as error:
            raise Unavailable(f"{self._role_arn} cannot be assumed at the local account: {error}") from error
        held: dict[str, Any] = answer["Credentials"]
        return held


class _Server(ThreadingHTTPServer):
    """Listens on 127.0.0.1 only, which every SDK accepts as a host of credentials."""

    daemon_threads = True

    def __init__(self, credentials: ContainerCredentials) -> None:
        self.credentials = credentials
        self.token = secrets.token_urlsafe(30)
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    timeout = 10
    """Seconds that a caller may take for its request."""

    def do_GET(self) -> None:
        sent = self.headers.get("Authorization", "")
        if not hmac.compare_digest(sent.encode("utf-8", "replace"), self.server.token.encode()):
            self._answer(HTTPStatus.FORBIDDEN, {"code": "AccessDenied", "message": "The Authorization token is wrong."})
        elif self.path != PATH:
            self._answer(HTTPStatus.NOT_FOUND, {"code": "NotFound", "message": f"Credentials are at {PATH}."})
        else:
            try:
                self._answer(HTTPStatus.OK, self.server.credentials.document(datetime.now(UTC)))
            except Unavailable as error:
                self._answer(HTTPStatus.BAD_GATEWAY, {"code": "Unavailable", "message": str(error)})

    def _answer(self, status: HTTPStatus, document: Mapping[str, str]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        """Logs nothing: the account notes the calls that are made with the credentials."""
