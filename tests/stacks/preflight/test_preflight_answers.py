"""An account answers: moto where it has the API, else botocore's own client over answers as AWS sends them."""

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
from stacks.preflight.answers import Account, Answer, account_of, answers
from stacks.preflight.plan import (
    AmiParameter,
    Bootstrapped,
    Check,
    Connection,
    Image,
    MayDo,
    Offered,
    Question,
    Quota,
    ServiceRole,
)

SAGEMAKER = Quota(service="sagemaker", quota="ml.g5.xlarge for endpoint usage", needed=4, why="2 and 2 beside them")
NEURON = "/aws/service/ecs/optimized-ami/amazon-linux-2023/neuron/recommended/image_id"
ARN = "arn:aws:codeconnections:us-east-1:123456789012:connection/01234567-89ab-cdef-0123-456789abcdef"
DEPLOY = MayDo(action="sts:AssumeRole", resource="arn:{partition}:iam::{account}:role/deploy-{region}", named="it")
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
def account() -> Iterator[Account]:
    with mock_aws():
        yield account_of(session())


@pytest.fixture
def scripted() -> Account:
    """An account whose answers a test writes itself, for what moto lacks."""
    return Account(aws=session(), number="123456789012", caller=DEPLOYER, on_this_machine=False)


def answer(question: Question, account: Account) -> Answer:
    ((_, told),) = answers([Check(question=question, stacks=("Stack",))], account)
    return told


def answering(account: Account, service: str, *responses: tuple[int, Any]) -> list[Any]:
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


def quotas(account: Account, **values: float) -> list[Any]:
    """Has the account tell a default, then its own quotas in two pages."""
    pages = [[{"QuotaName": "ml.g5.xlarge for endpoint usage", "Value": 0.0}]]
    pages += [[{"QuotaName": name, "Value": value}] for name, value in values.items()]
    last = len(pages) - 1
    told = [{"Quotas": page, **({"NextToken": "n"} if 0 < at < last else {})} for at, page in enumerate(pages)]
    return answering(account, "service-quotas", *((200, page) for page in told))


def test_a_quota_that_is_high_enough_passes(scripted: Account) -> None:
    quotas(scripted, **{"another": 1.0, "ml.g5.xlarge for endpoint usage": 4.0})
    assert answer(SAGEMAKER, scripted) == Answer(verdict="pass", found="4, and 4 are needed (2 and 2 beside them).")


def test_a_quota_that_was_never_raised_is_awss_default_and_fails_with_where_to_ask(scripted: Account) -> None:
    requests = quotas(scripted, another=1.0)
    assert answer(SAGEMAKER, scripted) == Answer(
        verdict="fail",
        found="0, and 4 are needed (2 and 2 beside them).",
        what_to_do="Ask for 4 of 'ml.g5.xlarge for endpoint usage' at "
        "https://us-east-1.console.aws.amazon.com/servicequotas/home/services/sagemaker/quotas; it may take days.",
    )
    answer(SAGEMAKER, scripted)
    assert len(requests) == 2, "the lists of a service are read once"


def test_a_quota_that_is_not_listed_is_unknown(scripted: Account) -> None:
    quotas(scripted, another=1.0)
    asked = Quota(service="sagemaker", quota="ml.z1.xlarge for endpoint usage", needed=1, why="one")
    assert answer(asked, scripted) == Answer(
        verdict="unknown",
        found="Service Quotas lists no 'ml.z1.xlarge for endpoint usage' of sagemaker in us-east-1.",
    )


