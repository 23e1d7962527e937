"""The options of --on sagemaker, down to the document of --dry-run."""

import argparse
import json
import re
from typing import Any

import pytest

from model_build.progress import silent
from model_build.remote import remote_options
from tests.builders import message_of
from tests.model_build.remote.remote_account import ROLE
from workloads import ROOT, UsageError, WorkloadFolder


def _given(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    remote_options.add_build_options(parser)
    return parser.parse_args(["--on", "sagemaker", *arguments])


def _dry_run(folder: WorkloadFolder, name: str, *arguments: str) -> dict[str, Any]:
    document = remote_options.build(folder, name, _given("--dry-run", *arguments), ROOT, silent)
    decoded: dict[str, Any] = json.loads(json.dumps(document))
    return decoded


def test_a_dry_run_without_aws_prints_a_whole_document_and_its_stand_ins(folder: WorkloadFolder) -> None:
    document = _dry_run(folder, "gpu")
    assert sorted(document) == ["requests", "stand_ins", "warnings"]
    assert len(document["requests"]) == len(document["warnings"]) == 2
    assert re.fullmatch(r"spellcheck-gpu-g4dn-\d{8}-\d{6}", document["requests"][0]["ProcessingJobName"])
    assert document["stand_ins"] == {
        "region": "us-east-1",
        "role_arn": "arn:aws:iam::000000000000:role/ModelBuildRole",
        "bucket": "sagemaker-us-east-1-000000000000",
    }


def test_every_option_and_setting_reaches_the_request(folder: WorkloadFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    key = "arn:aws:kms:eu-west-1:123456789012:key/k"
    facts = (f"role_arn={ROLE}", "bucket=b", f"kms_key_arn={key}", "security_groups=sg-1", "subnets=s-1,s-2")
    options = ("--max-runtime-s", "60", "--instance-type", "ml.c6i.xlarge", "--image-uri", "i:1")
    settings = [part for fact in facts for part in ("--set", f"recommender.{fact}")]
    document = _dry_run(folder, "cpu", *options, *settings)
    (request,) = document["requests"]
    assert document["stand_ins"] == {}
    assert request["RoleArn"] == ROLE
    assert request["AppSpecification"]["ImageUri"] == "i:1"
    assert request["NetworkConfig"]["VpcConfig"] == {"SecurityGroupIds": ["sg-1"], "Subnets": ["s-1", "s-2"]}
    cluster = request["ProcessingResources"]["ClusterConfig"]
    assert (cluster["InstanceType"], cluster["VolumeKmsKeyId"]) == ("ml.c6i.xlarge", key)
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 60}
    assert request["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"].startswith(
        "s3://b/model-build/spellcheck"
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            (),
            "recommender.role_arn: got none. A processing job assumes an IAM role that trusts sagemaker.amazonaws.com "
            "and may use the bucket, the image and the logs. Add --set "
            "recommender.role_arn=arn:aws:iam::ACCOUNT:role/NAME.",
        ),
        (
            (f"role_arn={ROLE}", "subnets=s"),
            "recommender.subnets is set without security_groups. A job in a VPC needs both.",
        ),
    ],
)
def test_incomplete_facts_of_the_account(
    folder: WorkloadFolder, monkeypatch: pytest.MonkeyPatch, settings: tuple[str, ...], message: str
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    arguments = [part for setting in settings for part in ("--set", f"recommender.{setting}")]
    assert message_of(UsageError, remote_options.build, folder, "cpu", _given(*arguments), ROOT, silent) == message


def test_a_recording_needs_an_image(folder: WorkloadFolder) -> None:
    parser = argparse.ArgumentParser()
    remote_options.add_verify_options(parser)
    given = parser.parse_args(["--on", "sagemaker"])
    message = message_of(UsageError, remote_options.record, folder, "inf1", given, ROOT, silent)
    assert message == "--image-uri is missing: the image of containers/neuron, in your registry."
