"""`tune` on the command line: its space and its refusals, before a server starts."""

import json
from pathlib import Path

import pytest

from inference_recommender.__main__ import main
from inference_recommender.tune.folder import TuneFolder
from inference_recommender.tune.space import own
from tests.inference_recommender.tune.builders import a_plan
from workloads import ROOT, load_workload

SPELLCHECK = load_workload("spellcheck").workload
FILE = ROOT / "workloads/spellcheck/workload.toml"


def with_settings(*settings: str) -> list[str]:
    return [word for setting in settings for word in ("--set", f"tune.{setting}")]


def test_a_dry_run_prints_the_space_and_starts_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    settings = with_settings(
        "targets=cpu,cpu-int8",
        "threads=1",
        "model_instances=1",
        "max_batch_sizes=1,8",
        "preferred_batch_sizes=[[], [4, 8]]",
        "max_queue_delays_ms=[0]",
    )
    assert main(["tune", "spellcheck", *settings, "--dry-run", "--json", "--runs", str(tmp_path)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "workload": "spellcheck",
        "configurations": [
            f"{target}, 1 × 1 thread, {rest}"
            for target in ("cpu", "cpu-int8")
            for rest in ("no batching", "batch 8, delay 0 ms", "batch 8 (4, 8), delay 0 ms")
        ],
        "left_out": {},
    }
    assert list(tmp_path.iterdir()) == []


REFUSED = {
    (): "WORKLOAD: missing. Name the workload to tune, or a search to go on with --resume RUN.",
    ("spellcheck", 'targets=["gpu"]'): f"{FILE}: there is no target 'gpu'. Known targets: cpu, cpu-int8, cuda, "
    "tensorrt, tensorrt-int8.",
    ("spellcheck", "threads=[0]"): "--set tune: threads.0: got 0. Input should be greater than or equal to 1.",
    ("spellcheck", "max_duration_s=0"): "--set tune: max_duration_s: got 0. Input should be greater than 0.",
    ("query_intent", 'targets=["inf1"]'): "tune.targets: inf1 is for Inferentia, and tune loads configurations into "
    "Triton.",
    ("spellcheck", "max_batch_sizes=[4]", "preferred_batch_sizes=[[8]]"): f"{FILE}: tune: no configuration is left to "
    "try: the values exclude each other.",
    ("duplicates",): "workloads/duplicates/workload.toml: objective: is a throughput, because it is a batch. ",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_a_space_that_cannot_be_searched_is_refused(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", *arguments[:1], *with_settings(*arguments[1:]), "--dry-run"]) == 2
    assert capsys.readouterr().err.startswith(REFUSED[arguments])


def test_a_resumed_search_takes_no_settings(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = TuneFolder(tmp_path / "run")
    folder.begin(a_plan([own(SPELLCHECK, "cpu")]), SPELLCHECK, b"")
    resume = ["tune", "--resume", str(folder.path), "--dry-run"]
    assert main([*resume, "--set", "tune.threads=[2]"]) == 2
    assert capsys.readouterr().err == (
        f"--resume: {folder.path} has the settings of the search. Only --json and --dry-run may go with it.\n"
    )
    assert main(resume) == 0
    assert capsys.readouterr().out == "cpu, 2 × 1 thread, batch 16 (4, 8), delay 0 ms\n1 configuration.\n"
