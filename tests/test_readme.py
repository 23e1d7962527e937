"""The README says what the command lines say: every flag it shows exists, every flag there is it shows."""

import re
import subprocess
import sys

import pytest

from workloads import ROOT

README = (ROOT / "README.md").read_text("utf-8")

COMMANDS = {
    ("model_build", "build"): {
        "--all",
        "--target",
        "--variants",
        "--json",
        "--on",
        "--dry-run",
        "--role-arn",
        "--bucket",
        "--instance-type",
        "--image-uri",
        "--kms-key",
        "--security-group",
        "--subnet",
        "--max-runtime-s",
    },
    ("model_build", "verify"): {"--all", "--target", "--variants", "--recorded", "--json"},
    ("model_build", "plan"): {"--all", "--target", "--variants", "--json"},
    ("model_build", "lint"): {
        "--workload",
        "--target",
        "--image",
        "--tensorrt-version",
        "--instance-type",
        "--host-ami",
        "--env",
        "--shared-memory-mb",
        "--payloads",
        "--json",
    },
    ("inference_recommender", "run"): {
        "--with",
        "--url",
        "--model",
        "--instance-type",
        "--instances",
        "--generators",
        "--generator-type",
        "--generator-image-uri",
        "--job",
        "--resume",
        "--traffic",
        "--from-default",
        "--dry-run",
        "--json",
        "--job-name",
        "--runs",
        "--model-name",
        "--model-package",
        "--endpoint",
        "--role-arn",
        "--payload-bucket",
        "--subnet",
        "--security-group",
        "--kms-key",
        "--tag",
        "--description",
    },
    ("inference_recommender", "register"): {
        "--model-name",
        "--payload-bucket",
        "--description",
        "--json",
    },
    ("inference_recommender", "list"): {"--limit", "--json"},
    ("inference_recommender", "describe"): {"--json"},
    ("inference_recommender", "stop"): {"--json"},
    ("inference_recommender", "experiment"): {
        "--with",
        "--host-ami",
        "--variants",
        "--instance-types",
        "--traffic",
        "--baseline",
        "--role-arn",
        "--image-uri",
        "--payload-bucket",
        "--runs",
        "--resume",
        "--dry-run",
        "--json",
    },
    ("inference_recommender.load_generator",): {"--out"},
    ("inference_recommender", "capacity"): {
        "--url",
        "--model",
        "--percentile",
        "--latency-limit-ms",
        "--max-duration-s",
        "--runs",
        "--json",
    },
    ("inference_recommender", "compare"): {"--json"},
    ("inference_recommender", "report"): set(),
    ("inference_recommender", "invoke"): {"--endpoint"},
    ("local_aws",): {"--port", "--state", "--region"},
}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_flags_that_help_shows_are_the_ones_in_the_readme(command: tuple[str, ...]) -> None:
    room, *verb = command
    shown = subprocess.run(
        [sys.executable, "-m", room, *verb, "--help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert set(re.findall(r"--[a-z][a-z-]*", shown)) - {"--help"} >= COMMANDS[command]
    assert {flag for flag in re.findall(r"^\s+(--[a-z-]+)", shown, re.M) if flag != "--help"} == COMMANDS[command]
    for flag in COMMANDS[command]:
        assert flag in README


def test_every_room_is_in_the_tree() -> None:
    for room in (
        "workloads/",
        "model_build/",
        "containers/",
        "inference_recommender/",
        "stacks/",
        "local_aws/",
        "tests/",
    ):
        assert f"\n{room}" in README


def test_every_documented_exit_code_is_in_the_table() -> None:
    assert re.findall(r"^\| (\d+) \|", README, re.M) == ["0", "1", "2", "3", "4", "130"]


def test_the_output_shown_is_filled_in() -> None:
    assert "@@" not in README
