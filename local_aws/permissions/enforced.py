"""The WSGI layer that checks each session of a role against the role's policies, and logs every permission.

It runs after the verification of signatures and before moto, so a denied call is not executed. The owner's key may do
everything. It is a check of grants, not a security boundary: policies of resources are not evaluated.
`ServiceRoles` checks the roles that SageMaker assumes, which are a model's execution role and a recommender job's role.
"""

import json
import logging
import re
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from moto.sts.models import AssumedRole

from local_aws.owner_only import SIGNATURE, WsgiApplication, answer, session_of
from local_aws.permissions import actions, api_request, roles
from local_aws.permissions.actions import AccountRegion, ApiCall, UnknownCall
from local_aws.permissions.policy import Permission, PolicyDecision, PolicyError
from local_aws.signature import RequestRefused, RequestSignature
from workloads import Unavailable

CALLS_FILE = "calls.jsonl"
_FREE = frozenset({"GetCallerIdentity"})
"""Operations of STS that no policy can deny."""
_QUERY = frozenset({"autoscaling", "cloudformation", "ec2", "elbv2", "iam", "s3", "sns", "sts"})
"""Services whose error code is AccessDenied, and not AccessDeniedException."""

log = logging.getLogger(__name__)


class PermissionLog:
    """A file with one line of JSON for each permission that a session, or a service with a role, needed."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._mode = "w"  # the calls of an earlier account are overwritten

    def add(self, role_arn: str, by: str, operation: str, permission: Permission, *, allowed: bool) -> None:
        """Adds a line. `by` is the name of the session, or the service that acts."""
        action, resource = permission.action, permission.resource
        known = {"role": role_arn, "by": by, "operation": operation, "action": action, "resource": resource}
        line = json.dumps({**known, "allowed": allowed})
        with self._lock, self._file.open(self._mode, encoding="utf-8") as file:
            file.write(line + "\n")
            self._mode = "a"


class EnforcedPermissions:
    """Rejects what the role of a session may not do, and passes other requests to `application`."""

    def __init__(self, application: WsgiApplication, calls: PermissionLog, account_id: str) -> None:
        self._application = application
        self._calls = calls
        self._account_id = account_id

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        signature: RequestSignature = environ[SIGNATURE]
        session = session_of(signature.access_key, signature.token or "")
        try:
            api_request.settle(environ, signature)
            if session is not None:
                self._check(environ, signature, session)
            elif signature.service == "sts":
                self._check_role_exists(environ)
        except RequestRefused as refused:
            log.info(refused.message)
            return answer(refused, environ, start_response)
        return self._application(environ, start_response)

    def _check(self, environ: Mapping[str, Any], signature: RequestSignature, session: AssumedRole) -> None:
        scope = AccountRegion(session.account_id, signature.region)
        role = roles.find(session.account_id, session.role_arn)
        try:
            call = api_request.read_call(environ, signature.service)
            if call.operation in _FREE:
                return
            for permission in actions.needed(call, scope):
                for each in roles.with_keys(permission, scope):
                    self._check_permission(call, each, role, session)
        except UnknownCall as error:
            raise _undecided(session, f"{error} has no row in local_aws/permissions/actions.toml") from error
        except PolicyError as error:
            raise _undecided(session, f"a policy of {session.role_arn} cannot be evaluated: {error}") from error

    def _check_permission(self, call: ApiCall, permission: Permission, role: Any, session: AssumedRole) -> None:
        full = roles.with_principal(permission, session.role_arn, session.account_id)
        decision = roles.decide(role, full, session.policy or "")
        allowed = decision is PolicyDecision.ALLOWED
        if call.operation == "AssumeRole":
            other = roles.find(session.account_id, permission.resource)
            allowed = other is not None and roles.may_be_assumed(other, full, session, decision)
        operation = f"{call.service}:{call.operation}"
        self._calls.add(session.role_arn, session.session_name, operation, permission, allowed=allowed)
        if not allowed:
            raise denied(session.arn, call.service, permission, decision)

    def _check_role_exists(self, environ: Mapping[str, Any]) -> None:
        """Rejects a session of a role that does not exist, which moto would create."""
        try:
            call = api_request.read_call(environ, "sts")
        except UnknownCall:
            return
        arn = str(call.parameters.get("RoleArn", ""))
        if call.operation == "AssumeRole" and roles.find(self._account_id, arn) is None:
            owner = f"arn:aws:iam::{self._account_id}:root"
            raise denied(owner, "sts", Permission("sts:AssumeRole", arn, {}), PolicyDecision.NOT_ALLOWED)


def denied(user: str, service: str, permission: Permission, decision: PolicyDecision) -> RequestRefused:
    """Returns the error in AWS's words, as in IAM's user guide."""
    action, resource = permission.action, permission.resource
    because = decision.value.format(action=action)
    if decision is PolicyDecision.ALLOWED:  # AssumeRole was denied by the other role's trust policy
        because = f"because no resource-based policy allows the {action} action"
    code = "AccessDenied" if service in _QUERY else "AccessDeniedException"
    text = f"User: {user} is not authorized to perform: {action} on resource: {resource} {because}"
    return RequestRefused(403, code, text)


def _undecided(session: AssumedRole, problem: str) -> RequestRefused:
    text = f"This local account cannot decide whether {session.arn} may do this: {problem}."
    return RequestRefused(501, "NotImplemented", text)


SAGEMAKER = "sagemaker.amazonaws.com"
PULL = ("ecr:BatchCheckLayerAvailability", "ecr:BatchGetImage", "ecr:GetDownloadUrlForLayer")
LOGS = ("CreateLogGroup", "CreateLogStream", "PutLogEvents")
ECR_IMAGE = re.compile(
    r"(?P<account>\d{12})\.dkr\.ecr\.(?P<region>[\w-]+)\.amazonaws\.com/(?P<repository>[^:@]+)"
    r"(?::(?P<tag>[^@]+))?(?:@(?P<digest>.+))?"
)


def read_object(url: str) -> ApiCall:
    """Returns the call that reads the object at an s3:// URL."""
    bucket, _, key = url.removeprefix("s3://").partition("/")
    return ApiCall("s3", "GetObject", {"Bucket": bucket, "Key": key})


