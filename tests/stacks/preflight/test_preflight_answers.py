"""Answers of an account: moto where it has the API, else recorded responses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import botocore.endpoint
import botocore.session
import pytest
import tomllib
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.loaders import create_loader
from moto import mock_aws

from aws_api.errors import AwsUnavailable
from aws_api.session import AwsSession
from stacks.__main__ import main
from stacks.preflight import questions
from stacks.preflight.questions import (
    AmiParameter,
    Answer,
    Bootstrapped,
    Image,
    MayDo,
    Offered,
    PreflightAccount,
    Quota,
    ServiceRole,
    ask,
    preflight_account,
)

NAME = "ml.g5.xlarge for endpoint usage"
SAGEMAKER = Quota(service="sagemaker", quota=NAME, needed=4, why="2 and 2 beside them")
NEURON = "/aws/service/ecs/optimized-ami/amazon-linux-2023/neuron/recommended/image_id"
DEPLOY = MayDo(action="sts:AssumeRole", resource="arn:{partition}:iam::{account}:role/deploy-{region}", named="it")
BOOTSTRAP = "Run `cdk bootstrap aws://123456789012/us-east-1`."
INF1 = "inf1.6xlarge"
DEPLOYER = "arn:aws:iam::123456789012:user/ops/deployer"
LOADER = create_loader()
"""Reads the description of each API once, for the clients of all tests; EC2's takes half a second."""
CASES = tomllib.loads(Path(__file__).with_name("answers.toml").read_text("utf-8"))["case"]
DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
SIMULATED = """<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults><member>
<EvalActionName>sts:AssumeRole</EvalActionName><EvalDecision>{}</EvalDecision></member></EvaluationResults>
</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"""
ASSUMED = """<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>k</AccessKeyId>
<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2030-01-01T00:00:00Z</Expiration>
</Credentials></AssumeRoleResult></AssumeRoleResponse>"""
BODIES = {each: SIMULATED.format(each) for each in ("allowed", "implicitDeny", "explicitDeny")} | {"assumed": ASSUMED}
"""Bodies that answers.toml names."""


def session() -> AwsSession:
    core = botocore.session.Session()
    core.register_component("data_loader", LOADER)
    keys = boto3.Session("key", "secret", region_name="us-east-1", botocore_session=core)
    return AwsSession(keys)


@pytest.fixture
def account() -> Iterator[PreflightAccount]:
    with mock_aws():
        yield preflight_account(session())


@pytest.fixture
def scripted() -> PreflightAccount:
    """An account with recorded responses, for APIs that moto lacks."""
    return PreflightAccount(aws=session(), number="123456789012", caller=DEPLOYER, is_local=False)


def answering(account: PreflightAccount, service: str, *responses: tuple[int, Any]) -> list[Any]:
    """Has the client get `responses`, one for each attempt and the last for all others; returns the requests' bodies.

    A response's body is JSON, or text as it is.
    """
    left, requests = list(responses), []

    def respond(request: Any, **_: Any) -> AWSResponse:
        requests.append(request.body)
        status, body = left.pop(0) if len(left) > 1 else left[0]
        content = (body if isinstance(body, str) else json.dumps(body)).encode()

        class Raw:
            def stream(self) -> Iterator[bytes]:
                yield content

        return AWSResponse(request.url, status, HTTPHeaders(), Raw())

    account.aws.client(service).meta.events.register_first("before-send", respond)
    return requests


def quotas(account: PreflightAccount, **values: float) -> list[Any]:
    """Has the account tell a default, then its own quotas in two pages."""
    pages = [[{"QuotaName": "ml.g5.xlarge for endpoint usage", "Value": 0.0}]]
    pages += [[{"QuotaName": name, "Value": value}] for name, value in values.items()]
    last = len(pages) - 1
    told = [{"Quotas": page, **({"NextToken": "n"} if 0 < at < last else {})} for at, page in enumerate(pages)]
    return answering(account, "service-quotas", *((200, page) for page in told))


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['ask']['type']}-{case['answer'][1][:40]}")
def test_a_question_has_its_answer(
    case: dict[str, Any], request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _: None)  # type: ignore[attr-defined]
    members = {key: tuple(value) if isinstance(value, list) else value for key, value in case["ask"].items()}
    del members["type"]
    question = getattr(questions, case["ask"]["type"])(**members)
    responses = case.get("responses", {})
    asked = request.getfixturevalue("scripted" if responses else "account")  # moto answers before recorded responses
    for service, (status, body) in responses.items():
        answering(asked, service, (status, BODIES.get(body, body)))
    assert ask(question, asked) == Answer(*case["answer"])


