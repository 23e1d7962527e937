"""`size`: a fleet from any kept response or folder, by hand and by the command line, with neither AWS nor boto3."""

import json
import math
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_recommender.__main__ import main
from inference_recommender.measurement import Measurement, measurements
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.decision import cheapest, decide
from inference_recommender.sizing.evidence import Evidence, described_job
from inference_recommender.sizing.fleet import Demand
from inference_recommender.sizing.sized import document, plain_cost, sized
from tests.inference_recommender.api import SERIES, description, endpoint, recommendation
from workloads import ROOT, Provenance, Sizing, load_workload

FILE = Path("job.json")
OF_USERS = "The rate is of closed-loop users, who wait for their answers; callers who do not may need more instances."
ARN = "arn:aws:sagemaker:us-east-1:123456789012:inference-recommendations-job/job-1"


def _text(response: dict[str, Any]) -> str:
    """Returns the response in the form of the AWS CLI: times are text, NaN is a literal."""
    return json.dumps(response, default=str)


def _result(count: int = 1, instance_type: str = "ml.c5.xlarge", **metrics: Any) -> dict[str, Any]:
    return recommendation(Metrics=metrics, EndpointConfiguration=endpoint(instance_type=instance_type, count=count))


def _evidence(*results: dict[str, Any], **keys: Any) -> Evidence:
    return described_job(FILE, _text(description(InferenceRecommendations=results, **keys)))


def _document(evidence: Evidence, demand: Demand, sizing: Sizing, region: str | None = None) -> dict[str, Any]:
    candidates = sized(evidence, demand, sizing, region)
    return document(candidates, cheapest(candidates))


@given(
    results=st.lists(
        st.tuples(st.integers(1, 10**6), st.integers(1, 9), st.integers(1, 100), st.integers(1, 400)),
        min_size=1,
        max_size=4,
    ),
    peak=st.integers(1, 10**7),
    percent=st.integers(0, 100),
    limit=st.integers(50, 300),
)
def test_candidates_agree_with_a_computation_by_hand(
    results: list[tuple[int, int, int, int]], peak: int, percent: int, limit: int
) -> None:
    """Each result is a fleet's: total invocations per minute, instances, US cents per hour, latency in ms."""
    evidence = _evidence(
        *(
            _result(count, MaxInvocations=total, CostPerHour=cents / 100, ModelLatency=latency)
            for total, count, cents, latency in results
        )
    )
    demand = Demand(peak_invocations_per_minute=peak, model_latency_ms=limit)
    found = _document(evidence, demand, Sizing(headroom=percent / 100))
    costs = []
    for one, (total, count, cents, latency) in zip(found["candidates"], results, strict=True):
        assert one["meets_objective"] == (latency <= limit)
        instances = math.ceil(Fraction(peak * (100 + percent) * count, 100 * total))
        per_hour = Fraction(instances * cents, 100 * count)
        assert one["instance_count"] == instances
        assert one["max_invocations_per_minute"] == pytest.approx(total / count)
        assert one["cost_per_hour_usd"] == pytest.approx(float(per_hour))
        assert one["cost_per_million_invocations_usd"] == pytest.approx(float(per_hour / (peak * 60) * 10**6))
        if latency <= limit:
            costs.append(float(per_hour))
    assert (found["recommended"] is None) == (not costs)
    if costs:
        assert found["recommended"]["cost_per_hour_usd"] == pytest.approx(min(costs))


