"""The CloudFormation actions: a change set from the Synth artifact, and its execution, each with the action's role."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from scripts.rehearsal.release.pipeline_template import Action, Deployed
from scripts.rehearsal.release.roles import Roles, allowed
from workloads import ProjectError, UsageError

POLL_S = 0.3
LONGEST_S = 600.0
GOOD = {"CREATE_COMPLETE", "UPDATE_COMPLETE"}


class DeploymentFailed(ProjectError):
    """A stack that CloudFormation did not bring to its template."""

    exit_code = 1


def deploy(action: Action, roles: Roles, by: str, template_of: Callable[[str], Path]) -> dict[str, str]:
    """Carries the action out; returns the stack's outputs, where it has been deployed.

    `template_of` gives the file that ARTIFACT::PATH names. Raises `DeploymentFailed`, and `Denied` for a role's call.
    """
    cloudformation = roles.client("cloudformation", action.role_arn, by)
    mode, stack = action.configuration["ActionMode"], action.configuration["StackName"]
    match mode:
        case "CHANGE_SET_REPLACE":
            template = template_of(action.configuration["TemplatePath"]).read_text("utf-8")
            _called(lambda: _replace_change_set(cloudformation, action, template), action)
            return {}
        case "CHANGE_SET_EXECUTE":
            named = {"StackName": stack, "ChangeSetName": action.configuration["ChangeSetName"]}
            _called(lambda: cloudformation.execute_change_set(**named), action)
            outputs: dict[str, str] = _called(lambda: _outputs(cloudformation, stack), action)
            return outputs
    raise UsageError(f"{action.stage}/{action.name}: ActionMode: is {mode}, which is not rehearsed.")


def _replace_change_set(cloudformation: Any, action: Action, template: str) -> None:
    configured = action.configuration
    named = {"StackName": configured["StackName"], "ChangeSetName": configured["ChangeSetName"]}
    cloudformation.delete_change_set(**named)
    cloudformation.create_change_set(
        **named,
        TemplateBody=template,
        RoleARN=configured["RoleArn"],
        Capabilities=configured["Capabilities"].split(","),
        ChangeSetType="UPDATE" if _exists(cloudformation, configured["StackName"]) else "CREATE",
        Parameters=[
            {"ParameterKey": key, "ParameterValue": value}
            for key, value in json.loads(configured.get("ParameterOverrides", "{}")).items()
        ],
    )


def _exists(cloudformation: Any, stack: str) -> bool:
    try:
        status = cloudformation.describe_stacks(StackName=stack)["Stacks"][0]["StackStatus"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        return False
    return status not in {"REVIEW_IN_PROGRESS", "DELETE_COMPLETE"}


def _outputs(cloudformation: Any, name: str) -> dict[str, str]:
    """Waits for the stack and returns its outputs. Raises `DeploymentFailed` with the first thing that failed."""
    end = time.monotonic() + LONGEST_S
    while True:
        stack = cloudformation.describe_stacks(StackName=name)["Stacks"][0]
        if not stack["StackStatus"].endswith("IN_PROGRESS"):
            break
        if time.monotonic() > end:
            raise DeploymentFailed(f"{name} is {stack['StackStatus']} after {LONGEST_S:.0f} s.")
        time.sleep(POLL_S)
    if stack["StackStatus"] not in GOOD:
        reason = _first_failure(cloudformation, name) or stack.get("StackStatusReason", "no reason is told")
        raise DeploymentFailed(f"{name}: {stack['StackStatus']}: {reason}")
    return {output["OutputKey"]: output["OutputValue"] for output in stack.get("Outputs", ())}


def _first_failure(cloudformation: Any, name: str) -> str | None:
    """Returns why the first resource of the stack's latest change failed."""
    failed: str | None = None
    for event in cloudformation.describe_stack_events(StackName=name)["StackEvents"]:
        if event.get("ResourceStatusReason") == "User Initiated":
            break
        if event["ResourceStatus"].endswith("_FAILED"):
            failed = f"{event['LogicalResourceId']}: {event.get('ResourceStatusReason', '')}"
    return failed


def _called(call: Callable[[], Any], action: Action) -> Any:
    """Raises `DeploymentFailed` where CloudFormation refuses the call itself."""
    try:
        return allowed(call, f"{action.stage}/{action.name}")
    except ClientError as error:
        raise DeploymentFailed(f"{action.configuration['StackName']}: {error.response['Error']['Message']}") from error


def deployed_stack(cloudformation: Any, iam: Any, name: str, account_id: str, region: str) -> Deployed:
    """Returns the physical ids and the ARNs of a deployed stack, for `read_pipeline`."""
    resources = cloudformation.describe_stack_resources(StackName=name)["StackResources"]
    ids = {each["LogicalResourceId"]: each["PhysicalResourceId"] for each in resources}
    kinds = {each["LogicalResourceId"]: each["ResourceType"] for each in resources}
    pseudo = {"AWS::Region": region, "AWS::AccountId": account_id, "AWS::Partition": "aws"}
    pseudo |= {"AWS::URLSuffix": "amazonaws.com", "AWS::StackName": name}

    def attribute(logical_id: str, wanted: str) -> str:
        kind, physical = kinds.get(logical_id), ids.get(logical_id, "")
        match kind, wanted:
            case "AWS::IAM::Role", "Arn":
                return str(iam.get_role(RoleName=physical)["Role"]["Arn"])
            case "AWS::S3::Bucket", "Arn":
                return f"arn:aws:s3:::{physical}"
            case "AWS::KMS::Key", "Arn":
                return f"arn:aws:kms:{region}:{account_id}:key/{physical}"
            case "AWS::ECR::Repository", "RepositoryUri":
                return f"{account_id}.dkr.ecr.{region}.amazonaws.com/{physical}"
            case "AWS::ECR::Repository", "Arn":
                return f"arn:aws:ecr:{region}:{account_id}:repository/{physical}"
        raise UsageError(f"The template asks for {logical_id}.{wanted}, of {kind}, which the rehearsal cannot tell.")

    return Deployed(references={**pseudo, **ids}, attribute=attribute)


def deployed_template(cloudformation: Any, name: str) -> Mapping[str, Any]:
    body = cloudformation.get_template(StackName=name)["TemplateBody"]
    return dict(json.loads(body) if isinstance(body, str) else body)
