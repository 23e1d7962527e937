"""Checks the roles that SageMaker assumes for the work that the account does itself.

SageMaker fetches a model's archive and image with the model's execution role. An Inference Recommender job does all of
its work with the job's role. Each permission is a line of the file of calls.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from local_aws.permissions import actions, roles
from local_aws.permissions.actions import AccountRegion, ApiCall
from local_aws.permissions.enforced import PermissionLog, denied
from local_aws.permissions.policy import Permission, PolicyDecision, PolicyError
from workloads import Unavailable

SAGEMAKER = "sagemaker.amazonaws.com"
PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
"""The actions that fetch an image, beside ecr:GetAuthorizationToken, which is on no resource."""
OF_AN_ENDPOINT = (
    "CreateEndpointConfig",
    "CreateEndpoint",
    "DescribeEndpoint",
    "InvokeEndpoint",
    "DeleteEndpoint",
    "DeleteEndpointConfig",
)
LOGS = ("CreateLogGroup", "CreateLogStream", "PutLogEvents")
_IMAGE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[a-z0-9-]+)\.amazonaws\.com/(?P<name>[^:@]+)(?:[:@].*)?"
)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecommendationWork:
    """The work of a job, as far as its role needs a permission for it."""

    model: ApiCall
    passed_role_arn: str | None
    payload_url: str
    temporary_endpoints: Sequence[str]
    copies_model: bool
    """Whether a test has environment parameters of its own, so that the job makes a model for it."""
    tested_endpoints: Sequence[str]
    key_id: str | None


class ServiceRoles:
    """Asks for permissions in the name of SageMaker, in one region of the account."""

    def __init__(self, calls: PermissionLog, account_id: str, region: str) -> None:
        self._calls = calls
        self._scope = AccountRegion(account_id, region)

    def check_model(self, role_arn: str, url: str, image: str, log_group: str) -> None:
        """Raises `Unavailable` in the service's words where the role cannot fetch the archive or the image."""
        operation = "sagemaker:CreateEndpoint"
        if self._first_denied(role_arn, operation, [self._s3("GetObject", url)]):
            raise Unavailable(
                f'Could not access model data at {url}. Please ensure that the role "{role_arn}" exists and that '
                f'its trust relationship policy allows the action "sts:AssumeRole" for the service principal '
                f'"{SAGEMAKER}". Also ensure that the role has "s3:GetObject" permissions and that the object is '
                f"located in {self._scope.region}."
            )
        if found := _IMAGE.fullmatch(image):
            repository = f"arn:aws:ecr:{found['region']}:{found['account']}:repository/{found['name']}"
            pull = [("ecr:GetAuthorizationToken", "*"), *((action, repository) for action in PULL)]
            if denial := self._first_denied(role_arn, operation, self._permissions(pull)):
                action = denial.action.removeprefix("ecr:")
                raise Unavailable(f"The role '{role_arn}' does not have {action} permission for the image: '{image}'.")
        stream = f"arn:aws:logs:{self._scope.region}:{self._scope.account_id}:log-group:{log_group}:log-stream:model"
        if denial := self._first_denied(
            role_arn, operation, self._permissions((f"logs:{each}", stream) for each in LOGS)
        ):
            log.info(f"{role_arn} may not do {denial.action} on {denial.resource}: on AWS the model would have no log")

    def check_job(self, role_arn: str, job: RecommendationWork) -> None:
        """Raises `Unavailable` for the first permission that a job's role lacks; as on AWS, the job has begun then."""
        operation = "sagemaker:CreateInferenceRecommendationsJob"
        permissions = [
            self._s3("GetObject", job.payload_url),
            *self._needed(job.model),
            *(each for name in job.temporary_endpoints for each in self._temporary_endpoint(name, job)),
            *(
                each
                for name in job.tested_endpoints
                for call in ("DescribeEndpoint", "InvokeEndpoint")
                for each in self._endpoint(call, EndpointName=name)
            ),
            *self._needed(ApiCall("cloudwatch", "GetMetricData", {})),
            *([self._grant(job.key_id)] if job.key_id else []),
        ]
        if denial := self._first_denied(role_arn, operation, permissions):
            user = f"arn:aws:sts::{self._scope.account_id}:assumed-role/{role_arn.rpartition('/')[2]}/SageMaker"
            raise Unavailable(denied(user, "sagemaker", denial, PolicyDecision.NOT_ALLOWED).message)

    def _temporary_endpoint(self, name: str, job: RecommendationWork) -> Iterable[Permission]:
        both = {"EndpointName": name, "EndpointConfigName": name}
        model = {"ModelName": name, **({"ExecutionRoleArn": job.passed_role_arn} if job.passed_role_arn else {})}
        if job.copies_model:
            yield from self._needed(ApiCall("sagemaker", "CreateModel", model))
        for call in OF_AN_ENDPOINT:
            yield from self._endpoint(call, **both)
        if job.copies_model:
            yield from self._needed(ApiCall("sagemaker", "DeleteModel", model))

    def _endpoint(self, operation: str, **parameters: str) -> list[Permission]:
        service = "sagemaker-runtime" if operation == "InvokeEndpoint" else "sagemaker"
        return self._needed(ApiCall(service, operation, parameters))

    def _grant(self, key_id: str) -> Permission:
        """Returns what hosting needs of the key of an endpoint's volumes. It acts as a service of AWS."""
        (create,) = self._needed(ApiCall("kms", "CreateGrant", {"KeyId": key_id}))
        context = {**create.context, "kms:grantisforawsresource": ("true",)}
        return Permission(create.action, create.resource, context)

    def _s3(self, operation: str, url: str) -> Permission:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        return self._needed(ApiCall("s3", operation, {"Bucket": bucket, "Key": key}))[0]

    def _needed(self, call: ApiCall) -> list[Permission]:
        return actions.needed(call, self._scope)

    def _permissions(self, pairs: Iterable[tuple[str, str]]) -> list[Permission]:
        return [Permission(action, resource, self._scope.context()) for action, resource in pairs]

    def _first_denied(self, role_arn: str, operation: str, permissions: Sequence[Permission]) -> Permission | None:
        """Logs permissions until one is denied, and returns that one; the first if the role cannot be assumed."""
        try:
            role = roles.find(self._scope.account_id, role_arn)
            assumed = role is not None and roles.trusts_service(role, SAGEMAKER, self._scope.context())
            for each in [full for first in permissions for full in roles.with_keys(first, self._scope)]:
                decision = roles.decide(role, roles.with_principal(each, role_arn, self._scope.account_id))
                allowed = assumed and decision is PolicyDecision.ALLOWED
                self._calls.add(role_arn, SAGEMAKER, operation, each, allowed=allowed)
                if not allowed:
                    return each
        except PolicyError as error:
            raise Unavailable(f"A policy of {role_arn} cannot be evaluated by this local account: {error}.") from error
        return None