def test_the_document_has_the_keys_that_are_promised() -> None:
    evidence = _evidence(_result(MaxInvocations=12_000, ModelLatency=21, CostPerHour=0.5))
    demand = Demand(peak_invocations_per_minute=30_000, model_latency_ms=25)
    found = _document(evidence, demand, Sizing(headroom=0.2, spare_instances=1))
    assert found["candidates"] == [found["recommended"]]
    assert found["recommended"] == {
        "instance_type": "ml.c5.xlarge",
        "variant": "sm-epc-variant-1",
        "environment": {"THREADS": "2"},
        "max_invocations_per_minute": 12_000,
        "capacity_basis": "closed-loop",
        "model_latency_ms": 21,
        "objective_latency_ms": None,
        "instance_count": 4,
        "instance_count_parts": {
            "peak": 3,
            "burst_factor": 0,
            "headroom": 0,
            "spare_instances": 1,
            "availability_zones": 0,
            "min_instances": 0,
        },
        "cost_per_hour_usd": 2.0,
        "cost_per_million_invocations_usd": pytest.approx(2 / 1.8),
        "meets_objective": True,
        "reason": "Keeps model latency ≤ 25 ms: 21 ms at 12,000 invocations/min, by a figure of undocumented "
        f"percentile. {OF_USERS} Price: Reported by the job.",
    }


def test_both_spellings_of_max_invocations_are_read() -> None:
    """MaximumInvocations is what the developer guide calls it."""
    new, old = _evidence(_result(MaxInvocations=648)), _evidence(_result(MaximumInvocations=648))
    assert new.measured[0].max_invocations_per_minute == old.measured[0].max_invocations_per_minute == 648


def test_a_latency_that_can_only_be_microseconds_is_converted_and_told() -> None:
    """The figures are those of the sample in the developer guide."""
    evidence = _evidence(_result(MaximumInvocations=648, ModelLatency=263_596))
    demand = Demand(peak_invocations_per_minute=600, model_latency_ms=300)
    found = _document(evidence, demand, Sizing())["recommended"]
    assert found["model_latency_ms"] == 263.596
    assert found["reason"].startswith(
        "Keeps model latency ≤ 300 ms: 263.6 ms at 648 invocations/min, by a figure of undocumented percentile. "
        f"{OF_USERS} The job gave its latency in µs."
    )


def test_one_latency_that_can_only_be_microseconds_tells_the_unit_of_all_of_a_job() -> None:
    evidence = _evidence(_result(MaxInvocations=9, ModelLatency=60_001), _result(MaxInvocations=9, ModelLatency=500))
    assert [one.model_latency_ms for one in evidence.measured] == [60.001, 0.5]
    assert evidence.cautions == ()


def test_a_latency_that_is_only_likely_to_be_microseconds_is_left_and_doubted() -> None:
    evidence = _evidence(_result(MaxInvocations=6_000, ModelLatency=20_000))
    assert evidence.measured[0].model_latency_ms == 20_000
    assert evidence.cautions == (
        "ml.c5.xlarge: 20000 ms at 6,000 invocations/min means 2,000 requests under way at once. If the job had not as "
        "many users, its ModelLatency is in µs.",
    )


@pytest.mark.parametrize("nothing", [float("nan"), "NaN", float("inf"), None])
def test_what_is_not_a_number_is_unknown(nothing: object) -> None:
    evidence = _evidence(_result(MaxInvocations=nothing, ModelLatency=nothing, CostPerHour=nothing))
    (found,) = evidence.measured
    assert (found.max_invocations_per_minute, found.model_latency_ms, found.price_per_hour_usd) == (None, None, None)
    (candidate,) = sized(evidence, Demand(peak_invocations_per_minute=1), Sizing(), None)
    assert (candidate.instance_count, candidate.reason) == (None, "The job reported no capacity for it.")


def test_a_result_without_metrics_is_explained_and_does_not_hide_the_others() -> None:
    bare = recommendation(EndpointConfiguration=endpoint(instance_type="ml.g5.xlarge"))
    del bare["Metrics"]
    evidence = _evidence(bare, _result(MaxInvocations=100, ModelLatency=1))
    found = _document(evidence, Demand(peak_invocations_per_minute=100), Sizing(headroom=0))
    assert [one["meets_objective"] for one in found["candidates"]] == [False, True]
    assert found["candidates"][0]["reason"].startswith("The job reported no capacity for it. Price: ")
    assert found["recommended"]["instance_type"] == "ml.c5.xlarge"


