"""A container that answers SageMaker's two routes itself is asked them, and is told what SageMaker passes on."""

import pytest

from local_aws.process.container_contract import BINARY, ContainerContract, Refused, read_answer

KEY = "secret"
OWN, TRITON = ContainerContract(None, KEY), ContainerContract("intent", KEY)


def head(content_type: str, length: int) -> bytes:
    return (
        f"POST /{KEY}/invocations HTTP/1.1\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\r\n".encode()
    )


def test_its_own_routes_are_asked_with_the_callers_content_type() -> None:
    asked = OWN.read(head(f"{BINARY}7", 20)).message_head.decode()
    assert asked.splitlines()[0] == "POST /invocations HTTP/1.1"
    assert f"Content-Type: {BINARY}7" in asked
    assert "Inference-Header" not in asked
    assert [ready.split(b"\r\n")[0] for ready in OWN.ready_heads] == [b"GET /ping HTTP/1.1"]
    with pytest.raises(Refused) as refused:
        OWN.read(f"GET /{KEY}/statistics HTTP/1.1\r\n\r\n".encode())
    assert refused.value.answer.startswith(b"HTTP/1.1 400 "), "only Triton has counters"


def test_its_answers_keep_their_form_and_status() -> None:
    answer = f"HTTP/1.1 200 OK\r\nContent-Type: {BINARY}5\r\nContent-Length: 9\r\n\r\n".encode()
    assert f"Content-Type: {BINARY}5\r\n".encode() in read_answer(answer).head
    failed = read_answer(b"HTTP/1.1 500 Error\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n")
    assert OWN.told(failed, b"{}").startswith(b"HTTP/1.1 500 ")
    assert TRITON.told(failed, b"{}").startswith(b"HTTP/1.1 400 ")
