"""`lengths`: how latency follows from the lengths of requests and answers, and what longer payloads would cost."""

import argparse
import random
from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from rich.console import Console

from inference_recommender.capacity.closed_loop import Limit
from inference_recommender.cli import arguments
from inference_recommender.lengths.evidence import lengths_report
from inference_recommender.lengths.result import NAME, LengthSurface, Origin, surface
from inference_recommender.lengths.served import Server, built_server, other_server
from inference_recommender.lengths.shifts import Bounds, Shift
from inference_recommender.lengths.survey import Asked, Survey, measure
from inference_recommender.lengths.terminal import show
from inference_recommender.lengths.tokens import PayloadTokenizer, built_tokenizer
from inference_recommender.load_test.load_test import machine_description
from inference_recommender.load_test.target import Target, TargetAws, endpoint_target, url_target
from inference_recommender.output import Commands, add_command, tell
from inference_recommender.payloads import check_payloads, payload_archive
from inference_recommender.report.inputs import read_inputs
from inference_recommender.report.page import page
from inference_recommender.report.rewrite import rewrite
from inference_recommender.run_folder import RunFolder
from inference_recommender.tune.space import default_targets
from workloads import (
    ROOT,
    Interrupted,
    Recommendation,
    Row,
    TextToText,
    UsageError,
    WorkloadFolder,
    load_workload,
)
from workloads.files import from_here

PAYLOADS = "payloads.tar.gz"
MOST_PAYLOADS = 256
"""So many payloads are asked as they are; of more, so many by chance."""

DESCRIPTION = """Asks a server requests of chosen lengths, one at a time: the payloads as they are, and payloads cut and
joined by the workload's tokenizer to lengths from their shortest to the most that the model takes; then the same beside
a load of payloads. By default a Triton of this machine (`make triton`) serves the build, and its answers are
made to have chosen lengths, too; a server of --url or --endpoint gives them the lengths that its model does. A simple
model is fitted to it, with its residual.

Then payloads whose lengths shift, by a quarter, by half, all to the P90, all to the limits, or to those of --payloads
FILE, are sent in turns by up to twice as many users as fill the server's batches: from what each number of users
completes follows how many times the capacity of the payloads it bears of the longer ones, and the fleet for them. It is
an estimate; `capacity --payloads FILE` searches it. The result is kept as lengths.json and, where the workload's
recommendation is of the same archive, added to it and to the report of its run; nobody tells the archive behind --url.
Exit code 4: no rate of the payloads as they are is within the objective."""


def add(commands: Commands) -> None:
    parser = add_command(
        commands,
        "lengths",
        "latency by the lengths of requests and answers, and what longer ones cost",
        "lengths spellcheck --payloads longer.jsonl",
        DESCRIPTION,
    )
    parser.add_argument("workload", metavar="WORKLOAD")
    parser.add_argument(
        "--target",
        metavar="NAME",
        help="whose build is served and has the tokenizer; default: the hosted one, else the CPU's",
    )
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--url", metavar="URL", help="of a KServe v2 server to ask, or of its model's infer")
    asked.add_argument("--endpoint", metavar="NAME", help="to ask")
    parser.add_argument("--model", metavar="NAME", help="in the server of --url; default: the workload's name")
    parser.add_argument("--payloads", type=Path, metavar="FILE", help="others to measure, as payloads.jsonl is")
    parser.add_argument(
        "--load-invocations-per-minute",
        type=arguments.positive,
        metavar="N",
        help="beside which it is measured, too; default: half of what one request after another would be",
    )
    parser.add_argument(
        "--requests", type=arguments.count, default=20, metavar="N", help="for each pair of lengths; default: 20"
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="where run folders go")
    parser.add_argument("--json", action="store_true", help="print the result as one JSON document")
    parser.set_defaults(command=_lengths)


