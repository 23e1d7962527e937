"""The roles of a synthesised template with their policies, every reference filled in as CloudFormation would.

A name that CloudFormation makes up is the logical id here. It knows the forms of the ARNs that our templates refer to.
"""

import json
import re
from pathlib import Path
from typing import Any

from local_aws.permissions.actions import AccountRegion, ApiCall, needed
from local_aws.permissions.policy import PolicyDecision, as_list, decide, parsed

WHERE = AccountRegion("123456789012", "us-east-1")
PSEUDO = {
    "AWS::Partition": "aws",
    "AWS::Region": WHERE.region,
    "AWS::AccountId": WHERE.account_id,
    "AWS::StackName": "stack",
    "AWS::URLSuffix": "amazonaws.com",
}
_REGIONAL = {
    "AWS::CloudWatch::Alarm": "cloudwatch:{}:alarm:{}",
    "AWS::ECS::Cluster": "ecs:{}:cluster/{}",
    "AWS::ECS::TaskDefinition": "ecs:{}:task-definition/{}:1",
    "AWS::KMS::Key": "kms:{}:key/{}",
    "AWS::Logs::LogGroup": "logs:{}:log-group:{}:*",
    "AWS::SNS::Topic": "sns:{}:{}",
    "AWS::SageMaker::Endpoint": "sagemaker:{}:endpoint/{}",
    "AWS::SageMaker::EndpointConfig": "sagemaker:{}:endpoint-config/{}",
    "AWS::SageMaker::Model": "sagemaker:{}:model/{}",
    "AWS::StepFunctions::StateMachine": "states:{}:stateMachine:{}",
}
_REF_IS_THE_ARN = {
    "AWS::ECS::TaskDefinition",
    "AWS::SNS::Topic",
    "AWS::SageMaker::Endpoint",
    "AWS::SageMaker::EndpointConfig",
    "AWS::SageMaker::Model",
    "AWS::StepFunctions::StateMachine",
}


class Template:
    def __init__(self, file: Path) -> None:
        self._resources: dict[str, Any] = json.loads(file.read_text("utf-8"))["Resources"]

    def all_of(self, kind: str) -> dict[str, Any]:
        """Returns the properties of every resource of a type, by logical id."""
        found = {name: each for name, each in self._resources.items() if each["Type"] == kind}
        return {name: self.resolved(each.get("Properties", {})) for name, each in found.items()}

    def arn(self, name: str) -> str:
        kind = self._resources[name]["Type"]
        properties = self._resources[name].get("Properties", {})
        if kind == "AWS::IAM::Role":
            return f"arn:aws:iam::{WHERE.account_id}:role/{name}"
        if kind == "AWS::S3::Bucket":
            return f"arn:aws:s3:::{name.lower()}"
        end = properties.get("Family", name) if kind == "AWS::ECS::TaskDefinition" else name
        return "arn:aws:" + _REGIONAL[kind].format(f"{WHERE.region}:{WHERE.account_id}", end)

    def resolved(self, node: Any) -> Any:
        match node:
            case {"Ref": name} if len(node) == 1:
                return self._ref(name)
            case {"Fn::GetAtt": [name, "Arn"]}:
                return self.arn(name)
            case {"Fn::GetAtt": [name, attribute]}:
                return name if attribute.endswith("Name") else f"{name}.{attribute}"
            case {"Fn::FindInMap": _}:  # the one table is that of the image registries' accounts
                return "007439368137"
            case {"Fn::Join": [separator, parts]}:
                return separator.join(self.resolved(part) for part in parts)
            case {"Fn::Sub": text}:
                return re.sub(r"\$\{([^}]+)\}", lambda found: self._ref(found[1]), text)
            case {"Fn::Select": [number, items]}:
                return self.resolved(items)[number]
            case {"Fn::Split": [separator, text]}:
                return self.resolved(text).split(separator)
            case dict():
                return {key: self.resolved(value) for key, value in node.items()}
            case list():
                return [self.resolved(each) for each in node]
        return node

    def _ref(self, name: str) -> str:
        kind = self._resources.get(name, {}).get("Type")
        if kind in _REF_IS_THE_ARN:
            return self.arn(name)
        return PSEUDO.get(name) or (name.lower() if kind == "AWS::S3::Bucket" else name)

    def document(self, role_arn: str, *, without: str = "") -> str:
        """Returns all statements of a role as one document, without the grant of one action."""
        role, statements = role_arn.rpartition("/")[2], list[dict[str, Any]]()
        for each in self.all_of("AWS::IAM::Policy").values():
            for statement in each["PolicyDocument"]["Statement"] if role in each["Roles"] else ():
                denies = statement["Effect"] == "Deny"
                if kept := [action for action in as_list(statement["Action"]) if denies or action != without]:
                    statements.append({**statement, "Action": kept})
        nothing = {"Effect": "Deny", "Action": "none:None", "Resource": "*"}
        return json.dumps({"Version": "2012-10-17", "Statement": statements or [nothing]})


def refused(document: str, calls: list[ApiCall]) -> list[str]:
    """Returns the permissions of API calls that a policy does not allow."""
    needs = [each for call in calls for each in needed(call, WHERE)]
    denied = [each for each in needs if decide(each, [parsed(document)]) is not PolicyDecision.ALLOWED]
    return [f"{each.action} on {each.resource}" for each in denied]
