"""`size`: a fleet, a batch's shards or a cost from evidence; without AWS. Also shows and refreshes the prices."""

import argparse
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rich.console import Console

from inference_recommender.cli import arguments
from inference_recommender.output import Commands, add_command, tell, warn
from inference_recommender.report.size_report import batch_report, catalogue_report, fleet_report
from inference_recommender.report.text import print_result
from inference_recommender.sizing import prices
from inference_recommender.sizing.batch import Throughput, holds_throughput, read_throughput, size_batch
from inference_recommender.sizing.evidence import Evidence, read_evidence, size
from inference_recommender.sizing.prices import Catalogue
from workloads import (
    ROOT,
    BatchRecommendation,
    Candidate,
    ModelArtifact,
    ScheduledBatchHosting,
    UsageError,
    load_workload,
    workload_names,
)
from workloads.files import from_here
from workloads.folder import table_with_settings

NO_CANDIDATE = NO_PRICE = 1
DEFAULT_REGION = "us-east-1"
"""The region of a batch's prices."""
OF_A_FLEET = ("peak_invocations_per_minute", "latency_limit_ms")
OF_A_BATCH = ("baseline", "rows_per_run", "recommend")
TYPED = re.compile(r"((?:ml\.)?[a-z0-9-]+\.[a-z0-9-]+)=(.+)")
DESCRIPTION = """Prints the instances that a peak needs, their cost, and the cheapest configuration that meets the
objective. The file or folder decides what the evidence is.

- a job: the JSON of DescribeInferenceRecommendationsJob
- a run: its folder, or that of an experiment
- a batch: the reports of `python -m containers.batch --summary`, one for each shard, or their folder
- a rate: JSON with rows_per_second and source; instance_type and price_per_hour_usd may be there too

A batch or a rate needs --workload, whose objective and [sizing] give the shards. --recommend writes
recommendation.json, which the stack deploys. --explain alone prints the price catalogue."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "size --from runs/NAME --peak-invocations-per-minute 60000", DESCRIPTION)
    parser.add_argument(
        "--from", nargs="+", dest="source", metavar="[TYPE=]PATH", help="the evidence; TYPE is a batch's instance type"
    )
    parser.add_argument("--workload", metavar="NAME", help="has objective and [sizing]; default: the folder's, if any")
    parser.add_argument(
        "--peak-invocations-per-minute", type=arguments.positive, metavar="N", help="default: the workload's"
    )
    parser.add_argument(
        "--latency-limit-ms",
        type=_limit,
        metavar="[P99=]N",
        help="limit of model latency; default percentile: the folder's, else the job's one figure is judged",
    )
    arguments.add_settings(parser, "sizing.KEY", "sizing.headroom")
    parser.add_argument("--baseline", nargs="+", metavar="[TYPE=]PATH", help="reports or a rate to compare with")
    parser.add_argument("--rows-per-run", type=arguments.count, metavar="N", help="of a batch; default: its reports'")
    parser.add_argument("--region", metavar="REGION", help="of the prices; default: the job's, us-east-1 for a batch")
    arguments.add_prices(parser)
    parser.add_argument("--recommend", action="store_true", help="write the batch's recommendation.json for review")
    parser.add_argument("--explain", action="store_true", help="print the source of each price")
    parser.add_argument("--refresh-prices", action="store_true", help="fetch prices.json from the Price List API")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_size)


def _size(options: argparse.Namespace, stderr: Console) -> int:
    paths, _ = _typed(options.source or ())
    if paths and holds_throughput(paths[0]):
        _refuse(options, OF_A_FLEET, "a job, a run or a search")
        return _size_batch(options, stderr)
    _refuse(options, OF_A_BATCH, "a batch's reports or a rate")
    if len(paths) > 1:
        raise UsageError(f"--from: got {len(paths)} paths. Only the reports of a batch may be several.")
    evidence = read_evidence(paths[0]) if paths else None
    if options.refresh_prices:
        code = _refresh(options.region, evidence, stderr)
        if evidence is None:
            return code
    if evidence:
        return _size_fleet(options, paths[0], stderr)
    if not options.explain:
        raise UsageError("--from: is missing. Give evidence to size from, or --explain to print the price catalogue.")
    catalogue = Catalogue.from_json(prices.CATALOGUE_FILE)
    print_result(catalogue_report(catalogue), json=options.json, document=catalogue)
    return 0


def _typed(sources: Sequence[str]) -> tuple[list[Path], str | None]:
    """Returns the paths of [TYPE=]PATH arguments, and the instance type."""
    typed = [TYPED.fullmatch(source) for source in sources]
    paths = [Path(match[2] if match else source) for match, source in zip(typed, sources, strict=True)]
    return paths, next((match[1] for match in typed if match), None)


def _refuse(options: argparse.Namespace, names: Sequence[str], belongs_to: str) -> None:
    for name in names:
        if getattr(options, name):
            raise UsageError(f"--{name.replace('_', '-')}: is only for {belongs_to}.")


def _size_fleet(options: argparse.Namespace, path: Path, stderr: Console) -> int:
    percentile, limit_ms = options.latency_limit_ms or (None, None)
    sized = size(
        path,
        workload=options.workload,
        peak_invocations_per_minute=options.peak_invocations_per_minute,
        latency_limit_ms=limit_ms,
        percentile=percentile,
        settings=options.settings,
        region=options.region,
        prices=options.prices,
    )
    chosen = sized.recommended
    if options.json:
        for caution in sized.cautions:
            warn(stderr, caution)
        document = {"candidates": [_plain(each) for each in sized.candidates], "recommended": chosen and _plain(chosen)}
        print(json.dumps(document, indent=2, ensure_ascii=False))
    else:
        report = fleet_report(sized.candidates, chosen, sized.demand, sized.cautions, explain=options.explain)
        print_result(report, json=False)
    return 0 if chosen else NO_CANDIDATE


def _limit(text: str) -> tuple[str | None, float]:
    """Parses P99=50, or 50."""
    percentile, equals, limit = text.rpartition("=")
    return arguments.percentile(percentile) if equals else None, arguments.positive(limit)


def _plain(candidate: Candidate) -> dict[str, Any]:
    reason = f"{candidate.reason} Price: {candidate.cost_reason}"
    return {**candidate.model_dump(mode="json"), "reason": reason}


def _size_batch(options: argparse.Namespace, stderr: Console) -> int:
    if options.workload is None:
        raise UsageError("--workload: is missing. A batch's shards follow from the objective of a workload.")
    folder = load_workload(options.workload)
    workload, hosting = folder.workload, folder.workload.hosting
    if not isinstance(hosting, ScheduledBatchHosting):
        raise UsageError(
            f"{folder.file}: hosting.kind: is not scheduled-batch. Measure it with `python -m inference_recommender "
            f"run {workload.name}`."
        )
    from inference_recommender.measure.system import machine_description  # needs SciPy

    def read(sources: Sequence[str]) -> Throughput:
        paths, instance_type = _typed(sources)
        throughput = read_throughput(paths, hosting.max_bad_share, machine_description())
        return replace(throughput, instance_type=instance_type or throughput.instance_type)

    sizing = table_with_settings(options.settings, "sizing", workload.sizing)
    builds = (ROOT / "build" / workload.name).glob("*/artifact.json")
    result = size_batch(
        workload.model_copy(update={"sizing": sizing}),
        read(options.source),
        read(options.baseline) if options.baseline else None,
        {artifact.archive_sha256: artifact for artifact in map(ModelArtifact.from_json, builds)},
        options.rows_per_run,
        options.region or DEFAULT_REGION,
    )
    print_result(batch_report(result, explain=options.explain), json=options.json, document=result)
    if options.recommend:
        if not isinstance(result, BatchRecommendation):
            raise UsageError(
                "--recommend: needs measured reports. Write shards from a stated rate into workload.toml, "
                "hosting.shards, with their source."
            )
        result.write_json(folder.recommendation_file)
        tell(stderr, f"Written: {from_here(folder.recommendation_file)}. The next `cdk deploy` uses it.")
    return 0


def _refresh(region: str | None, evidence: Evidence | None, stderr: Console) -> int:
    """Fetches the prices of the measured types, or of all types that the catalogue or a workload names."""
    catalogue = Catalogue.from_json(prices.CATALOGUE_FILE)
    region = region or (evidence.region if evidence else None)
    regions = [region] if region else list(catalogue.regions)
    if evidence:
        types = {one.instance_type for one in evidence.measured}
    else:
        workloads = (load_workload(name).workload for name in workload_names(ROOT / "workloads"))
        types = {*catalogue.instance_types, *catalogue.unlisted, *prices.named_types(workloads)}
    fresh, unclear = prices.fresh_prices(regions, sorted(types), datetime.now(UTC).date())
    for sentence in unclear:
        warn(stderr, sentence)
    count = sum(len(listed) for listed in fresh.regions.values())
    if not count:
        return NO_PRICE
    catalogue.joined_by(fresh).write_json(prices.CATALOGUE_FILE)
    prices.committed_catalogue.cache_clear()
    tell(stderr, f"{count} prices written for review: {from_here(prices.CATALOGUE_FILE)}")
    return 0