@pytest.mark.parametrize(
    ("response", "why"),
    [
        (DENIED, "AWS refused ListAWSDefaultServiceQuotas: AccessDeniedException: User is not authorized."),
        (THROTTLED, "AWS refused ListAWSDefaultServiceQuotas: ThrottlingException: Rate exceeded"),
    ],
    ids=["denied", "throttled"],
)
def test_a_refusal_leaves_one_question_unknown_and_the_others_are_asked(
    scripted: Account, response: Any, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(botocore.endpoint.time, "sleep", lambda _: None)  # type: ignore[attr-defined]
    answering(scripted, "service-quotas", response)
    answering(scripted, "ssm", (200, {"Parameter": {"Value": "ami-1"}}))
    checks = [Check(question=each, stacks=("Stack",)) for each in (SAGEMAKER, AmiParameter(name=NEURON))]
    told = [answer for _, answer in answers(checks, scripted)]
    assert told[0] == Answer(verdict="unknown", found=why)
    assert told[1] == Answer(verdict="pass", found="It is ami-1.")


def test_a_type_is_offered_in_the_zones_or_others_are_named(account: Account) -> None:
    offered = Offered(instance_type="inf1.6xlarge", zones=("use1-az1", "use1-az2"))
    assert answer(offered, account) == Answer(verdict="pass", found="EC2 offers it in use1-az1, use1-az2.")
    told = answer(Offered(instance_type="inf1.6xlarge", zones=("use1-az1", "use1-az3")), account)
    assert (told.verdict, told.found) == ("fail", "EC2 does not offer it in use1-az3.")
    assert (told.what_to_do or "").startswith(
        "Name other zones in [hosting]. Zones of us-east-1 that have it: use1-az1,"
    )


def test_a_network_of_ours_has_the_regions_first_zones(account: Account) -> None:
    assert answer(Offered(instance_type="inf1.6xlarge", first=2), account) == Answer(
        verdict="pass", found="EC2 offers it in us-east-1a, us-east-1b."
    )


def test_a_type_that_a_region_lacks_fails(account: Account) -> None:
    assert answer(Offered(instance_type="inf9.xlarge"), account) == Answer(
        verdict="fail", found="EC2 does not offer it in us-east-1.", what_to_do="Choose another region or type."
    )


def test_the_ami_of_the_region_is_told(account: Account) -> None:
    assert answer(AmiParameter(name=NEURON), account).found.startswith("It is ami-")
    assert answer(AmiParameter(name="/aws/service/none"), account) == Answer(
        verdict="fail", found="AWS publishes no such AMI in us-east-1.", what_to_do="Deploy to a region that has it."
    )


def test_an_image_is_found_by_its_tag_or_its_digest(account: Account) -> None:
    ecr = account.aws.client("ecr")
    missing = "Build and push it with `bash scripts/release/build_image.sh inf1`."
    assert answer(Image(uri="models:inf1", kind="inf1"), account) == Answer(
        verdict="fail", found="There is no such repository in us-east-1.", what_to_do=missing
    )
    ecr.create_repository(repositoryName="models")
    assert answer(Image(uri="models:inf1"), account) == Answer(
        verdict="fail",
        found="There is no such image in us-east-1.",
        what_to_do="Push it, or name another in hosting.image_uri.",
    )
    manifest = json.dumps(
        {"schemaVersion": 2, "config": {"digest": "sha256:" + "0" * 64}, "layers": [], "mediaType": DOCKER}
    )
    digest = ecr.put_image(repositoryName="models", imageManifest=manifest, imageTag="inf1")["image"]["imageId"][
        "imageDigest"
    ]
    host = f"{account.number}.dkr.ecr.us-east-1.amazonaws.com"
    for uri in ("models:inf1", f"{host}/models:inf1", f"{host}/models@{digest}"):
        assert answer(Image(uri=uri), account) == Answer(verdict="pass", found=f"It is {digest}.")


def test_an_image_elsewhere_is_not_asked_for(account: Account) -> None:
    uri = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/models:inf1"
    assert answer(Image(uri=uri), account) == Answer(
        verdict="unknown", found="It is in eu-west-1, and us-east-1 is asked."
    )
    assert answer(Image(uri=uri, kind="inf1"), account) == Answer(
        verdict="fail",
        found="It is in eu-west-1, and us-east-1 is asked.",
        what_to_do="Build and push it with `bash scripts/release/build_image.sh inf1`.",
    )
    assert answer(Image(uri="docker.io/library/python:3"), account).verdict == "fail"


def test_a_service_linked_role_that_is_missing_can_be_made(account: Account) -> None:
    role = ServiceRole(name="AWSServiceRoleForECS", service="ecs.amazonaws.com")
    assert answer(role, account) == Answer(
        verdict="fail",
        found="The account does not have it yet.",
        what_to_do="Run `aws iam create-service-linked-role --aws-service-name ecs.amazonaws.com`, once for the "
        "account.",
    )
    # moto's own CreateServiceLinkedRole calls it AWSServiceRoleForecs.
    account.aws.client("iam").create_role(RoleName=role.name, AssumeRolePolicyDocument="{}")
    assert answer(role, account).verdict == "pass"


@pytest.mark.parametrize(("status", "verdict"), [("AVAILABLE", "pass"), ("PENDING", "fail")])
def test_a_connection_has_to_be_confirmed(scripted: Account, status: str, verdict: str) -> None:
    answering(scripted, "codeconnections", (200, {"Connection": {"ConnectionStatus": status}}))
    told = answer(Connection(arn=ARN), scripted)
    assert told.verdict == verdict
    if verdict == "fail":
        assert told == Answer(
            verdict="fail",
            found="It is PENDING.",
            what_to_do="Confirm it in the console: Developer Tools, Settings, Connections, Update pending connection.",
        )


def test_a_bootstrap_has_to_be_there_and_new_enough(account: Account) -> None:
    ssm, todo = account.aws.client("ssm"), "Run `cdk bootstrap aws://123456789012/us-east-1`."
    assert answer(Bootstrapped(), account) == Answer(
        verdict="fail", found="us-east-1 of this account is not bootstrapped.", what_to_do=todo
    )
    for version, told in (
        ("5", Answer(verdict="fail", found="Version 5, and 6 is needed.", what_to_do=todo)),
        ("30", Answer(verdict="pass", found="Version 30, and 6 is needed.")),
    ):
        name = "/cdk-bootstrap/hnb659fds/version"
        ssm.put_parameter(Name=name, Value=version, Type="String", Overwrite=True)
        assert answer(Bootstrapped(), account) == told


DOCKER = "application/vnd.docker.distribution.manifest.v2+json"
SIMULATED = """<SimulatePrincipalPolicyResponse><SimulatePrincipalPolicyResult><EvaluationResults><member>
<EvalActionName>sts:AssumeRole</EvalActionName><EvalDecision>{}</EvalDecision></member></EvaluationResults>
</SimulatePrincipalPolicyResult></SimulatePrincipalPolicyResponse>"""


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        ("allowed", Answer(verdict="pass", found=f"{DEPLOYER} may.")),
        (
            "implicitDeny",
            Answer(
                verdict="fail",
                found=f"No policy allows it to {DEPLOYER}.",
                what_to_do="Allow sts:AssumeRole on arn:aws:iam::123456789012:role/deploy-us-east-1 there.",
            ),
        ),
        (
            "explicitDeny",
            Answer(
                verdict="fail",
                found=f"An explicit Deny forbids it to {DEPLOYER}.",
                what_to_do="Allow sts:AssumeRole on arn:aws:iam::123456789012:role/deploy-us-east-1 there.",
            ),
        ),
    ],
    ids=["allowed", "implicit", "explicit"],
)
def test_what_the_caller_may_do_is_simulated(scripted: Account, decision: str, told: Answer) -> None:
    (request,) = [answering(scripted, "iam", (200, SIMULATED.format(decision)))]
    assert answer(DEPLOY, scripted) == told
    assert "role%2Fdeploy-us-east-1" in request[0]


