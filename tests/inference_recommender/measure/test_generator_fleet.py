"""Several generators as one Processing job: the request, what travels, the meeting, the merging, Ctrl-C.

The instances run in virtual time.
"""

import json
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aws_api.service_model import problems
from inference_recommender.measure import generator_entry
from inference_recommender.measure.generator_fleet import (
    FleetDrive,
    pack_source,
    plan_fleet,
    source_files,
)
from inference_recommender.progress import Progress
from inference_recommender.run_folder import RunFolder
from tests.builders import known, message_of
from tests.inference_recommender.measure.test_load_test import a_test, measured_by
from tests.inference_recommender.measure.virtual_load import VirtualFleet
from workloads import ROOT, Interrupted, Unavailable, WorkloadFolder


def fleet(**changes: Any) -> dict[str, Any]:
    three = {
        "generators": 3,
        "instance_type": "ml.c5.2xlarge",
        "image_uri": "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.10.0-cpu-py313",
        "role_arn": "arn:aws:iam::123456789012:role/Generators",
        "bucket": "bucket",
        "region": "us-east-1",
    }
    return {**three, **changes}


def test_a_fleet_is_one_processing_job_that_the_service_would_take() -> None:
    vpc = fleet(subnets=("subnet-1",), security_groups=("sg-1",), kms_key="key")
    request = plan_fleet("spellcheck", "spellcheck-production-1", 1800, **vpc).request()
    assert problems("sagemaker", "CreateProcessingJob", request) == []
    assert request["ProcessingResources"]["ClusterConfig"]["InstanceCount"] == 3
    assert request["StoppingCondition"] == {"MaxRuntimeInSeconds": 3600}
    assert request["ProcessingInputs"][0]["S3Input"]["S3DataDistributionType"] == "FullyReplicated"
    assert request["NetworkConfig"] == {"VpcConfig": {"SecurityGroupIds": ["sg-1"], "Subnets": ["subnet-1"]}}


def test_what_travels_is_the_same_bytes_for_the_same_files_and_enough_for_the_generator() -> None:
    names = source_files(ROOT)
    needed = {"inference_recommender/load_generator/__main__.py", "workloads/document.py", "workloads/instances.json"}
    assert {*needed, "aws_api/errors.py", "requirements/generator.txt", "requirements/uv.txt"} <= set(names)
    assert not [name for name in names if "__pycache__" in name or name.startswith("tests")]
    assert pack_source(ROOT) == pack_source(ROOT)


def test_what_a_generator_runs_on_is_installed_from_a_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[str] = []

    def run(command: list[str], **_: Any) -> "subprocess.CompletedProcess[str]":
        commands.append(" ".join(command))
        return subprocess.CompletedProcess(command, 0, "")

    monkeypatch.setattr(subprocess, "run", run)
    assert generator_entry.install(Path("/w")) == "/w/.venv/bin/python"
    locked = "--require-hashes --only-binary :all: --no-deps"
    assert commands == [
        f"{sys.executable} -m pip install --quiet {locked} --target /w/.uv --requirement /w/requirements/uv.txt",
        "/w/.uv/bin/uv venv --quiet --python 3.11 /w/.venv",
        f"/w/.uv/bin/uv pip install --quiet --python /w/.venv/bin/python {locked} "
        "--requirements /w/requirements/generator.txt",
    ]


def test_three_generators_merge_to_what_the_servers_saw(source: WorkloadFolder, run_folder: RunFolder) -> None:
    account = VirtualFleet()
    job = plan_fleet("spellcheck", "spellcheck-quick-1", 4, **fleet())
    drive = FleetDrive(job, account, ROOT, Progress())
    measured = measured_by(a_test(drive=drive, users=6), source, run_folder)
    shares = [json.loads(file.read_text("utf-8")) for file in sorted((run_folder.path / "load").glob("*/summary.json"))]
    assert len(shares) == 3
    total = sum(share["invocations"] for share in shares)
    assert len(account.network.requests) - 3 * 4 <= total <= len(account.network.requests), "all but unfinished ones"
    assert total == pytest.approx(3 * (50 + 3 * 100), abs=3 * 4)
    merged = json.loads((run_folder.path / "load" / "summary.json").read_text("utf-8"))
    assert merged["generators"] == 3
    assert 0.6 * total < merged["invocations"] <= total, "those of the time in which all were at work"
    assert sum(count or 0 for count in known(measured.series).invocations) == merged["invocations"]
    assert measured.closed_loop_invocations_per_minute == pytest.approx(6 * 50 * 60 / 2, rel=0.05), (
        "per instance, of two"
    )
    assert account.created == [job.request()]
    sent = {url.removeprefix(f"{job.source_url}/") for url in account.objects if url.startswith(job.source_url)}
    reader = {"containers/__init__.py", "containers/archive_reader.py"}
    assert sent == {"source.tar.gz", "entry.py", "plan.json", "payloads.tar.gz", "token", *reader}


