"""Asks an account the questions of a plan: each is answered by pass, by fail with what to do, or by unknown with why.

A refusal (no permission, throttled, an API that the account lacks) leaves the one question unknown. Where AWS cannot be
reached, or there are no credentials or no region, `AwsUnavailable` is raised: then nothing is known at all.

An account on this machine has no quotas and no service-linked roles and pulls no images; what moto answers to such
questions would mean nothing, so they are not asked. Its owner may do all, and a role what its policies allow.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from aws_api.errors import AwsRefused, translate_aws_errors
from aws_api.session import AwsSession
from stacks.preflight.plan import (
    BOOTSTRAP_QUALIFIER,
    OLDEST_BOOTSTRAP,
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

QUOTA_LISTS = {
    "list_aws_default_service_quotas": "ListAWSDefaultServiceQuotas",
    "list_service_quotas": "ListServiceQuotas",
}
"""By boto3's name of the operation. The second has the account's own values, which count."""
Verdict = Literal["pass", "fail", "unknown"]
_NAMED_IMAGE = re.compile(
    r"(?:(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/)?"
    r"(?P<repository>[a-z0-9._/-]+?)(?::(?P<tag>[\w.-]+)|@(?P<digest>sha256:[0-9a-f]{64}))"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    verdict: Verdict
    found: str
    """The fact that the verdict is from, or why it is unknown."""
    what_to_do: str | None = None


@dataclass(kw_only=True, slots=True)
class Account:
    """The account and region that are asked, and who asks. Lists that several questions need are read once."""

    aws: AwsSession
    number: str
    caller: str
    on_this_machine: bool
    _quotas: dict[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def partition(self) -> str:
        return self.caller.split(":")[1]

    def quotas(self, service: str) -> Mapping[str, float]:
        """Returns name → value: the account's own, and AWS's defaults of those that were never raised."""
        if service not in self._quotas:
            client = self.aws.client("service-quotas")
            found: dict[str, float] = {}
            for operation, name in QUOTA_LISTS.items():
                with translate_aws_errors(name):
                    for page in client.get_paginator(operation).paginate(ServiceCode=service):
                        found |= {each["QuotaName"]: each["Value"] for each in page["Quotas"]}
            self._quotas[service] = found
        return self._quotas[service]


def account_of(aws: AwsSession) -> Account:
    """Raises `AwsUnavailable` where the account cannot be asked."""
    with translate_aws_errors("GetCallerIdentity"):
        identity = aws.client("sts").get_caller_identity()
    here = aws.is_on_this_machine()
    return Account(aws=aws, number=identity["Account"], caller=identity["Arn"], on_this_machine=here)


def answers(checks: Iterable[Check], account: Account) -> Iterator[tuple[Check, Answer]]:
    for check in checks:
        try:
            yield check, _answer(check.question, account)
        except AwsRefused as error:
            yield check, Answer(verdict="unknown", found=str(error))


def _answer(question: Question, account: Account) -> Answer:
    if account.on_this_machine and isinstance(question, Quota | Image | ServiceRole):
        return Answer(verdict="unknown", found=_ON_THIS_MACHINE[type(question)])
    match question:
        case Quota():
            return _quota(question, account)
        case Offered():
            return _offered(question, account)
        case AmiParameter():
            return _ami(question, account)
        case Image():
            return _image(question, account)
        case ServiceRole():
            return _service_role(question, account)
        case Connection():
            return _connection(question, account)
        case Bootstrapped():
            return _bootstrapped(account)
        case MayDo():
            return _may_do(question, account)


_ON_THIS_MACHINE: Mapping[type, str] = {
    Quota: "An account on this machine has no quotas.",
    Image: "An account on this machine pulls no images.",
    ServiceRole: "An account on this machine needs no service-linked roles.",
}


def _quota(question: Quota, account: Account) -> Answer:
    value = account.quotas(question.service).get(question.quota)
    if value is None:
        return Answer(
            verdict="unknown",
            found=f"Service Quotas lists no '{question.quota}' of {question.service} in {account.aws.region}.",
        )
    found = f"{value:g}, and {question.needed} are needed ({question.why})."
    if value >= question.needed:
        return Answer(verdict="pass", found=found)
    console = (
        f"https://{account.aws.region}.console.aws.amazon.com/servicequotas/home/services/{question.service}/quotas"
    )
    return Answer(
        verdict="fail",
        found=found,
        what_to_do=f"Ask for {question.needed} of '{question.quota}' at {console}; it may take days.",
    )


def _offered(question: Offered, account: Account) -> Answer:
    ec2, region = account.aws.client("ec2"), account.aws.region
    zones = question.zones
    if not zones and question.first is not None:
        with translate_aws_errors("DescribeAvailabilityZones"):
            described = ec2.describe_availability_zones()["AvailabilityZones"]
        names = sorted(zone["ZoneName"] for zone in described if zone.get("ZoneType") == "availability-zone")
        zones = tuple(names[: question.first])
    kind = "region" if not zones else "availability-zone-id" if "-az" in zones[0] else "availability-zone"
    with translate_aws_errors("DescribeInstanceTypeOfferings"):
        offerings = ec2.describe_instance_type_offerings(
            LocationType=kind, Filters=[{"Name": "instance-type", "Values": [question.instance_type]}]
        )["InstanceTypeOfferings"]
    having = sorted(each["Location"] for each in offerings)
    lacking = [zone for zone in zones or (region,) if zone not in having]
    if not lacking:
        return Answer(verdict="pass", found=f"EC2 offers it in {', '.join(zones or (region,))}.")
    elsewhere = f"Zones of {region} that have it: {', '.join(having)}." if having and zones else ""
    return Answer(
        verdict="fail",
        found=f"EC2 does not offer it in {', '.join(lacking)}.",
        what_to_do=f"Name other zones in [hosting]. {elsewhere}" if elsewhere else "Choose another region or type.",
    )


def _ami(question: AmiParameter, account: Account) -> Answer:
    ssm = account.aws.client("ssm")
    try:
        with translate_aws_errors("GetParameter"):
            ami = ssm.get_parameter(Name=question.name)["Parameter"]["Value"]
    except AwsRefused as error:
        if error.code != "ParameterNotFound":
            raise
        return Answer(
            verdict="fail",
            found=f"AWS publishes no such AMI in {account.aws.region}.",
            what_to_do="Deploy to a region that has it.",
        )
    return Answer(verdict="pass", found=f"It is {ami}.")


def _image(question: Image, account: Account) -> Answer:
    named = _NAMED_IMAGE.fullmatch(question.uri)
    if named is None:
        return Answer(
            verdict="fail",
            found="It is not in a private Amazon ECR repository, and nothing else is pulled.",
            what_to_do="Push it to one, and name that in hosting.image_uri.",
        )
    if named["region"] not in (None, account.aws.region):
        found = f"It is in {named['region']}, and {account.aws.region} is asked."
        if question.kind:
            return Answer(verdict="fail", found=found, what_to_do=_build(question))
        return Answer(verdict="unknown", found=found)
    key, value = ("imageTag", named["tag"]) if named["tag"] else ("imageDigest", named["digest"])
    ecr = account.aws.client("ecr")
    try:
        with translate_aws_errors("DescribeImages"):
            (found,) = ecr.describe_images(
                registryId=named["account"] or account.number,
                repositoryName=named["repository"],
                imageIds=[{key: value}],
            )["imageDetails"]
    except AwsRefused as error:
        if error.code not in ("ImageNotFoundException", "RepositoryNotFoundException"):
            raise
        missing = "image" if error.code.startswith("Image") else "repository"
        return Answer(
            verdict="fail",
            found=f"There is no such {missing} in {account.aws.region}.",
            what_to_do=_build(question),
        )
    return Answer(verdict="pass", found=f"It is {found['imageDigest']}.")


def _build(question: Image) -> str:
    if question.kind is None:
        return "Push it, or name another in hosting.image_uri."
    return f"Build and push it with `bash scripts/release/build_image.sh {question.kind}`."


def _service_role(question: ServiceRole, account: Account) -> Answer:
    iam = account.aws.client("iam")
    try:
        with translate_aws_errors("GetRole"):
            iam.get_role(RoleName=question.name)
    except AwsRefused as error:
        if error.code not in ("NoSuchEntity", "NoSuchEntityException"):
            raise
        return Answer(
            verdict="fail",
            found="The account does not have it yet.",
            what_to_do=f"Run `aws iam create-service-linked-role --aws-service-name {question.service}`, once for the "
            "account.",
        )
    return Answer(verdict="pass", found="The account has it.")


def _connection(question: Connection, account: Account) -> Answer:
    client = account.aws.client(question.arn.split(":")[2])  # codeconnections, or its older name
    with translate_aws_errors("GetConnection"):
        status = client.get_connection(ConnectionArn=question.arn)["Connection"]["ConnectionStatus"]
    if status == "AVAILABLE":
        return Answer(verdict="pass", found="It is available.")
    return Answer(
        verdict="fail",
        found=f"It is {status}.",
        what_to_do="Confirm it in the console: Developer Tools, Settings, Connections, Update pending connection.",
    )


def _bootstrapped(account: Account) -> Answer:
    ssm = account.aws.client("ssm")
    todo = f"Run `cdk bootstrap aws://{account.number}/{account.aws.region}`."
    try:
        with translate_aws_errors("GetParameter"):
            described = ssm.get_parameter(Name=f"/cdk-bootstrap/{BOOTSTRAP_QUALIFIER}/version")
    except AwsRefused as error:
        if error.code != "ParameterNotFound":
            raise
        return Answer(
            verdict="fail", found=f"{account.aws.region} of this account is not bootstrapped.", what_to_do=todo
        )
    version = int(described["Parameter"]["Value"])
    found = f"Version {version}, and {OLDEST_BOOTSTRAP} is needed."
    if version >= OLDEST_BOOTSTRAP:
        return Answer(verdict="pass", found=found)
    return Answer(verdict="fail", found=found, what_to_do=todo)


def _may_do(question: MayDo, account: Account) -> Answer:
    if account.caller.endswith(":root"):
        return Answer(verdict="pass", found="The account's root user may do all. Deploy as a role instead.")
    if account.on_this_machine and "assumed-role/" not in account.caller:
        return Answer(verdict="pass", found="An account on this machine lets its owner do all.")
    iam = account.aws.client("iam")
    source = _principal(account, iam)
    resource = question.resource.format(partition=account.partition, account=account.number, region=account.aws.region)
    with translate_aws_errors("SimulatePrincipalPolicy"):
        (result,) = iam.simulate_principal_policy(
            PolicySourceArn=source, ActionNames=[question.action], ResourceArns=[resource]
        )["EvaluationResults"]
    if result["EvalDecision"] == "allowed":
        return Answer(verdict="pass", found=f"{source} may.")
    denied = "An explicit Deny forbids it" if result["EvalDecision"] == "explicitDeny" else "No policy allows it"
    return Answer(
        verdict="fail", found=f"{denied} to {source}.", what_to_do=f"Allow {question.action} on {resource} there."
    )


def _principal(account: Account, iam: Any) -> str:
    """Returns the user or role whose policies hold. A session's ARN has neither its role's path nor its policies."""
    _, _, service, _, _, name = account.caller.split(":", 5)
    if service == "iam" or not name.startswith("assumed-role/"):
        return account.caller
    with translate_aws_errors("GetRole"):
        return str(iam.get_role(RoleName=name.split("/")[1])["Role"]["Arn"])
