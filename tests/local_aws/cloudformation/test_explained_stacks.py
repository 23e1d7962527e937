"""`stacks explain` and `jobs explain` against endpoints and jobs of the local account that do not start."""

from collections.abc import Callable
from typing import Any

import pytest

from inference_recommender.__main__ import main as recommender
from local_aws import machine
from stacks.__main__ import main
from tests.inference_recommender.conftest import Cli
from tests.local_aws.cloudformation.test_local_stacks import template
from tests.local_aws.conftest import Endpoints, Stacks
from tests.local_aws.sagemaker.test_recommendation_jobs import ended, request
from workloads.program import exit_code

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("account_variables")]
Command = Callable[..., dict[str, Any]]


@pytest.fixture
def explained(capsys: pytest.CaptureFixture[str]) -> Command:
    """Runs `stacks explain NAME --json`."""
    return lambda name: Cli(capsys, main).json("explain", name, "--json")


def test_an_endpoint_whose_model_does_not_load_is_explained_by_tritons_line(
    endpoints: Endpoints, capsys: pytest.CaptureFixture[str]
) -> None:
    name = endpoints.create("unloadable", config=endpoints.config("unloadable", BROKEN="1"))
    assert endpoints.settled(name)["EndpointStatus"] == "Failed"
    shown = Cli(capsys, main).out("explain", name)
    assert shown.startswith("endpoint unloadable: Failed\n  reason   Triton could not load the model 'echo' ")
    assert "  cause    Triton could not load a model. The line has the reason.\n" in shown
    (line,) = (line for line in shown.splitlines() if line.startswith("  line     "))
    assert "failed to load 'echo' version 1: Internal: ValueError: this model is broken on purpose" in line
    assert "  read on  aws " in shown


def test_a_rolled_back_stack_is_explained_by_its_endpoint_and_a_good_one_is_not(
    stacks: Stacks, explained: Command
) -> None:
    endpoint = stacks.create("explained", template())["Outputs"][0]["OutputValue"]
    assert explained("explained") == {"name": "stack explained", "status": "CREATE_COMPLETE", "explanations": []}
    assert explained(endpoint)["explanations"] == []
    assert stacks.update("explained", template(BROKEN="1"))["StackStatus"] == "UPDATE_ROLLBACK_COMPLETE"
    found = explained("explained")
    assert (found["name"], found["status"]) == ("stack explained", "UPDATE_ROLLBACK_COMPLETE")
    (explanation,) = found["explanations"]
    assert explanation["subject"] == "Endpoint (AWS::SageMaker::Endpoint) of stack explained"
    assert explanation["cause"] == "Triton could not load a model. The line has the reason."
    assert stacks.update("explained", template("again "))["StackStatus"] == "UPDATE_COMPLETE"
    assert explained("explained")["explanations"] == [], "an older operation's failures do not count"


def test_a_job_that_failed_is_explained(sagemaker: Any, capsys: pytest.CaptureFixture[str]) -> None:
    model = Endpoints(sagemaker).model("explained-job")
    sagemaker.create_inference_recommendations_job(**request("explained-1", model, instance_types=("ml.g5.xlarge",)))
    ended(sagemaker, "explained-1")
    shown = Cli(capsys).out("jobs", "explain", "explained-1")
    assert shown.startswith(f"test on ml.g5.xlarge: FAILED\n  reason   {machine.refusal('ml.g5.xlarge')}\n")


@pytest.mark.parametrize(
    "command", [lambda: main(["explain", "nowhere"]), lambda: recommender(["jobs", "explain", "x"])]
)
def test_an_unknown_name_exits_with_2(command: Callable[[], int], capsys: pytest.CaptureFixture[str]) -> None:
    assert exit_code(command) == 2
    assert "There is n" in capsys.readouterr().err
