"""A local account for the whole session, clients that check every answer against botocore's service model, and a model
that starts in a second.

The account's Tritons are real. Its jobs replay figures (`replayed_load`), so that no test depends on the machine's
speed.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.model import OperationModel
from botocore.validate import ParamValidator

from aws_api.service_model import shape_problems
from inference_recommender.payloads import tar_gz
from local_aws.process.local_account import LocalAccount
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN

ROLE = "arn:aws:iam::123456789012:role/serving"
Clients = Callable[[str], Any]
IMAGE = "007439368137.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3-cpu"
BUCKET = "models"
SAGEMAKER = {"Service": "sagemaker.amazonaws.com"}
REPLAYING = "tests.local_aws.replaying_account"

ECHO_CONFIG = """
backend: "python"
max_batch_size: 8
input [{name: "TEXT" data_type: TYPE_STRING dims: [1]}]
output [{name: "OUT" data_type: TYPE_STRING dims: [1]}]
instance_group [{count: 1 kind: KIND_CPU}]
"""

ECHO_MODEL = """
import os, time
import numpy as np
import triton_python_backend_utils as pb

class TritonPythonModel:
    def initialize(self, arguments):
        while "GATE" in os.environ and not os.path.exists(os.environ["GATE"]):
            time.sleep(0.02)
        if os.environ.get("BROKEN"):
            raise ValueError("this model is broken on purpose")

    def execute(self, requests):
        answers = []
        for request in requests:
            time.sleep(float(os.environ.get("DELAY_S", "0")))
            texts = pb.get_input_tensor_by_name(request, "TEXT").as_numpy()
            if "COMPUTED" in os.environ:
                with open(os.environ["COMPUTED"], "ab", buffering=0) as file:
                    file.write(b"".join(text + b"\\n" for text in texts.ravel()))
            said = os.environ.get("SAYS", "got ").encode()
            out = np.array([[said + text for text in row] for row in texts], dtype=object)
            answers.append(pb.InferenceResponse([pb.Tensor("OUT", out)]))
        return answers
"""


def texts_archive(files: Mapping[str, str]) -> bytes:
    return tar_gz({name: text.encode() for name, text in files.items()})


def echo_request(*texts: str) -> str:
    data = ", ".join(f'"{text}"' for text in texts)
    return f'{{"inputs": [{{"name": "TEXT", "datatype": "BYTES", "shape": [{len(texts)}, 1], "data": [{data}]}}]}}'


def echo_archive() -> bytes:
    return texts_archive({"echo/config.pbtxt": ECHO_CONFIG, "echo/1/model.py": ECHO_MODEL})


def payload_archive() -> bytes:
    return texts_archive({f"{number}.json": echo_request(f"text {number}") for number in range(5)})


@pytest.fixture(scope="session")
def toolchain() -> Path:
    return Path(os.environ.get("LOCAL_AWS_TRITON_VENV", DEFAULT_TOOLCHAIN))


@pytest.fixture(scope="session")
def echo_repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    repository = tmp_path_factory.mktemp("repository")
    (repository / "echo" / "1").mkdir(parents=True)
    (repository / "echo" / "config.pbtxt").write_text(ECHO_CONFIG)
    (repository / "echo" / "1" / "model.py").write_text(ECHO_MODEL)
    return repository


@pytest.fixture(scope="session")
def account(tmp_path_factory: pytest.TempPathFactory, toolchain: Path) -> Iterator[LocalAccount]:
    state = tmp_path_factory.mktemp("account")
    with LocalAccount.start(state=state, toolchain=toolchain, pace="quick", program=REPLAYING) as running:
        upload(running)
        yield running


@pytest.fixture
def account_variables(account: LocalAccount, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets the variables with which AWS's clients of this process call the account."""
    for name, value in account.environment.items():
        monkeypatch.setenv(name, value)


def policy_document(*statements: Mapping[str, Any]) -> str:
    return json.dumps({"Version": "2012-10-17", "Statement": statements})


def allow(*actions: str, resource: str = "*", **condition: Any) -> dict[str, Any]:
    """Returns a policy's statement."""
    allowed = {"Effect": "Allow", "Action": actions, "Resource": resource}
    return {**allowed, "Condition": condition} if condition else allowed


