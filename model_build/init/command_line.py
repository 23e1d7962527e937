"""The options of `init`, the question that it may ask, and what it prints."""

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from model_build.init.examples import Columns
from model_build.init.folder import Request, Written, write
from model_build.init.found import TASKS
from model_build.init.workload_toml import TARGETS
from model_build.progress import Progress
from workloads import UsageError

PERCENTILE = "P95"
PERCENTILES = re.compile(r"P\d{1,2}(\.\d{1,2})?")
MODEL_LATENCY_MS = 500.0
PEAK_INVOCATIONS_PER_MINUTE = 6000
SYNONYMS = {
    "summarization": "text2text-generation",
    "translation": "text2text-generation",
    "sentiment-analysis": "text-classification",
    "ner": "token-classification",
    "sentence-similarity": "feature-extraction",
    "embeddings": "feature-extraction",
}
"""Names that the hub and other tools have for tasks."""
PURPOSE = "write a workload's folder from a checkpoint and a file of examples"


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME", help="of the workload: small letters, digits and underscores")
    command.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="SOURCE",
        help="a folder, an s3:// URI, or a model id of the hub",
    )
    command.add_argument(
        "--examples", type=Path, metavar="FILE", help="CSV, TSV, JSON lines, or a text a line; labelled or not"
    )
    command.add_argument(
        "--text-column", action="append", default=[], metavar="NAME", help="of --examples; once or twice"
    )
    command.add_argument(
        "--label-column", metavar="NAME", help="of --examples; default: the column that holds the labels"
    )
    command.add_argument("--labels", nargs="+", default=[], metavar="LABEL", help="in the order of the head's outputs")
    command.add_argument(
        "--task", type=_task, metavar="TASK", help=f"where the files leave it open: {', '.join(TASKS)}"
    )
    command.add_argument(
        "--max-input-tokens", type=int, metavar="N", help="of a request; default: the checkpoint's own limit"
    )
    command.add_argument(
        "--target",
        action="append",
        default=[],
        choices=list(TARGETS),
        metavar="TARGET",
        help=f"to write; may be repeated, and the first is deployed; default: all that can be of {', '.join(TARGETS)}",
    )
    decided = command.add_argument_group("the five decisions that are yours")
    decided.add_argument(
        "--min",
        action="append",
        default=[],
        metavar="METRIC=VALUE",
        help="what the checkpoint must reach; may be repeated; default: a little below what it reaches now",
    )
    decided.add_argument(
        "--percentile", default=PERCENTILE, metavar="P", help=f"of model latency; default: {PERCENTILE}"
    )
    decided.add_argument(
        "--latency-ms", type=float, default=MODEL_LATENCY_MS, metavar="MS", help=f"default: {MODEL_LATENCY_MS:g}"
    )
    decided.add_argument(
        "--peak-invocations-per-minute",
        type=int,
        default=PEAK_INVOCATIONS_PER_MINUTE,
        metavar="N",
        help=f"default: {PEAK_INVOCATIONS_PER_MINUTE}",
    )
    command.add_argument("--overwrite", action="store_true", help="replace those files of a folder that are written")


def run(options: argparse.Namespace, root: Path, progress: Progress) -> Written:
    if not 0 < options.latency_ms < float("inf"):
        raise UsageError(f"--latency-ms: got {options.latency_ms:g}; write a number of milliseconds above 0.")
    if options.peak_invocations_per_minute < 1:
        raise UsageError(f"--peak-invocations-per-minute: got {options.peak_invocations_per_minute}; write 1 or more.")
    request = Request(
        name=options.name,
        source=options.source,
        task=options.task,
        examples=options.examples,
        columns=Columns(texts=tuple(options.text_column), label=options.label_column),
        labels=tuple(options.labels),
        max_input_tokens=options.max_input_tokens,
        targets=tuple(options.target),
        minimums=dict(map(_minimum, options.min)),
        percentile=_percentile(options.percentile),
        model_latency_ms=options.latency_ms,
        peak_invocations_per_minute=options.peak_invocations_per_minute,
        overwrite=options.overwrite,
    )
    return write(request, root, ask, progress)


def _task(text: str) -> str:
    if text in TASKS:
        return text
    hint = f"; write {SYNONYMS[text]}" if text in SYNONYMS else ""
    raise argparse.ArgumentTypeError(f"got '{text}'{hint}. Allowed: {', '.join(TASKS)}.")


def _percentile(text: str) -> str:
    said = f"P{text.removeprefix('p').removeprefix('P')}"
    if said == text and PERCENTILES.fullmatch(text):
        return text
    raise UsageError(f"--percentile: got '{text}'; write {said if PERCENTILES.fullmatch(said) else PERCENTILE}.")


def _minimum(text: str) -> tuple[str, float]:
    metric, _, value = text.partition("=")
    try:
        return metric.strip(), float(value)
    except ValueError:
        raise UsageError(f"--min: got '{text}'. Allowed: METRIC=VALUE, as in accuracy=0.9.") from None


def ask(question: str, choices: Sequence[str]) -> str:
    """Asks on the terminal until the answer is one of the choices. Raises `UsageError` where there is no terminal."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UsageError(f"{question} Say --task {' or --task '.join(choices)}.")
    while True:
        print(f"\n{question}\nWhich? {' / '.join(choices)}: ", end="", file=sys.stderr, flush=True)
        answer = sys.stdin.readline()
        if not answer:
            raise UsageError(f"{question} Say --task {' or --task '.join(choices)}.")
        if answer.strip() in choices:
            return answer.strip()


def document(written: Written) -> str:
    return json.dumps({**asdict(written), "next": commands(written)}, indent=2, ensure_ascii=False)


def text(written: Written) -> str:
    """Returns what was found and decided, and the next three commands."""
    by = "labels: the original model's own answers"
    if written.labelled_by == "examples":
        by = f"labels: the column '{written.label_column}'" if written.label_column else "labels: your examples'"
    limit = written.checkpoint_token_limit
    checkpoint = "the checkpoint names no limit" if limit is None else f"the checkpoint's limit is {limit} tokens"
    minimums = ", ".join(f"{name} {value:g}" for name, value in written.minimums.items())
    return "\n".join(
        [
            f"{written.folder}: {written.architecture}, {written.task}",
            f"input                 at most {written.max_input_tokens} tokens; of the examples {written.lengths}",
            f"                      Longer requests are {written.longer_requests}; {checkpoint}.",
            f"evaluation.jsonl      {written.evaluation_rows} rows, {by}; at least {minimums}",
            f"payloads.jsonl        {written.payloads} requests",
            f"targets               {', '.join(written.targets)}",
            *(f"no {name:<18} {reason}" for name, reason in written.left_out.items()),
            "",
            "Next, with an account on this machine (`python -m local_aws`) or yours:",
            *(f"  {command}" for command in commands(written)),
        ]
    )


def commands(written: Written) -> list[str]:
    """Returns the three commands that lead from the folder to a recommendation."""
    return [
        f"python -m model_build build {written.workload} --target {written.targets[0]}",
        f"cdk deploy {written.stack}",
        f"python -m inference_recommender run {written.workload} --job advanced --traffic quick",
    ]
