"""Answers of an account: moto where it has the API, else recorded responses."""

import json
from collections.abc import Iterator
from typing import Any

import boto3
import botocore.endpoint
import botocore.session
import pytest
from botocore.awsrequest import AWSResponse
from botocore.compat import HTTPHeaders
from botocore.loaders import create_loader
from moto import mock_aws

from aws_api.errors import AwsUnavailable
from aws_api.session import AwsSession
from stacks.__main__ import main
from stacks.preflight.questions import (
    AmiParameter,
    Answer,
    Bootstrapped,
    Connection,
    Image,
    MayDo,
    Offered,
    PreflightAccount,
    Question,
    Quota,
    ServiceRole,
    Trusts,
    ask,
    preflight_account,
)

NAME = "ml.g5.xlarge for endpoint usage"
SAGEMAKER = Quota(service="sagemaker", quota=NAME, needed=4, why="2 and 2 beside them")
NEURON = "/aws/service/ecs/optimized-ami/amazon-linux-2023/neuron/recommended/image_id"
ARN = "arn:aws:codeconnections:us-east-1:123456789012:connection/01234567-89ab-cdef-0123-456789abcdef"
DEPLOY = MayDo(action="sts:AssumeRole", resource="arn:{partition}:iam::{account}:role/deploy-{region}", named="it")
ALLOW = "Allow sts:AssumeRole on arn:aws:iam::123456789012:role/deploy-us-east-1 there."
BUILD = "Build and push it with `bash scripts/release/build_image.sh inf1`."
BOOTSTRAP = "Run `cdk bootstrap aws://123456789012/us-east-1`."
ELSEWHERE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/models:inf1"
INF1 = "inf1.6xlarge"
DEPLOYER = "arn:aws:iam::123456789012:user/ops/deployer"
LOADER = create_loader()
"""Reads the description of each API once, for the clients of all tests; EC2's takes half a second."""
DENIED = (400, {"__type": "AccessDeniedException", "message": "User is not authorized."})
THROTTLED = (400, {"__type": "ThrottlingException", "message": "Rate exceeded"})


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


@pytest.mark.parametrize(
    ("listed", "expected"),
    [
        ({"another": 1.0, NAME: 4.0}, Answer("pass", "4 of 4 needed (2 and 2 beside them).")),
        (
            {"another": 1.0},
            Answer(
                "fail",
                "0 of 4 needed (2 and 2 beside them).",
                f"Request 4 of '{NAME}' at https://us-east-1.console.aws.amazon.com/servicequotas/home/services/"
                "sagemaker/quotas. This may take days.",
            ),
        ),
    ],
    ids=["raised", "AWS's default"],
)
def test_a_quota_is_compared_with_the_need(scripted: PreflightAccount, listed: Any, expected: Answer) -> None:
    requests = quotas(scripted, **listed)
    assert ask(SAGEMAKER, scripted) == expected
    read = len(requests)
    ask(SAGEMAKER, scripted)
    assert len(requests) == read, "the lists of a service are read once"


def test_an_unlisted_quota_is_unknown(scripted: PreflightAccount) -> None:
    quotas(scripted, another=1.0)
    question = Quota(service="sagemaker", quota="ml.z1.xlarge for endpoint usage", needed=1, why="one")
    assert ask(question, scripted) == Answer(
        "unknown", "Service Quotas lists no 'ml.z1.xlarge for endpoint usage' of sagemaker in us-east-1."
    )


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (DENIED, "AWS refused ListAWSDefaultServiceQuotas: AccessDeniedException: User is not authorized."),
        (THROTTLED, "AWS refused ListAWSDefaultServiceQuotas: ThrottlingException: Rate exceeded"),
    ],
    ids=["denied", "throttled"],
)
def test_a_refused_call_makes_the_answer_unknown(
    scripted: PreflightAccount, response: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _: None)  # type: ignore[attr-defined]
    answering(scripted, "service-quotas", response)
    assert ask(SAGEMAKER, scripted) == Answer("unknown", why)


