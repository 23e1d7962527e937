"""Tests find no credentials and no region."""

import os
import subprocess
import sys

import boto3
from hypothesis import HealthCheck, settings

from workloads import ROOT

SOURCES = {
    "AWS_ACCESS_KEY_ID": "dummy",
    "AWS_SECRET_ACCESS_KEY": "dummy",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/dummy",
    "AWS_WEB_IDENTITY_TOKEN_FILE": "/dummy",
    "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/dummy",
    "AWS_PROFILE": "dummy",
    "AWS_REGION": "eu-south-1",
    "AWS_DEFAULT_REGION": "eu-south-1",
    "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
    "CDK_DEFAULT_REGION": "eu-south-1",
}


def test_tests_have_no_credentials_and_no_region() -> None:
    session = boto3.Session()
    assert session.get_credentials() is None
    assert session.region_name is None
    assert not [name for name in SOURCES if name in os.environ]


def test_credentials_of_the_shell_are_removed() -> None:
    inner = f"{__file__}::{test_tests_have_no_credentials_and_no_region.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", inner]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **SOURCES}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_result_of_hypothesis_depends_on_time() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check
