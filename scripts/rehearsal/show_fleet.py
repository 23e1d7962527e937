"""`python -m scripts.rehearsal.show_fleet STACK`: prints the instances and the scaling of an endpoint."""

import argparse
import sys
from typing import Any

import boto3

from workloads.program import exit_code


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stack")
    stack = parser.parse_args().stack
    client: Any = boto3.client
    sagemaker, scaling = client("sagemaker"), client("application-autoscaling")
    outputs = client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]["Outputs"]
    (name,) = (each["OutputValue"] for each in outputs if each["OutputKey"] == "EndpointName")
    endpoint = sagemaker.describe_endpoint(EndpointName=name)
    print(f"{name} is {endpoint['EndpointStatus']}")
    if reason := endpoint.get("FailureReason"):
        print(f"the last update failed: {reason.splitlines()[0]}")
    (variant,) = endpoint["ProductionVariants"]
    print(f"{variant['VariantName']}: {variant['CurrentInstanceCount']} instances")
    resource = f"endpoint/{name}/variant/{variant['VariantName']}"
    found = scaling.describe_scalable_targets(ServiceNamespace="sagemaker", ResourceIds=[resource])
    (target,) = found["ScalableTargets"]
    print(f"scales from {target['MinCapacity']} to {target['MaxCapacity']}")
    found = scaling.describe_scaling_policies(ServiceNamespace="sagemaker", ResourceId=resource)
    for policy in sorted(found["ScalingPolicies"], key=lambda each: str(each["PolicyName"])):
        tracking = policy["TargetTrackingScalingPolicyConfiguration"]
        print(f"{policy['PolicyName']}: tracks {tracking['TargetValue']:,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
