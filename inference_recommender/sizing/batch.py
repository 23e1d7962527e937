"""The shards of a batch from its rows per second, the cost of a run, and the saving against another fleet.

Shards are sized as an endpoint's instances. A throughput is the mean of the batch program's reports, one for each shard
of a run. A file may also state one:

    {"rows_per_second": 4380, "source": "a table of 2024", "instance_type": "inf1.6xlarge", "price_per_hour_usd": 1.18}
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict, Field

from inference_recommender.sizing.fleet import Demand, cost_per_million_usd, fleet
from inference_recommender.sizing.prices import Price, listed_price
from workloads import (
    BatchFleet,
    BatchRecommendation,
    BatchSizing,
    ModelArtifact,
    NoVerdict,
    ThroughputObjective,
    UsageError,
    Workload,
)
from workloads.document import Document
from workloads.recommendation import KnownBy

SHORTEST_S = 10.0
"""Shorter reports are dominated by the wait for the last chunk of a worker."""
OF_A_RUN = {"workload.json", "measurements.json", "experiment.json"}
COPIED = ("rows_per_second", "known_by", "source", "measured", "load_s")
"""Fields that a fleet takes from its throughput unchanged."""
NEITHER = (
    "is neither a report nor a stated rate. Give a file of `python -m containers.batch --summary FILE`, or one with "
    "rows_per_second and source."
)


class BatchReport(BaseModel):
    """The part of the batch program's summary that sizing reads."""

    model_config = ConfigDict(frozen=True, strict=True)

    rows: int
    bad_share: float
    load_seconds: float
    rows_per_second: float | None
    archive_sha256: str | None = None
    stack: str | None = None


class StatedRate(Document):
    """A throughput of one instance that a document states."""

    rows_per_second: float = Field(gt=0, allow_inf_nan=False)
    source: str = Field(min_length=1, description="The document: of which model, and when.")
    instance_type: str | None = None
    price_per_hour_usd: float | None = Field(default=None, gt=0, description="None: the catalogue's.")


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """Rows per second of one instance. `archive_sha256` and `rows` are None if the rate is stated."""

    rows_per_second: float
    known_by: KnownBy
    source: str
    instance_type: str | None = None
    price_per_hour_usd: float | None = None
    measured: tuple[float, ...] = ()
    load_s: float | None = None
    rows: int | None = None
    archive_sha256: str | None = None


def holds_throughput(path: Path) -> bool:
    """Returns whether a file has a batch's report or a stated rate, or a folder is not that of a run."""
    if path.is_dir():
        files = {file.name for file in path.glob("*.json")}
        return bool(files) and not files & OF_A_RUN
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "rows_per_second" in document


def read_throughput(paths: Sequence[Path], max_bad_share: float, machine: str) -> Throughput:
    """Reads reports, folders of them, or one stated rate. `machine` is the source of reports that no stack made.

    Raises `UsageError` or `InvalidDocument` for other files, and `NoVerdict` if the reports are too short.
    """
    files = [file for path in paths for file in (sorted(path.glob("*.json")) if path.is_dir() else [path])]
    names, read = ", ".join(map(str, paths)), {file: _read(file) for file in files}
    stated = [each for each in read.values() if isinstance(each, StatedRate)]
    if stated and len(read) > 1:
        raise UsageError(f"{names}: has a stated rate among {len(read)} files. Give only the stated rate.")
    if stated:
        return Throughput(known_by="stated", **dict(stated[0]))
    rates = {file: each for file, each in read.items() if isinstance(each, BatchReport) and each.rows_per_second}
    if not rates:
        raise NoVerdict(f"{names}: no report of a run that answered any row. Give those of a whole run.")
    for file, report in rates.items():
        _check(file, report, max_bad_share)
    reports = tuple(rates.values())
    archives, stacks = {each.archive_sha256 for each in reports}, {each.stack for each in reports}
    if len(archives) > 1:
        raise UsageError(f"{names}: has reports of {len(archives)} archives. Give the reports of one.")
    measured = tuple(each.rows_per_second or 0.0 for each in reports)
    stack = stacks.pop() if len(stacks) == 1 else None
    count = f"{len(reports)} report{'s' * (len(reports) != 1)}"
    return Throughput(
        rows_per_second=fmean(measured),
        known_by="stack" if stack else "local",
        source=f"{count} of {f'a run of {stack}' if stack else f'the batch program on {machine}'}",
        measured=measured,
        load_s=fmean(each.load_seconds for each in reports),
        rows=sum(each.rows for each in reports),
        archive_sha256=archives.pop(),
    )


def _read(file: Path) -> BatchReport | StatedRate:
    try:
        document = json.loads(file.read_bytes())
        stated = isinstance(document, dict) and "source" in document
        return StatedRate.from_json(file) if stated else BatchReport.model_validate(document)
    except (OSError, ValueError, RecursionError):
        raise UsageError(f"{file}: {NEITHER}") from None


