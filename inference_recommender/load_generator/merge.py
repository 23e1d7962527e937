"""Merges several generators' runs of one plan: their timelines are added on the common clock and judged as one run.

Only the whole seconds in which all generators sent count: before, some were still starting; after, some had stopped.
The result has the shape of a single run. Its records come from the timelines, so latencies are within
`histogram.RELATIVE_ERROR` and the order within a second is not known.
"""

import json
import math
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

import numpy as np

from inference_recommender.load_generator.load_run import TRAFFIC_ENDED
from inference_recommender.load_generator.plan import LoadPlan
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_generator.records import CONNECTION_FAILED, TIMED_OUT, write_columns
from inference_recommender.load_generator.self_watch import LAGGED, STALLED, Calibration, SelfWatch
from inference_recommender.load_generator.summary import Measured, summarise, why_invalid
from inference_recommender.load_generator.timeline import Timeline, merge_timelines
from workloads import NoVerdict, Unavailable
from workloads.files import replace_text

TARGET_FAILED = Unavailable.exit_code
INVALID = NoVerdict.exit_code


class NothingToMerge(NoVerdict):
    """There is no second in which all of several generators sent."""


def merge(outcomes: Sequence[Outcome], plan: LoadPlan, folder: Path) -> Outcome:
    """Returns one outcome for `outcomes`, which ran the shares of `plan`, and writes its files to `folder`.

    Raises `NothingToMerge` where one has no summary, or where they never all ran at once.
    """
    for outcome in outcomes:
        if outcome.summary is None:
            raise NothingToMerge(f"{outcome.folder} holds no summary: {outcome.reason}")
    measured, timeline = _together(outcomes, plan)
    summary = summarise(measured, plan.stopping_conditions)
    exit_code, reason = _verdict(outcomes, why_invalid(summary, plan.stopping_conditions), summary.ended)
    document = {**summary.as_json(), "generators": len(outcomes), "reason": reason}
    timeline.write(folder / "timeline.npz")
    _write_records(measured, folder / "records.npz")
    replace_text(folder / "summary.json", json.dumps(document, indent=2) + "\n")
    return Outcome(folder=folder, exit_code=exit_code, reason=reason, summary=document)


def _together(outcomes: Sequence[Outcome], plan: LoadPlan) -> tuple[Measured, Timeline]:
    summaries = [outcome.summary for outcome in outcomes if outcome.summary is not None]
    last_start = max(summary["started_at"] for summary in summaries)
    first_end = min(summary["started_at"] + summary["duration_s"] for summary in summaries)
    start, end = math.ceil(last_start), math.floor(first_end)
    if start >= end:
        raise NothingToMerge(
            f"The {len(outcomes)} generators were not at work at once for a second: the last began at "
            f"{last_start:.1f} s, the first ended at {first_end:.1f} s of the epoch. Give their plans one start_at, "
            "and check the clocks."
        )
    timeline = merge_timelines([Timeline.read(outcome.folder / "timeline.npz") for outcome in outcomes])
    measured = Measured(
        rows=timeline.rows(start, end),
        unfinished_intended_s=timeline.unfinished_at[timeline.unfinished_at < end] - start,
        unserved_s=sum(summary["unserved_s"] for summary in summaries),
        open_loop=plan.arrivals is not None,
        started_at=float(start),
        duration_s=float(end - start),
        stalls_s=timeline.stalls_at - start,
        first_error=next((summary["first_error"] for summary in summaries if summary["first_error"]), None),
        ended=next((summary["ended"] for summary in summaries if summary["ended"] != TRAFFIC_ENDED), TRAFFIC_ENDED),
        watch=reduce(SelfWatch.worst_with, (_watch(summary["generator"]) for summary in summaries)),
    )
    return measured, timeline


def _verdict(outcomes: Sequence[Outcome], invalid: str | None, ended: str) -> tuple[int, str]:
    """Returns (exit code, reason). One generator's failure decides for all.

    Too few samples of one do not: together the samples may be enough.
    """
    for exit_code, beginning in ((TARGET_FAILED, ""), (INVALID, LAGGED), (INVALID, STALLED)):
        for outcome in outcomes:
            if outcome.exit_code == exit_code and outcome.reason.startswith(beginning):
                return exit_code, outcome.reason
    return (INVALID, invalid) if invalid and ended != "stopped" else (0, ended)


def _watch(document: dict[str, object]) -> SelfWatch:
    calibration = document["calibration"]
    fields = {**document, "calibration": Calibration(**calibration) if isinstance(calibration, dict) else None}
    return SelfWatch(**fields)  # type: ignore[arg-type]


def _write_records(measured: Measured, file: Path) -> None:
    """Writes records.npz: a timeline knows whether a status was 200 or a time-out, and no user (-1)."""
    rows = measured.rows
    write_columns(
        file,
        rows.finished_s - rows.from_intended_ms / 1000,
        rows.finished_s - rows.latencies_ms / 1000,
        rows.finished_s,
        np.select([rows.succeeded, rows.timed_out], [200, TIMED_OUT], CONNECTION_FAILED).astype(np.int16),
        np.full(len(rows.finished_s), -1, dtype=np.int32),
        measured.unfinished_intended_s,
        measured.stalls_s,
    )
