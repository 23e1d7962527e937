"""Questions to an AWS account. Each answer is pass, fail with what to do, or unknown with a reason."""

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from aws_api.errors import AwsRefused
from aws_api.session import AwsSession

OLDEST_BOOTSTRAP = 6
"""The version that the templates require."""
BOOTSTRAP_QUALIFIER = "hnb659fds"
AMI_ROOT, AMI_LEAF = "/aws/service/ecs/optimized-ami/", "/recommended/image_id"
QUOTA_LISTS = ("list_aws_default_service_quotas", "list_service_quotas")
"""The second returns the account's own values, which take precedence."""
IMAGE_URI = re.compile(
    r"(?:(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/)?"
    r"(?P<repository>[a-z0-9._/-]+?)(?::(?P<tag>[\w.-]+)|@(?P<digest>sha256:[0-9a-f]{64}))"
)


@dataclass(frozen=True, slots=True)
class Answer:
    """`found` is the fact behind the verdict, or why the verdict is unknown."""

    verdict: Literal["pass", "fail", "unknown"]
    found: str
    what_to_do: str | None = None


@dataclass(kw_only=True, slots=True)
class PreflightAccount:
    """The account, its region and the caller. Quotas are read once for each service."""

    aws: AwsSession
    number: str
    caller: str
    is_local: bool
    _quotas: dict[str, Mapping[str, float]] = field(default_factory=dict)

    @property
    def region(self) -> str:
        return str(self.aws.region)

    def quotas(self, service: str) -> Mapping[str, float]:
        """Returns the values by name: the account's own, else AWS's defaults."""
        if service not in self._quotas:
            lists = (self.aws.pages("service-quotas", each, "Quotas", ServiceCode=service) for each in QUOTA_LISTS)
            self._quotas[service] = {each["QuotaName"]: each["Value"] for quotas in lists for each in quotas}
        return self._quotas[service]

    def principal(self) -> str:
        """Returns the user or role whose policies apply. The ARN of a session has neither its role's path."""
        _, _, service, _, _, name = self.caller.split(":", 5)
        if service == "iam" or not name.startswith("assumed-role/"):
            return self.caller
        return str(self.aws.call("iam", "get_role", RoleName=name.split("/")[1])["Role"]["Arn"])


def preflight_account(aws: AwsSession) -> PreflightAccount:
    """Raises `AwsUnavailable` if the account cannot be reached."""
    identity = aws.call("sts", "get_caller_identity")
    return PreflightAccount(
        aws=aws, number=identity["Account"], caller=identity["Arn"], is_local=aws.is_on_this_machine()
    )


class Question(ABC):
    """A question about an account."""

    SUBJECT: ClassVar[str]
    """Names it in the table. Fields of the question are in braces."""

    @property
    def subject(self) -> str:
        return self.SUBJECT.format(self)

    @abstractmethod
    def answer(self, account: PreflightAccount) -> Answer: ...


def ask(question: Question, account: PreflightAccount) -> Answer:
    """Returns the answer, which is unknown if AWS refuses a call."""
    if account.is_local and (answer := _answer_of_local_account(question, account)):
        return answer
    try:
        return question.answer(account)
    except AwsRefused as error:
        return Answer("unknown", str(error))


@dataclass(frozen=True, kw_only=True, slots=True)
class Quota(Question):
    """The account's `quota` of `service` is at least `needed`. `why` explains the number."""

    SUBJECT: ClassVar[str] = "quota of {0.service}: {0.quota}"
    service: str
    quota: str
    needed: int
    why: str

    def answer(self, account: PreflightAccount) -> Answer:
        value = account.quotas(self.service).get(self.quota)
        if value is None:
            text = f"Service Quotas lists no '{self.quota}' of {self.service} in {account.region}."
            return Answer("unknown", text)
        found = f"{value:g} of {self.needed} needed ({self.why})."
        if value >= self.needed:
            return Answer("pass", found)
        console = f"https://{account.region}.console.aws.amazon.com/servicequotas/home/services/{self.service}/quotas"
        todo = f"Request {self.needed} of '{self.quota}' at {console}. This may take days."
        return Answer("fail", found, todo)


