"""Cleanup of an account: it decides by tags, tolerates half-deleted tests, and outlasts throttling."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
import pytest

from aws_api.expiry import expiry_of, expiry_tag
from aws_api.sagemaker import SageMakerAccount
from inference_recommender.cli.jobs import CleanupResult, cleanup
from local_aws.process.local_account import LocalAccount
from tests.local_aws.conftest import BUCKET, IMAGE, ROLE, Endpoints, refused
from tests.local_aws.sagemaker.test_recommender_runs import session

NOW = datetime.now(UTC)
PAST, FUTURE = NOW - timedelta(hours=1), NOW + timedelta(hours=1)


@pytest.fixture
def reached(account: LocalAccount, monkeypatch: pytest.MonkeyPatch) -> boto3.Session:
    monkeypatch.setenv("AWS_ENDPOINT_URL", account.endpoint_url)
    return session(account)


def _outcomes(found: Iterable[CleanupResult], prefix: str) -> dict[tuple[str, str], str]:
    return {(one.kind, one.name): one.outcome for one in found if one.name.startswith(prefix)}


def test_what_a_killed_experiment_left_behind_is_deleted_and_nothing_else(
    reached: boto3.Session, sagemaker: Any, endpoints: Endpoints
) -> None:
    """The endpoint's configuration is gone already; the others are half of a test that was deleted."""
    expired, other = expiry_tag(PAST), {"Key": "workload", "Value": "spellcheck"}
    for name, tag in (("left-old", expired), ("left-new", expiry_tag(FUTURE)), ("left-mine", other)):
        endpoints.config(name, tags=[tag])
    endpoints.settled(endpoints.create("left-old", config="left-old", Tags=[expired, other]))
    sagemaker.delete_endpoint_config(EndpointConfigName="left-old")

    account = SageMakerAccount(reached)
    shown = _outcomes(cleanup(account, NOW, dry_run=True), "left-")
    assert shown == {
        ("endpoint", "left-old"): "would be deleted",
        ("endpoint-config", "left-new"): "kept",
        ("model", "left-old-model"): "would be deleted",
        ("model", "left-new-model"): "kept",
    }
    done = _outcomes(cleanup(account, NOW, dry_run=False), "left-")
    assert done == {key: outcome.replace("would be ", "") for key, outcome in shown.items()}
    assert endpoints.deleted("left-old")[2].startswith("Could not find")
    assert refused(sagemaker.describe_model, ModelName="left-old-model")[2].startswith("Could not find")
    assert sagemaker.describe_model(ModelName="left-mine-model")
    again = _outcomes(cleanup(account, NOW, dry_run=False), "left-")
    assert again == {("endpoint-config", "left-new"): "kept", ("model", "left-new-model"): "kept"}


def test_what_an_experiment_takes_up_again_has_a_new_expiry(reached: boto3.Session, sagemaker: Any) -> None:
    """A resumed experiment may use old resources; a cleanup must not delete it."""
    account = SageMakerAccount(reached)
    container = {"Image": IMAGE, "ModelDataUrl": f"s3://{BUCKET}/echo.tar.gz"}
    request = {"ModelName": "resumed-1", "ExecutionRoleArn": ROLE, "PrimaryContainer": container}
    for expires_at in (PAST, FUTURE):
        account.make_model({**request, "Tags": [expiry_tag(expires_at)]})
    arn = sagemaker.describe_model(ModelName="resumed-1")["ModelArn"]
    tags = sagemaker.list_tags(ResourceArn=arn)["Tags"]
    assert [expiry_of([tag]) for tag in tags] == [FUTURE.replace(microsecond=0)]
    assert _outcomes(cleanup(account, NOW, dry_run=False), "resumed-") == {("model", "resumed-1"): "kept"}