def _lengths(options: argparse.Namespace, stderr: Console) -> int:
    folder = load_workload(options.workload)
    if options.model and not options.url:
        raise UsageError("--model: goes with --url; of an endpoint AWS knows it.")
    target = options.target or default_targets(folder.workload, gpu=Path("/dev/nvidia0").exists())[0]
    folder.variant(target)
    folder = folder.hosted_on(target)
    workload, objective = folder.workload, folder.workload.latency_objective
    tokenizer = built_tokenizer(folder, target)
    payloads = _chosen(folder.payloads())
    _refuse_too_long(tokenizer, folder, folder.payload_file, payloads)
    others = _chosen(folder.payloads(options.payloads)) if options.payloads else []
    _refuse_too_long(tokenizer, folder, options.payloads, others)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    run_folder = RunFolder(options.runs / f"{workload.name}-lengths-{stamp}".replace("_", "-"))
    check_payloads(workload.name, payloads)
    run_folder.keep_workload(workload)
    run_folder.keep_bytes(PAYLOADS, payload_archive(payloads))
    bounds, say, serving = _bounds(folder), partial(tell, stderr), workload.variant(target).serving
    asked = Asked(
        payloads=payloads,
        others=Shift(name=options.payloads.name, rows=others) if others else None,
        requests=options.requests,
        load_invocations_per_minute=options.load_invocations_per_minute,
        archive=run_folder.path / PAYLOADS,
        at_once=serving.max_batch_size * serving.copies,
        limit=Limit(percentile=objective.percentile_rank, latency_ms=objective.model_latency_ms),
    )
    answer = workload.model.answer if isinstance(workload.model, TextToText) else None
    try:
        with _server(options, folder, target, run_folder, stderr) as server:
            survey = Survey(post=server.post, tokenizer=tokenizer, answer=answer)
            measured = measure(survey, server, asked, bounds, say)
    except KeyboardInterrupt:
        raise Interrupted("Interrupted: the survey was stopped, and nothing was concluded.") from None
    recommendation = folder.recommendation()
    unlike = _unlike(recommendation, server.archive_sha256)
    found = surface(
        workload.name,
        measured,
        _origin(server, run_folder),
        bounds,
        objective=objective,
        sizing=workload.sizing,
        invocations_per_minute=None if unlike else _capacity(recommendation),
    )
    found.write_json(run_folder.path / NAME)
    run_folder.keep_report(page(lengths_report(run_folder.path.name, found, workload, read_inputs(run_folder.path))))
    if not found.kinds[0].invocations_per_minute:
        raise run_folder.no_verdict("No rate of the payloads as they are is within the objective.")
    if options.json:
        print(found.model_dump_json(indent=2))
    else:
        show(found, objective.percentile)
    tell(stderr, f"Report: {from_here(run_folder.report)}")
    if recommendation is None or unlike:
        tell(stderr, f"Nothing was added to {from_here(folder.recommendation_file)}: {unlike}.", "yellow")
    else:
        _add(recommendation, found, folder, options.runs, stderr)
    return 0


def _server(
    options: argparse.Namespace, folder: WorkloadFolder, target: str, run_folder: RunFolder, stderr: Console
) -> AbstractContextManager[Server]:
    """Returns what --url or --endpoint names, or else a Triton of this machine with the target's build."""
    if options.url or options.endpoint:
        return other_server(_target(options, folder))
    return built_server(folder, target, run_folder.path, partial(tell, stderr))


def _target(options: argparse.Namespace, folder: WorkloadFolder) -> Target:
    if options.url:
        return url_target(options.url, options.model or folder.workload.name, 1, None, None)
    aws = TargetAws()
    return endpoint_target(aws.described(options.endpoint), aws.region, on_this_machine=aws.is_on_this_machine())


def _chosen(rows: list[Row]) -> list[Row]:
    return rows if len(rows) <= MOST_PAYLOADS else random.Random(0).sample(rows, MOST_PAYLOADS)


def _refuse_too_long(
    tokenizer: PayloadTokenizer, folder: WorkloadFolder, file: Path | None, rows: Sequence[Row]
) -> None:
    """Raises `UsageError` for the first row that the model would refuse; one that it reads in windows it does not."""
    if not rows or getattr(folder.workload.model, "stride", None) is not None:
        return
    for line, tokens in enumerate(tokenizer.count(rows), start=1):
        if tokens > tokenizer.most:
            raise UsageError(
                f"{file}: row {line} has {tokens} tokens, and {folder.workload.name} takes {tokenizer.most} at most. "
                "Shorten it, or raise max_input_tokens in workload.toml and build again."
            )


def _bounds(folder: WorkloadFolder) -> Bounds:
    model = folder.workload.model
    return Bounds(
        inputs=model.max_input_tokens, outputs=model.max_output_tokens if isinstance(model, TextToText) else 0
    )


def _origin(server: Server, run_folder: RunFolder) -> Origin:
    return Origin(
        asked=server.name,
        archive_sha256=server.archive_sha256,
        measured_on=server.measured_on,
        machine=machine_description(),
        measured_at=datetime.now(UTC).isoformat(timespec="seconds"),
        run=f"{run_folder.path.parent.name}/{run_folder.path.name}",
    )


def _capacity(recommendation: Recommendation | None) -> float | None:
    chosen = recommendation.recommended if recommendation else None
    return chosen.max_invocations_per_minute if chosen else None


def _unlike(recommendation: Recommendation | None, archive_sha256: str | None) -> str | None:
    """Returns why the recommendation is not known to be of the archive that was measured, or None."""
    if recommendation is None:
        return "it does not exist"
    if archive_sha256 is None:
        return "no server of --url tells which archive it serves"
    return None if recommendation.archive_sha256 == archive_sha256 else "it is of another archive"


def _add(
    recommendation: Recommendation, found: LengthSurface, folder: WorkloadFolder, runs: Path, stderr: Console
) -> None:
    file = folder.recommendation_file
    report = rewrite(recommendation.model_copy(update={"lengths": found.lengths}), file, runs)
    tell(stderr, f"Added to {from_here(file)}" + (f" and {from_here(report)}" if report else ""))
