"""`jobs list`, `jobs describe` and `jobs stop` against jobs of the local account, and `run --cold-start`."""

from typing import Any

import pytest

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.cli import cold_start
from tests.inference_recommender.conftest import Cli
from tests.inference_recommender.conftest import cli as cli
from tests.local_aws.conftest import Endpoints, wait_until
from tests.local_aws.sagemaker.test_recommendation_jobs import ended, request, steps

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("account_variables")]


@pytest.fixture(scope="module")
def model(sagemaker: Any) -> str:
    return Endpoints(sagemaker).model("commanded", DELAY_S="0.01")


@pytest.fixture(scope="module")
def finished(sagemaker: Any, model: str) -> str:
    """A job with one test that was measured and one that failed."""
    wanted = request("commanded-1", model, instance_types=("ml.c5.xlarge", "ml.g5.xlarge"), seconds=3)
    sagemaker.create_inference_recommendations_job(**wanted)
    ended(sagemaker, "commanded-1")
    return "commanded-1"


def test_describe_shows_a_job_and_each_of_its_tests(finished: str, sagemaker: Any, cli: Cli) -> None:
    shown = cli.out("jobs", "describe", finished)
    assert "job       commanded-1\nkind      Advanced\nstatus    COMPLETED\nmodel     commanded\n" in shown
    assert "traffic   PHASES" in shown
    measured = steps(sagemaker, finished)[0]["InferenceBenchmark"]["Metrics"]["MaxInvocations"]
    assert f"{measured:,}" in shown
    assert "ml.g5.xlarge: ml.g5.xlarge has an NVIDIA GPU" in shown
    assert all(len(line) <= 120 for line in shown.splitlines() if "NVIDIA" not in line)


def test_list_shows_the_newest_first_and_only_the_workloads_own(finished: str, cli: Cli) -> None:
    assert [job["JobName"] for job in cli.json("jobs", "list", "commanded", "--json")] == [finished]
    assert cli.json("jobs", "list", "no_such_workload", "--json") == []
    shown = cli.out("jobs", "list", "--limit", "3")
    assert finished in shown
    assert "COMPLETED" in shown


def test_stop_ends_a_job_and_says_what_it_is_then(sagemaker: Any, model: str, cli: Cli) -> None:
    sagemaker.create_inference_recommendations_job(**request("stopped-1", model, seconds=120))
    wait_until(lambda: steps(sagemaker, "stopped-1")[0]["Status"] == "IN_PROGRESS")
    assert cli.json("jobs", "stop", "stopped-1", "--json") == {"job_name": "stopped-1", "status": "STOPPED"}
    assert cli.out("jobs", "stop", "stopped-1") == "stopped-1: STOPPED\n"


@pytest.mark.parametrize("command", ["describe", "stop"])
def test_a_job_that_is_not_there_is_said_with_where_to_look(command: str, cli: Cli) -> None:
    assert " ".join(cli.err("jobs", command, "unknown-1", code=2).split()) == (
        "There is no Inference Recommender job called 'unknown-1' in us-east-1. List jobs with `python -m "
        "inference_recommender jobs list`."
    )


def test_register_puts_the_model_and_its_payloads_into_the_registry(model: str, sagemaker: Any, cli: Cli) -> None:
    settings = ["--set", f"recommender.model={model}", "--set", "recommender.bucket=registry"]
    arn = cli.json("register", "text_classification", *settings, "--json")["model_package_arn"]
    assert arn.endswith("model-package/text-classification/1")
    described = sagemaker.list_model_packages(ModelPackageGroupName="text-classification")["ModelPackageSummaryList"]
    assert [one["ModelPackageArn"] for one in described] == [arn]


STAGES = ("fetch_s", "unpack_s", "start_s", "load_s", "warm_up_s", "first_answer_s")


def test_the_stages_of_a_real_start_are_all_known_and_sum_to_the_whole(
    endpoints: Endpoints, monkeypatch: pytest.MonkeyPatch, cli: Cli
) -> None:
    """How long they take depends on the machine, and is not asserted."""
    endpoints.settled(endpoints.create("cold", config=endpoints.config("cold-config")))
    monkeypatch.setattr(cold_start, "STARTS", 1)
    monkeypatch.setattr(SageMakerAccount, "endpoint_name", lambda self, stack: "cold")
    measured = cli.json("run", "spellcheck", "--cold-start", "--json")
    assert measured["measured_on"] == "local"
    assert [name for name in STAGES if measured[name] is None] == []
    assert sum(measured[name] for name in STAGES) == pytest.approx(measured["total_s"], abs=0.01), (
        "AWS's times are in ms"
    )
    assert measured["warm_up_s"] == 0.0, "the model has none"

    read = cli.json("run", "spellcheck", "--cold-start", "--endpoint", "cold", "--json")
    assert read["load_s"] is not None
    assert (read["first_answer_s"], read["total_s"]) == (None, None)