@pytest.mark.parametrize(
    ("question", "expected"),
    [
        (
            Offered(instance_type=INF1, zones=("use1-az1", "use1-az2")),
            Answer("pass", "EC2 offers it in use1-az1, use1-az2."),
        ),
        (Offered(instance_type=INF1, first=2), Answer("pass", "EC2 offers it in us-east-1a, us-east-1b.")),
        (
            Offered(instance_type="inf9.xlarge"),
            Answer("fail", "EC2 does not offer it in us-east-1.", "Choose another region or type."),
        ),
        (
            AmiParameter(name="/aws/service/none"),
            Answer("fail", "AWS publishes no such AMI in us-east-1.", "Deploy to a region that has it."),
        ),
        (Image(uri="models:inf1", kind="inf1"), Answer("fail", "There is no such repository in us-east-1.", BUILD)),
        (Image(uri=ELSEWHERE), Answer("unknown", "It is in eu-west-1; the deployment is to us-east-1.")),
        (
            Image(uri=ELSEWHERE, kind="inf1"),
            Answer("fail", "It is in eu-west-1; the deployment is to us-east-1.", BUILD),
        ),
        (
            Image(uri="localhost:5000/models:1"),
            Answer(
                "fail",
                "It is not in a private Amazon ECR repository.",
                "Push it, or name another in hosting.image_uri.",
            ),
        ),
        (
            ServiceRole(name="AWSServiceRoleForECS", service="ecs.amazonaws.com"),
            Answer(
                "fail",
                "The account does not have it yet.",
                "Run `aws iam create-service-linked-role --aws-service-name ecs.amazonaws.com`, once for the account.",
            ),
        ),
        (Bootstrapped(), Answer("fail", "us-east-1 of this account is not bootstrapped.", BOOTSTRAP)),
    ],
    ids=lambda value: getattr(value, "subject", ""),
)
def test_an_empty_account_answers(account: PreflightAccount, question: Question, expected: Answer) -> None:
    assert ask(question, account) == expected


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


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("AVAILABLE", Answer("pass", "It is available.")),
        (
            "PENDING",
            Answer(
                "fail",
                "It is PENDING.",
                "Confirm it in the console: Developer Tools, Settings, Connections, Update pending connection.",
            ),
        ),
    ],
)
def test_a_connection_has_to_be_confirmed(scripted: PreflightAccount, status: str, expected: Answer) -> None:
    answering(scripted, "codeconnections", (200, {"Connection": {"ConnectionStatus": status}}))
    assert ask(Connection(arn=ARN), scripted) == expected


DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
SIMULATED = """<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults><member>
<EvalActionName>sts:AssumeRole</EvalActionName><EvalDecision>{}</EvalDecision></member></EvaluationResults>
</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"""


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ("allowed", Answer("pass", f"{DEPLOYER} may.")),
        ("implicitDeny", Answer("fail", f"No policy allows it to {DEPLOYER}.", ALLOW)),
        ("explicitDeny", Answer("fail", f"An explicit Deny forbids it to {DEPLOYER}.", ALLOW)),
    ],
)
def test_the_callers_permissions_are_simulated(scripted: PreflightAccount, decision: str, expected: Answer) -> None:
    (request,) = [answering(scripted, "iam", (200, SIMULATED.format(decision)))]
    assert ask(DEPLOY, scripted) == expected
    assert "role%2Fdeploy-us-east-1" in request[0]


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


ASSUMED = """<AssumeRoleResponse><AssumeRoleResult><Credentials><AccessKeyId>k</AccessKeyId>
<SecretAccessKey>s</SecretAccessKey><SessionToken>t</SessionToken><Expiration>2030-01-01T00:00:00Z</Expiration>
</Credentials></AssumeRoleResult></AssumeRoleResponse>"""
NOT_ASSUMED = (
    "<ErrorResponse><Error><Code>AccessDenied</Code><Message>Not authorized.</Message></Error></ErrorResponse>"
)
TRUST = (
    "With credentials of 222233334444, run `cdk bootstrap aws://222233334444/eu-west-1 --trust 123456789012 "
    "--cloudformation-execution-policies arn:aws:iam::aws:policy/AdministratorAccess`."
)
DEPLOY_ROLE = "cdk-hnb659fds-deploy-role-222233334444-eu-west-1"


@pytest.mark.parametrize(
    ("response", "decision", "expected"),
    [
        ((200, ASSUMED), "allowed", Answer("pass", f"Account 123456789012 may assume {DEPLOY_ROLE}.")),
        (
            (403, NOT_ASSUMED),
            "allowed",
            Answer("fail", f"{DEPLOY_ROLE} does not exist, or does not trust account 123456789012.", TRUST),
        ),
        (
            (403, NOT_ASSUMED),
            "implicitDeny",
            Answer(
                "unknown",
                "AWS refused AssumeRole: AccessDenied: Not authorized. If the account is not bootstrapped:",
                TRUST,
            ),
        ),
    ],
    ids=["trusted", "not trusted", "caller may not assume roles"],
)
def test_the_account_of_a_stage_has_to_trust_that_of_the_pipeline(
    scripted: PreflightAccount, response: Any, decision: str, expected: Answer
) -> None:
    answering(scripted, "sts", response)
    answering(scripted, "iam", (200, SIMULATED.format(decision)))
    question = Trusts(stage="production", account="222233334444", region="eu-west-1")
    assert question.subject == "cdk bootstrap of production, 222233334444/eu-west-1"
    assert ask(question, scripted) == expected


def test_without_credentials_the_account_is_unavailable() -> None:
    with pytest.raises(AwsUnavailable) as raised:
        preflight_account(AwsSession(boto3.Session(region_name="us-east-1")))
    assert str(raised.value).startswith("No AWS credentials were found.")


@pytest.mark.parametrize("stage", ["beta", "production"])
def test_a_stage_without_a_budget_is_reported(
    stage: str, scripted: PreflightAccount, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stacks.__main__.preflight_account", lambda _: scripted)
    monkeypatch.setattr("stacks.__main__.plan", lambda *_: ())
    assert main(["preflight", "SpellcheckStack", "--stage", stage]) == 0
    text = f"cdk.json has no {stage}-budget-usd: {stage} has no budget. See docs/deploying.md, Budget.\n"
    assert capsys.readouterr().out.endswith(text)