def _check(file: Path, report: BatchReport, max_bad_share: float) -> None:
    seconds = report.rows / (report.rows_per_second or math.inf)
    if seconds < SHORTEST_S:
        raise NoVerdict(
            f"{file}: too few rows: {report.rows:,} rows took {seconds:.1f} s, and the minimum is {SHORTEST_S:g} s. "
            "Give the batch more rows."
        )
    if report.bad_share > max_bad_share:
        raise NoVerdict(
            f"{file}: {report.bad_share:.1%} of the rows are bad, more than max_bad_share {max_bad_share:g}. Correct "
            "the input and measure again."
        )
    if report.archive_sha256 is None:
        raise UsageError(
            f"{file}: archive_sha256: is null, because the model was a folder. Run the batch with the archive that is "
            "deployed: --model build/WORKLOAD/TARGET/model.tar.gz."
        )


def size_batch(
    workload: Workload,
    throughput: Throughput,
    baseline: Throughput | None,
    built: Mapping[str, ModelArtifact],
    rows_per_run: int | None,
    region: str,
) -> BatchSizing:
    """Sizes and prices a batch. `built` has the artifacts of the workload's builds by sha256 of their archive.

    Returns a `BatchRecommendation` if the rate was measured. Raises `UsageError` for rates of different checkpoints.
    """
    objective = workload.objective
    assert isinstance(objective, ThroughputObjective), "the caller checks it"
    artifact = _artifact(throughput, built, "--from")
    target, rows = artifact.variant if artifact else workload.hosting.target, rows_per_run or throughput.rows
    recommended, compared = _fleet(throughput, workload, objective, target, rows, region, "--from"), None
    if baseline:
        other = _artifact(baseline, built, "--baseline")
        if artifact and other and artifact.checkpoint_sha256 != other.checkpoint_sha256:
            raise UsageError(
                f"--baseline: was measured on {other.variant}, which was built of another checkpoint. Build both of "
                "one."
            )
        variant = other.variant if other else None
        compared = _fleet(baseline, workload, objective, variant, rows, region, "--baseline")
    percent, reason = _saving(recommended, compared)
    result = BatchSizing(
        workload=workload.name,
        target=target,
        objective=objective,
        rows_per_run=rows,
        recommended=recommended,
        baseline=compared,
        saving_percent=percent,
        reason=reason,
        region=region,
        decided_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return BatchRecommendation(**dict(result), archive_sha256=artifact.archive_sha256) if artifact else result


def _artifact(throughput: Throughput, built: Mapping[str, ModelArtifact], option: str) -> ModelArtifact | None:
    """Returns the build whose archive was measured, or None for a stated rate."""
    if throughput.archive_sha256 is None:
        return None
    if (artifact := built.get(throughput.archive_sha256)) is None:
        raise UsageError(
            f"{option}: was measured on the archive {throughput.archive_sha256[:12]}…, which is none of this machine's "
            "builds. Build it, or measure the archive that is built."
        )
    return artifact


def _fleet(
    throughput: Throughput,
    workload: Workload,
    objective: ThroughputObjective,
    variant: str | None,
    rows: int | None,
    region: str,
    option: str,
) -> BatchFleet:
    """Returns the instances that reach the objective, and their cost. Without an instance type in the throughput they
    are of the variant's first one.
    """
    types = workload.targets[workload.variant(variant).target].instance_types if variant else ()
    instance_type = throughput.instance_type or next(iter(types), None)
    if instance_type is None:
        raise UsageError(f"{option}: names no instance type. Give it as {option} TYPE=PATH.")
    rate, stated_usd = throughput.rows_per_second, throughput.price_per_hour_usd
    price = listed_price(instance_type, region)
    if stated_usd is not None:
        price = Price(usd_per_hour=stated_usd, reason=f"Stated: {throughput.source}.")
    needed = fleet(rate * 60, Demand(peak_invocations_per_minute=objective.rows_per_second * 60), workload.sizing)
    per_hour, shards = price.usd_per_hour, needed.instance_count
    run_s = None if rows is None else rows / (shards * rate) + (throughput.load_s or 0.0)
    return BatchFleet(
        **{name: getattr(throughput, name) for name in COPIED},
        instance_type=instance_type,
        shards=shards,
        shard_parts=needed.parts,
        run_s=run_s,
        cost_per_hour_usd=None if per_hour is None else shards * per_hour,
        cost_per_million_rows_usd=None if per_hour is None else cost_per_million_usd(per_hour, rate * 60),
        cost_per_run_usd=None if per_hour is None or run_s is None else shards * per_hour * run_s / 3600,
        cost_reason=price.reason,
    )


def _saving(recommended: BatchFleet, baseline: BatchFleet | None) -> tuple[float | None, str]:
    """Returns the saving per row in per cent and what it rests on, or why there is none."""
    if baseline is None:
        return None, "No baseline was named."
    cost, other = recommended.cost_per_million_rows_usd, baseline.cost_per_million_rows_usd
    if cost is None or other is None:
        return None, "The saving is unknown, because a price is unknown."
    stated = [fleet.instance_type for fleet in (recommended, baseline) if fleet.known_by == "stated"]
    basis = (
        f"The rate on {' and on '.join(stated)} is stated, not measured. The saving is a scenario: it holds if both "
        "rates are of one model."
        if stated
        else "Both rates are of the same checkpoint."
    )
    return (1 - cost / other) * 100, basis