def test_a_quota_is_that_of_the_account_and_read_once(scripted: PreflightAccount) -> None:
    requests = quotas(scripted, **{"another": 1.0, NAME: 4.0})
    assert ask(SAGEMAKER, scripted) == Answer("pass", "4 of 4 needed (2 and 2 beside them).")
    read = len(requests)
    ask(SAGEMAKER, scripted)
    assert len(requests) == read


def test_zones_that_have_the_type_are_named(account: PreflightAccount) -> None:
    answer = ask(Offered(instance_type=INF1, zones=("use1-az1", "use1-az3")), account)
    assert (answer.verdict, answer.found) == ("fail", "EC2 does not offer it in use1-az3.")
    assert str(answer.what_to_do).startswith(
        "Name other zones in [hosting]. Zones of us-east-1 that have it: use1-az1,"
    )


def test_a_prepared_account_passes(account: PreflightAccount) -> None:
    assert ask(AmiParameter(name=NEURON), account).found.startswith("It is ami-")
    # moto's own CreateServiceLinkedRole calls it AWSServiceRoleForecs.
    account.aws.client("iam").create_role(RoleName="AWSServiceRoleForECS", AssumeRolePolicyDocument="{}")
    assert ask(ServiceRole(name="AWSServiceRoleForECS", service="ecs.amazonaws.com"), account).verdict == "pass"
    for version, expected in (
        ("5", Answer("fail", "Version 5, at least 6 is needed.", BOOTSTRAP)),
        ("30", Answer("pass", "Version 30, at least 6 is needed.")),
    ):
        name = "/cdk-bootstrap/hnb659fds/version"
        account.aws.client("ssm").put_parameter(Name=name, Value=version, Type="String", Overwrite=True)
        assert ask(Bootstrapped(), account) == expected


def test_an_image_is_found_by_its_tag_or_its_digest(account: PreflightAccount) -> None:
    ecr = account.aws.client("ecr")
    ecr.create_repository(repositoryName="models")
    assert ask(Image(uri="models:inf1"), account).found == "There is no such image in us-east-1."
    manifest = json.dumps(
        {"schemaVersion": 2, "config": {"digest": "sha256:" + "0" * 64}, "layers": [], "mediaType": DOCKER}
    )
    put = ecr.put_image(repositoryName="models", imageManifest=manifest, imageTag="inf1")
    digest = put["image"]["imageId"]["imageDigest"]
    host = f"{account.number}.dkr.ecr.us-east-1.amazonaws.com"
    for uri in ("models:inf1", f"{host}/models:inf1", f"{host}/models@{digest}"):
        assert ask(Image(uri=uri), account) == Answer("pass", f"It is {digest}.")


def test_a_session_has_the_policies_of_its_role(scripted: PreflightAccount) -> None:
    scripted.caller = "arn:aws:sts::123456789012:assumed-role/deployer/session"
    role = "arn:aws:iam::123456789012:role/ops/deployer"
    got = f"<GetRoleResponse><GetRoleResult><Role><Arn>{role}</Arn></Role></GetRoleResult></GetRoleResponse>"
    answering(scripted, "iam", (200, got), (200, SIMULATED.format("allowed")))
    assert ask(DEPLOY, scripted) == Answer("pass", f"{role} may.")


def test_a_root_user_may_do_everything(scripted: PreflightAccount) -> None:
    scripted.caller = "arn:aws:iam::123456789012:root"
    text = "The account's root user may do everything. Deploy as a role instead."
    assert ask(DEPLOY, scripted) == Answer("pass", text)


def test_without_credentials_the_account_is_unavailable() -> None:
    with pytest.raises(AwsUnavailable) as raised:
        preflight_account(AwsSession(boto3.Session(region_name="us-east-1")))
    assert str(raised.value).startswith("No AWS credentials were found.")


@pytest.mark.parametrize("stage", ["beta", "production"])
def test_a_stage_without_a_budget_is_reported(
    stage: str, scripted: PreflightAccount, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stacks.preflight.questions.preflight_account", lambda _: scripted)
    monkeypatch.setattr("stacks.preflight.checks.plan", lambda *_: ())
    assert main(["preflight", "SpellcheckStack", "--stage", stage]) == 0
    text = f"cdk.json has no {stage}-budget-usd: {stage} has no budget. See docs/deploying.md, Budget.\n"
    assert capsys.readouterr().out.endswith(text)
