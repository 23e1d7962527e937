"""`python -m scripts.rehearsal.fleet STACK`: prints an endpoint's fleet and its scaling, as the APIs tell them."""

import argparse
import sys
from typing import Any

import boto3

from workloads.program import exit_code


def client(service: str) -> Any:
    make: Any = boto3.client
    return make(service)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stack")
    stack = parser.parse_args().stack
    outputs = client("cloudformation").describe_stacks(StackName=stack)["Stacks"][0]["Outputs"]
    (name,) = (each["OutputValue"] for each in outputs if each["OutputKey"] == "EndpointName")
    endpoint = client("sagemaker").describe_endpoint(EndpointName=name)
    print(f"{name} is {endpoint['EndpointStatus']}")
    if reason := endpoint.get("FailureReason"):
        print(f"the last update failed: {reason.splitlines()[0]}")
    scaling = client("application-autoscaling")
    for variant in endpoint["ProductionVariants"]:
        resource = f"endpoint/{name}/variant/{variant['VariantName']}"
        print(f"{variant['VariantName']}: {variant['CurrentInstanceCount']} instances")
        arguments = {"ServiceNamespace": "sagemaker", "ResourceIds": [resource]}
        for target in scaling.describe_scalable_targets(**arguments)["ScalableTargets"]:
            print(f"may be scaled from {target['MinCapacity']} to {target['MaxCapacity']}")
        described = scaling.describe_scaling_policies(ServiceNamespace="sagemaker", ResourceId=resource)
        for policy in sorted(described["ScalingPolicies"], key=lambda each: str(each["PolicyName"])):
            tracking = policy["TargetTrackingScalingPolicyConfiguration"]
            print(f"{policy['PolicyName']}: tracks {tracking['TargetValue']:,.0f}")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
