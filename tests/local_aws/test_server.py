"""The account answers a failure of moto in a sentence, without a Python class and with no status to repeat."""

from typing import Any

import pytest
from moto.core.parse import RequestParserError

from local_aws.server import error_sentences
from tests.local_aws.wsgi_calls import ask, environ_of

CHECK = " Check its parameters. If they are correct, moto, which answers for AWS here, does not support them."


@pytest.mark.parametrize(
    ("error", "status", "code", "message"),
    [
        (NotImplementedError("StartBuild"), 501, "NotImplemented", "This local account cannot do this: StartBuild."),
        (
            RequestParserError("Unknown tag: T"),
            400,
            "SerializationException",
            "The request's body cannot be read: Unknown tag: T.",
        ),
        (
            TypeError("expected string or bytes-like object, got 'dict'"),
            501,
            "NotImplemented",
            "This local account cannot answer this request: expected string or bytes-like object, got 'dict'." + CHECK,
        ),
        (
            KeyError("Name"),
            501,
            "NotImplemented",
            "This local account cannot answer this request: there is no 'Name'." + CHECK,
        ),
    ],
)
def test_a_failure_of_moto_is_answered_in_a_sentence(error: Exception, status: int, code: str, message: str) -> None:
    def failing(environ: Any, start_response: Any) -> Any:
        raise error

    answer = ask(error_sentences(failing), environ_of("POST", "/", {"Content-Type": "application/json"}))
    assert (answer.status, answer.headers["x-amzn-errortype"]) == (status, code)
    assert f'"message": "{message}"'.encode() in answer.body
