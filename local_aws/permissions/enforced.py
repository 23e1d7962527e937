"""The WSGI layer that checks each session of a role against the role's policies, and logs every permission.

It runs after the verification of signatures and before moto, so a denied call is not executed. The owner's key may do
everything. It is a check of grants, not a security boundary: it does not evaluate policies of resources (a bucket's, a
key's, a topic's), service control policies, or what moto does within itself.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from moto.sts.models import AssumedRole

from local_aws.owner_only import SIGNATURE, WsgiApplication, answer, session_of
from local_aws.permissions import actions, api_request, roles
from local_aws.permissions.actions import AccountRegion, ApiCall, UnknownCall
from local_aws.permissions.policy import Permission, PolicyDecision, PolicyError
from local_aws.signature import RequestRefused, RequestSignature

CALLS_FILE = "calls.jsonl"
MAX_CALLS_BYTES = 32 << 20
"""Limit of the file of calls. A full file is renamed, in place of the one before."""
_FREE = frozenset({"GetCallerIdentity"})
"""Operations of STS that no policy can deny."""
_QUERY = frozenset({"autoscaling", "cloudformation", "ec2", "elbv2", "iam", "s3", "sns", "sts"})
"""Services whose error code is AccessDenied, and not AccessDeniedException."""

log = logging.getLogger(__name__)


class PermissionLog:
    """A file with one line of JSON for each permission that a session, or a service with a role, needed."""

    def __init__(self, file: Path, max_bytes: int = MAX_CALLS_BYTES) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._mode = "w"  # the calls of an earlier account are overwritten

    def add(self, role_arn: str, by: str, operation: str, permission: Permission, *, allowed: bool) -> None:
        """Adds a line. `by` is the name of the session, or the service that acts."""
        action, resource = permission.action, permission.resource
        known = {"role": role_arn, "by": by, "operation": operation, "action": action, "resource": resource}
        line = json.dumps({**known, "allowed": allowed})
        with self._lock:
            with self._file.open(self._mode, encoding="utf-8") as file:
                file.write(line + "\n")
                full = file.tell() > self._max_bytes
            self._mode = "a"
            if full:
                self._file.replace(self._file.with_suffix(".old.jsonl"))


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
