"""The endpoint of one cell that the harness measures, as requests. Pure."""

from dataclasses import dataclass
from typing import Any

from workloads.instances import instance_shape

VARIANT = "AllTraffic"
LONGEST_NAME = 63


@dataclass(frozen=True, kw_only=True, slots=True)
class EndpointPlan:
    config: dict[str, Any]
    """Of CreateEndpointConfig."""
    endpoint: dict[str, Any]
    """Of CreateEndpoint."""

    @property
    def name(self) -> str:
        return str(self.endpoint["EndpointName"])


def plan_endpoint(model_name: str, number: int, instance_type: str, host_ami: str | None) -> EndpointPlan:
    """One instance of `instance_type`, under a name of its own: the model's and the cell's number in the batch.

    `host_ami` is for GPU instances alone.
    """
    tail = f"-{number}"
    name = f"{model_name[: LONGEST_NAME - len(tail)]}{tail}"
    shape = instance_shape(instance_type)
    variant = {
        "VariantName": VARIANT,
        "ModelName": model_name,
        "InstanceType": instance_type,
        "InitialInstanceCount": 1,
        **({"InferenceAmiVersion": host_ami} if host_ami and shape and shape.gpus else {}),
    }
    return EndpointPlan(
        config={"EndpointConfigName": name, "ProductionVariants": [variant]},
        endpoint={"EndpointName": name, "EndpointConfigName": name},
    )
