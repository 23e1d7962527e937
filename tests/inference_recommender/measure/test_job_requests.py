"""The job's request: built purely, valid by botocore's own model, with the documented limits as warnings."""

import json
import re
from typing import Any

import botocore.session
import pytest
from botocore.validate import ParamValidator

from inference_recommender.measure.job_requests import (
    SERVICE_DEFAULT,
    JobPlan,
    plan_default_job,
    plan_job,
    stopping_conditions,
    undocumented,
)
from inference_recommender.measure.tested_model import Configuration, TestedModel
from workloads import PhasedTraffic, StairTraffic, UsageError, WorkloadFolder

TESTED = TestedModel(
    model_name="spellcheck-model",
    role_arn="arn:aws:iam::123456789012:role/recommender",
    payload_url="s3://sagemaker-us-east-1-123456789012/inference-recommender/spellcheck/payloads.tar.gz",
)


def _plan(folder: WorkloadFolder, traffic: str = "production") -> JobPlan:
    return plan_job(folder.workload, traffic, folder.traffic(traffic), TESTED, "spellcheck-production-1")


def _complaints(request: dict[str, Any]) -> str:
    service = botocore.session.get_session().get_service_model("sagemaker")
    shape = service.operation_model("CreateInferenceRecommendationsJob").input_shape
    assert shape is not None
    return str(ParamValidator().validate(request, shape).generate_report())


@pytest.mark.parametrize("traffic", ["production", "quick"])
def test_botocore_accepts_the_request(spellcheck: WorkloadFolder, traffic: str) -> None:
    assert _complaints(_plan(spellcheck, traffic).request) == ""


def test_botocore_accepts_stairs(spellcheck: WorkloadFolder) -> None:
    stairs = StairTraffic(type="stairs", users_per_step=2, steps=5, duration_s=600)
    plan = plan_job(spellcheck.workload, "stairs", stairs, TESTED, "spellcheck-stairs-1")
    assert _complaints(plan.request) == ""
    assert plan.request["InputConfig"]["TrafficPattern"] == {
        "TrafficType": "STAIRS",
        "Stairs": {"DurationInSeconds": 600, "NumberOfSteps": 5, "UsersPerStep": 2},
    }
    assert plan.request["InputConfig"]["JobDurationInSeconds"] == 5 * 600 + 7200, "whichever it is the duration of"


def test_the_request_says_what_the_workload_says(spellcheck: WorkloadFolder) -> None:
    request = _plan(spellcheck).request
    config = request["InputConfig"]
    assert request["JobType"] == "Advanced"
    assert config["ModelName"] == TESTED.model_name
    assert config["ContainerConfig"]["PayloadConfig"]["SamplePayloadUrl"] == TESTED.payload_url
    assert [one["InstanceType"] for one in config["EndpointConfigurations"]] == ["ml.c5.xlarge"]
    assert config["TrafficPattern"]["Phases"][0] == {
        "InitialNumberOfUsers": 1,
        "SpawnRate": 1,
        "DurationInSeconds": 600,
    }
    assert config["JobDurationInSeconds"] == 1800 + 7200
    assert request["StoppingConditions"] == {
        "MaxInvocations": 30_000,
        "ModelLatencyThresholds": [{"Percentile": "P95", "ValueInMilliseconds": 50}],
        "FlatInvocations": "Stop",
    }


def test_the_same_workload_gives_the_same_request(spellcheck: WorkloadFolder) -> None:
    assert json.dumps(_plan(spellcheck).request) == json.dumps(_plan(spellcheck).request)


def test_an_objective_between_milliseconds_is_rounded_up(spellcheck: WorkloadFolder) -> None:
    objective = spellcheck.workload.latency_objective.model_copy(update={"model_latency_ms": 9.2})
    threshold = stopping_conditions(spellcheck.traffic("quick"), objective, "P95")["ModelLatencyThresholds"][0]
    assert threshold["ValueInMilliseconds"] == 10


@pytest.mark.parametrize("percentile", ["P50", "P95", "P99", "P99.9"])
def test_an_advanced_job_sends_p95_whatever_the_objective(spellcheck: WorkloadFolder, percentile: str) -> None:
    """The API's reference: "For custom load tests, specify the value as P95"."""
    objective = spellcheck.workload.latency_objective.model_copy(update={"percentile": percentile})
    workload = spellcheck.workload.model_copy(update={"objective": objective})
    plan = plan_job(workload, "quick", spellcheck.traffic("quick"), TESTED, "job-1")
    assert plan.request["StoppingConditions"]["ModelLatencyThresholds"][0]["Percentile"] == "P95"


