"""The facts of an endpoint or a server that open arrivals go to."""

from datetime import UTC, datetime
from typing import Any

import pytest

from aws_api.expiry import expiry_tag
from inference_recommender.measure.target import Described, Target, endpoint_target, url_target
from workloads import Unavailable, UsageError

NOW = datetime(2026, 11, 23, 3, 0, tzinfo=UTC)
SHA256 = "ab" * 32
VARIANT = {"VariantName": "AllTraffic", "InstanceType": "ml.g5.xlarge", "InitialInstanceCount": 1, "ModelName": "m-1"}


def _described(**changes: Any) -> Described:
    members: dict[str, Any] = {
        "endpoint": {
            "EndpointName": "SpellcheckStack",
            "EndpointStatus": "InService",
            "ProductionVariants": [{"VariantName": "AllTraffic", "CurrentInstanceCount": 4}],
        },
        "config": {"ProductionVariants": [VARIANT]},
        "model": {"PrimaryContainer": {"ModelDataUrl": f"s3://cdk-assets/{SHA256}.tar.gz"}},
        "tags": [],
        "scalable_targets": [],
    }
    return Described(**{**members, **changes})


def _endpoint(*, on_this_machine: bool = False, **changes: Any) -> Target:
    return endpoint_target(_described(**changes), "us-east-1", on_this_machine=on_this_machine)


def test_an_endpoint_has_the_archive_the_type_and_the_instances_that_aws_tells() -> None:
    target = _endpoint()
    assert (target.archive_sha256, target.instance_type, target.instances) == (SHA256, "ml.g5.xlarge", 4)
    assert (target.endpoint is not None, target.url, target.measured_on) == (True, None, "sagemaker")
    assert target.expires_at is None
    assert _endpoint(tags=[expiry_tag(NOW)]).expires_at == NOW


def test_an_endpoint_on_this_machine_is_one_server_that_is_asked_directly() -> None:
    tags = [{"Key": "local-aws:invocations-url", "Value": "http://127.0.0.1:4000/key/invocations"}]
    scaled = [{"ResourceId": "endpoint/SpellcheckStack/variant/AllTraffic"}]
    target = _endpoint(on_this_machine=True, tags=tags, scalable_targets=scaled)
    assert (target.instances, target.stands_in, target.measured_on) == (1, True, "local")
    assert (target.url, target.endpoint) == ("http://127.0.0.1:4000/key/invocations", None)


@pytest.mark.parametrize("url", ["s3://own-bucket/model.tar.gz", "s3://own-bucket/deadbeef.tar.gz", ""])
def test_an_archive_under_a_name_of_ones_own_is_unknown(url: str) -> None:
    assert _endpoint(model={"PrimaryContainer": {"ModelDataUrl": url}}).archive_sha256 is None
    assert _endpoint(model={}).archive_sha256 is None


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"endpoint": {"EndpointName": "SpellcheckStack", "EndpointStatus": "Updating"}},
            "SpellcheckStack is Updating. Wait until it is InService.",
        ),
        (
            {"config": {"ProductionVariants": [VARIANT, VARIANT]}},
            "SpellcheckStack: only endpoints of one variant, on instances, are loaded so. Deploy or name such a one.",
        ),
        (
            {"config": {"ProductionVariants": [{"VariantName": "AllTraffic", "ServerlessConfig": {}}]}},
            "SpellcheckStack: only endpoints of one variant, on instances, are loaded so. Deploy or name such a one.",
        ),
        (
            {"scalable_targets": [{}]},
            "SpellcheckStack: autoscaling is on, so that its instances would become more under the load. Deploy with "
            "`-c autoscaling=off`, or deregister endpoint/SpellcheckStack/variant/AllTraffic meanwhile.",
        ),
    ],
)
def test_an_endpoint_whose_instances_would_not_get_their_share_is_refused(changes: dict[str, Any], told: str) -> None:
    with pytest.raises(Unavailable) as caught:
        _endpoint(**changes)
    assert str(caught.value) == told


def test_a_server_is_asked_by_its_model() -> None:
    target = url_target("http://service.internal:8000", "spellcheck", 2, None, None)
    assert (target.url, target.instances) == ("http://service.internal:8000/v2/models/spellcheck/infer", 2)
    assert (target.instance_type, target.measured_on) == ("unknown", "service")
    assert url_target("http://[::1]:8000", "spellcheck", 1, None, None).measured_on == "local"


def test_what_is_no_url_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        url_target("localhost:8000", "spellcheck", 1, None, None)
    assert str(caught.value) == "--url: got 'localhost:8000', but a URL is http://HOST:PORT or https://HOST."
