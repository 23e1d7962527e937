"""A real run of the batch: the state machine in moto's interpreter, its tasks as processes here, S3 in moto.

The fake ECS runs the command and the environment of the task definition, with the state machine's overrides, in a copy
of the files that the image holds.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import boto3
import pytest
from botocore.exceptions import ClientError
from moto.core.config import default_user_config
from moto.server import ThreadedMotoServer
from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import (
    state_task_service_aws_sdk,
    state_task_service_ecs,
)

from model_build.archive import pack
from tests.containers.batch.batch_run import install, row, write_model, write_rows
from tests.stacks.miniature import Synthesis, make_ec2_repository
from tests.stacks.templates import filled
from workloads import file_sha256

pytestmark = pytest.mark.integration

BUCKETS = {"StorageInput": "rows-in", "StorageOutput": "rows-out"}
DAY = "2026-11-21"
ROWS = 240
ROLE = "arn:aws:iam::123456789012:role/steps"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    scratch = tmp_path_factory.mktemp("archive")
    pack(write_model(scratch / "model"), scratch / "model.tar.gz")
    return scratch / "model.tar.gz"


@pytest.fixture(scope="module")
def template(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Synthesis:
    """Three shards on CPU instances, which compare the archive with the sha256 that its key in S3 tells."""
    repository = make_ec2_repository(tmp_path_factory.mktemp("batch"), "duplicates", "cpu")
    repository.change_hosting(shards=3)
    repository.build("cpu", archive_sha256=file_sha256(archive), archive_bytes=archive.stat().st_size)
    shutil.copy(archive, repository.archive)
    return repository.synthesise()


@pytest.fixture
def account(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """S3 and Step Functions; yields the environment of their callers."""
    monkeypatch.setitem(default_user_config, "stepfunctions", {"execute_state_machine": True})
    server = ThreadedMotoServer(port=0)
    server.start()
    host, port = server.get_host_and_port()
    environment = {
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    urlopen(Request(f"{environment['AWS_ENDPOINT_URL']}/moto-api/reset", method="POST"), timeout=10).close()
    yield environment
    server.stop()


@dataclass
class Ecs:
    """Runs a task as a process that has ended on return. Parameters come as the state machine writes them."""

    task_definitions: dict[str, Any]
    program: Path
    environment: dict[str, str]
    fails_first: set[str] = field(default_factory=set)
    printed: list[str] = field(default_factory=list)

    def run_task(self, **parameters: Any) -> dict[str, Any]:
        (override,) = parameters["Overrides"]["ContainerOverrides"]
        variables = {each["Name"]: each["Value"] for each in override["Environment"]}
        (container,) = self.task_definitions[parameters["TaskDefinition"]]["ContainerDefinitions"]
        own = {each["Name"]: resolved(each["Value"]) for each in container["Environment"]}
        if variables.get("SHARD") in self.fails_first:
            self.fails_first.remove(variables["SHARD"])
            raise failed("the instance went away")
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        done = subprocess.run(
            [resolved(word) for word in container["Command"]],
            cwd=self.program,
            env={"PATH": path, **own, **variables, **self.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        self.printed.append(done.stdout)
        if done.returncode:
            raise failed(done.stderr.splitlines()[-1])
        return self.describe_tasks()

    def describe_tasks(self, **_: Any) -> dict[str, Any]:
        """Answers in the case of the API and of Step Functions: moto's interpreter reads both."""
        return {"tasks": [{"lastStatus": "STOPPED"}], "Tasks": [{"TaskArn": "task", "ClusterArn": "cluster"}]}