def make_role(
    iam: Any, name: str, *statements: Mapping[str, Any], trusted: Mapping[str, str] = SAGEMAKER, **condition: Any
) -> str:
    """Returns the ARN of a role that `trusted` may assume, whose inline policy has these statements."""
    trust = {"Effect": "Allow", "Principal": trusted, "Action": "sts:AssumeRole"}
    trusting = policy_document({**trust, "Condition": condition} if condition else trust)
    arn: str = iam.create_role(RoleName=name, AssumeRolePolicyDocument=trusting)["Role"]["Arn"]
    if statements:
        iam.put_role_policy(RoleName=name, PolicyName="inline", PolicyDocument=policy_document(*statements))
    return arn


def upload(account: LocalAccount) -> None:
    """Puts the echo model and the payloads into the account's S3, and makes the role of models and jobs."""
    actions = ("s3:GetObject", "sagemaker:*", "cloudwatch:GetMetricData", "cloudwatch:DescribeAlarms", "logs:*")
    iam = boto3.client("iam", **account.client_arguments())
    make_role(iam, ROLE.rpartition("/")[2], allow(*actions, "ecr:*", "iam:PassRole"))
    s3 = boto3.client("s3", **account.client_arguments())
    s3.create_bucket(Bucket=BUCKET)
    s3.put_object(Bucket=BUCKET, Key="echo.tar.gz", Body=echo_archive())
    s3.put_object(Bucket=BUCKET, Key="payloads.tar.gz", Body=payload_archive())


def conforming(client: Any) -> Any:
    """Makes a client check every answer against the service model: types, required, enums, patterns, lengths."""

    def check(parsed: dict[str, Any], model: OperationModel, **_: Any) -> None:
        if model.output_shape is None or "Error" in parsed:
            return
        # A streamed body is not parsed yet; everything else is.
        streamed = model.get_streaming_output()
        left_out = {"ResponseMetadata", *(["Body"] if streamed else [])}
        answer = {name: value for name, value in parsed.items() if name not in left_out}
        report = ParamValidator().validate(answer | ({"Body": b""} if streamed else {}), model.output_shape)
        assert not report.has_errors(), f"{model.name}: {report.generate_report()}"
        # Enums, patterns and lengths are checked where the answers are ours; moto's own are looser than AWS's.
        if model.service_model.service_name == "sagemaker":
            assert list(shape_problems(model.output_shape, answer)) == [], model.name

    client.meta.events.register("after-call.*.*", check)
    return client


def clients(account: LocalAccount) -> Clients:
    made: dict[str, Any] = {}
    # No retries: a test wants the first answer. As from any client, patterns and enums reach the account unchecked.
    config = Config(retries={"total_max_attempts": 1}, read_timeout=120)

    def make(service: str) -> Any:
        if service not in made:
            arguments: Any = account.client_arguments()
            made[service] = conforming(boto3.client(service, config=config, **arguments))  # type: ignore[call-overload]
        return made[service]

    return make


@pytest.fixture(scope="session")
def client(account: LocalAccount) -> Clients:
    return clients(account)


@pytest.fixture(scope="session")
def sagemaker(client: Clients) -> Any:
    return client("sagemaker")


@pytest.fixture(scope="session")
def runtime(client: Clients) -> Any:
    return client("sagemaker-runtime")


def refused(call: Callable[..., object], **request: Any) -> tuple[int, str, str]:
    """Returns the HTTP status, the code and the message with which the account must refuse a call of boto3."""
    with pytest.raises(ClientError) as caught:
        call(**request)
    response: Any = caught.value.response
    message = response["Error"]["Message"].partition(" (reached max")[0]
    return response["ResponseMetadata"]["HTTPStatusCode"], response["Error"]["Code"], message


def wait_until(holds: Callable[[], Any], timeout_s: float = 300.0, every_s: float = 0.1) -> Any:
    """Returns the first truthy value of `holds`. The timeout only bounds a hanging test."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(every_s)
    raise AssertionError(f"not within {timeout_s} s: {holds}")


def gone(pid: int) -> bool:
    """Tells whether a process has ended. A zombie has, even if its parent has not reaped it."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def put_alarm(cloudwatch: Any, name: str) -> None:
    """Makes an alarm without data, whose state a test sets."""
    metric = {"Namespace": "n", "MetricName": "m", "EvaluationPeriods": 1}
    cloudwatch.put_metric_alarm(AlarmName=name, ComparisonOperator="GreaterThanThreshold", **metric)


