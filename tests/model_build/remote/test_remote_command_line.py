"""The options of --on sagemaker, down to the document of --dry-run and to a job in an account on loopback."""

import argparse
import json
import re
from pathlib import Path

import pytest

from model_build.remote import command_line
from tests.model_build.remote.remote_account import ROLE, miniature
from workloads import UsageError, WorkloadFolder, load_workload


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> WorkloadFolder:
    """Loads it on a machine that knows of no AWS account."""
    for name in ("PROFILE", "REGION", "DEFAULT_REGION", "ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    return load_workload("spellcheck", miniature(tmp_path / "root") / "workloads")


def _given(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    command_line.add_options(parser)
    return parser.parse_args(arguments)


def test_a_dry_run_without_aws_prints_a_whole_document_and_what_stands_in(folder: WorkloadFolder) -> None:
    document = json.loads(json.dumps(command_line.show(folder, "gpu", _given("--on", "sagemaker", "--dry-run"))))
    assert sorted(document) == ["requests", "stand_ins", "warnings"]
    assert len(document["requests"]) == len(document["warnings"]) == 2
    assert re.fullmatch(r"spellcheck-gpu-g4dn-\d{8}-\d{6}", document["requests"][0]["ProcessingJobName"])
    assert document["stand_ins"] == {
        "region": "us-east-1",
        "role-arn": "arn:aws:iam::000000000000:role/ModelBuildRole",
        "bucket": "sagemaker-us-east-1-000000000000",
    }


def test_every_option_reaches_the_request(folder: WorkloadFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    given = ["--role-arn", ROLE, "--bucket", "b", "--instance-type", "ml.c6i.xlarge", "--image-uri", "i:1"]
    given += ["--kms-key", "k", "--security-group", "sg-1", "--subnet", "s-1", "--subnet", "s-2"]
    (build,) = command_line.plan(folder, "cpu", _given("--on", "sagemaker", "--max-runtime-s", "60", *given))
    request = build.job.request()
    assert request["RoleArn"] == ROLE
    assert request["AppSpecification"]["ImageUri"] == "i:1"
    assert request["NetworkConfig"]["VpcConfig"] == {"SecurityGroupIds": ["sg-1"], "Subnets": ["s-1", "s-2"]}
    assert (build.job.instance_type, build.job.kms_key, build.job.max_runtime_s) == ("ml.c6i.xlarge", "k", 60)
    assert build.job.output_url.startswith("s3://b/model-build/spellcheck/cpu/")


def test_a_build_that_is_not_a_dry_run_needs_a_role(folder: WorkloadFolder) -> None:
    with pytest.raises(UsageError, match="--role-arn: missing"):
        command_line.plan(folder, "cpu", _given("--on", "sagemaker"))
