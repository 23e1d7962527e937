"""Benchmarks take their documented options, run commands that exist, and print tables and goals."""

import json
import re
import runpy
import shlex
import subprocess
import sys
from math import nan
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from benchmarks import batch, changes, neuron_server, published, search_rate, serving
from benchmarks.generator import compare
from benchmarks.harness import Turn
from benchmarks.searches import repeatability
from inference_recommender.load_generator.process import Outcome
from local_aws import machine, nvml
from tests.test_docs import refusal, refusal_of
from workloads import ROOT
from workloads.program import exit_code

PAGES = [ROOT / "benchmarks" / "RESULTS.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMANDS = sorted({found for page in PAGES for found in re.findall(r"`python (benchmarks/[^`]+)`", page.read_text())})
PARTS = {
    "benchmarks/goals.py",
    "benchmarks/harness.py",
    "benchmarks/peers.py",
    "benchmarks/plain_triton.py",
    "benchmarks/searches/simulated_service.py",
    "benchmarks/text2text/engines.py",
    "benchmarks/text2text/models.py",
}


def test_every_benchmark_has_a_documented_command() -> None:
    files = {str(file.relative_to(ROOT)) for file in (ROOT / "benchmarks").rglob("*.py")}
    assert {command.split()[0] for command in COMMANDS} == files - PARTS


@pytest.mark.parametrize("command", COMMANDS)
def test_a_documented_command_is_valid(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", shlex.split(command))
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = str(ROOT / command.split()[0])
    assert refusal_of(lambda: runpy.run_path(file, run_name="__main__"), monkeypatch) == ""


def test_the_commands_that_benchmarks_run_are_valid(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[list[str]] = []

    def run(command: Any, **options: object) -> "subprocess.CompletedProcess[str]":
        ran.append([str(word) for word in command])
        return subprocess.CompletedProcess(command, 4, json.dumps({"rows_per_second": 1, "padding_share": 0}), "last")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(subprocess, "Popen", run)
    monkeypatch.setattr(published, "make_role", lambda account: "arn:aws:iam::123456789012:role/a")
    monkeypatch.setattr(published, "ROOT", tmp_path)
    for name in ("cpu-twin", "gpu-twin"):
        published.build("text_classification", name)
        published.measure("text_classification", name, account=None)  # type: ignore[arg-type]
    repeatability._rate({}, tmp_path, "quiet", 1)
    run(repeatability.DEPLOY[0])
    batch._ours("cpu", tmp_path / "pairs.jsonl", tmp_path / "output")
    compare._ours("http://127.0.0.1:1", 1, 1.0, tmp_path)
    assert len(ran) == 8 + 12 + 6
    for _, dash_m, program, *arguments in ran:
        assert dash_m == "-m"
        assert refusal(program, arguments, monkeypatch) == ""


def test_the_experiment_on_a_gpu_names_what_this_machine_lacks_and_does_no_work(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(machine, "gpus", lambda: ())
    monkeypatch.setattr(nvml, "library", lambda: None)
    monkeypatch.setattr(published, "_torch_finds_gpu", lambda: False)
    monkeypatch.setattr(published, "build", lambda workload, name: pytest.fail("built"))
    monkeypatch.setattr(sys, "argv", ["published.py", "text_classification", "gpu-twin"])
    assert exit_code(published.main) == 3
    assert capsys.readouterr().err == (
        "published.gpu-twin runs on an NVIDIA GPU of this machine, which lacks a GPU that nvidia-smi lists, PyTorch "
        "with CUDA in .venv-triton (`make triton` where pip finds PyPI's torch), nvidia-ml-py (`bash scripts/"
        "install_locked.sh .venv/bin/python requirements/gpu.txt`). Install these, or run it on a machine "
        "with a GPU.\n"
    )
    monkeypatch.setattr(machine, "gpus", lambda: ("NVIDIA T4",))
    monkeypatch.setattr(nvml, "library", object)
    monkeypatch.setattr(published, "_torch_finds_gpu", lambda: True)
    published.check_machine("text_classification", "gpu-twin")


def test_mixed_lengths_have_the_percentiles_of_the_goal() -> None:
    tokenizer = Tokenizer.from_file(str(ROOT / "workloads" / serving.LONG / "checkpoint" / "tokenizer.json"))
    tokenizer.no_truncation()
    lengths = [len(tokenizer.encode(text).ids) for text in serving.mixed_texts()]
    p50, p99 = np.percentile(lengths, [50, 99])
    assert p50 == pytest.approx(serving.P50_TOKENS, rel=0.1)
    assert p99 == pytest.approx(serving.P99_TOKENS, rel=0.15)
    assert max(lengths) <= serving.MOST_TOKENS


def test_neuron_server_is_judged_by_requests_and_cpu(capsys: pytest.CaptureFixture[str]) -> None:
    turns = {"triton": [Turn(5.0, 0.1, 0.5, 10.0)], "ours": [Turn(5.0, 0.2, 0.25, 8.0)]}
    assert neuron_server.report({16: turns}) == 1
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "16 users                                        ms      ×    CPU ms      ×    P99 ms",
        "triton                                           5      1       0.1      1        10  2,000/s",
        "ours                                             5      1       0.2    0.5         8  4,000/s",
        "",
        "goal                                   figure  limit    verdict",
        "16 users: ours over triton, mean_ms         2  ≥ 0.95   met      CPU 0.5",
        "16 users: ours over triton, cpu_ms        0.5  ≥ 0.95   missed   CPU 0.5",
    ]


