"""A release takes the workloads on Inferentia through, by its own scripts, on the stand-in for the chip.

A build by a processing job, the lint of the Neuron layout, the recording on the chip, the parity gate, and for the
endpoint its deployment, the production client's smoke test and an advanced job. What the roles of a release may do is
not held here: tests of the rehearsal itself do that.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from scripts.rehearsal.release.machine import STAND_INS
from scripts.rehearsal.release.workload_changes import modest
from tests.builders import known
from tests.local_aws.conftest import allow, make_role
from tests.repository_copy import RepositoryCopy, repository_copy
from tests.scripts.rehearsal import releases
from workloads import ROOT, Recommendation

pytestmark = [pytest.mark.slow, pytest.mark.integration]

CHIP = "ml.inf1.xlarge"
ENDPOINT, STACK = ("question_answering", "inf1-data-parallel"), "QuestionAnsweringStack"
SERVICE = "query_intent"
TARGETS = [ENDPOINT, (SERVICE, "inf1"), ("duplicates", "inf1")]
AWS_CLI = ROOT / ".venv-aws-cli/bin/aws"
TRAFFIC = """
[traffic.tiny]
type = "phases"
phases = [{ initial_users = 1, spawn_rate_per_minute = 0, duration_s = 20 }]
stop = { flat_invocations = "Continue" }
"""
SLOW_ENOUGH = ("model_latency_ms = 25.0", "model_latency_ms = 5000.0")
"""An objective that this machine keeps, whatever else it does: the chip's would be a figure of the chip."""


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepositoryCopy]:
    root = tmp_path_factory.mktemp("inferentia") / "repository"
    with repository_copy(root, "scripts.rehearsal.account") as made:
        made.client("s3").create_bucket(Bucket=releases.BUCKET)
        for workload, _ in TARGETS:
            releases.shorten_evaluation(made, workload)
        toml = root / "workloads" / ENDPOINT[0] / "workload.toml"
        toml.write_text(toml.read_text("utf-8").replace(*SLOW_ENOUGH) + TRAFFIC, "utf-8")
        yield made


@pytest.fixture(scope="module")
def role(copy: RepositoryCopy) -> str:
    return make_role(copy.client("iam"), "release", allow("s3:*", "logs:*", "ecr:*"))


@pytest.fixture(scope="module")
def image(copy: RepositoryCopy) -> None:
    releases.leave_image(copy, "inf1")


@pytest.fixture(scope="module", params=TARGETS, ids=lambda target: target[0])
def released(request: pytest.FixtureRequest, copy: RepositoryCopy, role: str, image: None) -> tuple[str, str]:
    """A workload that came through its gates."""
    workload, target = request.param
    releases.build(copy, workload, target, role)
    refused = releases.script(copy, "parity_gate", workload, target, expect=1)
    record = f"python -m model_build verify {workload} --target {target} --outputs FILE"
    assert record in refused, "it was never compared"
    releases.script(copy, "record_on_chip", workload, target, role, releases.BUCKET, CHIP)
    releases.script(copy, "parity_gate", workload, target, "recorded/outputs.json")
    return workload, target


def test_its_artifact_has_the_report_of_every_example(copy: RepositoryCopy, released: tuple[str, str]) -> None:
    workload, target = released
    report = known(releases.parity(copy, workload, target).parity)
    examples = (copy.root / "workloads" / workload / "evaluation.jsonl").read_text("utf-8").splitlines()
    assert report.examples == len(examples)
    assert report.identical_answers >= 0.99 * report.examples
    assert report.compiled.keys() == report.original.keys() != set()


def test_nothing_of_the_recording_is_left_running(copy: RepositoryCopy, released: tuple[str, str]) -> None:
    sagemaker = copy.client("sagemaker")
    names = [endpoint["EndpointName"] for endpoint in sagemaker.list_endpoints()["Endpoints"]]
    assert [name for name in names if "record" in name] == []
    used = f"the chips of {CHIP}: a stand-in for Inferentia, for the unchanged containers/neuron"
    assert used in releases.stand_ins_log(copy)


class TestEndpoint:
    @pytest.fixture(scope="class")
    def deployed(self, copy: RepositoryCopy, released: tuple[str, str]) -> RepositoryCopy:
        if released != ENDPOINT:
            pytest.skip("the service is not behind an endpoint, and no task or batch runs on this machine")
        releases.deploy(copy, STACK, ENDPOINT[1])
        return copy

    def test_the_production_client_is_answered(self, deployed: RepositoryCopy) -> None:
        """It sends the binary form, which the container answered with 400."""
        name = deployed.outputs(STACK)["EndpointName"]
        sagemaker = deployed.client("sagemaker")
        config = sagemaker.describe_endpoint(EndpointName=name)["EndpointConfigName"]
        (variant,) = sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
        assert variant["InstanceType"] == CHIP
        answers = releases.script(deployed, "smoke_test", ENDPOINT[0], name).splitlines()
        assert len(answers) == 3
        assert all(" -> " in answer for answer in answers)

    def test_an_advanced_job_ends_in_a_recommendation_that_says_what_it_measured(
        self, deployed: RepositoryCopy
    ) -> None:
        outputs = deployed.outputs(STACK)
        job = ("--job", "advanced", "--traffic", "tiny", "--set", f"recommender.model={outputs['ModelName']}")
        role = ("--set", f"recommender.role_arn={outputs['RecommenderRoleArn']}")
        command = ("run", ENDPOINT[0], *job, *role, "--json")
        stdout = deployed.measure("python", "-m", "inference_recommender", *command)
        found = Recommendation.model_validate_json(stdout)
        assert found.provenance.measured_on == "local"
        assert str(found.provenance.machine).endswith("a stand-in for Inferentia")
        assert known(found.recommended).instance_type.startswith("ml.inf1.")
        assert found.archive_sha256 == releases.parity(deployed, *ENDPOINT).archive_sha256


@pytest.mark.skipif(not AWS_CLI.exists(), reason="there is no AWS CLI: `make aws-cli` installs it")
class TestService:
    def test_a_build_in_its_vpc_measures_it_for_a_recommendation(
        self, copy: RepositoryCopy, released: tuple[str, str], tmp_path: Path
    ) -> None:
        """The server on this machine answers in place of the service, which the account only records."""
        workload, target = released
        if workload != SERVICE:
            pytest.skip("only this workload is a service")
        toml = copy.root / "workloads" / workload / "workload.toml"
        toml.write_text(modest(toml.read_text("utf-8")), "utf-8")
        variables = {
            "PATH": f"{STAND_INS}:{copy.environment()['PATH']}",
            "REHEARSAL_AWS": str(AWS_CLI),
            "REHEARSAL_PYTHON": sys.executable,
            "STAND_INS_LOG": str(tmp_path / "log"),
            "TMPDIR": str(tmp_path),
            "POLL_S": "0",
        }
        run = f"s3://{releases.BUCKET}/in-vpc"
        arguments = (workload, "Beta-Measure", "http://balancer:8080", "inf1.6xlarge", run, "arn")
        copy.measure("bash", "scripts/release/measure_in_vpc.sh", *arguments, variables=variables)
        found = Recommendation.from_json(copy.root / "runs" / "candidate" / "recommendation.json")
        assert found.archive_sha256 == releases.parity(copy, workload, target).archive_sha256
        assert known(found.recommended).instance_type == "inf1.6xlarge"
        assert "the service at http://balancer:8080: its server on this machine" in (tmp_path / "log").read_text()