class ServiceRoles:
    """Asks for permissions in the name of SageMaker, in one region of the account."""

    def __init__(self, calls: PermissionLog, account_id: str, region: str) -> None:
        self._calls = calls
        self._scope = AccountRegion(account_id, region)

    def check_model(self, role_arn: str, url: str, image: str, log_group: str) -> None:
        """Raises `Unavailable` in the service's words where the role cannot fetch the archive or the image."""
        operation = "sagemaker:CreateEndpoint"
        if self._first_denied(role_arn, operation, actions.needed(read_object(url), self._scope)):
            raise Unavailable(
                f'Could not access model data at {url}. Please ensure that the role "{role_arn}" exists and that '
                f'its trust relationship policy allows the action "sts:AssumeRole" for the service principal '
                f'"{SAGEMAKER}". Also ensure that the role has "s3:GetObject" permissions and that the object is '
                f"located in {self._scope.region}."
            )
        if found := ECR_IMAGE.fullmatch(image):
            repository = f"arn:aws:ecr:{found['region']}:{found['account']}:repository/{found['repository']}"
            pull = [("ecr:GetAuthorizationToken", "*"), *((action, repository) for action in PULL)]
            if denial := self._first_denied(role_arn, operation, self._permissions(pull)):
                action = denial.action.removeprefix("ecr:")
                raise Unavailable(f"The role '{role_arn}' does not have {action} permission for the image: '{image}'.")
        stream = f"arn:aws:logs:{self._scope.region}:{self._scope.account_id}:log-group:{log_group}:log-stream:model"
        # Without these grants the model has no log on AWS, but starts.
        self._first_denied(role_arn, operation, self._permissions((f"logs:{each}", stream) for each in LOGS))

    def require(self, role_arn: str, operation: str, calls: Iterable[ApiCall]) -> None:
        """Raises `Unavailable` for the first permission that a role lacks for the calls of an operation."""
        permissions = [each for call in calls for each in actions.needed(call, self._scope)]
        if denial := self._first_denied(role_arn, operation, permissions):
            user = f"arn:aws:sts::{self._scope.account_id}:assumed-role/{role_arn.rpartition('/')[2]}/SageMaker"
            raise Unavailable(denied(user, "sagemaker", denial, PolicyDecision.NOT_ALLOWED).message)

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
