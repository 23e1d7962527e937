"""`prove`: tests with open-loop arrivals whether the recommended fleet keeps its objective."""

import argparse
from functools import partial
from pathlib import Path

from rich.console import Console

from inference_recommender.cli import arguments
from inference_recommender.measure.fleet_proof import prove
from inference_recommender.measure.proving import DURATION_S
from inference_recommender.output import Commands, add_command, tell, warn
from inference_recommender.report.inputs import read_inputs
from inference_recommender.report.run_report import proof_report
from inference_recommender.report.text import print_result
from workloads import ROOT
from workloads.files import from_here

EXIT_CODES = {"kept": 0, "missed": 1, "unclear": 4}
LONGER = 2.5
"""The factor by which an inconclusive proof suggests to run longer."""

DESCRIPTION = """Sends each instance its share of the recommended fleet's peak load, with the arrivals of
[objective.arrivals], by default a Poisson process. Latency counts from the time at which each request is due. The
proof counts requests over the limit and ends as soon as their share is clearly within what the percentile allows, or
above it. The load without an instance or a zone follows if [sizing] requires it, or if time is left and the capacity
allows it. The result is added to the recommendation and to the report of its run. Exit code 0: kept; 1: missed; 4:
inconclusive, or the generator was the bottleneck."""


def add(commands: Commands) -> None:
    parser = add_command(commands, "prove spellcheck --url http://localhost:8000", DESCRIPTION)
    parser.add_argument("workload", metavar="WORKLOAD", help="its recommendation is proven")
    parser.add_argument("--from", type=Path, dest="source", metavar="FILE", help="default: the workload's own")
    server = parser.add_mutually_exclusive_group()
    server.add_argument("--endpoint", metavar="NAME", help="endpoint to load; default: the stack's")
    server.add_argument("--url", metavar="URL", help="KServe v2 server to load, or the infer URL of its model")
    parser.add_argument("--instances", metavar="[Nx]TYPE", help="instances behind --url, such as 2xml.inf2.xlarge")
    parser.add_argument(
        "--max-duration-s",
        type=arguments.positive,
        metavar="S",
        help=f"seconds of load after the warm-up; default: {DURATION_S:g}, more for bursty arrivals",
    )
    parser.add_argument("--runs", type=Path, default=ROOT / "runs", metavar="DIR", help="default: runs/")
    parser.add_argument("--json", action="store_true", help="print the proof as one JSON document")
    parser.set_defaults(command=_prove)


def _prove(options: argparse.Namespace, stderr: Console) -> int:
    done = prove(
        options.workload,
        recommendation=options.source,
        endpoint=options.endpoint,
        url=options.url,
        instances=options.instances,
        max_duration_s=options.max_duration_s,
        runs=options.runs,
        progress=partial(tell, stderr),
        warn=partial(warn, stderr),
    )
    proof, run_folder, measured_in = done.proof, done.run_folder, done.recommendation.provenance.run
    shown = proof_report(run_folder.path.name, proof, run_folder.workload(), read_inputs(run_folder.path))
    print_result(shown, json=options.json, document=proof)
    for sentence in proof.not_tested:
        tell(stderr, sentence)
    if done.report:
        tell(stderr, f"Report: {from_here(done.report)}")
    elif measured_in:
        tell(stderr, f"The folder {measured_in} does not exist, so no report was updated.")
    tell(stderr, f"Added to {from_here(done.file)}. Measurements: {run_folder}")
    if proof.verdict == "unclear":
        tell(stderr, f"Inconclusive. Run longer: --max-duration-s {done.longest_s * LONGER:.0f}")
    return EXIT_CODES[proof.verdict]
