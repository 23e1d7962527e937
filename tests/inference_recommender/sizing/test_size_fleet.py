"""`size` with a job's description, a run, an experiment or a search; with neither AWS nor boto3."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from inference_recommender import size
from inference_recommender.__main__ import main
from inference_recommender.measurement import measurements
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.evidence import Evidence, described_job
from inference_recommender.sizing.fleet import Demand
from tests.builders import a_measurement, known
from tests.inference_recommender.api import SERIES, description, endpoint, recommendation
from tests.inference_recommender.conftest import Cli
from tests.inference_recommender.sizing.builders import OF_USERS, job, job_result, job_text
from workloads import ROOT, Candidate, Sizing, load_workload

PEAK = ("--peak-invocations-per-minute", "30000")
EXACT = ("--set", "sizing.headroom=0")
ON_A_LAPTOP = (
    "Warning: Measured on this machine, not on SageMaker. a laptop stood in for every instance type. Size production "
    "from a job on SageMaker.\n"
)


def sized(evidence: Evidence, peak: float = 100, limit: float | None = None, **sizing: Any) -> tuple[Candidate, ...]:
    demand = Demand(peak_invocations_per_minute=peak, model_latency_ms=limit)
    return evidence.candidates(demand, Sizing(**sizing))


def run_size(capsys: pytest.CaptureFixture[str], source: Path, *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = main(["size", "--from", str(source), *arguments, "--json"])
    shown = capsys.readouterr()
    return code, json.loads(shown.out), shown.err


def test_the_document_has_the_promised_keys(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.json"
    file.write_text(job_text(job_result(MaxInvocations=12_000, ModelLatency=21, CostPerHour=0.5)))
    _, found, _ = run_size(capsys, file, *PEAK, "--latency-limit-ms", "25", "--set", "sizing.spare_instances=1")
    assert found["candidates"] == [found["recommended"]]
    parts = {"peak": 3, "burst_factor": 0, "headroom": 0, "spare_instances": 1}
    expected = {
        "instance_type": "ml.c5.xlarge",
        "variant": "sm-epc-variant-1",
        "environment": {"THREADS": "2"},
        "max_invocations_per_minute": 12_000,
        "capacity_basis": "closed-loop",
        "model_latency_ms": 21,
        "objective_latency_ms": None,
        "instance_count": 4,
        "instance_count_parts": {**parts, "availability_zones": 0, "min_instances": 0},
        "cost_per_hour_usd": 2.0,
        "cost_per_million_invocations_usd": pytest.approx(2 / 1.8),
        "meets_objective": True,
        "reason": "Meets model latency ≤ 25 ms: 21 ms at 12,000 invocations/min, of undocumented percentile. "
        f"{OF_USERS} Price: Reported by the job.",
    }
    assert {key: found["recommended"][key] for key in expected} == expected


def test_a_latency_that_can_only_be_microseconds_is_converted() -> None:
    """The figures are those of the sample in the developer guide."""
    (found,) = sized(job(job_result(MaximumInvocations=648, ModelLatency=263_596)), 600, 300)
    assert found.model_latency_ms == 263.596
    assert found.reason.endswith("The job gave its latency in µs.")


@pytest.mark.parametrize("nothing", [float("nan"), "NaN", float("inf"), None])
def test_a_figure_that_is_no_number_is_unknown(nothing: object) -> None:
    evidence = job(job_result(MaxInvocations=nothing, ModelLatency=nothing, CostPerHour=nothing))
    (found,) = evidence.measured
    assert (found.closed_loop_invocations_per_minute, found.model_latency_ms, found.price_per_hour_usd) == (
        None,
        None,
        None,
    )
    assert sized(evidence)[0].reason == "The job reported no capacity."


def test_a_result_without_metrics_does_not_hide_the_others() -> None:
    bare = recommendation(EndpointConfiguration=endpoint(instance_type="ml.g5.xlarge"))
    del bare["Metrics"]
    found = sized(job(bare, job_result(MaxInvocations=100, ModelLatency=1)))
    assert [one.meets_objective for one in found] == [False, True]


def test_a_serverless_result_has_no_instances_to_count() -> None:
    serverless = {"EndpointName": "e", "VariantName": "v", "ServerlessConfig": {"MemorySizeInMB": 1}}
    metrics = {"MaxInvocations": 100, "ModelLatency": 1, "ModelSetupTime": 300}
    (found,) = sized(job(recommendation(Metrics=metrics, EndpointConfiguration=serverless)))
    assert (found.instance_type, found.meets_objective, found.instance_count) == ("serverless", False, None)
    assert found.reason == "Serverless: there are no instances to count."


def test_an_inference_specification_is_the_variant() -> None:
    named = recommendation(ModelConfiguration={"InferenceSpecificationName": "torch-fp16"})
    assert job(named).measured[0].variant == "torch-fp16"


def existing() -> Evidence:
    performance = {"Metrics": {"MaxInvocations": 600, "ModelLatency": 9}, "EndpointInfo": {"EndpointName": "mine"}}
    return described_job(Path("job.json"), job_text(EndpointPerformances=[performance]))


@pytest.mark.parametrize(
    ("evidence", "caution"),
    [
        (
            existing(),
            "The response does not name the instances of the existing endpoint. Its capacity counts as that of one "
            "instance.",
        ),
        (
            job(job_result(MaxInvocations=1), Status="STOPPED"),
            "The job's Status is STOPPED: untested configurations are missing, and its rates may be too low.",
        ),
        (
            job(job_result(MaxInvocations=6_000, ModelLatency=20_000)),
            "ml.c5.xlarge: 20000 ms at 6,000 invocations/min means 2,000 concurrent requests. If the job had fewer "
            "users, its ModelLatency is in µs.",
        ),
    ],
)
def test_a_doubtful_description_has_a_caution(evidence: Evidence, caution: str) -> None:
    assert evidence.cautions == (caution,)


@pytest.fixture
def job_file(tmp_path: Path) -> Path:
    file = tmp_path / "job.json"
    file.write_text(
        job_text(
            job_result(2, "ml.g4dn.xlarge", MaxInvocations=12_000, ModelLatency=300, CostPerHour=1.4728),
            job_result(1, "ml.g5.xlarge", MaxInvocations=9_000, ModelLatency=120),
        )
    )
    return file


def test_a_job_is_sized_as_one_document(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, err = run_size(capsys, job_file, *PEAK, *EXACT)
    assert (code, err) == (0, "")
    assert [(one["instance_count"], one["max_invocations_per_minute"]) for one in found["candidates"]] == [
        (5, 6_000),
        (4, 9_000),
    ]
    assert found["recommended"]["instance_type"] == "ml.g4dn.xlarge"
    with_a_fifth = run_size(capsys, job_file, *PEAK)[1]
    assert [one["instance_count"] for one in with_a_fifth["candidates"]] == [6, 4]


def test_a_limit_judges_the_candidates(job_file: Path, cli: Cli) -> None:
    arguments = ["size", "--from", str(job_file), *PEAK, "--latency-limit-ms"]
    out = cli.out(*arguments, "200")
    assert (
        "ml.g4dn.xlarge: Misses model latency ≤ 200 ms: 300 ms at 6,000 invocations/min, of undocumented percentile"
        in out
    )
    assert out.endswith("Recommended: 4 × ml.g5.xlarge.\n")
    assert "Price: " not in out
    assert "Price: Reported by the job." in cli.out(*arguments, "50", "--explain", code=1)


def test_a_workload_gives_objective_peak_and_headroom(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, found, _ = run_size(capsys, job_file, "--workload", "text_classification")
    assert (code, found["candidates"][0]["instance_count"]) == (1, 6)
    assert found["candidates"][0]["reason"].startswith("Unverified: no evidence that it meets P95")


@pytest.fixture
def run_folder(workloads_copy: Path, tmp_path: Path) -> RunFolder:
    """A run of a workload with a peak of 240,000 and a limit of 50 ms."""
    folder = RunFolder(tmp_path / "runs" / "job-1")
    folder.keep_workload(load_workload("spellcheck", workloads_copy).workload)
    folder.keep_measurements(measurements(description(), [], {"sm-epc-1": SERIES}))
    return folder


def test_a_run_brings_its_objective_its_peak_and_its_headroom(
    run_folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The peak is 240,000 with a fifth more; the estimate is below the 12,000 of the closed-loop test."""
    code, found, _ = run_size(capsys, run_folder.path)
    rate = found["recommended"]["max_invocations_per_minute"]
    assert (code, found["recommended"]["capacity_basis"]) == (0, "estimate")
    assert found["recommended"]["instance_count"] == math.ceil(240_000 * 1.2 / rate)
    exact = run_size(capsys, run_folder.path, *PEAK, *EXACT)[1]
    assert exact["recommended"]["instance_count"] == math.ceil(30_000 / rate)


