"""Evidence from a path: a response somebody kept in a file, or a run's or an experiment's folder. No AWS."""

import json
from pathlib import Path
from typing import Any

from inference_recommender.errors import NoSuchEvidence
from inference_recommender.run_folder import RunFolder
from inference_recommender.sizing.described_job import described_job
from inference_recommender.sizing.evidence import Evidence
from workloads import Workload
from workloads.errors import InvalidDocument


def kept_evidence(path: Path) -> Evidence:
    """Raises `NoSuchEvidence`, `NotADescription`, `NoSuchRun` or `InvalidDocument`."""
    if path.is_dir():
        return _folder(path)
    try:
        return described_job(path, path.read_text("utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise NoSuchEvidence(path, error) from error


def _folder(path: Path) -> Evidence:
    """A run's; an experiment's has the same files, and says elsewhere where it was measured and under which traffic."""
    kept = RunFolder(path)
    workload = kept.workload()
    traffic, region, machine = _experiment(path) if (path / "experiment.json").exists() else _run(kept)
    return Evidence(
        measured=kept.measurements(),
        region=region,
        percentile=workload.latency_objective.percentile,
        job_limit_per_minute=_limit(workload, traffic),
        workload=workload,
        cautions=(f"Measured on this machine ({machine}), not on SageMaker.",) if machine else (),
    )


def _run(kept: RunFolder) -> tuple[str | None, str | None, str | None]:
    """Traffic, region, and the machine that stood in for SageMaker; None where the run came to no verdict."""
    if not (kept.path / "recommendation.json").exists():
        return None, None, None
    origin = kept.recommendation().provenance
    return origin.traffic, origin.region, origin.machine if origin.measured_on == "local" else None


def _experiment(path: Path) -> tuple[str | None, str | None, str | None]:
    """The same of an experiment, from the files that `experiment.folder` keeps; its other files are not needed."""
    plan, origin = _json(path / "experiment.json"), _json(path / "origin.json")
    return (
        plan.get("traffic"),
        origin.get("region"),
        origin.get("machine") if origin.get("measured_on") == "local" else None,
    )


def _json(file: Path) -> dict[str, Any]:
    """Empty where there is no such file: the experiment has not come so far."""
    try:
        return dict(json.loads(file.read_text("utf-8"))) if file.exists() else {}
    except ValueError as error:
        raise InvalidDocument(file, [f"cannot be read: {error}"]) from error


def _limit(workload: Workload, traffic: str | None) -> int | None:
    profile = workload.traffic.get(traffic) if traffic else None
    return profile.stop.max_invocations_per_minute if profile else None