@pytest.fixture
def ecs(
    template: Synthesis, archive: Path, account: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Ecs:
    definitions = template.of_type("AWS::ECS::TaskDefinition").values()
    by_family = {each["Properties"]["Family"]: each["Properties"] for each in definitions}
    fake = Ecs(by_family, install(tmp_path / "program"), account)
    monkeypatch.setattr(state_task_service_ecs, "boto_client_for", lambda **_: fake)
    # The interpreter would look for S3 at a port of its own.
    monkeypatch.setattr(state_task_service_aws_sdk, "boto_client_for", lambda service, **_: boto3.client(service))
    upload_model(by_family, archive)
    return fake


def upload_model(definitions: dict[str, Any], archive: Path) -> None:
    """Uploads a model to where the template says that the archive is."""
    commands = [resolved(each["ContainerDefinitions"][0]["Command"][2]) for each in definitions.values()]
    (command,) = [each for each in commands if "--model" in each]
    bucket, _, key = command.split("--model s3://")[1].split(" ")[0].partition("/")
    client = boto3.client("s3")
    for name in (bucket, *BUCKETS.values()):
        client.create_bucket(Bucket=name)
    client.upload_file(str(archive), bucket, key)


def test_a_run_answers_every_row_though_a_shard_fails_on_the_way(template: Synthesis, ecs: Ecs, tmp_path: Path) -> None:
    put_rows(tmp_path, [row(number) for number in range(ROWS)])
    ecs.fails_first.add("2/3")
    ended = run(template)
    assert ended["status"] == "SUCCEEDED", ended
    assert not ecs.fails_first
    names = output_names()
    assert {f"runs/{DAY}/shard-{number}-of-3.json" for number in (1, 2, 3)} <= names
    manifest = json.loads(output(f"{DAY}/manifest.json"))
    assert (manifest["rows"], manifest["answered"], manifest["bad"]) == (ROWS, ROWS, 0)
    printed = json.loads(ecs.printed[-1])
    assert printed["Rows"] == ROWS
    assert printed["RowsPerSecond"] > 0
    assert (printed["Workload"], printed["Stack"]) == ("duplicates", "DuplicatesStack")


@pytest.mark.slow
def test_a_run_whose_rows_are_too_often_bad_fails_and_keeps_what_it_answered(
    template: Synthesis, ecs: Ecs, tmp_path: Path
) -> None:
    put_rows(tmp_path, [row(number) if number % 10 else {"id": number} for number in range(ROWS)])
    ended = run(template)
    assert ended["status"] == "FAILED"
    assert "10.00% of the rows are bad. --max-bad-share allows 1.00%." in ended["cause"]
    assert f"{DAY}/manifest.json" in output_names()


def test_a_day_without_input_ends_at_once_and_starts_no_task(template: Synthesis, ecs: Ecs) -> None:
    """The console's object for a folder is no input."""
    boto3.client("s3").put_object(Bucket=BUCKETS["StorageInput"], Key=f"{DAY}/")
    ended = run(template)
    assert (ended["status"], ended["error"], ended["cause"]) == (
        "FAILED",
        "MissingInput",
        f"s3://rows-in/{DAY}/ is empty. Put the rows there and start the run again for that day.",
    )
    assert ecs.printed == []
    events = boto3.client("stepfunctions").get_execution_history(executionArn=ended["executionArn"])["events"]
    entered = [each["stateEnteredEventDetails"]["name"] for each in events if "stateEnteredEventDetails" in each]
    assert entered == ["Name the run after its day", "Look for the day's input", "Is there input?", "There is no input"]


def put_rows(scratch: Path, rows: list[dict[str, Any]]) -> None:
    file = write_rows(scratch / "rows.jsonl", rows)
    boto3.client("s3").upload_file(str(file), BUCKETS["StorageInput"], f"{DAY}/rows.jsonl")


def run(template: Synthesis) -> dict[str, Any]:
    """Runs the state machine as EventBridge starts it. Retries wait a second instead of a minute."""
    text = resolved(template.only("AWS::StepFunctions::StateMachine")["DefinitionString"])
    quick = text.replace('"IntervalSeconds":60', '"IntervalSeconds":1').replace('"BackoffRate":2', '"BackoffRate":1')
    assert quick != text
    client = boto3.client("stepfunctions")
    machine = client.create_state_machine(name="batch", definition=quick, roleArn=ROLE)["stateMachineArn"]
    due = json.dumps({"time": f"{DAY}T02:00:00Z"})
    execution = client.start_execution(stateMachineArn=machine, input=due)["executionArn"]
    return until(lambda: client.describe_execution(executionArn=execution))


def until(describe: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    give_up = time.monotonic() + 120
    while (described := describe())["status"] == "RUNNING":
        assert time.monotonic() < give_up
        time.sleep(0.2)
    return described


def output_names() -> set[str]:
    listed = boto3.client("s3").list_objects_v2(Bucket=BUCKETS["StorageOutput"])
    return {each["Key"] for each in listed.get("Contents", ())}


def output(name: str) -> bytes:
    content: bytes = boto3.client("s3").get_object(Bucket=BUCKETS["StorageOutput"], Key=name)["Body"].read()
    return content


def resolved(value: Any) -> Any:
    """Returns the value with references to buckets replaced by the names of the buckets here."""
    match value:
        case {"Ref": "AWS::StackName"}:
            return "DuplicatesStack"
        case {"Ref": str(name)}:
            return next((bucket for start, bucket in BUCKETS.items() if name.startswith(start)), filled(value))
        case {"Fn::Join": [separator, parts]}:
            return separator.join(resolved(part) for part in parts)
        case _:
            return filled(value)


def failed(reason: str) -> ClientError:
    return ClientError({"Error": {"Code": "TaskFailed", "Message": reason}}, "RunTask")