@pytest.mark.parametrize(("asked", "tests", "parallel"), [(None, 6, 3), (1, 6, 1), (9, 6, 6), (None, 2, 2)])
def test_three_tests_run_at_once_or_as_many_as_are_asked_for(
    spellcheck: WorkloadFolder, asked: int | None, tests: int, parallel: int
) -> None:
    chosen = [Configuration(instance_type="ml.c5.xlarge", environment={"N": (str(n),)}) for n in range(tests)]
    plan = plan_job(
        spellcheck.workload, "quick", spellcheck.traffic("quick"), TESTED, "job-1", None, chosen, parallel_tests=asked
    )
    limit = plan.request["InputConfig"]["ResourceLimit"]
    assert limit == {"MaxNumberOfTests": tests, "MaxParallelOfTests": parallel}


@pytest.mark.parametrize("asked", [0, 11])
def test_so_many_tests_at_once_are_refused(spellcheck: WorkloadFolder, asked: int) -> None:
    with pytest.raises(UsageError) as caught:
        plan_job(spellcheck.workload, "quick", spellcheck.traffic("quick"), TESTED, "job-1", parallel_tests=asked)
    assert str(caught.value) == f"--parallel-tests: got {asked}. Allowed: 1 to 10."


def test_the_production_profile_keeps_the_documented_traffic_and_the_quick_one_says_where_it_is_steeper(
    spellcheck: WorkloadFolder,
) -> None:
    assert _plan(spellcheck).undocumented == ()
    plan = _plan(spellcheck, "quick")
    assert "traffic.quick.phases.0.duration_s is 20; the service documents 120 to 3600." in plan.undocumented
    assert "MaxInvocations" not in plan.request["StoppingConditions"]


def test_a_profile_cannot_have_the_name_of_a_default_jobs_traffic(spellcheck: WorkloadFolder) -> None:
    traffic = {SERVICE_DEFAULT: spellcheck.traffic("quick")}
    workload = spellcheck.workload.model_copy(update={"traffic": traffic})
    told = (
        "workloads/spellcheck/workload.toml: traffic.service-default: is what the traffic of a default job is called. "
        "Choose another name."
    )
    with pytest.raises(UsageError, match=re.escape(told)):
        plan_default_job(workload, TESTED, "job-1")
    with pytest.raises(UsageError, match=re.escape(told)):
        plan_job(workload, SERVICE_DEFAULT, traffic[SERVICE_DEFAULT], TESTED, "job-1")


def test_a_local_account_has_no_limits_and_aws_is_warned_of_in_one_line(spellcheck: WorkloadFolder) -> None:
    plan = _plan(spellcheck, "quick")
    assert plan.warnings_for(local=True) == ()
    (line,) = plan.warnings_for(local=False)
    assert line == " ".join(plan.undocumented)
    assert len(plan.undocumented) > 1


def test_every_documented_limit_is_watched() -> None:
    traffic = PhasedTraffic.model_validate(
        {"type": "phases", "phases": ({"initial_users": 4, "spawn_rate_per_minute": 9, "duration_s": 5_000},)}
    )
    assert undocumented("wild", traffic) == (
        "traffic.wild.phases.0.initial_users is 4; the service documents 1 to 3.",
        "traffic.wild.phases.0.spawn_rate_per_minute is 9; the service documents 0 to 3.",
        "traffic.wild.phases.0.duration_s is 5000; the service documents 120 to 3600.",
    )


@pytest.mark.parametrize("kind", ["default", "advanced"])
def test_a_job_on_hosts_with_too_old_a_driver_is_refused_with_what_measures_them(
    spellcheck: WorkloadFolder, kind: str
) -> None:
    """A variant can choose its AMI, and a job cannot: its container would wait, without a log, until it failed."""
    types = ("ml.g5.xlarge", "ml.c5.xlarge", "ml.g4dn.xlarge")
    targets = spellcheck.workload.targets
    cpu = targets["cpu"].model_copy(update={"instance_types": types})
    workload = spellcheck.workload.model_copy(update={"targets": {**targets, "cpu": cpu}})
    plan = (
        plan_default_job(workload, TESTED, "job-1")
        if kind == "default"
        else plan_job(workload, "quick", spellcheck.traffic("quick"), TESTED, "job-1")
    )
    plan.refuse_old_drivers("measure", local=True)
    with pytest.raises(UsageError) as caught:
        plan.refuse_old_drivers("measure", local=False)
    assert str(caught.value) == (
        "ml.g5.xlarge, ml.g4dn.xlarge: hosts of these types start with NVIDIA driver 470, on which no Triton image we "
        "know starts, and a job of Inference Recommender cannot choose another (InferenceAmiVersion). Measure on an "
        "endpoint that does: `measure`."
    )
    _plan(spellcheck).refuse_old_drivers("measure", local=False)
