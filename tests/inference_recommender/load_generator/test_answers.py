"""Answers of status 200 that are no inference: a sample is read, and a run of them has no verdict."""

from dataclasses import replace

import pytest

from inference_recommender.load_generator.http_answer import ONE_IN, not_kserve
from inference_recommender.load_generator.records import UNREADABLE
from tests.inference_recommender.load_generator.virtual_run import (
    BODIES,
    VirtualRun,
    drive,
    outgoing_of,
    plan_of,
    users,
)
from tests.inference_recommender.server import INFERENCE
from tests.virtual_time import Serve, answering, http_answer

HTML = b"<html>error</html>"
BINARY = b'{"outputs":[{"name":"A","datatype":"FP32","shape":[1],"parameters":{"binary_data_size":4}}]}'


def _drive(serve: Serve, seconds: int = 4) -> VirtualRun:
    traffic = users((4, seconds))
    return drive(traffic, serve, outgoing=replace(outgoing_of(plan_of(traffic)), complaint=not_kserve))


def test_one_payload_with_an_invalid_answer_is_too_many_errors() -> None:
    virtual = _drive(answering(0.01, lambda body: (200, HTML if body == BODIES[3] else INFERENCE)))
    rows = virtual.run.log.requests()
    assert virtual.ended == "traffic ended"
    assert rows.errors == pytest.approx(len(rows.succeeded) / len(BODIES), abs=3), "each answer to it, not the first"
    assert virtual.run.log.first_error == (
        "the answer to payload 3 is no KServe v2 response: <html>error</html> "
        "(Expecting value: line 1 column 1 (char 0))"
    )


def test_a_server_that_begins_to_answer_with_a_page_fails_after_a_sample() -> None:
    answers = [0]

    def answer(body: bytes) -> tuple[int, bytes]:
        answers[0] += 1
        return 200, INFERENCE if answers[0] <= 1500 else HTML

    virtual = _drive(answering(0.005, answer), seconds=60)
    assert virtual.ended.startswith("target failed: the answer to payload ")
    assert len(virtual.run.log.requests().successful_ms) == pytest.approx(2 * ONE_IN, abs=5)


def test_valid_answers_in_every_form_are_no_error() -> None:
    def serve(request: object, peer: object) -> None:
        assert hasattr(peer, "send")
        forms = (
            http_answer(INFERENCE),
            http_answer(BINARY + bytes(4), 200, f"Inference-Header-Content-Length: {len(BINARY)}"),
            http_answer(
                BINARY + bytes(4),
                200,
                f"Content-Type: application/vnd.sagemaker-triton.binary+json;json-header-size={len(BINARY)}",
            ),
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(INFERENCE), INFERENCE),
        )
        turn[0] += 1
        peer.send(forms[turn[0] % len(forms)], after_s=0.01)

    turn = [0]
    virtual = _drive(serve)
    assert (virtual.ended, virtual.run.log.requests().errors) == ("traffic ended", 0)


@pytest.mark.parametrize("page", [HTML, b'{"error":"no model"}', b'{"outputs":[]}', b"{}", b"", b"<" * 5000])
def test_a_server_that_answers_200_without_an_inference_has_failed(page: bytes) -> None:
    virtual = _drive(answering(0.01, lambda body: (200, page)))
    shown = page.decode()[:100] or "it is empty"
    assert f" is no KServe v2 response: {shown}" in virtual.ended
    assert virtual.ended.startswith("target failed: the answer to payload ")
    assert len(virtual.ended) < 300
    assert set(virtual.run.log.requests().status) == {UNREADABLE}