def test_changes_are_judged_by_failures_and_by_requests_in_flight() -> None:
    figures = dict.fromkeys(changes.FIGURES, 0) | {"failed": 1, "in flight": 1}
    cells = [f"{name}, {retries}" for name in ("canary", "killed", "hangs") for retries in ("with", "without")]
    judged = changes.judge({cell: figures | {"in flight": int("killed" in cell)} for cell in cells})
    assert [(goal.cell, goal.verdict) for goal in judged] == [
        ("canary, with: failed", "missed"),
        ("canary, without: failed", "missed"),
        ("killed, with: failed", "missed"),
        ("killed, without: failed", "met"),
    ]


def test_batch_compares_rows_per_second(capsys: pytest.CaptureFixture[str]) -> None:
    rates = {batch.BASELINE: 1000.0, "ours fp32": 5000.0, "ours int8": 3000.0}
    measured = {
        name: [{"rows_per_second": rate, "padding_share": 0.25, "answers": ["yes"]}] for name, rate in rates.items()
    }
    assert batch.report(measured, {batch.BASELINE: {"threads": 2, "batch_rows": 16}}) == 1
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "duplicates, a row                               ms      ×    CPU ms      ×    P99 ms",
        "huggingface pipeline                             1      1         -      -         -  "
        "1,000 rows/s, 9 machines, padding 25.0%, 0 other answers",
        "ours fp32                                      0.2      5         -      -         -  "
        "5,000 rows/s, 2 machines, padding 25.0%, 0 other answers",
        "ours int8                                   0.3333      3         -      -         -  "
        "3,000 rows/s, 3 machines, padding 25.0%, 0 other answers",
        "goal                                                      figure  limit    verdict",
        "duplicates, a row: ours fp32 over huggingface pipeline         5  ≥ 4      met",
        "duplicates, a row: ours int8 over huggingface pipeline         3  ≥ 4      missed",
    ]


def test_generators_are_compared_with_the_asynchronous_peer_where_the_other_has_no_report(
    capsys: pytest.CaptureFixture[str],
) -> None:
    ours, hung = Turn(0.25, 0.01, 0.25, 0.5), Turn(nan, 0.05, 0.5, nan)
    rounds = {compare.OURS: [ours], compare.PERF_ANALYZER: [hung], compare.ASYNC: [Turn(1.0, 0.08, 1.0, 2.0)]}
    assert compare.report({2: rounds}) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "2 connections                                   ms      ×    CPU ms      ×    P99 ms",
        "ours                                          0.25      1      0.01      1       0.5  4,000/s",
        "perf_analyzer                                    -      -      0.05    0.2         -  2,000/s",
        "… --async                                        1   0.25      0.08  0.125         2  1,000/s",
        "locust                                    not installed",
        "",
        "goal                                               figure  limit    verdict",
        "2 connections: ours over perf_analyzer, cpu_ms          5  ≥ 4      met      CPU 5",
        "2 connections: ours over … --async, p99_ms              4  ≥ 1      met      CPU 8",
        "2 connections: ours over perf_analyzer, mean_ms         2  ≥ 1      met      CPU 5",
    ]


def outcome(**summary: object) -> Outcome:
    return Outcome(folder=Path(), exit_code=0, reason="", summary=summary)


def test_the_table_has_what_generators_and_server_took_of_all_requests_sent(capsys: pytest.CaptureFixture[str]) -> None:
    sent = [
        outcome(invocations=20_000, duration_s=10.0, generator={"cpu_share": share, "lag_ms": 0.1})
        for share in (0.1, 0.3)
    ]
    latency = {"p50": 2.0, "p99": 12.0}
    merged = outcome(invocations=36_009, errors=9, duration_s=9.0, client_latency_from_intended_ms=latency)
    row = {"asked": 4000.0, **search_rate.summary(merged, sent, server_s=8.0)}
    assert search_rate.report([row], 16_000, 2, 10.0) == 1
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "asked/s  reached/s  P50 ms  P99 ms  generators: CPU µs  cores  server: CPU µs  cores",
        "  4,000      4,000    2.00   12.00               100.0   0.40           200.0   0.80",
        "16,000 requests/s need 1.6 cores for the 2 generators and 3.2 for the server.",
        "goal                                          figure  limit    verdict",
        "share of 16,000 requests/s that is reached      0.25  ≥ 0.98   missed",
        "P99 in ms                                         12  ≤ 10     missed",
    ]


@pytest.mark.slow
@pytest.mark.integration
def test_several_generators_drive_query_intents_server(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(search_rate, "PARTS", (1,))
    monkeypatch.setattr(search_rate, "START_S", 10.0)
    monkeypatch.setattr(sys, "argv", ["search_rate.py", "--rate", "300", "--generators", "2", "--seconds", "5"])
    search_rate.main()
    [row] = json.loads(capsys.readouterr().out.splitlines()[-1])["rates"]
    assert row["asked"] == 300
    assert 0 < row["reached"] < 600
    assert row["generators_cpu_us"] > 0
    assert row["server_cpu_us"] > 0
