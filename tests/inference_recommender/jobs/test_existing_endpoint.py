"""Which endpoints a job may test, and what it must know of them."""

from typing import Any

import pytest

from inference_recommender.errors import UnsuitableEndpoint
from inference_recommender.jobs.existing_endpoint import deployed_endpoint
from inference_recommender.measurement import DeployedEndpoint

VARIANT = {"VariantName": "AllTraffic", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1}


def endpoint(**changes: Any) -> dict[str, Any]:
    now = {"VariantName": "AllTraffic", "CurrentInstanceCount": 3}
    return {"EndpointName": "lives", "EndpointStatus": "InService", "ProductionVariants": [now], **changes}


def config(**changes: Any) -> dict[str, Any]:
    return {"ProductionVariants": [VARIANT], **changes}


def test_it_is_known_with_the_instances_that_it_has_now() -> None:
    assert deployed_endpoint(endpoint(), config(), []) == DeployedEndpoint(
        name="lives", variant_name="AllTraffic", instance_type="ml.g5.xlarge", instance_count=3
    )


@pytest.mark.parametrize(
    ("described", "configured", "targets", "why"),
    [
        (endpoint(EndpointStatus="Updating"), config(), [], "it is Updating. Wait until it is InService."),
        (
            endpoint(),
            config(ProductionVariants=[VARIANT, {**VARIANT, "VariantName": "Canary"}]),
            [],
            "it has 2 variants, and a job takes one.",
        ),
        (
            endpoint(),
            config(ProductionVariants=[{"VariantName": "AllTraffic", "ServerlessConfig": {}}]),
            [],
            "it is serverless, and a job takes a real-time endpoint on instances.",
        ),
        (
            endpoint(),
            config(AsyncInferenceConfig={"OutputConfig": {}}),
            [],
            "it is asynchronous, and a job takes a real-time endpoint.",
        ),
        (
            endpoint(),
            config(),
            [{"ResourceId": "endpoint/lives/variant/AllTraffic"}],
            "autoscaling is on, and a job takes an endpoint of a fixed size. Test a copy of it, or deregister the "
            "scalable target endpoint/lives/variant/AllTraffic for as long as the job runs.",
        ),
    ],
)
def test_an_endpoint_that_the_service_excludes_is_refused(
    described: dict[str, Any], configured: dict[str, Any], targets: list[dict[str, Any]], why: str
) -> None:
    with pytest.raises(UnsuitableEndpoint) as caught:
        deployed_endpoint(described, configured, targets)
    assert str(caught.value) == f"--endpoint: lives cannot be tested by an Inference Recommender job: {why}"
    assert caught.value.exit_code == 3