@dataclass(frozen=True, kw_only=True, slots=True)
class Offered(Question):
    """EC2 has the type in all of `zones` (names or ids), or in the region's first `first` zones, or in the region."""

    SUBJECT: ClassVar[str] = "{0.instance_type} offered"
    instance_type: str
    zones: tuple[str, ...] = ()
    first: int | None = None

    def answer(self, account: PreflightAccount) -> Answer:
        zones = self.zones
        if not zones and self.first is not None:
            described = account.aws.call("ec2", "describe_availability_zones")["AvailabilityZones"]
            names = sorted(zone["ZoneName"] for zone in described if zone.get("ZoneType") == "availability-zone")
            zones = tuple(names[: self.first])
        kind = "region" if not zones else "availability-zone-id" if "-az" in zones[0] else "availability-zone"
        request = {"LocationType": kind, "Filters": [{"Name": "instance-type", "Values": [self.instance_type]}]}
        offered = account.aws.call("ec2", "describe_instance_type_offerings", **request)["InstanceTypeOfferings"]
        having = sorted(each["Location"] for each in offered)
        places = zones or (account.region,)
        lacking = [place for place in places if place not in having]
        if not lacking:
            return Answer("pass", f"EC2 offers it in {', '.join(places)}.")
        todo = "Choose another region or type."
        if having and zones:
            todo = f"Name other zones in [hosting]. Zones of {account.region} that have it: {', '.join(having)}."
        return Answer("fail", f"EC2 does not offer it in {', '.join(lacking)}.", todo)