def test_zero_invocations_size_nothing() -> None:
    evidence = _evidence(_result(MaxInvocations=0, ModelLatency=1))
    (found,) = sized(evidence, Demand(peak_invocations_per_minute=100), Sizing(), None)
    assert (found.meets_objective, found.instance_count) == (False, None)
    assert found.reason == "The job reported 0 invocations/min for it, which is no load."


def test_a_serverless_result_has_no_instances_to_count() -> None:
    serverless = {
        "EndpointName": "e",
        "VariantName": "v",
        "ServerlessConfig": {"MemorySizeInMB": 1, "MaxConcurrency": 1},
    }
    metrics = {"MaxInvocations": 100, "ModelLatency": 1, "ModelSetupTime": 300}
    evidence = _evidence(recommendation(Metrics=metrics, EndpointConfiguration=serverless))
    (found,) = sized(evidence, Demand(peak_invocations_per_minute=100), Sizing(), None)
    assert (found.instance_type, found.meets_objective, found.instance_count) == ("serverless", False, None)
    assert found.reason == "Serverless: there are no instances to count."


def test_a_price_of_nothing_is_no_price() -> None:
    evidence = _evidence(_result(instance_type="ml.inf1.xlarge", MaxInvocations=100, ModelLatency=1, CostPerHour=0.0))
    (found,) = sized(evidence, Demand(peak_invocations_per_minute=100), Sizing(), None)
    assert (found.instance_count, found.cost_per_hour_usd) == (2, None)


def test_results_with_the_same_endpoint_name_are_all_kept() -> None:
    assert len(_evidence(_result(MaxInvocations=1), _result(MaxInvocations=2)).measured) == 2


def test_an_inference_specification_is_the_variant() -> None:
    named = recommendation(ModelConfiguration={"InferenceSpecificationName": "torch-fp16"})
    assert _evidence(named).measured[0].variant == "torch-fp16"


def test_an_existing_endpoint_counts_as_one_instance_and_that_is_said() -> None:
    performance = {"Metrics": {"MaxInvocations": 600, "ModelLatency": 9}, "EndpointInfo": {"EndpointName": "mine"}}
    evidence = described_job(FILE, _text(description(InferenceRecommendations=[], EndpointPerformances=[performance])))
    assert evidence.measured[0].max_invocations_per_minute == 600
    assert evidence.cautions == (
        "The response does not say on which instances the existing endpoint runs: its capacity is taken for one "
        "instance's.",
    )


def test_a_job_that_did_not_end_by_itself_is_doubted() -> None:
    assert _evidence(_result(MaxInvocations=1), Status="STOPPED").cautions == (
        "The job's Status is STOPPED: what it had not tested by then is missing, and its rates may be too low.",
    )


def test_an_unknown_price_is_none_with_the_reason_and_the_count_stands() -> None:
    evidence = _evidence(_result(instance_type="ml.trn1.32xlarge", MaxInvocations=100, ModelLatency=1))
    found = _document(evidence, Demand(peak_invocations_per_minute=250), Sizing(headroom=0))["recommended"]
    assert (found["instance_count"], found["cost_per_hour_usd"]) == (3, None)
    assert found["reason"].endswith(
        "Price: The job reported no price, and prices.json has none for ml.trn1.32xlarge in us-east-1."
    )


def test_another_region_has_prices_of_its_own() -> None:
    evidence = _evidence(
        _result(instance_type="ml.g5.xlarge", MaxInvocations=100, ModelLatency=1, CostPerHour=9.0),
        JobArn=ARN.replace("us-east-1", "eu-west-1"),
    )
    demand = Demand(peak_invocations_per_minute=100)
    here = _document(evidence, demand, Sizing(headroom=0))["recommended"]
    there = _document(evidence, demand, Sizing(headroom=0), "us-east-1")["recommended"]
    nowhere = _document(evidence, demand, Sizing(headroom=0), "sa-east-1")["recommended"]
    assert (here["cost_per_hour_usd"], there["cost_per_hour_usd"], nowhere["cost_per_hour_usd"]) == (9.0, 1.408, None)
    assert nowhere["reason"].endswith(
        "Price: The job's price is of eu-west-1, and prices.json has none for ml.g5.xlarge in sa-east-1."
    )


