"""The options of `init`, and its output."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from model_build.init import team_repository
from model_build.init.checkpoint_facts import TASKS
from model_build.init.model_table import TARGETS
from model_build.init.new_workload import write
from model_build.progress import Progress

PERCENTILE = "P95"
MODEL_LATENCY_MS = 500.0
PEAK_INVOCATIONS_PER_MINUTE = 6000


def add_options(command: argparse.ArgumentParser) -> None:
    add = command.add_argument
    add("name", metavar="NAME", help="of the workload: lowercase letters, digits and underscores")
    add("--from", dest="source", required=True, metavar="SOURCE", help="a folder, an s3:// URI, or a hub model id")
    add("--examples", type=Path, metavar="FILE", help="CSV, TSV, JSON lines, or one text per line; labelled or not")
    add("--text-column", action="append", default=[], metavar="NAME", help="of --examples; once or twice")
    add("--label-column", metavar="NAME", help="of --examples; default: the column that holds the labels")
    add("--labels", nargs="+", default=[], metavar="LABEL", help="in the order of the head's outputs")
    add("--task", choices=TASKS, metavar="TASK", help=f"if the files do not determine it: {', '.join(TASKS)}")
    add("--max-input-tokens", type=int, metavar="N", help="of a request; default: the checkpoint's own limit")
    targets = f"to write; may be repeated, the first is deployed; default: all possible of {', '.join(TARGETS)}"
    add("--target", action="append", default=[], choices=TARGETS, metavar="TARGET", help=targets)
    add("--overwrite", action="store_true", help="replace the written files in an existing folder")
    add = command.add_argument_group("the five decisions that are yours").add_argument
    minimum = "required of the checkpoint; may be repeated; default: a little below its present figure"
    add("--min", type=_minimum, action="append", default=[], metavar="METRIC=VALUE", help=minimum)
    add("--percentile", default=PERCENTILE, metavar="P", help=f"of model latency; default: {PERCENTILE}")
    default = MODEL_LATENCY_MS
    add("--latency-ms", type=float, default=default, metavar="MS", help=f"default: {default:g}")
    peak = PEAK_INVOCATIONS_PER_MINUTE
    add("--peak-invocations-per-minute", type=int, default=peak, metavar="N", help=f"default: {peak}")


def run(options: argparse.Namespace, root: Path, progress: Progress) -> dict[str, Any]:
    """Returns the document of --json, with the three commands that lead from the folder to a recommendation.

    A folder without a cdk.json becomes a repository.
    """
    document = write(options, root, progress)
    created = team_repository.create(root)
    name, target = document["workload"], document["targets"][0]
    commands = [
        f"python -m model_build build {name} --target {target}",
        f"cdk deploy {document['stack']}",
        f"python -m inference_recommender run {name} --job advanced --traffic quick",
    ]
    return {**document, "repository": created, "next": commands}


def _minimum(text: str) -> tuple[str, float]:
    metric, _, value = text.partition("=")
    try:
        return metric.strip(), float(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"got '{text}'. Allowed: METRIC=VALUE, for example accuracy=0.9.") from None


def text(document: Mapping[str, Any]) -> str:
    """Returns the facts and decisions, and the next three commands."""
    column = document["label_column"]
    by = "labels: the original model's own answers"
    if document["labelled_by"] == "examples":
        by = f"labels: the column '{column}'" if column else "labels: from the examples"
    limit = document["checkpoint_token_limit"]
    checkpoint = "the checkpoint names no limit" if limit is None else f"the checkpoint's limit is {limit} tokens"
    minimums = ", ".join(f"{name} {value:g}" for name, value in document["minimums"].items())
    return "\n".join(
        [
            f"{document['folder']}: {document['architecture']}, {document['task']}",
            f"input                 at most {document['max_input_tokens']} tokens; of the examples "
            f"{document['lengths']}",
            f"                      Longer requests are {document['longer_requests']}; {checkpoint}.",
            f"evaluation.jsonl      {document['evaluation_rows']} rows, {by}; at least {minimums}",
            f"payloads.jsonl        {document['payloads']} requests",
            f"targets               {', '.join(document['targets'])}",
            *(f"no {name:<18} {reason}" for name, reason in document["left_out"].items()),
            *(["repository            " + ", ".join(document["repository"])] if document["repository"] else []),
            "",
            "Next, with the local account (`python -m local_aws --pace quick`); on AWS leave out --traffic quick:",
            *(f"  {command}" for command in document["next"]),
        ]
    )
