"""Serves the account on every loopback address of `localhost`: moto's dispatcher and the invocations of endpoints."""

import logging
import shlex
import threading
from collections.abc import Callable, Iterable, Mapping
from json import JSONDecodeError
from typing import Any
from xml.parsers.expat import ExpatError

from botocore.model import OperationNotFoundError
from moto.core.parse import RequestParserError
from moto.moto_server import werkzeug_app

from local_aws.account import Account
from local_aws.http_server import LimitedServer, listening_sockets
from local_aws.owner_only import AccountKeys, OwnerOnly, answer
from local_aws.permissions.enforced import EnforcedPermissions
from local_aws.sagemaker.runtime import InvocationMiddleware, max_body_bytes
from local_aws.signature import RequestRefused

UNSET = ("AWS_PROFILE", "AWS_SESSION_TOKEN")
"""Variables that could direct a tool to another account."""
ERROR_CHARACTERS = 1000
"""Length of an unexpected error's text in an answer."""

# moto would allow every web page's origin. It reads MOTO_DISABLE_GLOBAL_CORS into this when it is first imported.
werkzeug_app.DISABLE_GLOBAL_CORS = True  # type: ignore[attr-defined]

log = logging.getLogger(__name__)


def exports(port: int, region: str, keys: AccountKeys) -> dict[str, str]:
    """Returns the environment in which boto3, the AWS CLI and the CDK CLI talk to the account."""
    return {
        # localhost, not 127.0.0.1: with an address moto misreads the S3 URL of a template.
        "AWS_ENDPOINT_URL": f"http://localhost:{port}",
        "AWS_ACCESS_KEY_ID": keys.access_key_id,
        "AWS_SECRET_ACCESS_KEY": keys.secret_access_key,
        "AWS_DEFAULT_REGION": region,
        "AWS_REGION": region,  # the CDK CLI reads this one
        "AWS_EC2_METADATA_DISABLED": "true",  # no tool may wait for a metadata service
    }


def as_shell(values: Mapping[str, str]) -> str:
    exported = (f"export {name}={shlex.quote(value)}" for name, value in values.items())
    return "\n".join([f"unset {' '.join(UNSET)}", *exported])


class AccountServer:
    """Serves an installed account from `start` to `close`."""

    def __init__(self, account: Account, port: int) -> None:
        """Raises `Unavailable` where the port is taken."""
        self.keys = AccountKeys()
        settings = account.settings
        answering = InvocationMiddleware(
            werkzeug_app.DomainDispatcherApplication(werkzeug_app.create_backend_app),
            account.find_endpoint,
            account.metrics,
            settings.account_id,
        )
        enforced = EnforcedPermissions(answering, account.calls, settings.account_id)
        application = OwnerOnly(_ErrorSentences(enforced), self.keys, body_limit=max_body_bytes)
        sockets = listening_sockets(port)
        self.port = int(sockets[0].getsockname()[1])
        self._servers = [LimitedServer(each, application) for each in sockets]
        for each in sockets:
            each.close()  # werkzeug listens on its own copy of the descriptor
        self._threads = [threading.Thread(target=each.serve_forever, daemon=True) for each in self._servers]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def close(self) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()


class _ErrorSentences:
    """Answers errors of moto in one sentence, instead of a page of traceback."""

    def __init__(self, application: Any) -> None:
        self._application = application

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        try:
            return list(self._application(environ, start_response))
        except NotImplementedError as error:
            refused = RequestRefused(501, "NotImplemented", f"This local account cannot do this: {error}.")
        except OperationNotFoundError as error:
            refused = RequestRefused(400, "UnknownOperationException", f"There is no such operation: {error}.")
        except (UnicodeDecodeError, JSONDecodeError, ExpatError, RequestParserError, RecursionError) as error:
            refused = RequestRefused(400, "SerializationException", f"The request's body cannot be read: {error}.")
        except Exception as error:  # 501, because clients repeat a 500, and the same request would fail again
            log.info(f"moto failed: {type(error).__name__}")
            refused = RequestRefused(501, "NotImplemented", _cannot_answer(error))
        log.info(f"{environ.get('HTTP_X_AMZ_TARGET') or environ.get('PATH_INFO')}: {refused.message}")
        return answer(refused, environ, start_response)


def _cannot_answer(error: Exception) -> str:
    reason = f"there is no {error}" if isinstance(error, KeyError) else str(error) or "no reason is known"
    return (
        f"This local account cannot answer this request: {reason[:ERROR_CHARACTERS]}. Check its parameters. If they "
        "are correct, moto, which answers for AWS here, does not support them."
    )
