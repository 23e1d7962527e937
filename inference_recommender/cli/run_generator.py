"""`run --endpoint` and `run --url`: measure by the load generator of this project."""

import argparse
import json
from functools import partial

from rich.console import Console

from aws_api.sagemaker import SageMakerAccount
from inference_recommender.cli.run import show_and_write
from inference_recommender.measure.open_loop import DURATION_S, OPEN_LOOP
from inference_recommender.measure.workload_run import GeneratorTest, system_to_measure
from inference_recommender.output import JobProgress, warn
from inference_recommender.run_folder import PAYLOADS, RunFolder, run_name
from workloads import WorkloadFolder


def run_generator(
    options: argparse.Namespace, account: SageMakerAccount, folder: WorkloadFolder, stderr: Console
) -> int:
    """Runs phased traffic with --traffic, otherwise an open-loop search."""
    system = system_to_measure(account, folder.workload, options.endpoint, options.url, options.instances)
    longest_s = options.max_duration_s
    test = GeneratorTest(folder=folder, account=account, system=system, traffic=options.traffic, longest_s=longest_s)
    name = options.name or run_name(options.workload, options.traffic or OPEN_LOOP)
    run_folder = RunFolder(options.runs / name)
    if options.dry_run:
        print(_plans(test, run_folder))
        return 0
    say, payloads = partial(warn, stderr), options.payloads
    with JobProgress(stderr) as progress:
        recommendation = test.run(run_folder, progress, say, payloads=payloads, search_all=options.search)
    return show_and_write(recommendation, folder, run_folder, options, stderr)


def _plans(test: GeneratorTest, run_folder: RunFolder) -> str:
    """Returns the generator's plan and the Processing job's request, if there is one, as one JSON document."""
    workload, system = test.folder.workload, test.system
    if test.traffic is None:
        target = {"url": system.url, "endpoint": None if system.url else system.name}
        objective = workload.latency_objective
        limit = {"percentile": objective.percentile, "limit_ms": objective.model_latency_ms}
        return json.dumps({"search": {**target, **limit, "max_duration_s": test.longest_s or DURATION_S}}, indent=2)
    plan = test.load_test(test.traffic).plan(workload, run_folder.path / PAYLOADS)
    job = test.processing_job(run_folder.path.name, test.traffic)
    document = {"plan": plan.model_dump(mode="json", by_alias=True)}
    return json.dumps({**document, **({"processing_job": job.request()} if job else {})}, indent=2)