@pytest.mark.parametrize("measures", [True, False])
def test_ctrl_c_stops_the_fleet_and_keeps_what_it_measured(
    source: WorkloadFolder, run_folder: RunFolder, measures: bool
) -> None:
    account = VirtualFleet()
    account.interrupted, account.measures = True, measures
    job = plan_fleet("spellcheck", "spellcheck-quick-1", 4, **fleet(generators=2))
    with pytest.raises(Interrupted):
        measured_by(a_test(drive=FleetDrive(job, account, ROOT, Progress())), source, run_folder)
    assert account.stopped == ["spellcheck-quick-1"]
    (measured,) = run_folder.measurements()
    if measured.series is None:
        assert measured.failure_reason == (
            "s3://bucket/inference-recommender/spellcheck/load-test/spellcheck-quick-1/output: has what 0 of 2 "
            "generators measured. Without the others no rate is known."
        )
    assert measures == (measured.series is not None and sum(count or 0 for count in measured.series.invocations) > 50)


def test_a_job_that_fails_says_why(source: WorkloadFolder, run_folder: RunFolder) -> None:
    account = VirtualFleet()
    account.failure = "source.tar.gz: it is not gzip. Start the run again: it uploads it anew."
    job = plan_fleet("spellcheck", "spellcheck-quick-1", 4, **fleet(generators=1))
    with pytest.raises(Unavailable) as caught:
        measured_by(a_test(drive=FleetDrive(job, account, ROOT, Progress())), source, run_folder)
    assert str(caught.value) == f"Processing job spellcheck-quick-1 failed: {account.failure}"


HOSTS = ["127.0.0.1", "127.0.0.2", "127.0.0.3"]
SECRET = "secret"
GENERATOR = """
import json, sys
from pathlib import Path
arguments = sys.argv[sys.argv.index("inference_recommender.load_generator") + 1:]
plan, out = json.loads(Path(arguments[0]).read_text()), Path(arguments[2])
(out / "summary.json").write_text(json.dumps(plan))
(out / "records.npz").write_bytes(b"every request")
print(json.dumps({"event": "finished", "reason": "traffic ended"}))
sys.exit(4)
"""


