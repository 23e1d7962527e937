"""Lint finds the requests that an endpoint would answer with an error."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_build.lint.check import lint
from model_build.lint.finding import Finding
from model_build.lint.model_config import parse
from model_build.lint.payloads import check_body
from tests.model_build.lint.good_archives import ON_CPU, SCORING, write
from tests.model_build.lint.requests_to_scoring import BAD_REQUESTS, GOOD_REQUESTS, TENSOR, body
from workloads import UsageError

Check = Callable[[str, bytes], list[Finding]]


@pytest.fixture
def scoring(tmp_path: Path) -> Check:
    """Lints the good miniature with one payload file."""
    archive = write(SCORING, tmp_path)

    def check(name: str, content: bytes) -> list[Finding]:
        file = tmp_path / name
        file.write_bytes(content)
        return lint(archive, dataclasses.replace(ON_CPU, payloads=(file,)))

    return check


@pytest.mark.parametrize("request_body", GOOD_REQUESTS.values(), ids=GOOD_REQUESTS)
def test_a_request_that_fits_has_no_findings(scoring: Check, request_body: bytes) -> None:
    assert scoring("payload.json", request_body) == []


@pytest.mark.parametrize(("code", "request_body"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_request_that_does_not_fit_is_found(scoring: Check, code: str, request_body: bytes) -> None:
    findings = scoring("payload.json", request_body)
    assert [(finding.severity, finding.code, finding.where) for finding in findings] == [
        ("error", code, "payload.json")
    ]


def test_rows_are_checked_as_the_requests_they_become(scoring: Check) -> None:
    assert scoring("payloads.jsonl", b'{"text": "hello"}\n\n{"text": "you"}\n') == []
    wrong = scoring("payloads.jsonl", b'{"text": "hello"}\n{"query": "a"}\n{"text": "b"}\n{"query": "c"}\n')
    assert [(finding.where, finding.what) for finding in wrong] == [
        (
            "payloads.jsonl:2",
            "The request has the input 'QUERY', which 'pipeline' does not have. 2 lines have this problem.",
        ),
        ("payloads.jsonl:2", "The request lacks the input 'TEXT' of 'pipeline'. 2 lines have this problem."),
    ]


def test_a_body_above_the_services_limit_is_found(scoring: Check) -> None:
    room = 6_291_456 - len(body({**TENSOR, "data": [""]}))
    assert scoring("payload.json", body({**TENSOR, "data": ["a" * room]})) == []
    too_large = scoring("payload.json", body({**TENSOR, "data": ["a" * (room + 1)]}))
    assert [(finding.code, finding.what) for finding in too_large] == [
        ("payload-too-large", "The request has 6,291,457 bytes.")
    ]


def test_a_payload_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refusal:
        lint(write(SCORING, tmp_path), dataclasses.replace(ON_CPU, payloads=(tmp_path / "gone.jsonl",)))
    assert str(refusal.value) == (
        f"{tmp_path}/gone.jsonl: cannot be read: No such file or directory. Allowed: a .jsonl file with one request "
        "per line, or a file that is one request body in KServe v2 JSON."
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["inputs", "name", "shape", "datatype", "data", "TEXT"]), inner)
        ),
    )
)
def test_no_json_is_a_traceback(document: object) -> None:
    config = parse(SCORING["tokenise/config.pbtxt"])  # type: ignore[arg-type]
    for request in (
        document,
        {"inputs": document},
        {"inputs": [document]},
        {"inputs": [{**TENSOR, "shape": document}]},
    ):
        check_body(json.dumps(request).encode(), "tokenise", config)