class Endpoints:
    """Makes echo models, configurations and endpoints, and deletes the endpoints afterwards.

    The environment of a model says how it behaves: BROKEN makes its start fail, GATE makes it wait until a file of that
    name exists, DELAY_S is the length of an answer, SAYS its beginning. COMPUTED is a file that gets each text.
    """

    def __init__(self, sagemaker: Any) -> None:
        self.sagemaker = sagemaker
        self.names: list[str] = []

    def model(
        self,
        name: str,
        *,
        image: str = IMAGE,
        archive: str = "echo.tar.gz",
        role: str = ROLE,
        tags: Sequence[Any] = (),
        **environment: str,
    ) -> str:
        container = {"Image": image, "ModelDataUrl": f"s3://{BUCKET}/{archive}", "Environment": environment}
        about = {"ModelName": name, "ExecutionRoleArn": role, "PrimaryContainer": container}
        self.sagemaker.create_model(**about, Tags=[*tags])
        return name

    def config(
        self, name: str, *, instance_type: str = "ml.c5.xlarge", count: int = 1, ami: str | None = None, **model: Any
    ) -> str:
        """Makes a configuration and its model, which `model` describes. Both have the model's tags."""
        variant = {
            "VariantName": "AllTraffic",
            "ModelName": self.model(f"{name}-model", **model),
            "InstanceType": instance_type,
            "InitialInstanceCount": count,
            "InitialVariantWeight": 1.0,
            **({"InferenceAmiVersion": ami} if ami else {}),
        }
        about = {"EndpointConfigName": name, "ProductionVariants": [variant]}
        self.sagemaker.create_endpoint_config(**about, Tags=[*model.get("tags", ())])
        return name

    def create(self, name: str, *, config: str, **more: Any) -> str:
        self.names.append(name)
        self.sagemaker.create_endpoint(EndpointName=name, EndpointConfigName=config, **more)
        return name

    def settled(self, name: str) -> dict[str, Any]:
        """Returns the endpoint once it neither starts nor updates."""

        def described() -> dict[str, Any]:
            found: dict[str, Any] = self.sagemaker.describe_endpoint(EndpointName=name)
            return found

        wait_until(lambda: described()["EndpointStatus"] not in ("Creating", "Updating", "RollingBack"))
        return described()

    def deleted(self, name: str) -> tuple[int, str, str]:
        """Waits while an endpoint is Deleting, and returns how its description is refused then."""
        described = self.sagemaker.describe_endpoint
        return refused(lambda: wait_until(lambda: described(EndpointName=name)["EndpointStatus"] != "Deleting"))

    def delete_all(self) -> None:
        for name in self.names:
            try:
                self.sagemaker.delete_endpoint(EndpointName=name)
            except self.sagemaker.exceptions.ClientError:
                continue


@pytest.fixture
def endpoints(sagemaker: Any) -> Iterator[Endpoints]:
    made = Endpoints(sagemaker)
    yield made
    made.delete_all()


class Stacks:
    def __init__(self, client: Clients) -> None:
        self.cloudformation = client("cloudformation")
        self.client = client

    def settle(self, name: str) -> dict[str, Any]:
        """Returns the stack when no change is in progress; its status is GONE when it is deleted."""

        def described() -> dict[str, Any]:
            try:
                found: dict[str, Any] = self.cloudformation.describe_stacks(StackName=name)["Stacks"][0]
            except ClientError:
                return {"StackStatus": "GONE"}
            return found

        wait_until(lambda: not described()["StackStatus"].endswith("IN_PROGRESS"))
        return described()

    def create(self, name: str, body: dict[str, Any]) -> dict[str, Any]:
        self.cloudformation.create_stack(StackName=name, TemplateBody=json.dumps(body))
        return self.settle(name)

    def update(self, name: str, body: dict[str, Any], **more: Any) -> dict[str, Any]:
        self.cloudformation.update_stack(StackName=name, TemplateBody=json.dumps(body), **more)
        return self.settle(name)

    def delete(self, name: str) -> dict[str, Any]:
        self.cloudformation.delete_stack(StackName=name)
        return self.settle(name)

    def answer(self, endpoint: str) -> str:
        response = self.client("sagemaker-runtime").invoke_endpoint(
            EndpointName=endpoint, ContentType="application/json", Body=echo_request("x")
        )
        return str(json.loads(response["Body"].read())["outputs"][0]["data"][0])

    def reasons(self, name: str) -> list[str]:
        events = self.cloudformation.describe_stack_events(StackName=name)["StackEvents"]
        return [event["ResourceStatusReason"] for event in events if event["ResourceStatus"].endswith("_FAILED")]


@pytest.fixture
def stacks(client: Clients) -> Iterator[Stacks]:
    made = Stacks(client)
    yield made
    for stack in made.cloudformation.describe_stacks()["Stacks"]:
        made.delete(stack["StackName"])
