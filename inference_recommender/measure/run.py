"""The use case of `run`: measure by a job or by the load generator, search if necessary, decide, and write the result.

It is the same on AWS and on a local account.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.load_generator.time_stamps import arrivals_of
from inference_recommender.measurement import Measurement
from inference_recommender.payload_lengths import known_lengths
from inference_recommender.payloads import check_payloads, payload_archive
from inference_recommender.progress import Progress
from inference_recommender.report.run_report import draw
from inference_recommender.run_folder import PAYLOADS, RunFolder, RunInputs
from inference_recommender.sizing.decision import decide, why_inconclusive
from inference_recommender.sizing.verdict import initial_rate, needs_search
from workloads import (
    ROOT,
    Interrupted,
    ModelArtifact,
    PayloadLengths,
    Provenance,
    Recommendation,
    Row,
    UsageError,
    Workload,
    WorkloadFolder,
    load_artifact,
    load_workload,
)
from workloads.folder import with_settings


class Source(Protocol):
    """Measures a workload: `job.JobSource`, `load_test.LoadTest` or `open_loop.OpenLoopSearch`."""

    def begin(self, run_folder: RunFolder) -> None:
        """Writes what the source adds to the run's folder. Sends nothing."""

    def measure(self, run_folder: RunFolder, progress: Progress) -> tuple[Measurement, ...]:
        """Returns the valid measurements, and keeps them in `run_folder` however it ends. Raises `NoVerdict`,
        `Interrupted` or `Unavailable`.
        """

    def provenance(self, run_folder: RunFolder) -> Provenance: ...


SearchMeasurement = Callable[[Measurement, RunFolder, Progress], Measurement]
"""Adds the result of an open-loop search to a measurement."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunSubject:
    """A workload with its payloads and its build."""

    workload: Workload
    payloads: Sequence[Row]
    artifact: ModelArtifact
    traffic: str
    lengths: PayloadLengths | None = None
    """The payloads' lengths; None if they are unknown."""

    @classmethod
    def of(
        cls, folder: WorkloadFolder, traffic: str, warn: Callable[[str], None], payloads: Path | None = None
    ) -> "RunSubject":
        """Returns a workload and its build, with its own payloads or those of a file. Raises `MissingArtifact`, or
        `UsageError` for recorded arrivals that cannot be read.
        """
        arrivals_of(folder.workload.latency_objective, folder.path)
        return cls(
            workload=folder.workload,
            payloads=folder.payloads(payloads),
            artifact=load_artifact(ROOT, folder.workload.name, folder.workload.hosting.target),
            traffic=traffic,
            lengths=known_lengths(folder, warn) if payloads is None else None,
        )


def workload_to_measure(
    name: str, settings: Sequence[str], target: str | None, account: SageMakerAccount | None, endpoint: str | None
) -> WorkloadFolder:
    """Returns a workload with --set on `target`; by default on its stack's target, by its output HostedTarget; without
    a stack, on hosting.target. Raises `UsageError` for an unknown target.
    """
    folder = load_workload(name)
    # A named model needs no stack: a release's role may not read it.
    named = with_settings(folder, settings).workload.recommender.model
    if target is None and account is not None and not named:
        target = account.hosted_target(folder.workload.stack_name, endpoint)
    if target is not None and target != folder.workload.hosting.target:
        folder.variant(target)
        folder = folder.hosted_on(target)
    return with_settings(folder, settings)


def run(
    source: Source,
    run_folder: RunFolder,
    progress: Progress,
    *,
    subject: RunSubject | None = None,
    search: SearchMeasurement | None = None,
    search_all: bool = False,
) -> Recommendation:
    """Measures and decides; without a `subject`, it continues the run of `run_folder`.

    `search` runs for a measurement if `search_all`, or if its estimate is far below the closed-loop rate. The folder
    keeps all measurements however the run ends. Raises `UsageError`, or what the source raises.
    """
    if subject is not None and run_folder.begun:
        raise UsageError(
            f"{run_folder} already has a run. Continue it with `python -m inference_recommender run --resume "
            f"{run_folder}`, or choose another name with --name."
        )
    measured = begin_and_measure(source, run_folder, progress, subject)
    if search is not None:
        measured = _searched(measured, search, run_folder, progress, search_all=search_all)
    workload, inputs = run_folder.workload(), run_folder.inputs()
    if reason := why_inconclusive(measured, workload.latency_objective):
        raise run_folder.no_verdict(reason)
    provenance = source.provenance(run_folder)
    recommendation = decide(workload, inputs.archive_sha256, measured, provenance, inputs.lengths)
    run_folder.keep_recommendation(recommendation)
    draw(run_folder)
    return recommendation


def begin_and_measure(
    source: Source, run_folder: RunFolder, progress: Progress, subject: RunSubject | None
) -> tuple[Measurement, ...]:
    """Measures, or continues what `run_folder` has begun. All that the run consists of is written before anything is
    sent. Raises what the source raises.
    """
    if subject is not None and not run_folder.begun:
        objective = subject.workload.latency_objective
        check_payloads(subject.workload.name, subject.payloads, objective)
        run_folder.keep_workload(subject.workload)
        run_folder.keep_bytes(PAYLOADS, payload_archive(subject.payloads, objective))
        archive = subject.artifact.archive_sha256
        run_folder.keep_inputs(RunInputs(traffic=subject.traffic, archive_sha256=archive, lengths=subject.lengths))
        source.begin(run_folder)
    return source.measure(run_folder, progress)


def _searched(
    measured: Sequence[Measurement],
    search: SearchMeasurement,
    run_folder: RunFolder,
    progress: Progress,
    *,
    search_all: bool,
) -> tuple[Measurement, ...]:
    objective = run_folder.workload().latency_objective
    found: list[Measurement] = []
    try:
        for one in measured:
            check = needs_search(one, objective)
            if check and not search_all:
                progress.say(f"{one.instance_type}: {check}. Starting an open-loop search.")
            possible = one.open_loop is None and initial_rate(one, objective) is not None
            found.append(search(one, run_folder, progress) if possible and (search_all or check) else one)
    except KeyboardInterrupt:
        raise Interrupted(
            f"Interrupted: the open-loop search was stopped. Measurements of the test before it: {run_folder}."
        ) from None
    run_folder.keep_measurements(tuple(found))
    return tuple(found)