@pytest.mark.parametrize("percentile", ["P95", "P99"])
def test_a_percentile_is_not_met_by_a_figure_of_which_none_is_documented(percentile: str) -> None:
    """The job's threshold names P95; that its ModelLatency is one, nothing says."""
    stopping = {"ModelLatencyThresholds": [{"Percentile": "P95", "ValueInMilliseconds": 500}], "MaxInvocations": 100}
    evidence = _evidence(_result(MaxInvocations=50, ModelLatency=1), StoppingConditions=stopping)
    demand = Demand(peak_invocations_per_minute=100, percentile=percentile, model_latency_ms=500)
    (found,) = sized(evidence, demand, Sizing(), None)
    assert (found.meets_objective, found.instance_count) == (False, 3)
    assert found.reason == (
        f"Unverified: nothing shows whether it keeps {percentile} model latency ≤ 500 ms. There is no {percentile} of "
        "ModelLatency from CloudWatch, and no percentile is documented for the job's own figures, 1 ms at 50 "
        f"invocations/min. {OF_USERS}"
    )


def _size(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["size", *arguments])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture
def job(tmp_path: Path) -> Path:
    file = tmp_path / "job.json"
    results = [
        _result(2, "ml.g4dn.xlarge", MaxInvocations=12_000, ModelLatency=300, CostPerHour=1.4728),
        _result(1, "ml.g5.xlarge", MaxInvocations=9_000, ModelLatency=120),
    ]
    file.write_text(
        _text(description(InferenceRecommendations=results, ResponseMetadata={"RetryAttempts": 0})), "utf-8"
    )
    return file


PEAK = ("--peak-invocations-per-minute", "30000")


