"""The suite runs the same wherever it is started: in CodeBuild, with a profile, in a shell that has credentials."""

import os
import subprocess
import sys
from itertools import groupby

import boto3
import pytest
from hypothesis import HealthCheck, settings

from tests.process_state import STATE
from tests.rooms import LONGEST_FIRST, TOGETHER, next_file, rank, room
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


@pytest.mark.parametrize("state", LEAKS)
def test_a_test_that_changes_its_process_fails_and_the_next_one_does_not(state: str, pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.process_state import unchanged_process_state")
    pytester.makepyfile(f"def test_leaks():\n    {LEAKS[state]}\n\ndef test_does_not():\n    pass\n")
    done = pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:cacheprovider")
    done.assert_outcomes(passed=2, errors=1)
    done.stdout.fnmatch_lines([f"*The test changed its process.*{state}: *", "ERROR *::test_leaks*"])


def test_every_kind_of_state_has_a_test_that_changes_it() -> None:
    assert list(LEAKS) == list(STATE)


def test_drawing_random_numbers_and_module_fixtures_that_set_variables_are_no_leaks(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("from tests.process_state import unchanged_process_state")
    pytester.makepyfile(
        """
        import os, random, sys, warnings
        import pytest

        @pytest.fixture(scope="module")
        def variable():
            os.environ["FOR_THE_MODULE"] = "yes"
            yield
            del os.environ["FOR_THE_MODULE"]

        @pytest.mark.parametrize("count", [1, 700, 100_000])
        def test_draws(count):
            for _ in range(count):
                random.random()

        def test_uses_the_variable(variable):
            pass
        """
    )
    pytester.runpytest_inprocess("-p", "no:xdist", "-p", "no:cacheprovider").assert_outcomes(passed=4)


def test_a_seed_gives_one_order_of_a_file_whatever_else_is_collected() -> None:
    def order(seed: str, *paths: str) -> list[str]:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *paths]
        done = subprocess.run(
            command, cwd=ROOT, env={**os.environ, "TEST_SEED": seed}, capture_output=True, text=True, check=True
        )
        return [line for line in done.stdout.splitlines() if "::" in line]

    file = "tests/workloads/test_files.py"
    alone, other_seed = order("1", file), order("2", file)
    assert alone != other_seed
    assert sorted(alone) == sorted(other_seed)
    folder = order("1", "tests/workloads")
    assert [name for name in folder if name.startswith(file)] == alone
    files = [name.split("::")[0] for name in folder]
    assert len(list(groupby(files))) == len(set(files)), "the tests of a file are apart"
    assert files != sorted(files)


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
