"""Merges the records of several generators that ran one plan, and judges them as one run.

Only the whole seconds in which all generators sent count. The result has the files of a single run.
"""

import math
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from inference_recommender.load_generator.load_run import TRAFFIC_ENDED
from inference_recommender.load_generator.plan import LoadPlan
from inference_recommender.load_generator.process import Outcome
from inference_recommender.load_generator.records import SentRequests
from inference_recommender.load_generator.self_watch import LAGGED, STALLED, SelfWatch
from inference_recommender.load_generator.summary import MeasuredRun, summarise, why_invalid, write_results
from workloads import NoVerdict, Unavailable

TARGET_FAILED = Unavailable.exit_code
INVALID = NoVerdict.exit_code


class NothingToMerge(NoVerdict):
    """There is no second in which all of several generators sent."""


def merge(outcomes: Sequence[Outcome], plan: LoadPlan, folder: Path) -> Outcome:
    """Returns one outcome for `outcomes`, which ran the shares of `plan`, and writes its files to `folder`.

    Raises `NothingToMerge` if one has no summary, or if they never all ran at once.
    """
    for outcome in outcomes:
        if outcome.summary is None:
            raise NothingToMerge(f"{outcome.folder} has no summary: {outcome.reason}")
    measured = _together(outcomes, plan)
    summary = summarise(measured, plan.stopping_conditions)
    exit_code, reason = _verdict(outcomes, why_invalid(summary, plan.stopping_conditions), summary.ended)
    document = {**summary.as_json(), "generators": len(outcomes), "reason": reason}
    write_results(folder, document, measured.requests)
    return Outcome(folder=folder, exit_code=exit_code, reason=reason, summary=document)


def _together(outcomes: Sequence[Outcome], plan: LoadPlan) -> MeasuredRun:
    summaries = [outcome.summary for outcome in outcomes if outcome.summary is not None]
    last_start = max(summary["started_at"] for summary in summaries)
    first_end = min(summary["started_at"] + summary["duration_s"] for summary in summaries)
    start, end = math.ceil(last_start), math.floor(first_end)
    if start >= end:
        raise NothingToMerge(
            f"The {len(outcomes)} generators did not send at the same time for one second: the last started at "
            f"{last_start:.1f} s and the first ended at {first_end:.1f} s since the epoch. Give their plans one "
            "start_at, and check the clocks."
        )
    parts = [
        SentRequests.read(outcome.records).shifted(summary["started_at"] - start)
        for outcome, summary in zip(outcomes, summaries, strict=True)
    ]
    return MeasuredRun(
        requests=SentRequests.merge(parts).between(0.0, float(end - start)),
        unserved_s=sum(summary["unserved_s"] for summary in summaries),
        open_loop=plan.arrivals is not None,
        started_at=float(start),
        duration_s=float(end - start),
        first_error=next((summary["first_error"] for summary in summaries if summary["first_error"]), None),
        ended=next((summary["ended"] for summary in summaries if summary["ended"] != TRAFFIC_ENDED), TRAFFIC_ENDED),
        watch=reduce(SelfWatch.worst_with, (SelfWatch(**summary["generator"]) for summary in summaries)),
    )


def _verdict(outcomes: Sequence[Outcome], invalid: str | None, ended: str) -> tuple[int, str]:
    """Returns exit code and reason. A failure of one generator decides for all.

    Too few samples of one do not, because the samples together may be enough.
    """
    for exit_code, beginning in ((TARGET_FAILED, ""), (INVALID, LAGGED), (INVALID, STALLED)):
        for outcome in outcomes:
            if outcome.exit_code == exit_code and outcome.reason.startswith(beginning):
                return exit_code, outcome.reason
    return (INVALID, invalid) if invalid and ended != "stopped" else (0, ended)
