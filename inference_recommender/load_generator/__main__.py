"""Send the traffic of a plan and print what happens.

  python -m inference_recommender.load_generator PLAN.json --out DIR

PLAN.json, for example (`load_plan.py` has every key):

  {"url": "http://127.0.0.1:8000/v2/models/spellcheck/infer", "payloads": "payloads.tar.gz",
   "arrivals": {"invocations_per_minute": 6000.0, "duration_in_seconds": 60.0, "connections": 64},
   "stopping_conditions": {"ModelLatencyThresholds": [{"Percentile": "P99", "ValueInMilliseconds": 50}]}}

stdout holds one JSON document per line: started, window…, finished. SIGINT and SIGTERM end the run in good order, and
so does the end of the program that reads stdout. A request without its whole answer within request_timeout_s has
failed. A target that answers nothing for request_timeout_s ends the run. Exit codes: 0 the run is valid; 2 the plan or
its payloads; 3 the target failed or AWS refuses; 4 no verdict: generator lagged, machine stalled, too many errors (more
than 1 % of the requests or of the users' time), too few samples; 70 internal error, a log is named.
"""

import argparse
import asyncio
import gc
import json
import os
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import uvloop

from inference_recommender.load_generator.clock import SYSTEM_CLOCK, Clock
from inference_recommender.load_generator.load_plan import LoadPlan
from inference_recommender.load_generator.load_run import Run, Window
from inference_recommender.load_generator.requests import Outgoing, outgoing, read_payloads
from inference_recommender.load_generator.self_watch import SelfWatch
from inference_recommender.load_generator.summary import MeasuredRun, summarise, why_invalid, write_results
from workloads import NoVerdict, Unavailable, UsageError
from workloads.files import replacing
from workloads.program import exit_code, foreseen

PROBE_BYTES = 1 << 20
"""Bytes that are written to the results folder and removed before the load is sent."""


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m inference_recommender.load_generator",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("plan", type=Path, metavar="PLAN.json", help="target, payloads, traffic and conditions")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="folder of the results")
    options = parser.parse_args(arguments)
    plan = LoadPlan.from_json(options.plan)
    sent = outgoing(plan, read_payloads(plan.payloads))
    _check(options.out)
    return uvloop.run(run_plan(plan, sent, options.out))


def _check(out: Path) -> None:
    """Raises a `ProjectError` where the results cannot be written to `out`, before any load is sent."""
    probe = out / "records.npz.probe"
    try:
        with replacing(probe) as file:
            file.write(bytes(PROBE_BYTES))
        probe.unlink()
    except OSError as error:
        kind = Unavailable if isinstance(foreseen(error), Unavailable) else UsageError
        raise kind(f"--out: {out} cannot be written: {error.strerror}. Mend that, or name another folder.") from error


async def run_plan(plan: LoadPlan, sent: Outgoing, out: Path, clock: Clock = SYSTEM_CLOCK) -> int:
    """Sends the load, prints its events, writes its files to the folder `out`, and returns the exit code."""

    def report(window: Window) -> None:
        if not _print({"event": "window", **asdict(window)}):
            run.stop()

    run = Run(plan, sent, report, clock)
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, run.stop)
    _print({"event": "started", "started_at": clock.epoch(), "payloads": len(sent.requests)})
    gc.collect()
    gc.disable()  # a collection would stop the clock, and a run makes next to nothing that refers to itself
    cpu_before = clock.cpu()
    try:
        ended = await run.drive()
    finally:
        gc.enable()
    measured = MeasuredRun(
        requests=run.log.requests(stalls_s=run.stalls_s),
        unserved_s=run.log.unserved_s,
        sizes=sent.sizes,
        open_loop=plan.arrivals is not None,
        started_at=run.started_at,
        duration_s=run.duration_s,
        first_error=run.log.first_error,
        ended=ended,
        generator=SelfWatch.of(clock.cpu() - cpu_before, run.duration_s, run.lags_s),
    )
    return _finish(measured, plan, out)


def _finish(measured: MeasuredRun, plan: LoadPlan, out: Path) -> int:
    summary = summarise(measured, plan.stopping_conditions)
    target_failed = summary.ended.startswith("target failed")
    invalid = None if target_failed or summary.ended == "stopped" else why_invalid(summary)
    code = Unavailable.exit_code if target_failed else NoVerdict.exit_code if invalid else 0
    reason = invalid or summary.ended
    try:
        write_results(out, {**asdict(summary), "reason": reason}, measured.requests)
    except OSError as error:
        code, reason = Unavailable.exit_code, f"{error.filename} cannot be written: {error.strerror}"
        print(f"{reason}. Free some space. The files written before it are in {out}.", file=sys.stderr)
    _print({"event": "finished", "reason": reason})
    return code


def _print(event: dict[str, Any]) -> bool:
    """Prints one event. Returns False where the program that read stdout is gone."""
    try:
        print(json.dumps(event), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # else the flush at exit complains
        return False
    return True


if __name__ == "__main__":
    sys.exit(exit_code(main))
