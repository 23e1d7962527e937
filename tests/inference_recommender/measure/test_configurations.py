"""Which configurations a run tests, and how more than ten tests become several jobs."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aws_api.service_model import validation_error
from inference_recommender.measure.job import candidates_of
from inference_recommender.measure.job_requests import configurations_of, plan_default_job, plan_job
from inference_recommender.measure.tested_model import MOST_TESTS, Configuration, split_into_jobs
from inference_recommender.measurement import DeployedEndpoint, Measurement
from inference_recommender.run_folder import Jobs, RunFolder
from tests.conftest import EditToml
from tests.inference_recommender.measure.test_tested_model import PACKAGE, TESTED
from workloads import UsageError, WorkloadFolder, load_workload
from workloads.errors import InvalidDocument

RANGES = '[recommender.environment]\nTHREADS = ["1", "2", "4"]\nPOOL = ["0", "1"]\n\n[hosting]'


@pytest.fixture
def ranged(edit_toml: EditToml) -> WorkloadFolder:
    return load_workload("spellcheck", edit_toml("[hosting]", RANGES))


def test_environment_parameters_are_the_ranges_of_every_instance_type(ranged: WorkloadFolder) -> None:
    plan = plan_job(ranged.workload, "quick", ranged.traffic("quick"), TESTED, "job-1")
    (request,) = plan.requests
    (endpoint,) = request["InputConfig"]["EndpointConfigurations"]
    assert endpoint["EnvironmentParameterRanges"]["CategoricalParameterRanges"] == [
        {"Name": "THREADS", "Value": ["1", "2", "4"]},
        {"Name": "POOL", "Value": ["0", "1"]},
    ]
    assert request["InputConfig"]["ResourceLimit"] == {"MaxNumberOfTests": 6, "MaxParallelOfTests": 3}
    assert validation_error("sagemaker", "CreateInferenceRecommendationsJob", request) is None


def test_a_default_job_takes_no_ranges_and_says_so(ranged: WorkloadFolder) -> None:
    plan = plan_default_job(ranged.workload, PACKAGE, "job-1")
    assert plan.warnings == (
        "recommender.environment is left out: a default job tunes what it knows to tune, and takes no ranges.",
    )
    assert plan.request["JobType"] == "Default"
    assert set(plan.request["InputConfig"]) == {"ModelPackageVersionArn", "ContainerConfig"}
    assert plan.request["InputConfig"]["ContainerConfig"]["SupportedInstanceTypes"] == ["ml.c5.xlarge"]
    assert validation_error("sagemaker", "CreateInferenceRecommendationsJob", plan.request) is None


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            'THREADS = ["1", "2", "3", "4"]',
            'recommender.environment.THREADS: got ["1", "2", "3", "4"]. Tuple should have at most 3 items after '
            "validation, not 4.",
        ),
        (
            "THREADS = []",
            "recommender.environment.THREADS: got []. Tuple should have at least 1 item after validation, not 0.",
        ),
        ("THREADS = [1]", "recommender.environment.THREADS.0: got 1. Input should be a valid string."),
    ],
)
def test_a_parameter_that_the_service_would_refuse_is_refused_by_file_and_key(
    edit_toml: EditToml, table: str, told: str
) -> None:
    workloads = edit_toml("[hosting]", f"[recommender.environment]\n{table}\n\n[hosting]")
    with pytest.raises(InvalidDocument) as caught:
        load_workload("spellcheck", workloads)
    assert caught.value.problems[0] == told
    assert str(caught.value).startswith(f"{workloads / 'spellcheck' / 'workload.toml'}: {told}")


def test_more_than_five_parameters_are_refused(edit_toml: EditToml) -> None:
    table = "\n".join(f'P{number} = ["1"]' for number in range(6))
    with pytest.raises(InvalidDocument, match=r"recommender\.environment: got .* at most 5 items"):
        load_workload("spellcheck", edit_toml("[hosting]", f"[recommender.environment]\n{table}\n\n[hosting]"))


def test_more_than_ten_tests_are_several_jobs_of_one_run(spellcheck: WorkloadFolder) -> None:
    many = [Configuration(instance_type="ml.c5.xlarge", environment={"N": (str(n),)}) for n in range(23)]
    plan = plan_job(spellcheck.workload, "quick", spellcheck.traffic("quick"), TESTED, "job", configurations=many)
    assert [request["JobName"] for request in plan.requests] == ["job-1", "job-2", "job-3"]
    assert [len(request["InputConfig"]["EndpointConfigurations"]) for request in plan.requests] == [10, 10, 3]
    assert "23 tests are more than the 10 of one job: they are 3 jobs, one after another." in plan.warnings
    for request in plan.requests:
        assert validation_error("sagemaker", "CreateInferenceRecommendationsJob", request) is None


CONFIGURATIONS = st.builds(
    Configuration,
    instance_type=st.sampled_from(["ml.c5.xlarge", "ml.m5.large"]),
    environment=st.dictionaries(
        st.sampled_from("ABCDE"),
        st.lists(st.sampled_from("123"), min_size=1, max_size=3, unique=True).map(tuple),
        max_size=4,
    ),
)


@given(st.lists(CONFIGURATIONS, min_size=1, max_size=8))
def test_dealing_loses_no_test_repeats_none_and_overfills_no_job(configurations: list[Configuration]) -> None:
    jobs = split_into_jobs(configurations)
    assert all(1 <= sum(one.tests for one in job) <= MOST_TESTS for job in jobs)
    assert all(len(values) <= 3 for job in jobs for one in job for values in one.environment.values())
    asked = [(part.instance_type, dict(part.environment)) for one in configurations for part in one.split()]
    given_out = [(part.instance_type, dict(part.environment)) for job in jobs for one in job for part in one.split()]
    assert given_out == asked


def test_without_parameters_every_instance_type_is_one_test(spellcheck: WorkloadFolder) -> None:
    assert configurations_of(spellcheck.workload) == (Configuration(instance_type="ml.c5.xlarge"),)


def _default_run(path: Path, folder: WorkloadFolder, *measured: Measurement, kind: str = "Default") -> RunFolder:
    run = RunFolder(path)
    run.keep_workload(folder.workload)
    deployed = DeployedEndpoint(name="lives", variant_name="v", instance_type="ml.m5.large", instance_count=1)
    jobs = Jobs(token="t", names=("job-1",), expected_s=1, payload_url="s3://b/k", deployed=deployed)
    run.keep_jobs(jobs, ({"JobType": kind, "InputConfig": {}},))
    run.keep_measurements(measured)
    return run


def _measured(name: str, rate: float | None, reason: str | None = None, **environment: str) -> Measurement:
    return Measurement(
        instance_type="ml.c5.xlarge",
        endpoint_name=name,
        environment=environment,
        max_invocations_per_minute=rate,
        model_latency_ms=1.0,
        failure_reason=reason,
    )


def test_a_default_runs_candidates_are_what_it_found_with_its_environment_the_best_first(
    tmp_path: Path, spellcheck: WorkloadFolder
) -> None:
    run = _default_run(
        tmp_path,
        spellcheck,
        _measured("lives", 900.0),
        _measured("a", 100.0, THREADS="1"),
        _measured("b", 200.0, THREADS="2"),
        _measured("c", 150.0, THREADS="2"),
        _measured("d", None),
        _measured("e", 300.0, reason="It failed."),
    )
    assert candidates_of(run, "spellcheck") == (
        Configuration(instance_type="ml.c5.xlarge", environment={"THREADS": ("2",)}),
        Configuration(instance_type="ml.c5.xlarge", environment={"THREADS": ("1",)}),
    )


def test_a_run_that_can_feed_no_advanced_job_is_refused(tmp_path: Path, spellcheck: WorkloadFolder) -> None:
    for number, (run, workload, why) in enumerate(
        [
            (
                _default_run(tmp_path / "0", spellcheck, kind="Advanced"),
                "spellcheck",
                "is not the run of a default job.",
            ),
            (_default_run(tmp_path / "1", spellcheck), "duplicates", "measured spellcheck, not duplicates."),
            (_default_run(tmp_path / "2", spellcheck), "spellcheck", "found no capacity for any instance type."),
        ]
    ):
        with pytest.raises(UsageError) as caught:
            candidates_of(run, workload)
        assert str(caught.value) == f"--from-default: {tmp_path / str(number)} {why}"


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("spellcheck", "TEXT_GENERATION"),
        ("text_classification", "CLASSIFICATION"),
        ("duplicates", "REGRESSION"),
        ("question_answering", "OTHER"),
    ],
)
def test_every_task_has_the_services_word(name: str, task: str) -> None:
    workload = load_workload(name).workload
    cpu = workload.model_copy(update={"hosting": load_workload("spellcheck").hosted_on("cpu").workload.hosting})
    bare = cpu.targets["cpu"].model_copy(update={"instance_types": ("ml.c5.xlarge",)})
    request = plan_default_job(
        cpu.model_copy(update={"targets": {**cpu.targets, "cpu": bare}}), TESTED, "job-1"
    ).request
    assert request["InputConfig"]["ContainerConfig"]["Task"] == task
