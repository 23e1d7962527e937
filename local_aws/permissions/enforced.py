"""The WSGI layer that holds each session of a role to the role's policies, and notes every call that one makes.

It stands behind the verification of signatures and before moto, so what a role may not do is not done. The owner's key
may do all. Not evaluated are: policies of resources (a bucket's, a key's, a topic's), service control policies, and
what moto does within itself, such as CloudFormation in the name of its execution role. A grant that only a resource's
policy gives is refused here.
"""

import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from moto.sts.models import AssumedRole

from local_aws.keys import session_of
from local_aws.owner_only import CLAIM, Wsgi, answer
from local_aws.permissions import actions, api_call, roles, wire_form
from local_aws.permissions.actions import Where
from local_aws.permissions.api_call import ApiCall, UnknownCall
from local_aws.permissions.conditions import PolicyError
from local_aws.permissions.policy import Asked, Decision
from local_aws.signature import Claim, Refusal, Version4

CALLS_FILE = "calls.jsonl"
MAX_CALLS_BYTES = 32 << 20
"""Bound of the file of calls. One that is full is kept beside a new one, in place of the one before."""
_FREE = frozenset({"GetCallerIdentity"})
"""Operations of STS that no policy can take away."""
_QUERY = frozenset({"autoscaling", "cloudformation", "ec2", "elbv2", "iam", "s3", "sns", "sts"})
"""Services whose code of a refusal is AccessDenied, and not AccessDeniedException."""

log = logging.getLogger(__name__)


class CallLog:
    """A file with one line of JSON for each permission that a role's session, or a service with a role, asked for."""

    def __init__(self, file: Path, max_bytes: int = MAX_CALLS_BYTES) -> None:
        self._file = file
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._mode = "w"  # what an account before this one did is no call of this one's

    def note(self, role_arn: str, who: str, operation: str, asked: Asked, *, allowed: bool) -> None:
        """Adds a line. `who` is the name of the session, or the service that acts."""
        line = json.dumps(
            {
                "role": role_arn,
                "by": who,
                "operation": operation,
                "action": asked.action,
                "resource": asked.resource,
                "allowed": allowed,
            }
        )
        with self._lock:
            with self._file.open(self._mode, encoding="utf-8") as file:
                file.write(line + "\n")
                full = file.tell() > self._max_bytes
            self._mode = "a"
            if full:
                self._file.replace(self._file.with_suffix(".old.jsonl"))


class EnforcedPermissions:
    """Refuses what the role of a session may not do, and passes all else on to `application`."""

    def __init__(self, application: Wsgi, calls: CallLog, account_id: str, region: str) -> None:
        self._application = application
        self._calls = calls
        self._account_id = account_id
        self._region = region

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        claim: Claim = environ[CLAIM]
        session = session_of(claim.access_key, claim.token or "")
        try:
            wire_form.settle(environ, claim, self._region)
            if session is not None:
                self._check(environ, claim, session)
            elif claim.service == "sts":
                self._check_role_exists(environ)
        except Refusal as refusal:
            log.info(refusal.message)
            return answer(refusal, environ, start_response)
        return self._application(environ, start_response)

    def _check(self, environ: Mapping[str, Any], claim: Claim, session: AssumedRole) -> None:
        where = Where(session.account_id, claim.region if isinstance(claim, Version4) else self._region)
        role = roles.find(session.account_id, session.role_arn)
        try:
            call = api_call.read(environ, claim.service)
            if call.operation in _FREE:
                return
            for asked in actions.needed(call, where):
                for each in roles.with_keys(asked, where.account_id, where.region):
                    self._hold(call, each, role, session)
        except UnknownCall as error:
            raise _not_here(session, f"{error} has no row in local_aws/permissions/actions.toml") from error
        except PolicyError as error:
            raise _not_here(session, f"a policy of {session.role_arn} cannot be evaluated: {error}") from error

    def _hold(self, call: ApiCall, asked: Asked, role: Any, session: AssumedRole) -> None:
        context = roles.context_of(asked, session.role_arn, session.account_id)
        full = Asked(asked.action, asked.resource, context)
        decision = roles.decide(role, full, session.policy or "")
        allowed = decision is Decision.ALLOWED
        if call.operation == "AssumeRole":
            wanted = roles.find(session.account_id, asked.resource)
            allowed = wanted is not None and roles.may_be_assumed(wanted, full, session, decision)
        operation = f"{call.service}:{call.operation}"
        self._calls.note(session.role_arn, session.session_name, operation, asked, allowed=allowed)
        if not allowed:
            raise denied(session.arn, call.service, asked, decision)

    def _check_role_exists(self, environ: Mapping[str, Any]) -> None:
        """Refuses a session of a role that does not exist: moto would make one, and nothing could be done with it."""
        try:
            call = api_call.read(environ, "sts")
        except UnknownCall:
            return
        arn = str(call.parameters.get("RoleArn", ""))
        if call.operation == "AssumeRole" and roles.find(self._account_id, arn) is None:
            owner = f"arn:aws:iam::{self._account_id}:root"
            raise denied(owner, "sts", Asked("sts:AssumeRole", arn, {}), Decision.NOT_ALLOWED)


def denied(user: str, service: str, asked: Asked, decision: Decision) -> Refusal:
    """Returns the refusal in AWS's words, as IAM's user guide has them."""
    because = decision.value.format(action=asked.action)
    if decision is Decision.ALLOWED:  # only AssumeRole is refused by another policy than the caller's own
        because = f"because no resource-based policy allows the {asked.action} action"
    code = "AccessDenied" if service in _QUERY else "AccessDeniedException"
    return Refusal(
        403,
        code,
        f"User: {user} is not authorized to perform: {asked.action} on resource: {asked.resource} {because}",
    )


def _not_here(session: AssumedRole, problem: str) -> Refusal:
    return Refusal(
        501, "NotImplemented", f"This local account cannot tell whether {session.arn} may do this: {problem}."
    )
