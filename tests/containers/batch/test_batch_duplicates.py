"""A night's batch: 200,000 product pairs through the small trained model, killed and started again twice."""

import itertools
import json
import math
from pathlib import Path

import pytest

from model_build.build import build
from model_build.plan import plan
from tests.containers.batch.batch_run import install, kill_group, read_rows, run, start, wait_for_parts
from workloads import ROOT, WorkloadFolder
from workloads.objective import ThroughputObjective

PAIRS = 200_000
CHUNK_ROWS = 4096
RELATIONS_RIGHT = 0.8


@pytest.mark.slow
def test_killed_twice_it_answers_every_pair_once(tmp_path: Path) -> None:
    duplicates = WorkloadFolder(ROOT / "workloads" / "duplicates")
    planned = plan(duplicates, "cpu-int8", tmp_path)
    build(planned)
    source, output, program = tmp_path / "pairs.jsonl", tmp_path / "out", install(tmp_path / "program")
    labels = []
    with source.open("w") as file:
        for number, pair in enumerate(itertools.islice(itertools.cycle(duplicates.evaluation()), PAIRS)):
            file.write(json.dumps({"id": number, **pair.row}) + "\n")
            labels.append(pair.label)
    command = ["--model", planned.repository, "--input", source, "--output", output, "--chunk-rows", CHUNK_ROWS]

    chunks = math.ceil(PAIRS / CHUNK_ROWS)
    for share in (1 / 3, 2 / 3):
        process = start(program, *command)
        wait_for_parts(output, int(chunks * share), process)
        assert process.poll() is None, "it was done before it could be killed"
        kill_group(process)
    ended = run(program, *command)

    assert ended.code == 0, ended.log
    assert ended.summary is not None
    assert 0 < ended.summary["rows_done_before"] < PAIRS
    answers = read_rows(output, "predictions")
    assert [answer["id"] for answer in answers] == list(range(PAIRS))
    assert sum(a["RELATION"] == label for a, label in zip(answers, labels, strict=True)) > RELATIONS_RIGHT * PAIRS
    manifest = json.loads((output / "manifest.json").read_text())
    assert (manifest["rows"], manifest["answered"], manifest["bad"]) == (PAIRS, PAIRS, 0)
    assert ended.summary["padding_share"] < 0.02
    _print(ended.summary["rows_per_second"], ended.summary["workers"], duplicates)


def _print(rows_per_second: float, workers: int, duplicates: WorkloadFolder) -> None:
    objective = duplicates.workload.objective
    assert isinstance(objective, ThroughputObjective)
    peak = objective.rows_per_second
    machines = math.ceil(peak / rows_per_second)
    print(f"\n{rows_per_second:,.0f} rows/s with {workers} workers; {machines} such machines for {peak:,.0f}/s")
