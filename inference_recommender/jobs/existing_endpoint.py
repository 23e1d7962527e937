"""An endpoint that exists, judged for a job: one variant, in service, on instances, not scaled. Pure.

These are the exclusions that AWS documents for jobs on existing endpoints. Whether the endpoint serves anybody else
while it is measured, nothing here can know.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from inference_recommender.errors import UnsuitableEndpoint
from inference_recommender.measurement import DeployedEndpoint


def resource_id(endpoint: str, variant: str) -> str:
    """Of a variant, as application autoscaling calls it."""
    return f"endpoint/{endpoint}/variant/{variant}"


def deployed_endpoint(
    endpoint: Mapping[str, Any], config: Mapping[str, Any], scalable_targets: Sequence[Mapping[str, Any]]
) -> DeployedEndpoint:
    """From the answers of DescribeEndpoint, DescribeEndpointConfig and DescribeScalableTargets.

    Raises `UnsuitableEndpoint`.
    """
    name, variants = endpoint["EndpointName"], config["ProductionVariants"]
    if endpoint["EndpointStatus"] != "InService":
        raise UnsuitableEndpoint(name, f"it is {endpoint['EndpointStatus']}. Wait until it is InService.")
    if len(variants) != 1:
        raise UnsuitableEndpoint(name, f"it has {len(variants)} variants, and a job takes one.")
    (variant,) = variants
    if "InstanceType" not in variant:
        raise UnsuitableEndpoint(name, "it is serverless, and a job takes a real-time endpoint on instances.")
    if config.get("AsyncInferenceConfig"):
        raise UnsuitableEndpoint(name, "it is asynchronous, and a job takes a real-time endpoint.")
    if scalable_targets:
        raise UnsuitableEndpoint(
            name,
            "autoscaling is on, and a job takes an endpoint of a fixed size. Test a copy of it, or deregister the "
            f"scalable target {resource_id(name, variant['VariantName'])} for as long as the job runs.",
        )
    counts = {item["VariantName"]: item.get("CurrentInstanceCount") for item in endpoint.get("ProductionVariants", [])}
    return DeployedEndpoint(
        name=name,
        variant_name=variant["VariantName"],
        instance_type=variant["InstanceType"],
        instance_count=counts.get(variant["VariantName"]) or variant["InitialInstanceCount"],
    )
