"""A checkpoint in S3 that cannot be fetched is one sentence."""

from pathlib import Path

import boto3
import pytest

from model_build.checkpoint.fetch import fetch_from_s3
from tests.builders import message_of
from workloads import Unavailable


def test_without_credentials_a_checkpoint_cannot_be_fetched(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it keeps the credentials that it found first
    assert message_of(Unavailable, fetch_from_s3, "s3://models/v1", tmp_path) == (
        "The checkpoint 's3://models/v1' cannot be fetched: Unable to locate credentials. Check the URI and your AWS "
        "credentials, or start `python -m local_aws`."
    )
