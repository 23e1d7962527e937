"""The load generator against an endpoint by name: signed requests, through the account's runtime, to a real Triton."""

from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from inference_recommender.kserve import content_type
from inference_recommender.load_generator.load_plan import Arrivals, LoadPlan, NamedEndpoint
from inference_recommender.load_generator.process import generate
from inference_recommender.payloads import header_size
from inference_recommender.payloads import payload_archive as payloads_in_form
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import Endpoints, payload_archive
from tests.quick_triton import start_triton, statistics
from workloads import LatencyObjective

pytestmark = pytest.mark.integration


ARRIVALS = Arrivals(invocations_per_minute=600, duration_in_seconds=2, connections=4)
BINARY = LatencyObjective(
    percentile="P99",
    model_latency_ms=50,
    peak_invocations_per_minute=600,
    rows_per_invocation=2,
    payload_format="binary",
)


def check(plan: LoadPlan, folder: Path) -> None:
    outcome = generate(plan, folder)
    assert outcome.summary is not None
    assert outcome.summary["invocations"] > 0
    assert (outcome.summary["errors"], outcome.summary["first_error"]) == (0, None)


@pytest.fixture(params=["json", "binary of two rows"])
def payloads(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """Returns the members of a plan that are about its requests."""
    rows = [{"text": "a" * length} for length in (1, 200, 40)]
    binary = request.param != "json"
    file = tmp_path / "payloads.tar.gz"
    file.write_bytes(payloads_in_form(rows, BINARY) if binary else payload_archive())
    size = header_size(["text"], BINARY) if binary else None
    return {"payloads": file, "content_type": content_type(size), "arrivals": ARRIVALS}


def test_an_endpoint_is_measured_by_its_name(
    endpoints: Endpoints,
    account: LocalAccount,
    payloads: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    form = "json" if payloads["content_type"] == content_type(None) else "binary"
    name = endpoints.create(f"measured-{form}", config=endpoints.config(f"measured-{form}-1"))
    endpoints.settled(name)
    for variable, value in account.environment.items():
        monkeypatch.setenv(variable, value)
    check(LoadPlan(endpoint=NamedEndpoint(name=name), **payloads), tmp_path / "out")


def test_a_triton_is_measured_by_its_url(echo_repository: Path, payloads: dict[str, Any], tmp_path: Path) -> None:
    log = tmp_path / "triton.log"
    with start_triton(echo_repository, default_model="echo", environment={}, log_file=log) as server:
        socket = quote(str(server.socket), safe="")
        check(LoadPlan(url=f"http+unix://{socket}/v2/models/echo/infer", **payloads), tmp_path / "out")
        if payloads["content_type"] != content_type(None):
            counted = statistics(server, "echo")["inference_stats"]
            assert not counted["fail"]["count"]
            assert statistics(server, "echo")["inference_count"] == 2 * counted["success"]["count"] > 0, "two rows each"
