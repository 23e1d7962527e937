"""`python -m scripts.release.pause_scaling WORKLOAD STACK`: removes scaling before a change of type.

UpdateEndpoint fails for a variant that scales and gets another instance type, so a stack whose recommendation names
another type is first updated to its own template without Application Auto Scaling. The fleet keeps its size. The
deployment that follows changes the type and adds scaling again.
Source: https://docs.aws.amazon.com/sagemaker/latest/dg/endpoint-scaling-update.html
"""

import json
import sys
from typing import Any

from botocore.exceptions import ClientError

from aws_api.session import AwsSession
from workloads import Recommendation, UsageError, load_workload
from workloads.program import exit_code

SCALING = "AWS::ApplicationAutoScaling::"
CAPABILITIES = ["CAPABILITY_NAMED_IAM", "CAPABILITY_AUTO_EXPAND"]


def main() -> int:
    workload, stack = sys.argv[1:]
    file = load_workload(workload).recommendation_file
    recommended = Recommendation.from_json(file).recommended
    if recommended is None:
        raise UsageError(f"{file}: recommended: is null. A release to production needs a recommended candidate.")
    session = AwsSession()
    print(pause(stack, recommended.instance_type, session.client("cloudformation"), session.client("sagemaker")))
    return 0


def pause(stack: str, instance_type: str, cloudformation: Any, sagemaker: Any) -> str:
    """Takes scaling out of `stack` if its endpoint runs on another type. Returns a line for the log."""
    try:
        (described,) = cloudformation.describe_stacks(StackName=stack)["Stacks"]
    except ClientError as error:
        if error.response["Error"]["Code"] != "ValidationError":
            raise
        return f"{stack} is not deployed yet."
    endpoints = [each["OutputValue"] for each in described.get("Outputs", ()) if each["OutputKey"] == "EndpointName"]
    body = cloudformation.get_template(StackName=stack)["TemplateBody"]
    template: dict[str, Any] = json.loads(body) if isinstance(body, str) else body
    resources = template["Resources"]
    fixed = {name: each for name, each in resources.items() if not each["Type"].startswith(SCALING)}
    if not endpoints or fixed == resources:
        return f"{stack} has no endpoint that scales."
    present = _instance_type(endpoints[0], sagemaker)
    if present == instance_type:
        return f"{stack} stays on {present}."
    text = json.dumps({**template, "Resources": fixed}, separators=(",", ":"))
    cloudformation.update_stack(StackName=stack, TemplateBody=text, Capabilities=CAPABILITIES)
    cloudformation.get_waiter("stack_update_complete").wait(StackName=stack)
    return f"{stack} moves from {present} to {instance_type}. It does not scale until its deployment has finished."


def _instance_type(endpoint: str, sagemaker: Any) -> str:
    config = sagemaker.describe_endpoint(EndpointName=endpoint)["EndpointConfigName"]
    variants = sagemaker.describe_endpoint_config(EndpointConfigName=config)["ProductionVariants"]
    return str(variants[0]["InstanceType"])


if __name__ == "__main__":
    sys.exit(exit_code(main))
