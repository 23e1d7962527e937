"""The suite runs the same wherever it is started: in CodeBuild, with a profile, in a shell that has credentials."""

import os
import subprocess
import sys

import boto3
from hypothesis import HealthCheck, settings

from tests.rooms import LONGEST_FIRST, TOGETHER, next_file, rank, room
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


def test_a_test_finds_no_credentials_and_no_region() -> None:
    session = boto3.Session()
    assert session.get_credentials() is None
    assert session.region_name is None
    assert not [name for name in SOURCES if name in os.environ]


def test_it_finds_none_in_an_environment_full_of_them() -> None:
    inner = f"{__file__}::{test_a_test_finds_no_credentials_and_no_region.__name__}"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", inner]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **SOURCES}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_no_verdict_of_hypothesis_depends_on_time() -> None:
    assert settings.default is not None
    assert settings.default.deadline is None
    assert HealthCheck.too_slow in settings.default.suppress_health_check


def test_a_process_stays_in_its_room_then_begins_another_and_helps_in_the_end() -> None:
    waiting = ["tests/stacks/test_a.py", "tests/local_aws/x/test_b.py", "tests/test_c.py"]
    assert next_file(waiting, mine=[], begun=["tests/stacks/batch/test_d.py"]) == "tests/local_aws/x/test_b.py"
    mine = ["tests/local_aws/test_e.py"]
    assert next_file(waiting, mine, begun=[*mine, "tests/stacks/test_d.py"]) == "tests/local_aws/x/test_b.py"
    assert next_file(waiting, mine=["tests/test_make.py"], begun=[]) == "tests/test_c.py"
    others = ["tests/stacks/test_d.py", "tests/test_make.py", "tests/local_aws/test_f.py"]
    assert next_file(waiting, mine=["tests/fuzz/test_g.py"], begun=others) == "tests/stacks/test_a.py"


def test_a_file_that_makes_what_a_folder_shares_is_in_its_room() -> None:
    assert {name for name in (*TOGETHER, *LONGEST_FIRST) if not (ROOT / name).exists()} == set()
    assert room("tests/test_app.py") == room("tests/stacks/endpoint/test_api_calls.py") == "tests/stacks"


def test_the_rooms_in_which_help_is_dear_are_begun_first() -> None:
    files = ["tests/fuzz/test_a.py", "tests/test_b.py", "tests/stacks/test_c.py", "tests/model_build/x/test_d.py"]
    assert sorted(files, key=rank) == [files[3], files[1], files[2], files[0]]