@dataclass(frozen=True, kw_only=True, slots=True)
class AmiParameter(Question):
    """The region has the public SSM parameter that names the instances' AMI."""

    name: str

    @property
    def subject(self) -> str:
        return f"AMI of {self.name.removeprefix(AMI_ROOT).removesuffix(AMI_LEAF)}"

    def answer(self, account: PreflightAccount) -> Answer:
        if (ami := _parameter(account, self.name)) is None:
            return Answer("fail", f"AWS publishes no such AMI in {account.region}.", "Deploy to a region that has it.")
        return Answer("pass", f"It is {ami}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Image(Question):
    """A private ECR repository has the image: a URI, or NAME:TAG. `kind` is set for images of containers/."""

    SUBJECT: ClassVar[str] = "image {0.uri}"
    uri: str
    kind: str | None = None

    def answer(self, account: PreflightAccount) -> Answer:
        build = f"Build and push it with `bash scripts/release/build_image.sh {self.kind}`."
        todo = build if self.kind else "Push it, or name another in hosting.image_uri."
        match = IMAGE_URI.fullmatch(self.uri)
        if match is None:
            return Answer("fail", "It is not in a private Amazon ECR repository.", todo)
        if match["region"] not in (None, account.region):
            found = f"It is in {match['region']}; the deployment is to {account.region}."
            return Answer("fail", found, todo) if self.kind else Answer("unknown", found)
        key, value = ("imageTag", match["tag"]) if match["tag"] else ("imageDigest", match["digest"])
        where = {"registryId": match["account"] or account.number, "repositoryName": match["repository"]}
        try:
            (image,) = account.aws.call("ecr", "describe_images", imageIds=[{key: value}], **where)["imageDetails"]
        except AwsRefused as error:
            if error.code not in ("ImageNotFoundException", "RepositoryNotFoundException"):
                raise
            missing = "image" if error.code.startswith("Image") else "repository"
            return Answer("fail", f"There is no such {missing} in {account.region}.", todo)
        return Answer("pass", f"It is {image['imageDigest']}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServiceRole(Question):
    """The service-linked role exists. `service` is its principal."""

    SUBJECT: ClassVar[str] = "service-linked role {0.name}"
    name: str
    service: str

    def answer(self, account: PreflightAccount) -> Answer:
        if _call_or_none(account, "iam", "get_role", RoleName=self.name) is None:
            todo = f"Run `aws iam create-service-linked-role --aws-service-name {self.service}`, once for the account."
            return Answer("fail", "The account does not have it yet.", todo)
        return Answer("pass", "The account has it.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection(Question):
    """A person has confirmed the connection to the Git host."""

    SUBJECT: ClassVar[str] = "connection {0.arn}"
    arn: str

    def answer(self, account: PreflightAccount) -> Answer:
        service = self.arn.split(":")[2]  # codeconnections, or its older name
        status = account.aws.call(service, "get_connection", ConnectionArn=self.arn)["Connection"]["ConnectionStatus"]
        if status == "AVAILABLE":
            return Answer("pass", "It is available.")
        todo = "Confirm it in the console: Developer Tools, Settings, Connections, Update pending connection."
        return Answer("fail", f"It is {status}.", todo)


@dataclass(frozen=True, kw_only=True, slots=True)
class Bootstrapped(Question):
    """`cdk bootstrap` was run in the account and region, with a version that the templates accept."""

    SUBJECT: ClassVar[str] = "cdk bootstrap"

    def answer(self, account: PreflightAccount) -> Answer:
        todo = f"Run `cdk bootstrap aws://{account.number}/{account.region}`."
        version = _parameter(account, f"/cdk-bootstrap/{BOOTSTRAP_QUALIFIER}/version")
        if version is None:
            return Answer("fail", f"{account.region} of this account is not bootstrapped.", todo)
        found = f"Version {version}, at least {OLDEST_BOOTSTRAP} is needed."
        return Answer("pass", found) if int(version) >= OLDEST_BOOTSTRAP else Answer("fail", found, todo)


@dataclass(frozen=True, kw_only=True, slots=True)
class Trusts(Question):
    """CDK's deploy role of another account and region trusts the account of the pipeline."""

    SUBJECT: ClassVar[str] = "cdk bootstrap of {0.stage}, {0.account}/{0.region}"
    stage: str
    account: str
    region: str

    def answer(self, account: PreflightAccount) -> Answer:
        partition = account.caller.split(":")[1]
        role = f"cdk-{BOOTSTRAP_QUALIFIER}-deploy-role-{self.account}-{self.region}"
        arn = f"arn:{partition}:iam::{self.account}:role/{role}"
        todo = (
            f"With credentials of {self.account}, run `cdk bootstrap aws://{self.account}/{self.region} --trust "
            f"{account.number} --cloudformation-execution-policies "
            f"arn:{partition}:iam::aws:policy/AdministratorAccess`."
        )
        try:
            account.aws.call("sts", "assume_role", RoleArn=arn, RoleSessionName="preflight")
        except AwsRefused as error:
            may = MayDo(action="sts:AssumeRole", resource=arn, named=role).answer(account)
            if may.verdict == "pass":
                return Answer("fail", f"{role} does not exist, or does not trust account {account.number}.", todo)
            return Answer("unknown", f"{error} If the account is not bootstrapped:", todo)
        return Answer("pass", f"Account {account.number} may assume {role}.")


@dataclass(frozen=True, kw_only=True, slots=True)
class MayDo(Question):
    """The caller may do `action` on `resource`, which may have {partition}, {account} and {region} in it."""

    SUBJECT: ClassVar[str] = "{0.action} on {0.named}"
    action: str
    resource: str
    named: str

    def answer(self, account: PreflightAccount) -> Answer:
        if account.caller.endswith(":root"):
            return Answer("pass", "The account's root user may do everything. Deploy as a role instead.")
        source, partition = account.principal(), account.caller.split(":")[1]
        resource = self.resource.format(partition=partition, account=account.number, region=account.region)
        request = {"PolicySourceArn": source, "ActionNames": [self.action], "ResourceArns": [resource]}
        (result,) = account.aws.call("iam", "simulate_principal_policy", **request)["EvaluationResults"]
        if result["EvalDecision"] == "allowed":
            return Answer("pass", f"{source} may.")
        denied = "An explicit Deny forbids it" if result["EvalDecision"] == "explicitDeny" else "No policy allows it"
        return Answer("fail", f"{denied} to {source}.", f"Allow {self.action} on {resource} there.")


def _answer_of_local_account(question: Question, account: PreflightAccount) -> Answer | None:
    """Returns the answer to what a local account lacks, or does not check for its owner."""
    match question:
        case Image() | ServiceRole():
            return Answer("unknown", "A local account has no service-linked roles and pulls no images.")
        case MayDo() if "assumed-role/" not in account.caller:
            return Answer("pass", "The owner of a local account may do everything.")
    return None


def _parameter(account: PreflightAccount, name: str) -> str | None:
    response = _call_or_none(account, "ssm", "get_parameter", Name=name)
    return None if response is None else str(response["Parameter"]["Value"])


def _call_or_none(account: PreflightAccount, service: str, operation: str, **arguments: Any) -> dict[str, Any] | None:
    """Returns the response, or None if the named resource does not exist."""
    try:
        return account.aws.call(service, operation, **arguments)
    except AwsRefused as error:
        if error.code not in ("ParameterNotFound", "NoSuchEntity", "NoSuchEntityException"):
            raise
        return None
