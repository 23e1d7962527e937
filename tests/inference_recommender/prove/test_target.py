"""The facts of an endpoint or a server that a proof goes by, and the refusals."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from aws_api.expiry import expiry_tag
from inference_recommender.prove.target import (
    Described,
    Target,
    endpoint_target,
    refuse_another,
    refuse_beyond_the_lease,
    refuse_less_than_the_fleet,
    url_target,
)
from tests.inference_recommender.prove.recommended import TARGET, a_candidate, a_recommendation
from workloads import Unavailable, UsageError

FILE = Path("workloads/spellcheck/recommendation.json")
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
            "SpellcheckStack: is proven only with one variant, on instances. Deploy such an endpoint, or name it.",
        ),
        (
            {"config": {"ProductionVariants": [{"VariantName": "AllTraffic", "ServerlessConfig": {}}]}},
            "SpellcheckStack: is proven only with one variant, on instances. Deploy such an endpoint, or name it.",
        ),
        (
            {"scalable_targets": [{}]},
            "SpellcheckStack: autoscaling is on, so that its instances would become more under the load. Deploy with "
            "`-c autoscaling=off`, or deregister endpoint/SpellcheckStack/variant/AllTraffic while the proof runs.",
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


def test_another_archive_than_was_measured_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        refuse_another(replace(TARGET, archive_sha256="b" * 64), a_recommendation(), a_candidate(), FILE)
    assert str(caught.value) == (
        "workloads/spellcheck/recommendation.json: archive_sha256: was measured on the artifact aaaaaaaaaaaa…, but "
        "endpoint-1 serves bbbbbbbbbbbb…. Deploy the artifact that was measured, or measure the one that serves."
    )


def test_another_instance_type_than_is_recommended_is_refused() -> None:
    with pytest.raises(UsageError) as caught:
        refuse_another(replace(TARGET, instance_type="ml.g5.xlarge"), a_recommendation(), a_candidate(), FILE)
    assert str(caught.value) == (
        "workloads/spellcheck/recommendation.json: recommended.instance_type: is ml.c5.xlarge, but endpoint-1 runs on "
        "ml.g5.xlarge. Prove it on an endpoint of ml.c5.xlarge."
    )


def test_what_is_not_known_of_a_server_is_not_refused() -> None:
    unknown = replace(TARGET, archive_sha256=None, instance_type="unknown")
    refuse_another(unknown, a_recommendation(), a_candidate(), FILE)


def test_an_endpoint_too_small_for_the_whole_peak_is_refused() -> None:
    refuse_less_than_the_fleet(replace(TARGET, instances=10), a_candidate(10), 12_000)
    with pytest.raises(UsageError) as caught:
        refuse_less_than_the_fleet(replace(TARGET, instances=4), a_candidate(10), 12_000)
    assert str(caught.value) == (
        "--fleet: endpoint-1 has 4 instances, and 12,000 invocations/min are for the 10 that are recommended. Deploy "
        "the fleet, or leave out --fleet: each instance that is there then gets its share."
    )
    with pytest.raises(UsageError) as caught:
        refuse_less_than_the_fleet(replace(TARGET, stands_in=True), a_candidate(10), 12_000)
    assert str(caught.value) == (
        "--fleet: endpoint-1 has one server for all of its instances, as every endpoint on this machine has, and "
        "12,000 invocations/min are for the 10 that are recommended. Deploy the fleet, or leave out --fleet: each "
        "instance that is there then gets its share."
    )


def test_an_endpoint_that_may_be_swept_before_the_proof_has_ended_is_refused() -> None:
    leased = _endpoint(tags=[expiry_tag(NOW + timedelta(minutes=10))])
    refuse_beyond_the_lease(leased, 600, NOW)
    refuse_beyond_the_lease(TARGET, 1e9, NOW)
    with pytest.raises(UsageError) as caught:
        refuse_beyond_the_lease(leased, 726, NOW)
    assert str(caught.value) == (
        "--max-duration-s: the proof may take 726 s, but SpellcheckStack expires in 600 s, at "
        "2026-11-23T03:10:00+00:00. Give it less, or prove it on an endpoint that stays."
    )
