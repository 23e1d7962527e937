"""`run --with load-test`: what is asked of whom, from the command line's words; nothing is sent."""

import argparse
import json
from pathlib import Path
from typing import Any

import botocore.session
import pytest
from botocore.validate import validate_parameters

from aws_api.errors import NO_REGION, AwsUnavailable
from inference_recommender.cli import load_test as command_line
from inference_recommender.cli.load_test import begin, show
from inference_recommender.cli.run import LOAD_TEST_OPTIONS
from inference_recommender.measure.load_test_aws import LoadTestAws
from inference_recommender.measurement import DeployedEndpoint
from tests.artifacts import an_artifact
from workloads import ProjectError


class Account(LoadTestAws):
    """An account as boto3 would show it."""

    region = "eu-west-1"

    def __init__(self) -> None:
        """Makes no session."""

    def default_bucket(self) -> str:
        return "sagemaker-eu-west-1-123456789012"

    def generator_role(self, stack: str) -> str:
        return f"arn:aws:iam::123456789012:role/{stack}-Generator"

    def hosted_target(self, stack: str, endpoint: str | None = None) -> str | None:
        return "cpu" if stack == "SpellcheckStack" and endpoint in (None, stack) else None

    def runtime_host(self) -> str:
        return "runtime.sagemaker.eu-west-1.amazonaws.com"

    def deployed_endpoint(self, name: str) -> DeployedEndpoint:
        return DeployedEndpoint(name=name, variant_name="AllTraffic", instance_type="ml.g5.xlarge", instance_count=2)


class Nowhere(Account):
    @property
    def region(self) -> str:  # type: ignore[override]
        raise AwsUnavailable(NO_REGION)


@pytest.fixture(autouse=True)
def built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_line, "load_artifact", lambda root, workload, target: an_artifact())


def _options(runs: Path, **given: Any) -> argparse.Namespace:
    nothing = dict.fromkeys(
        (*LOAD_TEST_OPTIONS, *command_line.JOB_OPTIONS, "endpoint", "target", "role_arn", "payload_bucket", "kms_key")
    )
    defaults = {"workload": "spellcheck", "runs": runs, "security_group": [], "subnet": []}
    return argparse.Namespace(**{**nothing, **defaults, **given})


def test_a_url_is_asked_by_its_model_and_needs_no_aws(tmp_path: Path) -> None:
    options = _options(tmp_path, url="http://service.internal:8000", instance_type="inf1.6xlarge", instances=3)
    begun = begin(options, Nowhere(), "quick", "run-1")
    served = begun.prepared.served
    assert served.url == "http://service.internal:8000/v2/models/spellcheck/infer"
    assert (served.instance_type, served.instance_count, served.measured_on) == ("inf1.6xlarge", 3, "service")
    assert served.region is None
    shown = json.loads(show(begun))
    assert list(shown) == ["plan"]
    assert shown["plan"]["payloads"] == str(tmp_path / "run-1" / "payloads.tar.gz")
    assert list(tmp_path.iterdir()) == []


def test_an_endpoint_by_name_is_what_aws_says_it_is(tmp_path: Path) -> None:
    served = begin(_options(tmp_path, endpoint="spellcheck-1"), Account(), "quick", "run-1").prepared.served
    assert (served.instance_type, served.instance_count, served.measured_on) == ("ml.g5.xlarge", 2, "sagemaker")


def test_several_generators_are_one_processing_job_in_the_regions_image(tmp_path: Path) -> None:
    role = "arn:aws:iam::123456789012:role/Generators"
    options = _options(tmp_path, endpoint="spellcheck-1", generators=4, role_arn=role)
    request = json.loads(show(begin(options, Account(), "quick", "spellcheck-quick-1")))["processing_job"]
    shape = botocore.session.get_session().get_service_model("sagemaker").operation_model("CreateProcessingJob")
    assert shape.input_shape is not None
    validate_parameters(request, shape.input_shape)
    assert request["ProcessingResources"]["ClusterConfig"]["InstanceCount"] == 4
    assert request["AppSpecification"]["ImageUri"].startswith("763104351884.dkr.ecr.eu-west-1.amazonaws.com/")
    base = "s3://sagemaker-eu-west-1-123456789012/inference-recommender/spellcheck/load-test/spellcheck-quick-1"
    assert request["ProcessingInputs"][0]["S3Input"]["S3Uri"] == f"{base}/source"


def test_generators_work_under_the_stacks_role_for_them(tmp_path: Path) -> None:
    options = _options(tmp_path, endpoint="spellcheck-1", generators=4)
    request = json.loads(show(begin(options, Account(), "quick", "spellcheck-quick-1")))["processing_job"]
    assert request["RoleArn"] == "arn:aws:iam::123456789012:role/SpellcheckStack-Generator"


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (
            {"endpoint": "e", "generators": 2, "kms_key": "alias/mine"},
            "--kms-key: got 'alias/mine', which the roles of SpellcheckStack may not use: without kms:CreateGrant a "
            'job fails after it has begun. Write kms_key_arn = "ARN" below [recommender] in '
            "workloads/spellcheck/workload.toml, deploy, and give the same ARN here; or name another role with "
            "--role-arn.",
        ),
        ({"url": "http://h", "instances": 0}, "--instances: got 0. Allowed: 1 or more."),
        (
            {"url": "http://localhost:8000", "generators": 2, "role_arn": "r"},
            "--url: got 'http://localhost:8000', which is this machine, but with --generators the load comes from AWS. "
            "Name an address that a Processing job can reach, or leave out --generators.",
        ),
    ],
)
def test_what_could_not_work_is_refused(tmp_path: Path, given: dict[str, Any], problem: str) -> None:
    with pytest.raises(ProjectError) as caught:
        begin(_options(tmp_path, **given), Account(), "quick", "run-1")
    assert str(caught.value) == problem
    assert caught.value.exit_code == 2