def test_an_experiment_is_sized_by_variant(run_folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    cells = tuple(
        a_measurement(rate, variant=variant, model_latency_ms=20, percentile="P99")
        for variant, rate in (("torchscript", 4_000), ("onnxruntime", 9_000))
    )
    run_folder.keep_measurements(cells)
    run_folder.keep("experiment.json", {"traffic": "quick"})
    run_folder.keep("origin.json", {"measured_on": "local", "machine": "a laptop", "region": "us-east-1"})
    code, found, err = run_size(capsys, run_folder.path, *PEAK, *EXACT)
    assert (code, err) == (0, ON_A_LAPTOP)
    assert [(one["variant"], one["instance_count"]) for one in found["candidates"]] == [
        ("torchscript", 8),
        ("onnxruntime", 4),
    ]
    assert found["recommended"]["variant"] == "onnxruntime"


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("experiment.json", "{", "{file}: cannot be read: Expecting property name"),
        ("workload.json", None, "{folder} is not a run folder: it has no workload.json."),
    ],
)
def test_a_damaged_folder_is_named(run_folder: RunFolder, cli: Cli, name: str, text: str | None, problem: str) -> None:
    file = run_folder.path / name
    if text is None:
        file.unlink()
        run_folder.keep("experiment.json", {})
    else:
        file.write_text(text, "utf-8")
    assert cli.err("size", "--from", str(run_folder.path)).startswith(problem.format(file=file, folder=run_folder.path))


def test_sizing_imports_no_boto3(job_file: Path) -> None:
    program = (
        "import sys; from inference_recommender.__main__ import main; "
        f"code = main(['size', '--from', {str(job_file)!r}, '--peak-invocations-per-minute', '30000', '--json']); "
        "assert not {'boto3', 'botocore'} & set(sys.modules); sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def test_python_sizes_as_the_command_does(job_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fleet = size(job_file, peak_invocations_per_minute=30_000, latency_limit_ms=150, settings=["sizing.headroom=0"])
    assert capsys.readouterr() == ("", "")
    _, found, _ = run_size(capsys, job_file, *PEAK, *EXACT, "--latency-limit-ms", "150")
    counts = [each["instance_count"] for each in found["candidates"]]
    assert [each.instance_count for each in fleet.candidates] == counts
    assert known(fleet.recommended).instance_type == found["recommended"]["instance_type"]
