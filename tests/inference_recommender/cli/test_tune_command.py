"""`tune` on the command line: what would be tried, and what is refused before anything is started."""

import json
from pathlib import Path

import pytest

from inference_recommender.__main__ import main
from inference_recommender.tune.folder import TuneFolder, TunePlan
from inference_recommender.tune.space import own
from workloads import ROOT, load_workload

SPELLCHECK = load_workload("spellcheck").workload


def test_a_dry_run_prints_the_space_and_starts_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["tune", "spellcheck", "--targets", "cpu", "cpu-int8", "--threads", "1", "--model-instances", "1"]
    arguments += ["--max-batch-sizes", "1", "8", "--preferred-batch-sizes", "none", "4,8", "--max-queue-delays-ms", "0"]
    assert main([*arguments, "--dry-run", "--json", "--runs", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "workload": "spellcheck",
        "configurations": [
            "cpu, 1 × 1 thread, no batching",
            "cpu, 1 × 1 thread, batch 8, delay 0 ms",
            "cpu, 1 × 1 thread, batch 8 (4, 8), delay 0 ms",
            "cpu-int8, 1 × 1 thread, no batching",
            "cpu-int8, 1 × 1 thread, batch 8, delay 0 ms",
            "cpu-int8, 1 × 1 thread, batch 8 (4, 8), delay 0 ms",
        ],
        "left_out": {},
    }
    assert list(tmp_path.iterdir()) == []


REFUSED = {
    (): "WORKLOAD: missing. Name the workload to tune, or a search to go on with --resume RUN.",
    ("spellcheck", "--targets", "gpu"): f"{ROOT / 'workloads/spellcheck/workload.toml'}: there is no target 'gpu'. "
    "Known targets: cpu, cpu-int8, cuda, tensorrt.",
    ("spellcheck", "--threads", "0"): "options of tune: threads.0: got 0. Input should be greater than or equal to 1.",
    ("spellcheck", "--max-duration-s", "0"): "--max-duration-s: got 0. Allowed: more than 0.",
    ("query_intent", "--targets", "inf1"): "--targets: inf1 is for Inferentia, and tune loads configurations into a "
    "Triton.",
    ("spellcheck", "--max-batch-sizes", "4", "--preferred-batch-sizes", "8"): f"[tune] of "
    f"{ROOT / 'workloads/spellcheck/workload.toml'}: no configuration is left to try: nothing fits together.",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_what_cannot_be_searched_is_refused_in_one_sentence(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *arguments, "--dry-run"]) == 2
    assert capsys.readouterr().err.strip() == REFUSED[arguments]


def test_a_batch_has_no_latency_to_tune_for(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tune", "duplicates", "--dry-run"]) == 2
    assert "objective: is a throughput, because it is a batch." in capsys.readouterr().err


def test_a_resumed_search_takes_no_options(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = TuneFolder(tmp_path / "run")
    plan = TunePlan(
        workload="spellcheck",
        configurations=(own(SPELLCHECK, "cpu"),),
        left_out=(),
        archives={},
        instance_type=None,
        longest_s=1800.0,
    )
    folder.begin(plan, SPELLCHECK, b"")
    assert main(["tune", "--resume", str(folder.path), "--threads", "2", "--targets", "cpu", "--dry-run"]) == 2
    assert capsys.readouterr().err.strip() == (
        f"--resume: {folder.path} says what is searched; leave out --targets, --threads, or start a new search."
    )
    assert main(["tune", "--resume", str(folder.path), "--dry-run"]) == 0
    assert capsys.readouterr().out == "cpu, 1 × 1 thread, batch 16 (4, 8), delay 0 ms\n1 configuration.\n"
