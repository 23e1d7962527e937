"""The requests that register a workload's model in the model registry. Pure."""

from collections.abc import Mapping
from typing import Any

from inference_recommender.measure.job_requests import DOMAIN, FRAMEWORK, JSON, TASKS
from workloads import Unavailable, Workload


def group_request(workload: Workload) -> dict[str, Any]:
    """Returns the request of CreateModelPackageGroup."""
    return {
        "ModelPackageGroupName": _group_name(workload.name),
        "ModelPackageGroupDescription": workload.description,
        "Tags": [{"Key": "workload", "Value": workload.name}],
    }


def package_request(workload: Workload, model: Mapping[str, Any], payload_url: str) -> dict[str, Any]:
    """Returns the request of CreateModelPackage for a version that awaits approval. `model` is a response of
    DescribeModel. Raises `Unavailable` if the model is not one container with an image.
    """
    return {
        "ModelPackageGroupName": _group_name(workload.name),
        "ModelPackageDescription": workload.description,
        "ModelApprovalStatus": "PendingManualApproval",
        "Domain": DOMAIN,
        "Task": TASKS[workload.model.task],
        "SamplePayloadUrl": payload_url,
        "InferenceSpecification": {
            "Containers": [{**_package_container(model), **FRAMEWORK}],
            "SupportedContentTypes": [JSON],
            "SupportedResponseMIMETypes": [JSON],
            "SupportedRealtimeInferenceInstanceTypes": list(workload.instance_types),
        },
    }


def _group_name(workload: str) -> str:
    """Returns the workload's name without underscores, which the registry does not allow."""
    return workload.replace("_", "-")


def _package_container(model: Mapping[str, Any]) -> dict[str, Any]:
    containers = [model["PrimaryContainer"]] if model.get("PrimaryContainer") else model.get("Containers", [])
    if len(containers) != 1 or "Image" not in containers[0]:
        raise Unavailable(
            f"Model {model['ModelName']} cannot be registered: a model package needs one container with an image. Set "
            "another with --set recommender.model=NAME."
        )
    copied = ("Image", "ModelDataUrl", "ModelDataSource", "Environment")
    return {name: containers[0][name] for name in copied if containers[0].get(name)}