@pytest.mark.parametrize(
    "said",
    [b"", b"127.0.0.2 \n", b"127.0.0.2 guessed\n", b"127.0.0.9 secret\n", b"\xff\n", b"127.0.0.2 " + b"x" * 100_000],
)
def test_a_stranger_that_connects_is_no_generator(said: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sent away before the others come, and no one of them is missing then."""
    monkeypatch.setattr(generator_entry, "MEETING_S", 60)
    monkeypatch.setattr(generator_entry, "PEER_S", 0.2)
    port = _free_port()
    with ThreadPoolExecutor(len(HOSTS)) as threads:
        first = threads.submit(generator_entry.meet, HOSTS[0], HOSTS, port, 5.0, SECRET)
        stranger = _said(port, said)
        assert not said or _sent_away(stranger)
        others = [threads.submit(generator_entry.meet, host, HOSTS, port, 5.0, SECRET) for host in HOSTS[1:]]
        assert {other.result(30) for other in others} == {first.result(30)}
    stranger.close()


def test_a_host_that_connects_again_is_still_one() -> None:
    port = _free_port()
    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(generator_entry.meet, HOSTS[0], HOSTS, port, 5.0, SECRET)
        before, again = (_said(port, b"127.0.0.2 secret\n") for _ in range(2))
        assert before.recv(100) == b"", "not told to start, but replaced"
        third = threads.submit(generator_entry.meet, HOSTS[2], HOSTS, port, 5.0, SECRET)
        assert float(again.recv(100)) == first.result(30) == third.result(30)
    before.close()
    again.close()


def _said(port: int, words: bytes) -> socket.socket:
    """Connects to the first host as soon as it listens, and says `words`."""
    deadline = time.monotonic() + 30
    while True:
        try:
            connection = socket.create_connection((HOSTS[0], port), timeout=30)
        except ConnectionRefusedError:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            continue
        connection.sendall(words)
        return connection


def _sent_away(connection: socket.socket) -> bool:
    """Waits until the other side has hung up, and returns whether it did so without a word."""
    try:
        return connection.recv(100) == b""
    except ConnectionResetError:  # it had not read all that was said
        return True


def test_a_host_that_misses_the_others_says_what_to_check(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generator_entry, "MEETING_S", 0.05)
    message = message_of(generator_entry.StepFailed, generator_entry.meet, HOSTS[0], HOSTS, _free_port(), 5.0, SECRET)
    assert "the 3 generators did not meet on port" in message
    assert "the security group must let its members speak to each other" in message


def test_an_instance_runs_its_share_and_leaves_its_results_without_the_single_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a generator that writes its plan as its result."""
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    system, python = tmp_path / "instance", tmp_path / "python"
    (tmp_path / "generator.py").write_text(GENERATOR, "utf-8")
    python.write_text(f'#!/bin/sh\nexec {sys.executable} {tmp_path / "generator.py"} "$@"\n', "utf-8")
    python.chmod(0o755)
    source = system / "opt/ml/processing/source"
    source.mkdir(parents=True)
    (source / "source.tar.gz").write_bytes(pack_source(ROOT))
    (source / "plan.json").write_text('{"url": "http://server"}', "utf-8")
    (source / generator_entry.TOKEN).write_text(SECRET, "ascii")
    (system / "opt/ml/config").mkdir()
    resources = {"current_host": HOSTS[0], "hosts": HOSTS[:1]}
    (system / "opt/ml/config/resourceconfig.json").write_text(json.dumps(resources), "utf-8")

    assert generator_entry.main(system, python=str(python), port=_free_port()) == 0
    output = system / "opt/ml/processing/output" / HOSTS[0]
    assert sorted(file.name for file in output.iterdir()) == [
        "exit.json",
        "generator.log",
        "records.npz",
        "summary.json",
    ]
    assert json.loads((output / "exit.json").read_text("utf-8")) == {"exit_code": 4, "reason": "traffic ended"}
    told = json.loads((output / "summary.json").read_text("utf-8"))
    assert told["share"] == {"index": 0, "of": 1}
    assert told["payloads"] == f"{source}/payloads.tar.gz"
    assert (system / "opt/ml/processing/work/inference_recommender/load_generator/__main__.py").exists()


def test_a_crash_of_the_entry_is_told_from_what_the_network_or_the_disk_refuses(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message, source = tmp_path / "opt/ml/output/message", tmp_path / "opt/ml/processing/source"
    config = tmp_path / "opt/ml/config/resourceconfig.json"
    assert generator_entry.main(tmp_path) == 3
    assert "resourceconfig.json" in message.read_text("utf-8")
    for folder in (source, config.parent):
        folder.mkdir(parents=True)
    config.write_text(json.dumps({"current_host": HOSTS[0], "hosts": HOSTS[:1]}), "utf-8")
    (source / "source.tar.gz").write_bytes(b"no archive")
    assert generator_entry.main(tmp_path) == 3
    assert message.read_text("utf-8").startswith("source.tar.gz: it is not gzip. Start the run again")
    config.write_text("{}", "utf-8")
    assert generator_entry.main(tmp_path) == 70
    assert message.read_text("utf-8") == ("Unforeseen KeyError: 'current_host'. The traceback is in the job's log.")
    assert "Traceback (most recent call last)" in capsys.readouterr().err


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
