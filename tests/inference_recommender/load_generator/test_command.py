"""The load generator as a process, against a real server on loopback: what it tells, keeps and ends with."""

import json
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from inference_recommender.payloads import payload_archive
from tests.inference_recommender.server import serving

pytestmark = pytest.mark.integration


class Generator:
    def __init__(self, folder: Path, url: str, users: int = 4, seconds: int = 3, **conditions: Any) -> None:
        self.out = folder / "out"
        payloads = folder / "payloads.tar.gz"
        payloads.write_bytes(payload_archive([{"text": f"query {number}"} for number in range(20)]))
        pattern = {
            "TrafficType": "PHASES",
            "Phases": [{"InitialNumberOfUsers": users, "SpawnRate": 60, "DurationInSeconds": seconds}],
        }
        plan = {
            "url": url,
            "payloads": str(payloads),
            "content_type": "application/json",
            "traffic_pattern": pattern,
            "stopping_conditions": {
                "ModelLatencyThresholds": [{"Percentile": "P95", "ValueInMilliseconds": 500}],
                **conditions,
            },
            "job_duration_s": 100,
            "window_s": 0.5,
        }
        self.plan = folder / "plan.json"
        self.plan.write_text(json.dumps(plan), "utf-8")

    def start(self) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "inference_recommender.load_generator", str(self.plan), "--out", str(self.out)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run(self) -> tuple[int, list[dict[str, Any]]]:
        process = self.start()
        stdout, _ = process.communicate(timeout=60)
        return process.returncode, [json.loads(line) for line in stdout.splitlines()]

    def summary(self) -> dict[str, Any]:
        return dict(json.loads((self.out / "summary.json").read_text("utf-8")))


def test_a_run_tells_its_windows_and_keeps_every_request(tmp_path: Path) -> None:
    with serving() as server:
        generator = Generator(tmp_path, server.url)
        code, events = generator.run()
        assert code == 0
        assert [event["event"] for event in events] == ["started", *["window"] * 6, "finished"]
        assert [window["users"] for window in events[1:-1]] == [4, 4, 5, 5, 6, 6]
        assert events[-1]["reason"] == generator.summary()["reason"] == "traffic ended"
        records = np.load(generator.out / "records.npz", allow_pickle=False)
        assert len(records["finished_s"]) == len(server.seen)
        assert set(records["status"]) == {200}
        assert (records["intended_s"] <= records["sent_s"]).all()
        assert (records["sent_s"] < records["finished_s"]).all()
        assert {json.loads(body)["inputs"][0]["data"][0] for body in server.seen} == {
            f"query {number}" for number in range(20)
        }


def test_a_user_sends_its_next_request_only_when_the_last_one_returned(tmp_path: Path) -> None:
    with serving(delay_s=0.01) as server:
        generator = Generator(tmp_path, server.url)
        generator.run()
    records = np.load(generator.out / "records.npz", allow_pickle=False)
    for user in set(records["user"]):
        of_user = records["user"] == user
        assert (records["sent_s"][of_user][1:] >= records["finished_s"][of_user][:-1]).all()


def test_the_histogram_gives_the_percentiles_back_within_a_percent_or_two(tmp_path: Path) -> None:
    with serving(delay_s=0.005) as server:
        _, events = Generator(tmp_path, server.url).run()
    window = events[-2]
    values = np.repeat([latency for latency, _ in window["histogram"]], [count for _, count in window["histogram"]])
    assert len(values) == window["invocations"]
    assert np.percentile(values, 50) == pytest.approx(window["latency_ms"]["p50"], rel=0.02)


def test_max_invocations_stops_the_run(tmp_path: Path) -> None:
    with serving() as server:
        code, events = Generator(tmp_path, server.url, seconds=60, MaxInvocations=100).run()
    assert (code, events[-1]["reason"]) == (0, "max invocations")


def test_a_latency_threshold_stops_the_run(tmp_path: Path) -> None:
    threshold = [{"Percentile": "P95", "ValueInMilliseconds": 10}]
    with serving(delay_s=0.02) as server:
        code, events = Generator(tmp_path, server.url, seconds=60, ModelLatencyThresholds=threshold).run()
    assert (code, events[-1]["reason"]) == (0, "model latency threshold")


def test_a_target_that_dies_midway_ends_the_run_with_what_was_measured(tmp_path: Path) -> None:
    with serving() as server:
        generator = Generator(tmp_path, server.url, seconds=60)
        process = generator.start()
        time.sleep(2.5)
        server.die()
        stdout, _ = process.communicate(timeout=20)
    assert process.returncode == 3
    assert json.loads(stdout.splitlines()[-1])["reason"].startswith("target failed: 127.0.0.1:")
    assert generator.summary()["invocations"] > 0
    assert (generator.out / "records.npz").exists()


def test_a_target_that_refuses_every_request_is_told_with_its_answer(tmp_path: Path) -> None:
    with serving(lambda body: (400, b'{"error":"unexpected input TEXTS"}')) as server:
        code, events = Generator(tmp_path, server.url, seconds=60).run()
    assert code == 3
    assert events[-1]["reason"] == 'target failed: HTTP 400: {"error":"unexpected input TEXTS"}'


def test_too_many_errors_make_the_run_invalid(tmp_path: Path) -> None:
    def one_in_ten_fails(body: bytes) -> tuple[int, bytes]:
        return (500, b"no") if b"query 3" in body else (200, b"{}")

    with serving(one_in_ten_fails) as server:
        code, events = Generator(tmp_path, server.url).run()
    assert code == 4
    assert events[-1]["reason"].startswith("too many errors: ")
    assert events[-1]["reason"].endswith("requests failed; the first: HTTP 500: no")


def test_too_few_samples_make_the_run_invalid(tmp_path: Path) -> None:
    with serving(delay_s=0.5) as server:
        code, events = Generator(tmp_path, server.url, users=1, seconds=2).run()
    assert code == 4
    assert events[-1]["reason"].startswith(
        "too few samples: P95 needs at least 59 independent requests at one load; the run"
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_in_good_order(tmp_path: Path, number: signal.Signals) -> None:
    with serving() as server:
        generator = Generator(tmp_path, server.url, seconds=60)
        process = generator.start()
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1)
        process.send_signal(number)
        stdout, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert json.loads(stdout.splitlines()[-1]) == {"event": "finished", "reason": "stopped"}
    assert generator.summary()["invocations"] > 0


def test_payloads_that_cannot_be_read_are_refused_in_a_sentence(tmp_path: Path) -> None:
    generator = Generator(tmp_path, "http://127.0.0.1:9/invocations")
    payloads = tmp_path / "payloads.tar.gz"
    payloads.write_bytes(payloads.read_bytes()[:100])
    process = generator.start()
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == 2
    assert stderr.startswith(f"{payloads}: cannot be read: ")
    with tarfile.open(payloads, "w:gz"):
        pass
    process = generator.start()
    _, stderr = process.communicate(timeout=20)
    assert stderr == f"{payloads}: holds no file. Give a folder or a tar.gz of request bodies, one file each.\n"
