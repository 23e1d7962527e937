"""Tests find no credentials and no region, and fail if they change their process."""

import os
import subprocess
import sys

import boto3
import pytest
from hypothesis import HealthCheck, settings

from tests.process_state import STATE
from workloads import ROOT

pytest_plugins = ["pytester"]

LEAKS = {
    "recursion limit": "import sys; sys.setrecursionlimit(sys.getrecursionlimit() + 1)",
    "umask": "import os; os.umask(0o012)",
    "locale": "import locale; locale.setlocale(locale.LC_ALL, 'C.UTF-8')",
    "environment": "import os; os.environ['LEAKED'] = 'yes'",
    "working directory": "import os; os.chdir('/')",
    "state of random": "import random; random.seed(1)",
    "state of numpy.random": "import numpy; numpy.random.seed(1)",
    "signal handlers": "import signal; signal.signal(signal.SIGUSR1, signal.SIG_IGN)",
    "warnings filters": "import warnings; warnings.simplefilter('ignore')",
}
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


@pytest.mark.parametrize("state", LEAKS)
def test_only_the_test_that_changes_its_process_fails(state: str, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.process_state import unchanged_process_state")
    pytester.makepyfile(f"def test_leaks():\n    {LEAKS[state]}\n\ndef test_does_not():\n    pass\n")
    done = pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines([f"*The test changed its process.*{state}: *", "ERROR *::test_leaks*"])


def test_every_kind_of_state_has_a_test_that_changes_it() -> None:
    assert list(LEAKS) == list(STATE)
