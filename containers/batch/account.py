"""python -m containers.batch.account: checks, after all shards, that every row of the input is in the output once.

Reads the input again and every file of the output, and writes manifest.json. With --summaries it also adds up the
speeds of the shards' --summary files. Standard output is one JSON document. With METRICS_STACK and METRICS_WORKLOAD in
the environment it includes metrics for CloudWatch Logs.

Exit codes: 0 every row is accounted for; 1 rows are missing, or more of them are bad than --max-bad-share; 2 the output
was made from another input; 3 S3 or the disk fails; 70 internal error, a log is named.
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..container_errors import ContainerError, exit_code_of
from ..embedded_metrics import LogMetric, dimensions, document
from . import manifest
from .__main__ import add_max_bad_share, exit_code
from .source import find, survey
from .storage import open_storage


@dataclass(frozen=True)
class BatchAccount:
    """Counts of the whole output. `rows_per_second` is the sum of the shards' speeds; None without any summary."""

    rows: int
    answered: int
    bad: int
    bad_share: float
    rows_per_second: "float | None"


def account(input_: str, output: str, rates: Sequence[float]) -> BatchAccount:
    """Writes the manifest. `rates` are the shards' rows per second. Raises `ContainerError`."""
    storage = open_storage(output)
    if manifest.JOB not in storage.names():
        raise ContainerError(f"--output {storage.location}: there is no job.json. Run the shards first.")
    described = json.loads(storage.read(manifest.JOB))
    with tempfile.TemporaryDirectory(prefix="account-") as scratch:
        sources, chunks = survey(find(input_, Path(scratch)), described["chunk_rows"])
    described["input"] = [asdict(source) for source in sources]
    manifest.claim(storage, described)
    made = manifest.account(storage, described, chunks)
    rows, bad = made["rows"], made["bad"]
    return BatchAccount(rows, made["answered"], bad, bad / rows if rows else 0.0, sum(rates) if rates else None)


def shard_rates(location: str) -> list[float]:
    """Returns the rows per second of each shard that answered any."""
    storage = open_storage(location)
    summaries = [json.loads(storage.read(name)) for name in sorted(storage.names()) if name.endswith(".json")]
    return [summary["rows_per_second"] for summary in summaries if summary["rows_per_second"] is not None]


def report(done: BatchAccount, environment: Mapping[str, str], at_s: float) -> dict[str, Any]:
    """Returns the account as a document, with embedded metrics if a stack requests them. `at_s` is Unix time."""
    named = dimensions(environment)
    metrics = [LogMetric("Rows", "Count", done.rows), LogMetric("BadRows", "Count", done.bad)]
    if done.rows_per_second is not None:
        metrics.append(LogMetric("RowsPerSecond", "Count/Second", done.rows_per_second))
    return {**asdict(done), **(document(named, metrics, at_s) if named else {})}


def main(arguments: "Sequence[str] | None" = None) -> int:
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.account",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--input", required=True, help="the shards' --input")
    parser.add_argument("--output", required=True, help="the shards' --output")
    parser.add_argument("--summaries", help="folder, or s3://, with only the shards' --summary files")
    add_max_bad_share(parser)
    parsed = parser.parse_args(arguments)
    done = account(parsed.input, parsed.output, shard_rates(parsed.summaries) if parsed.summaries else [])
    print(json.dumps(report(done, os.environ, time.time())))
    return exit_code(done.bad_share, parsed.max_bad_share)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
