"""The cold start of an endpoint on the local account, measured by the command itself with a real Triton."""

import json

import pytest

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.__main__ import main
from inference_recommender.cli import cold_start
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import Endpoints

pytestmark = pytest.mark.integration

STAGES = ("fetch_s", "unpack_s", "start_s", "load_s", "warm_up_s", "first_answer_s")


def test_the_stages_of_a_real_start_are_all_known_and_sum_to_the_whole(
    endpoints: Endpoints, account: LocalAccount, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """How long they take depends on the machine, and is not asserted."""
    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)
    endpoints.settled(endpoints.create("cold", config=endpoints.config("cold-config")))
    monkeypatch.setattr(cold_start, "STARTS", 1)
    monkeypatch.setattr(SageMakerAccount, "endpoint_name", lambda self, stack: "cold")
    assert main(["run", "spellcheck", "--cold-start", "--json"]) == 0
    measured = json.loads(capsys.readouterr().out)
    assert measured["measured_on"] == "local"
    assert [name for name in STAGES if measured[name] is None] == []
    assert sum(measured[name] for name in STAGES) == pytest.approx(measured["total_s"], abs=0.01), (
        "AWS's times are in ms"
    )
    assert measured["warm_up_s"] == 0.0, "the model has none"

    assert main(["run", "spellcheck", "--cold-start", "--endpoint", "cold", "--json"]) == 0
    read = json.loads(capsys.readouterr().out)
    assert read["load_s"] is not None
    assert (read["first_answer_s"], read["total_s"]) == (None, None)