def test_a_session_has_the_policies_of_its_role_wherever_that_is_kept(scripted: Account) -> None:
    scripted.caller = "arn:aws:sts::123456789012:assumed-role/deployer/session"
    role = "arn:aws:iam::123456789012:role/ops/deployer"
    got = f"<GetRoleResponse><GetRoleResult><Role><Arn>{role}</Arn></Role></GetRoleResult></GetRoleResponse>"
    answering(scripted, "iam", (200, got), (200, SIMULATED.format("allowed")))
    assert answer(DEPLOY, scripted) == Answer(verdict="pass", found=f"{role} may.")


def test_a_root_user_may_do_all(scripted: Account) -> None:
    scripted.caller = "arn:aws:iam::123456789012:root"
    assert answer(DEPLOY, scripted) == Answer(
        verdict="pass", found="The account's root user may do all. Deploy as a role instead."
    )


def test_without_credentials_nothing_is_known() -> None:
    with pytest.raises(AwsUnavailable) as raised:
        account_of(AwsSession(boto3.Session(region_name="us-east-1")))
    assert str(raised.value).startswith("No AWS credentials were found.")


@pytest.mark.parametrize("stage", ["beta", "production"])
def test_a_stage_that_no_budget_watches_is_told(
    stage: str, scripted: Account, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("stacks.__main__.account_of", lambda _: scripted)
    monkeypatch.setattr("stacks.__main__.answers", lambda *_: iter(()))
    told = f"cdk.json has no {stage}-budget-usd, so no budget tells what {stage} costs: docs/deploying.md, Budget.\n"
    assert main(["preflight", "SpellcheckStack", "--stage", stage]) == 0
    assert capsys.readouterr().out.endswith(told)
