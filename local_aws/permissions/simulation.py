"""IAM's SimulatePrincipalPolicy, which moto lacks: what a role may do by its policies, asked without doing it.

`python -m stacks preflight` asks for what a deployment needs, and the SageMaker SDK 3 whether a role can serve. Each
action is answered for each resource, `*` where the request names none. Conditions see the request's context entries and
the role itself; a policy of the resource or of the request is refused, and so is a user.
"""

from collections.abc import Mapping
from typing import Any

from moto.core.responses import ActionResult
from moto.iam.exceptions import NotFoundException
from moto.iam.models import Role
from moto.iam.responses import IamResponse

from local_aws.permissions import roles
from local_aws.permissions.conditions import PolicyError, Values
from local_aws.permissions.policy import Asked, Decision

NOT_SIMULATED = ("PermissionsBoundaryPolicyInputList", "PolicyExclusionList", "PolicyInputList", "ResourcePolicy")
"""Parameters that would change the policies."""


class LocalIamResponse(IamResponse):
    def simulate_principal_policy(self) -> ActionResult:
        """Raises moto's NoSuchEntity for a role that there is not."""
        for name in NOT_SIMULATED:
            if self._get_param(name):
                raise NotImplementedError(f"SimulatePrincipalPolicy with {name}")
        arn = str(self._get_param("PolicySourceArn"))
        if ":role/" not in arn:
            raise NotImplementedError(f"SimulatePrincipalPolicy for {arn}, which is no role")
        if (role := roles.find(self.current_account, arn)) is None:
            raise NotFoundException(f"The role with ARN {arn} cannot be found.")
        entries = self._get_param("ContextEntries") or []
        context = {each["ContextKeyName"].lower(): tuple(each["ContextKeyValues"]) for each in entries}
        asked = [
            Asked(action, resource, context)
            for action in self._get_param("ActionNames")
            for resource in self._get_param("ResourceArns") or ["*"]
        ]
        return ActionResult({"EvaluationResults": [_result(role, each) for each in asked], "IsTruncated": False})


def _result(role: Role, asked: Asked) -> Mapping[str, Any]:
    """Raises `NotImplementedError` for a policy that has something that is not known here."""
    context: Mapping[str, Values] = roles.context_of(asked, role.arn, role.account_id)
    try:
        decision = roles.decide(role, Asked(asked.action, asked.resource, context))
    except PolicyError as error:
        raise NotImplementedError(f"SimulatePrincipalPolicy, for a policy cannot be evaluated: {error}") from error
    answers = {Decision.ALLOWED: "allowed", Decision.EXPLICIT_DENY: "explicitDeny"}
    within = {"AllowedByPermissionsBoundary": decision is not Decision.BOUNDARY}
    return {
        "EvalActionName": asked.action,
        "EvalResourceName": asked.resource,
        "EvalDecision": answers.get(decision, "implicitDeny"),
        **({"PermissionsBoundaryDecisionDetail": within} if role.permissions_boundary_arn else {}),
    }
