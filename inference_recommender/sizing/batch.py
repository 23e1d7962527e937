"""The shards of a batch from its measured throughput, what a run costs, and the saving against another fleet. Pure.

    shards               = as an endpoint's fleet: ceil(objective · burst factor · (1 + headroom) / rows per second), …
    duration of a run    = rows / (shards · rows per second) + mean time to load the models
    cost of a run        = shards · price of an instance · duration
    cost per million     = price of an instance / (rows per second · 3600) · 10⁶
    saving               = 1 - cost per million / the baseline's

A throughput is the mean of the batch program's own reports (its --summary files), one for each shard of a run. Where
nothing was measured, a document that states one stands in, and the result says so.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from pydantic import BaseModel, ConfigDict

from inference_recommender.sizing.decision import cost_per_million_usd
from inference_recommender.sizing.fleet import Demand, fleet
from inference_recommender.sizing.prices import listed_price, why_unlisted
from workloads import BatchFleet, ModelArtifact, NoVerdict, Sizing, ThroughputObjective, UsageError
from workloads.recommendation import KnownBy

SHORTEST_S = 10.0
"""A report of less says little: a worker's last chunk is awaited while the others have none."""


class Report(BaseModel):
    """A summary file of the batch program, as far as it is read."""

    model_config = ConfigDict(frozen=True, strict=True)

    rows: int
    bad_share: float
    load_seconds: float
    rows_per_second: float | None
    archive_sha256: str | None = None
    stack: str | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Throughput:
    """Rows a second of one instance. `archive_sha256` and `rows` are None where they are `stated`."""

    rows_per_second: float
    known_by: KnownBy
    source: str
    measured: tuple[float, ...] = ()
    load_s: float | None = None
    rows: int | None = None
    archive_sha256: str | None = None

    @classmethod
    def stated(cls, rows_per_second: float, source: str) -> "Throughput":
        return cls(rows_per_second=rows_per_second, known_by="stated", source=source)


def measured(paths: Sequence[Path], max_bad_share: float, machine: str) -> Throughput:
    """Reads reports, or folders of them. `machine` is named where no stack's run made them.

    Raises `UsageError` for what is no report, and `NoVerdict` where the reports say too little.
    """
    reports = dict(_reports(paths))
    answered = {file: report for file, report in reports.items() if report.rows_per_second is not None}
    if not answered:
        raise NoVerdict(f"{_names(paths)}: no report of a run that answered any row. Give those of a whole run.")
    for file, report in answered.items():
        _refuse(file, report, max_bad_share)
    archives = {report.archive_sha256 for report in answered.values()}
    if len(archives) > 1:
        raise UsageError(f"{_names(paths)}: are of {len(archives)} archives. Give the reports of one.")
    rates = tuple(report.rows_per_second or 0.0 for report in answered.values())
    stacks = sorted({report.stack for report in answered.values() if report.stack})
    of_a_stack = len(stacks) == 1 and all(report.stack for report in answered.values())
    where = f"a run of {stacks[0]}" if of_a_stack else f"this project's batch program on {machine}"
    count = f"{len(rates)} reports" if len(rates) > 1 else "1 report"
    return Throughput(
        rows_per_second=fmean(rates),
        known_by="stack" if of_a_stack else "local",
        source=f"{count} of {where}",
        measured=rates,
        load_s=fmean(report.load_seconds for report in answered.values()),
        rows=sum(report.rows for report in answered.values()),
        archive_sha256=archives.pop(),
    )


def _reports(paths: Sequence[Path]) -> Iterator[tuple[Path, Report]]:
    for path in paths:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        if not files:
            raise UsageError(f"{path}: holds no .json. Give the --summary files of the batch program.")
        for file in files:
            try:
                yield file, Report.model_validate_json(file.read_bytes())
            except (OSError, ValueError):
                raise UsageError(
                    f"{file}: is no report of the batch program. Give what `python -m containers.batch --summary FILE` "
                    "wrote."
                ) from None


def _refuse(file: Path, report: Report, max_bad_share: float) -> None:
    rate = report.rows_per_second or 0.0
    if rate <= 0 or report.rows / rate < SHORTEST_S:
        raise NoVerdict(
            f"{file}: too few rows: {report.rows:,} were answered in {report.rows / rate if rate else 0:.1f} s, and "
            f"{SHORTEST_S:g} s are the least. Give the batch more rows."
        )
    if report.bad_share > max_bad_share:
        raise NoVerdict(
            f"{file}: {report.bad_share:.1%} of the rows are bad, more than max_bad_share {max_bad_share:g}: such a "
            "run has failed. Mend the input and measure again."
        )
    if report.archive_sha256 is None:
        raise UsageError(
            f"{file}: archive_sha256: is null, for the model was a folder. Run the batch with the archive that is "
            "deployed: --model build/WORKLOAD/TARGET/model.tar.gz."
        )


def _names(paths: Sequence[Path]) -> str:
    return ", ".join(map(str, paths))


def sized(
    throughput: Throughput,
    instance_type: str,
    objective: ThroughputObjective,
    sizing: Sizing,
    rows_per_run: int | None,
    region: str,
) -> BatchFleet:
    """Returns the instances of a type that reach the objective, and their cost."""
    rate = throughput.rows_per_second
    needed = fleet(rate * 60, Demand(peak_invocations_per_minute=objective.rows_per_second * 60), sizing)
    price = listed_price(instance_type, region)
    per_hour = price.usd_per_hour if price else None
    shards = needed.instance_count
    run_s = None if rows_per_run is None else rows_per_run / (shards * rate) + (throughput.load_s or 0.0)
    return BatchFleet(
        instance_type=instance_type,
        rows_per_second=rate,
        known_by=throughput.known_by,
        source=throughput.source,
        measured=throughput.measured,
        load_s=throughput.load_s,
        shards=shards,
        shard_parts=needed.parts,
        run_s=run_s,
        cost_per_hour_usd=None if per_hour is None else shards * per_hour,
        cost_per_million_rows_usd=None if per_hour is None else cost_per_million_usd(per_hour, rate * 60),
        cost_per_run_usd=None if per_hour is None or run_s is None else shards * per_hour * run_s / 3600,
        cost_reason=price.reason if price else f"Of no known price: {why_unlisted(instance_type, region)}",
    )


def saving(recommended: BatchFleet, baseline: BatchFleet | None) -> tuple[float | None, str]:
    """Returns the saving per row in per cent and what it rests on, or why there is none."""
    if baseline is None:
        return None, "No baseline was named."
    cost, other = recommended.cost_per_million_rows_usd, baseline.cost_per_million_rows_usd
    if cost is None or other is None:
        return None, "A price is not known, so no saving is."
    stated = [fleet.instance_type for fleet in (recommended, baseline) if fleet.known_by == "stated"]
    caution = (
        f"The rate on {' and on '.join(stated)} is stated and not measured: this is a scenario, and holds where both "
        "rates are of one model."
        if stated
        else "Both rates are of the same checkpoint."
    )
    return (1 - cost / other) * 100, caution


def check_one_model(measured: ModelArtifact, baseline: ModelArtifact | None, baseline_sha256: str) -> None:
    """Raises `UsageError` where the baseline is of no build here, or of another checkpoint than what was measured."""
    if baseline is None:
        raise UsageError(
            f"--baseline: was measured on the archive {baseline_sha256[:12]}…, which no build has here. Build the "
            "baseline's target, and measure that archive."
        )
    if baseline.checkpoint_sha256 != measured.checkpoint_sha256:
        raise UsageError(
            f"--baseline: was measured on {baseline.variant}, which was built of another checkpoint. Build both of one."
        )
