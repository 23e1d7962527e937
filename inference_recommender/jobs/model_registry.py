"""A model as a version in the model registry, with what Inference Recommender reads from there. Pure.

In: a workload, the model that its stack deployed (DescribeModel), where its payloads lie. Out: the requests of
CreateModelPackageGroup and CreateModelPackage.
"""

from collections.abc import Mapping
from typing import Any

from inference_recommender.errors import Unregistrable
from inference_recommender.jobs.requests import DOMAIN, FRAMEWORK, JSON, TASKS
from workloads import Workload


def group_name(workload: str) -> str:
    """The registry knows no underscores."""
    return workload.replace("_", "-")


def group_request(workload: Workload) -> dict[str, Any]:
    return {
        "ModelPackageGroupName": group_name(workload.name),
        "ModelPackageGroupDescription": workload.description,
        "Tags": [{"Key": "workload", "Value": workload.name}],
    }


def package_request(workload: Workload, model: Mapping[str, Any], payload_url: str, description: str) -> dict[str, Any]:
    """A version of the workload's group; whoever deploys from the registry is to approve it. Raises `Unregistrable`."""
    return {
        "ModelPackageGroupName": group_name(workload.name),
        "ModelPackageDescription": description,
        "ModelApprovalStatus": "PendingManualApproval",
        "Domain": DOMAIN,
        "Task": TASKS[workload.model.task],
        "SamplePayloadUrl": payload_url,
        "InferenceSpecification": {
            "Containers": [{**_container(model), **FRAMEWORK}],
            "SupportedContentTypes": [JSON],
            "SupportedResponseMIMETypes": [JSON],
            "SupportedRealtimeInferenceInstanceTypes": list(workload.instance_types),
        },
    }


def _container(model: Mapping[str, Any]) -> dict[str, Any]:
    containers = [model["PrimaryContainer"]] if model.get("PrimaryContainer") else model.get("Containers", [])
    if len(containers) != 1 or "Image" not in containers[0]:
        raise Unregistrable(model["ModelName"])
    kept = ("Image", "ModelDataUrl", "ModelDataSource", "Environment")
    return {name: containers[0][name] for name in kept if containers[0].get(name)}
