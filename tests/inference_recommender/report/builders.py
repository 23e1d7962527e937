"""Documents and folders that tests of reports need."""

import json
from pathlib import Path

from inference_recommender.__main__ import main
from inference_recommender.capacity.probe import Capacity
from inference_recommender.capacity.server_times import ComputeTimes, ServerTimes
from inference_recommender.tune.folder import TuneFolder, resumed
from inference_recommender.tune.race import Race
from inference_recommender.tune.tune_report import tune_report
from tests.builders import a_probe, a_recommendation, a_search
from tests.inference_recommender.cli.test_simulate_command import CHOSEN, OBJECTIVE
from tests.inference_recommender.tune.builders import P99, Analytic, a_plan, configuration
from workloads import Proof, load_workload

SUMMARY = {"generator": {"cpu_share": 0.25, "lag_ms": 1.5}, "duration_s": 10.0, "invocations": 4000, "errors": 2}
"""A load generator's summary.json."""
TRACE = "".join(f"{60 * minute},{3000 + (5000 if 30 <= minute < 40 else 0)}\n" for minute in range(60))
"""An hour with a rush of ten minutes, which is over before an instance has started."""


def a_proof(verdict: str, archive: str | None = "a" * 64) -> Proof:
    peak = {
        "name": "peak",
        "instances_left": 47,
        "asked": True,
        "invocations_per_minute": 5_106.0,
        "verdict": verdict,
        "latency_ms": 31.2,
        "latency_interval_ms": (28.9, None),
        "requests": 4_000,
        "errors": 2,
        "duration_s": 47.0,
    }
    figures = ("verdict", "invocations_per_minute", "latency_ms", "latency_interval_ms")
    document = {
        **{name: peak[name] for name in figures},
        "scenario": "peak",
        "percentile": "P99",
        "limit_ms": 50.0,
        "reason": "P99 keeps 50 ms at 5,106 invocations/min.",
        "scenarios": (peak,),
        "instances": 1,
        "instance_type": "ml.c5.xlarge",
        "archive_sha256": archive,
        "target": "SpellcheckStack",
        "measured_on": "local",
        "machine": "AMD EPYC with 2 cores",
        "measured_at": "2026-11-23T05:18:30+00:00",
        "run": "runs/proof",
    }
    return Proof.model_validate_json(json.dumps(document))


def a_search_on_triton(*loads: tuple[float, float, float]) -> Capacity:
    """Returns a search whose probes have (rate, milliseconds of queueing, milliseconds of computing) in the server."""
    probes = []
    for rate, queue_ms, infer_ms in loads:
        compute = ComputeTimes(input=0.0, infer=infer_ms, output=0.0)
        times = ServerTimes(queue_ms=queue_ms, compute_ms=compute, requests=round(rate), rows_per_execution=1.0)
        probes.append(a_probe(rate, 20.0, 0.0, 60.0, server=times))
    return a_search(900.0, *probes)


def a_simulation(folder: Path) -> Path:
    """Simulates a policy beside the recommended one, and returns the simulation's folder."""
    (folder / "rush.csv").write_text(TRACE, "utf-8")
    file = folder / "recommendation.json"
    a_recommendation(CHOSEN, target="tensorrt", objective=OBJECTIVE).write_json(file)
    traffic = ("--trace", str(folder / "rush.csv"), "--from", str(file), "--runs", str(folder / "runs"))
    settings = ("policy.target_invocations_per_instance=24000.0", "simulation.provisioning_s=200.0")
    chosen = [word for each in settings for word in ("--set", each)]
    main(["simulate", "spellcheck", *traffic, *chosen, "--seeds", "2", "--json"])
    (run,) = (folder / "runs").iterdir()
    return run


def a_tune_search(path: Path) -> Path:
    """Searches three configurations of an analytic service, and returns the search's folder."""
    spellcheck, space = load_workload("spellcheck").workload, [configuration(batch) for batch in (2, 4, 8)]
    folder = TuneFolder(path)
    left_out = {"it is too much": (configuration(64).label,)}
    changes = {"archives": {"cpu": "a" * 64}, "left_out": left_out, "instance_type": "ml.c5.xlarge"}
    plan = a_plan(space).model_copy(update=changes)
    folder.begin(plan, spellcheck, b"payloads")
    race = Race(
        configurations=space,
        send=resumed(folder, Analytic(lambda each: 1000.0 * each.batch), lambda line, number: None),
        limit=P99,
    )
    race.run()
    report = tune_report(
        folder, race, price_per_hour_usd=0.18, machine="a CPU with 2 cores", measured_at="2026-11-23T03:00:00+00:00"
    )
    folder.keep_result(report)
    return folder.path