def test_the_command_sizes_a_kept_response_and_prints_one_document(
    job: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = _size(capsys, "--from", str(job), *PEAK, "--headroom", "0", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "")
    assert [(one["instance_count"], one["max_invocations_per_minute"]) for one in found["candidates"]] == [
        (5, 6_000),
        (4, 9_000),
    ]
    assert found["recommended"]["instance_type"] == "ml.g4dn.xlarge"
    assert found["recommended"]["reason"] == (
        "Latency is not judged, for no objective was given: 300 ms at 6,000 invocations/min. "
        f"{OF_USERS} Price: Reported by the job."
    )


def test_the_default_headroom_is_a_fifth(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(_size(capsys, "--from", str(job), *PEAK, "--json")[1])
    assert [one["instance_count"] for one in found["candidates"]] == [6, 4]


def test_the_table_has_the_columns_of_a_run(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = _size(capsys, "--from", str(job), *PEAK)[1].splitlines()
    assert lines[2].split() == ["instance", "capacity", "closed-loop", "closed-loop", "judged"]
    assert lines[3].split() == ["type", "variant", "/min", "method", "/min", "ms", "ms", "instances", "$/h", "$/1M"]


def test_a_limit_judges_the_candidates(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _size(capsys, "--from", str(job), *PEAK, "--latency-limit-ms", "200")
    assert code == 0
    assert "ml.g4dn.xlarge: Misses model latency ≤ 200 ms: 300 ms at 6,000 invocations/min, by a figure of" in out
    assert out.endswith("Recommended: 4 × ml.g5.xlarge.\n")
    assert _size(capsys, "--from", str(job), *PEAK, "--latency-limit-ms", "50")[0] == 1


def test_a_workload_gives_objective_peak_and_headroom(job: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = _size(capsys, "--from", str(job), "--workload", "text_classification", "--json")
    found = json.loads(out)["candidates"][0]
    assert code == 1
    assert found["instance_count"] == 6
    assert found["reason"].startswith("Unverified: nothing shows whether it keeps P95 model latency ≤ 500 ms.")
    shown = _size(capsys, "--from", str(job), "--workload", "text_classification")[1]
    assert shown.endswith("No candidate is shown to meet the objective.\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--percentile", "P95", *PEAK), "--percentile is of a limit: give --latency-limit-ms N too.\n"),
        (
            ("--latency-limit-ms", "9", "--workload", "spellcheck"),
            "--latency-limit-ms and --workload both give the objective: leave one out.\n",
        ),
        ((), "size --from needs --peak-invocations-per-minute N, or --workload NAME, whose objective has one.\n"),
        (
            ("--headroom", "-1", *PEAK),
            "the command line: headroom: got -1.0. Input should be greater than or equal to 0.\n",
        ),
        (("--price-per-hour", "1", *PEAK), "--price-per-hour goes with --throughput-per-second X.\n"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    job: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert _size(capsys, "--from", str(job), *arguments) == (2, "", said)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "{'JobName': 'j'}",
            "it is not JSON (Expecting property name enclosed in double quotes: line 1 column 2 (char 1)); boto3's "
            "response becomes JSON with json.dumps(response, default=str)",
        ),
        ("[]", "it holds a list, not an object"),
        ("{}", "it has no InferenceRecommendations"),
        (
            '{"Status": "FAILED", "FailureReason": "No capacity."}',
            "it has no InferenceRecommendations. Its Status is FAILED. No capacity",
        ),
        (
            '{"InferenceRecommendations": [{"Metrics": {}}]}',
            "InferenceRecommendations.0.EndpointConfiguration: Field required",
        ),
        (
            '{"InferenceRecommendations": [{"EndpointConfiguration": {}, "Metrics": {"ModelLatency": "slow"}}]}',
            "InferenceRecommendations.0.Metrics.ModelLatency: Input should be a valid number, unable to parse string "
            'as a number, got "slow"',
        ),
    ],
)
def test_a_file_that_is_no_response_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, why: str
) -> None:
    file = tmp_path / "job.json"
    file.write_text(text, "utf-8")
    said = f"{file} is no response of DescribeInferenceRecommendationsJob that can be sized from: {why}.\n"
    assert _size(capsys, "--from", str(file), *PEAK) == (2, "", said)


def test_a_path_that_is_not_there_says_what_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gone = tmp_path / "gone.json"
    assert _size(capsys, "--from", str(gone), *PEAK) == (
        2,
        "",
        f"{gone} cannot be read: [Errno 2] No such file or directory: '{gone}'. --from takes a response of "
        "DescribeInferenceRecommendationsJob in a file, capacity.json, or the folder of a run, an experiment or a "
        "search.\n",
    )


@pytest.fixture
def run_folder(workloads_copy: Path, tmp_path: Path) -> RunFolder:
    """Returns the folder of a run of a workload with a peak of 240,000 and a limit of 50 ms."""
    workload = load_workload("spellcheck", workloads_copy).workload
    kept = RunFolder(tmp_path / "runs" / "job-1")
    kept.keep_workload(workload)
    kept.keep_measurements(measurements(description(), [], {"sm-epc-1": SERIES}))
    return kept


def test_a_runs_folder_brings_its_objective_its_peak_and_its_headroom(
    run_folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    """The peak is 240,000 with a fifth more; the closed-loop test reached 12,000 per instance, open arrivals less."""
    code, out, _ = _size(capsys, "--from", str(run_folder.path), "--json")
    found = json.loads(out)["recommended"]
    rate = found["max_invocations_per_minute"]
    assert (code, found["capacity_basis"]) == (0, "estimate")
    assert 240_000 * 1.2 / rate <= found["instance_count"] < 240_000 * 1.2 / rate + 1
    assert found["reason"] == (
        f"Estimate: meets P99 model latency ≤ 50 ms up to {rate:,.0f} invocations/min with open-loop arrivals. The "
        "closed-loop test reached 12,000. Run again with --search to measure it. Price: Reported by the job."
    )
    bare = json.loads(_size(capsys, "--from", str(run_folder.path), *PEAK, "--headroom", "0", "--json")[1])
    assert bare["recommended"]["instance_count"] == math.ceil(30_000 / rate)


def test_a_run_measured_on_this_machine_is_said_to_be(
    run_folder: RunFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    provenance = Provenance(
        measured_on="local",
        machine="a laptop",
        job_name="job-1",
        job_arn=ARN,
        traffic="quick",
        percentile="P99",
        measured_at="2026-11-21T12:02:00+00:00",
        region="us-east-1",
        run="runs/job-1",
    )
    run_folder.keep_recommendation(decide(run_folder.workload(), "0" * 64, run_folder.measurements(), provenance))
    _, _, err = _size(capsys, "--from", str(run_folder.path))
    assert err == "Warning: Measured on this machine (a laptop), not on SageMaker.\n"


def test_an_experiments_folder_is_sized_by_variant(run_folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    """An experiment's folder has a run's files, its plan and where it was measured."""
    cells = [
        Measurement(
            instance_type="ml.c5.xlarge",
            variant=variant,
            endpoint_name=variant,
            max_invocations_per_minute=rate,
            model_latency_ms=20,
            percentile="P99",
        )
        for variant, rate in (("torchscript", 4_000), ("onnxruntime", 9_000))
    ]
    run_folder.keep_measurements(tuple(cells))
    (run_folder.path / "experiment.json").write_text('{"traffic": "quick"}', "utf-8")
    origin = {"measured_on": "local", "machine": "a laptop", "region": "us-east-1"}
    (run_folder.path / "origin.json").write_text(json.dumps(origin), "utf-8")
    code, out, err = _size(capsys, "--from", str(run_folder.path), *PEAK, "--headroom", "0", "--json")
    found = json.loads(out)
    assert (code, err) == (0, "Warning: Measured on this machine (a laptop), not on SageMaker.\n")
    assert [(one["variant"], one["instance_count"]) for one in found["candidates"]] == [
        ("torchscript", 8),
        ("onnxruntime", 4),
    ]
    assert found["recommended"]["variant"] == "onnxruntime"


CAPACITY = {
    "max_invocations_per_minute": 96_000.0,
    "max_invocations_interval": [94_000.0, None],
    "latency_ms": 50.4,
    "percentile": "P99",
    "latency_limit_ms": 50.0,
    "warm_up_s": 2.0,
    "reason": "the capacity is known to its resolution",
    "probes": [],
    "instance_type": "ml.g5.xlarge",
    "instances": 2,
}


@pytest.fixture
def search(run_folder: RunFolder) -> RunFolder:
    """The result that `capacity` leaves: 96,000 a minute on two instances, more than a job may send."""
    (run_folder.path / "measurements.json").unlink()
    run_folder.keep("capacity.json", CAPACITY)
    return run_folder


@pytest.mark.parametrize("name", ["", "capacity.json"])
def test_a_search_is_sized_above_the_rates_of_a_job(
    search: RunFolder, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    """The peak is 240,000; an instance sustains 48,000. One probe's latency does not overrule the search."""
    code, out, err = _size(capsys, "--from", str(search.path / name), "--json")
    found = json.loads(out)["recommended"]
    assert (code, err) == (0, "")
    assert (found["instance_count"], found["max_invocations_per_minute"]) == (6, 48_000)
    assert found["reason"].startswith(
        "Meets P99 model latency ≤ 50 ms at 48,000 invocations/min, by an open-loop search. The probe nearest to that "
        "rate had 50.4 ms; the probes around it decide together. Price: "
    )


@pytest.mark.parametrize("limit", [("--latency-limit-ms", "40"), ("--latency-limit-ms", "50", "--percentile", "P99.9")])
def test_a_search_within_another_limit_verifies_nothing(
    search: RunFolder, capsys: pytest.CaptureFixture[str], limit: tuple[str, ...]
) -> None:
    code, out, _ = _size(capsys, "--from", str(search.path), *limit, "--json")
    (found,) = json.loads(out)["candidates"]
    assert (code, found["instance_count"]) == (1, 6)
    assert "Its capacity, 48,000 invocations/min, was searched for within P99 ≤ 50 ms." in found["reason"]


def test_a_search_that_found_no_rate_sizes_nothing(search: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    none = {"max_invocations_per_minute": None, "max_invocations_interval": None, "reason": "its time was over"}
    search.keep("capacity.json", {**CAPACITY, **none})
    code, out, _ = _size(capsys, "--from", str(search.path), "--json")
    (found,) = json.loads(out)["candidates"]
    assert (code, found["instance_count"]) == (1, None)
    assert found["reason"].startswith("No capacity was found: its time was over.")


def test_a_damaged_search_is_named(search: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    file = search.path / "capacity.json"
    file.write_text('{"percentile": "P99"}', "utf-8")
    code, out, err = _size(capsys, "--from", str(file))
    assert (code, out) == (2, "")
    assert err.startswith(f"{file}: ")


def test_a_damaged_experiment_is_named(run_folder: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    file = run_folder.path / "experiment.json"
    file.write_text("{", "utf-8")
    code, out, err = _size(capsys, "--from", str(run_folder.path))
    assert (code, out) == (2, "")
    assert err.startswith(f"{file}: cannot be read: Expecting property name")


def test_a_folder_that_is_neither_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said = f"{tmp_path} is no run folder: it has no workload.json.\n"
    assert _size(capsys, "--from", str(tmp_path), *PEAK) == (2, "", said)


@given(
    throughput=st.integers(1, 10**6),
    cents=st.integers(1, 10**4),
    other_throughput=st.integers(1, 10**6),
    other_cents=st.integers(1, 10**4),
)
def test_a_plain_tables_cost_and_saving_agree_with_a_computation_by_hand(
    throughput: int, cents: int, other_throughput: int, other_cents: int
) -> None:
    found = plain_cost(throughput, cents / 100, (other_throughput, other_cents / 100))
    cost, other = (
        Fraction(price * 10**6, 100 * rate * 3600)
        for price, rate in ((cents, throughput), (other_cents, other_throughput))
    )
    assert found.cost_per_million_invocations_usd == pytest.approx(float(cost))
    assert found.baseline_cost_per_million_invocations_usd == pytest.approx(float(other))
    assert found.saving_percent == pytest.approx(float((1 - cost / other) * 100), rel=1e-9, abs=1e-9)


def test_the_command_prints_a_plain_tables_cost(capsys: pytest.CaptureFixture[str]) -> None:
    table = ("--throughput-per-second", "2000", "--price-per-hour", "1.18")
    baseline = ("--baseline-throughput", "40", "--baseline-price", "0.17")
    assert _size(capsys, *table) == (0, "$0.1639 per million invocations.\n", "")
    assert _size(capsys, *table, *baseline) == (
        0,
        "$0.1639 per million invocations: 86.1 % less than the $1.1806 of the baseline, "
        "at 50.00 times its throughput.\n",
        "",
    )
    assert json.loads(_size(capsys, *table, *baseline, "--json")[1]) == {
        "cost_per_million_invocations_usd": pytest.approx(1.18 / 7.2),
        "baseline_cost_per_million_invocations_usd": pytest.approx(0.17 / 0.144),
        "saving_percent": pytest.approx((1 - 1.18 / 7.2 / (0.17 / 0.144)) * 100),
        "throughput_ratio": 50,
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "--throughput-per-second needs --price-per-hour USD.\n"),
        (
            ("--price-per-hour", "1", "--baseline-price", "1"),
            "A baseline has --baseline-throughput X and --baseline-price USD: give both.\n",
        ),
        (("--price-per-hour", "1", "--region", "us-east-1"), "--region goes with --from PATH.\n"),
    ],
)
def test_half_a_plain_table_is_refused(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    assert _size(capsys, "--throughput-per-second", "5", *arguments) == (2, "", said)


def test_sizing_imports_no_boto3(job: Path) -> None:
    program = (
        "import sys; from inference_recommender.__main__ import main; "
        f"code = main(['size', '--from', {str(job)!r}, '--peak-invocations-per-minute', '30000', '--json']); "
        "assert not {'boto3', 'botocore'} & set(sys.modules); sys.exit(code)"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
