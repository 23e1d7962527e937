"""A real Triton refuses what lint calls an error, and answers what lint lets pass."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from local_aws.process.triton import TritonServer
from tests.model_build.lint.broken_archives import FAULTS, Fault
from tests.model_build.lint.good_archives import ENVIRONMENT, SCORING, lay_out
from tests.model_build.lint.requests_to_scoring import BAD_REQUESTS, GOOD_REQUESTS
from workloads import Unavailable

pytestmark = [pytest.mark.slow, pytest.mark.integration]


@pytest.fixture(scope="module")
def triton(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TritonServer]:
    folder = tmp_path_factory.mktemp("good")
    with TritonServer.start(
        lay_out(SCORING, folder / "repository"),
        default_model="pipeline",
        environment=ENVIRONMENT,
        log_file=folder / "triton.log",
    ) as server:
        yield server


def status(server: TritonServer, request_body: bytes) -> int:
    return server.invoke(request_body, {}).status


def test_triton_answers_the_requests_that_lint_lets_pass_and_refuses_the_others(triton: TritonServer) -> None:
    assert {name: status(triton, request) for name, request in GOOD_REQUESTS.items()} == dict.fromkeys(
        GOOD_REQUESTS, 200
    )
    refused = {name: status(triton, request) for name, (_, request) in BAD_REQUESTS.items()}
    assert {name: code for name, code in refused.items() if code < 400} == {}


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault.triton_rejects], ids=lambda fault: fault.name)
def test_triton_refuses_what_lint_calls_an_error(fault: Fault, tmp_path: Path) -> None:
    default = fault.context.environment or {}
    with (
        pytest.raises(Unavailable),
        TritonServer.start(
            lay_out(fault.tree, tmp_path / "repository"),
            default_model=default["SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"],
            environment=ENVIRONMENT,
            log_file=tmp_path / "triton.log",
        ),
    ):
        pass
