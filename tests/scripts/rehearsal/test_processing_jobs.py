"""Processing jobs in the rehearsal's account: programs of these tests in a container's place, as their job's role."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from aws_api.processing_jobs import ENDED, LOG_GROUP, ProcessingJob
from local_aws.process.local_account import LocalAccount
from local_aws.sagemaker.processing_jobs import ALGORITHM_ERROR
from tests.local_aws.conftest import allow, make_role, wait_until
from tests.scripts.rehearsal.conftest import client

BUCKET = "jobs"
READS = """
import json, sys
def main(arguments, system):
    source, output = system / "opt/ml/processing/source", system / "opt/ml/processing/output"
    output.mkdir(parents=True)
    (output / "read.txt").write_text((source / "beside.txt").read_text() + " ".join(arguments))
    print("said to the log", json.loads((system / "opt/ml/config/resourceconfig.json").read_text())["hosts"])
    return 0
"""
FAILS = """
def main(arguments, system):
    output, message = system / "opt/ml/processing/output", system / "opt/ml/output/message"
    for folder in (output, message.parent):
        folder.mkdir(parents=True)
    (output / "half.txt").write_text("half")
    message.write_text("model_build ended with exit status 1")
    return 1
"""
WAITS = """
import time
def main(arguments, system):
    (system / "waits").touch()
    time.sleep(600)
"""

pytestmark = [pytest.mark.slow, pytest.mark.integration]


@pytest.fixture(scope="module")
def role(rehearsing: LocalAccount) -> str:
    client(rehearsing, "s3").create_bucket(Bucket=BUCKET)
    return make_role(client(rehearsing, "iam"), "jobs", allow("s3:*", "logs:*"))


def request(name: str, role: str, **changes: Any) -> dict[str, Any]:
    job = ProcessingJob(
        name=name,
        role_arn=role,
        image_uri="123456789012.dkr.ecr.us-east-1.amazonaws.com/ours:1",
        arguments=("one", "two"),
        instance_type="ml.c5.xlarge",
        volume_gb=1,
        source_url=f"s3://{BUCKET}/{name}/source",
        output_name="left",
        output_url=f"s3://{BUCKET}/{name}/left",
        max_runtime_s=600,
    )
    return job.request() | changes


def start(account: LocalAccount, role: str, name: str, program: str, **changes: Any) -> None:
    s3 = client(account, "s3")
    s3.put_object(Bucket=BUCKET, Key=f"{name}/source/entry.py", Body=program.encode())
    s3.put_object(Bucket=BUCKET, Key=f"{name}/source/beside.txt", Body=b"beside ")
    client(account, "sagemaker").create_processing_job(**request(name, role, **changes))


def ended(account: LocalAccount, name: str) -> Mapping[str, Any]:
    sagemaker = client(account, "sagemaker")

    def described() -> Mapping[str, Any] | None:
        found: Mapping[str, Any] = sagemaker.describe_processing_job(ProcessingJobName=name)
        return found if found["ProcessingJobStatus"] in ENDED else None

    done: Mapping[str, Any] = wait_until(described)
    return done


def keys(account: LocalAccount, prefix: str) -> list[str]:
    listed = client(account, "s3").list_objects_v2(Bucket=BUCKET, Prefix=prefix)
    return [each["Key"] for each in listed.get("Contents", ())]


def test_it_reads_its_input_leaves_its_output_and_says_what_it_printed(rehearsing: LocalAccount, role: str) -> None:
    start(rehearsing, role, "reads", READS)
    done = ended(rehearsing, "reads")
    assert done["ProcessingJobStatus"] == "Completed"
    assert not {"FailureReason", "ExitMessage"} & done.keys()
    assert done["AppSpecification"]["ContainerArguments"] == ["one", "two"]
    left = client(rehearsing, "s3").get_object(Bucket=BUCKET, Key="reads/left/read.txt")["Body"].read()
    assert left == b"beside one two"
    logs = client(rehearsing, "logs")
    (stream,) = logs.describe_log_streams(logGroupName=LOG_GROUP, logStreamNamePrefix="reads/")["logStreams"]
    events = logs.get_log_events(logGroupName=LOG_GROUP, logStreamName=stream["logStreamName"])["events"]
    assert [event["message"] for event in events] == ["said to the log ['algo-1']"]
    listed = client(rehearsing, "sagemaker").list_processing_jobs(NameContains="reads")["ProcessingJobSummaries"]
    assert [(each["ProcessingJobName"], each["ProcessingJobStatus"]) for each in listed] == [("reads", "Completed")]


def test_a_container_that_fails_says_why_and_leaves_nothing(rehearsing: LocalAccount, role: str) -> None:
    start(rehearsing, role, "fails", FAILS)
    done = ended(rehearsing, "fails")
    assert (done["ProcessingJobStatus"], done["FailureReason"]) == ("Failed", ALGORITHM_ERROR)
    assert done["ExitMessage"] == "model_build ended with exit status 1"
    assert keys(rehearsing, "fails/left") == []


def test_an_input_that_is_not_there_fails_the_job(rehearsing: LocalAccount, role: str) -> None:
    client(rehearsing, "sagemaker").create_processing_job(**request("missing", role))
    assert ended(rehearsing, "missing")["FailureReason"] == (
        "ClientError: Failed to download data. No S3 objects found under s3://jobs/missing/source"
    )


def test_it_is_stopped_with_the_processes_that_it_started(rehearsing: LocalAccount, role: str) -> None:
    start(rehearsing, role, "stopped", WAITS)
    waits = Path(rehearsing.log_file).parent / "processing/stopped/system/waits"
    wait_until(waits.exists)
    sagemaker = client(rehearsing, "sagemaker")
    sagemaker.stop_processing_job(ProcessingJobName="stopped")
    assert ended(rehearsing, "stopped")["ProcessingJobStatus"] == "Stopped"
    with pytest.raises(ClientError, match="the processing job is in status Stopped"):
        sagemaker.stop_processing_job(ProcessingJobName="stopped")
