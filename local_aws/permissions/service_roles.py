"""Roles that services of AWS assume, held to their policies where the account itself does the service's work.

SageMaker fetches a model's archive and image under the model's execution role, and an Inference Recommender job does
all that it does under the job's role. Each permission that is asked for is a line of the file of calls, as it is for a
session. It knows neither endpoints nor jobs, only what they need.
"""

import logging
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from local_aws.permissions import actions, roles
from local_aws.permissions.actions import Where
from local_aws.permissions.api_call import ApiCall
from local_aws.permissions.conditions import PolicyError
from local_aws.permissions.enforced import CallLog, denied
from local_aws.permissions.policy import Asked, Decision
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
class RecommendationJob:
    """The work of a job, as far as its role needs a permission for it."""

    model: ApiCall
    """The call that describes the model, or its package."""
    passed_role_arn: str | None
    """The model's execution role."""
    payload_url: str
    own_endpoints: Sequence[str]
    copies_model: bool
    """Whether a test has environment parameters of its own, so that the job makes a model for it."""
    tested_endpoints: Sequence[str]
    key_id: str | None


class ServiceRoles:
    """Asks for permissions in the name of SageMaker, in one region of the account."""

    def __init__(self, calls: CallLog, account_id: str, region: str) -> None:
        self._calls = calls
        self._where = Where(account_id, region)

    def check_model(self, role_arn: str, url: str, image: str, log_group: str) -> None:
        """Raises `Unavailable` in the service's words where the role cannot fetch the archive or the image."""
        operation = "sagemaker:CreateEndpoint"
        if self._refused(role_arn, operation, [self._s3("GetObject", url)]):
            raise Unavailable(
                f'Could not access model data at {url}. Please ensure that the role "{role_arn}" exists and that '
                f'its trust relationship policy allows the action "sts:AssumeRole" for the service principal '
                f'"{SAGEMAKER}". Also ensure that the role has "s3:GetObject" permissions and that the object is '
                f"located in {self._where.region}."
            )
        if found := _IMAGE.fullmatch(image):
            repository = f"arn:aws:ecr:{found['region']}:{found['account']}:repository/{found['name']}"
            pull = [("ecr:GetAuthorizationToken", "*"), *((action, repository) for action in PULL)]
            if refused := self._refused(role_arn, operation, self._asked(pull)):
                action = refused.action.removeprefix("ecr:")
                raise Unavailable(f"The role '{role_arn}' does not have {action} permission for the image: '{image}'.")
        stream = f"arn:aws:logs:{self._where.region}:{self._where.account_id}:log-group:{log_group}:log-stream:model"
        if refused := self._refused(role_arn, operation, self._asked((f"logs:{each}", stream) for each in LOGS)):
            log.info(
                f"{role_arn} may not do {refused.action} on {refused.resource}: on AWS the model would have no log"
            )

    def check_job(self, role_arn: str, job: RecommendationJob) -> None:
        """Raises `Unavailable` for the first permission that a job's role lacks; as on AWS, the job has begun then."""
        operation = "sagemaker:CreateInferenceRecommendationsJob"
        asked = [
            self._s3("GetObject", job.payload_url),
            *self._needed(job.model),
            *(each for name in job.own_endpoints for each in self._own_endpoint(name, job)),
            *(
                each
                for name in job.tested_endpoints
                for call in ("DescribeEndpoint", "InvokeEndpoint")
                for each in self._endpoint(call, EndpointName=name)
            ),
            *self._needed(ApiCall("cloudwatch", "GetMetricData", {})),
            *([self._grant(job.key_id)] if job.key_id else []),
        ]
        if refused := self._refused(role_arn, operation, asked):
            user = f"arn:aws:sts::{self._where.account_id}:assumed-role/{role_arn.rpartition('/')[2]}/SageMaker"
            raise Unavailable(denied(user, "sagemaker", refused, Decision.NOT_ALLOWED).message)

    def _own_endpoint(self, name: str, job: RecommendationJob) -> Iterable[Asked]:
        both = {"EndpointName": name, "EndpointConfigName": name}
        model = {"ModelName": name, **({"ExecutionRoleArn": job.passed_role_arn} if job.passed_role_arn else {})}
        if job.copies_model:
            yield from self._needed(ApiCall("sagemaker", "CreateModel", model))
        for call in OF_AN_ENDPOINT:
            yield from self._endpoint(call, **both)
        if job.copies_model:
            yield from self._needed(ApiCall("sagemaker", "DeleteModel", model))

    def _endpoint(self, operation: str, **parameters: str) -> list[Asked]:
        service = "sagemaker-runtime" if operation == "InvokeEndpoint" else "sagemaker"
        return self._needed(ApiCall(service, operation, parameters))

    def _grant(self, key_id: str) -> Asked:
        """Returns what hosting needs of the key of an endpoint's volumes: SageMaker asks for it as a service of AWS."""
        (asked,) = self._needed(ApiCall("kms", "CreateGrant", {"KeyId": key_id}))
        return Asked(asked.action, asked.resource, {**asked.context, "kms:grantisforawsresource": ("true",)})

    def _s3(self, operation: str, url: str) -> Asked:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        (asked,) = self._needed(ApiCall("s3", operation, {"Bucket": bucket, "Key": key}))
        return asked

    def _needed(self, call: ApiCall) -> list[Asked]:
        return actions.needed(call, self._where)

    def _asked(self, pairs: Iterable[tuple[str, str]]) -> list[Asked]:
        return [Asked(action, resource, actions.shared_context(self._where)) for action, resource in pairs]

    def _refused(self, role_arn: str, operation: str, asked: Sequence[Asked]) -> Asked | None:
        """Notes permissions until one is refused, and returns that one; the first where the role cannot be assumed."""
        try:
            role = roles.find(self._where.account_id, role_arn)
            assumed = role is not None and roles.trusts_service(role, SAGEMAKER, actions.shared_context(self._where))
            for first in asked:
                for each in roles.with_keys(first, self._where.account_id, self._where.region):
                    context = roles.context_of(each, role_arn, self._where.account_id)
                    decision = roles.decide(role, Asked(each.action, each.resource, context))
                    allowed = assumed and decision is Decision.ALLOWED
                    self._calls.note(role_arn, SAGEMAKER, operation, each, allowed=allowed)
                    if not allowed:
                        return each
        except PolicyError as error:
            raise Unavailable(f"A policy of {role_arn} cannot be evaluated by this local account: {error}.") from error
        return None
