"""The main job end to end with real measurements: jobs that succeed, fail, are interrupted, or come to no verdict."""

import json
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.builders import known
from tests.local_aws.conftest import wait_until
from tests.repository_copy import RepositoryCopy, repository_copy
from workloads import ROOT, NoVerdict, Recommendation, file_sha256

pytestmark = [pytest.mark.integration, pytest.mark.slow]

TRAFFIC = """
[traffic.{name}]
type = "phases"
phases = [{{ initial_users = 1, spawn_rate_per_minute = 12, duration_s = {seconds} }}]
stop = {{ flat_invocations = "Continue" }}
"""
NO_CANDIDATE = 1
DURATIONS_S = {"tiny": 12, "longer-tiny": 60, "long": 90}


def recommend(*options: str) -> tuple[str, ...]:
    return ("python", "-m", "inference_recommender", "run", "spellcheck", "--job", "advanced", *options)


def finish(process: "subprocess.Popen[str]") -> str:
    """Waits for the end of a process that was started and returns its standard error."""
    return process.communicate(timeout=300)[1]


def status(copy: RepositoryCopy, job: str) -> str:
    sagemaker = copy.client("sagemaker")
    try:
        return str(sagemaker.describe_inference_recommendations_job(JobName=job)["Status"])
    except sagemaker.exceptions.ResourceNotFound:
        return "none yet"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RepositoryCopy]:
    """The copy, built, and deployed without a recommendation."""
    with repository_copy(tmp_path_factory.mktemp("walk") / "repository") as copy:
        with (copy.root / "workloads" / "spellcheck" / "workload.toml").open("a", encoding="utf-8") as toml:
            toml.writelines(TRAFFIC.format(name=name, seconds=seconds) for name, seconds in DURATIONS_S.items())
        copy.run("python", "-m", "model_build", "build", "spellcheck", "--target", "cpu")
        copy.run("cdk", "bootstrap", "--ci")
        copy.deploy()
        yield copy


@pytest.fixture(scope="module")
def recommended(deployed: RepositoryCopy) -> Recommendation:
    """The recommendation of a short job, deployed. Measures up to three times where noise allows no verdict, or is such
    that no rate of open arrivals keeps the objective.
    """
    for traffic in ("tiny", "longer-tiny", "longer-tiny"):
        process = deployed.start(*recommend("--traffic", traffic, "--json"))
        stdout, stderr = process.communicate(timeout=300)
        if process.returncode not in (NO_CANDIDATE, NoVerdict.exit_code):
            break
    else:
        pytest.skip(f"this machine is too busy to measure: {stderr.splitlines()[-1]}")
    assert process.returncode == 0, stderr
    deployed.deploy()
    return Recommendation.model_validate_json(stdout)


def test_the_job_becomes_a_recommendation_of_what_this_machine_did(
    deployed: RepositoryCopy, recommended: Recommendation
) -> None:
    assert recommended.provenance.measured_on == "local"
    assert recommended == Recommendation.from_json(deployed.root / "workloads" / "spellcheck" / "recommendation.json")
    assert recommended.archive_sha256 == file_sha256(deployed.root / "build" / "spellcheck" / "cpu" / "model.tar.gz")
    chosen = known(recommended.recommended)
    assert chosen.max_invocations_per_minute
    assert known(chosen.model_latency_ms) <= 200
    assert chosen.model_latency_percentiles_ms.p99 is not None
    assert chosen.cost_per_hour_usd is not None
    page = (deployed.root / recommended.provenance.run / "report.html").read_text("utf-8")
    assert page.count("<svg") == 3, "throughput, latency by rate, and capacity by burstiness"


def test_triton_killed_midway_fails_the_job_with_the_reason_and_keeps_what_was_measured(
    deployed: RepositoryCopy,
) -> None:
    before = {server.pid for server in deployed.tritons()}
    running = deployed.start(*recommend("--traffic", "long", "--name", "spellcheck-killed"))
    wait_until(lambda: status(deployed, "spellcheck-killed") == "IN_PROGRESS" and len(deployed.tritons()) > len(before))
    time.sleep(8)
    (victim,) = [server for server in deployed.tritons() if server.pid not in before]
    victim.send_signal(signal.SIGKILL)
    stderr = finish(running)
    assert running.returncode == 3
    assert "Job spellcheck-killed failed: " in stderr
    assert "was killed by signal 9" in stderr
    run_folder = deployed.root / "runs" / "spellcheck-killed"
    assert json.loads((run_folder / "describe.json").read_text("utf-8"))["Status"] == "FAILED"
    (measured,) = json.loads((run_folder / "measurements.json").read_text("utf-8"))
    assert sum(measured["series"]["invocations"]) > 0
    assert {server.pid for server in deployed.tritons()} == before


def test_ctrl_c_stops_the_job_and_keeps_what_was_measured(deployed: RepositoryCopy) -> None:
    before = {server.pid for server in deployed.tritons()}
    job = "spellcheck-interrupted"
    running = deployed.start(*recommend("--traffic", "long", "--name", job))
    wait_until(lambda: status(deployed, job) == "IN_PROGRESS" and len(deployed.tritons()) > len(before))
    time.sleep(5)
    running.send_signal(signal.SIGINT)
    stderr = finish(running)
    assert running.returncode == 130
    assert stderr.splitlines()[-1] == f"Interrupted: job {job} was stopped. Measurements: runs/{job}."
    assert status(deployed, job) == "STOPPED"
    assert {server.pid for server in deployed.tritons()} == before


def test_the_walk_itself_ends_with_a_recommendation_and_its_costs(tmp_path: Path, deployed: RepositoryCopy) -> None:
    """`make run` in another copy, with an account of its own beside the one that runs."""
    root = tmp_path / "repository"
    shutil.copytree(deployed.root, root, ignore=shutil.ignore_patterns("runs", ".local_aws", "recommendation.json"))
    (root / ".venv-triton").symlink_to(ROOT / ".venv-triton")
    command = ["python", "-m", "scripts.walk"]
    done = subprocess.run(command, cwd=root, env=deployed.environment(), capture_output=True, text=True, check=False)
    if done.returncode == NoVerdict.exit_code:
        pytest.skip(f"this machine is too busy to measure: {done.stdout[-500:]}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Recommended: " in done.stdout
    assert "  waterproof hiking boots for teenagers  " in done.stdout
    assert len(done.stdout.splitlines()) <= 50
