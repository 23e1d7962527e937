"""python -m containers.batch.account: checks, after all shards, that every row of the input is in the output, once.

Reads the input again and every file of the output, and writes manifest.json. With --summaries it also adds up the
speeds of the shards' --summary files. Standard output is one JSON document; with METRICS_STACK and METRICS_WORKLOAD in
the environment CloudWatch Logs reads metrics from it, too.

Exit codes: 0 every row is accounted for; 1 rows are missing, or more of them are bad than --max-bad-share; 2 the input
is not the one that the output was made from; 3 S3 or the disk refuses; 70 unforeseen, a log is named.
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

from .. import embedded_metrics
from ..embedded_metrics import LogMetric
from ..errors import ContainerError, RowsUnaccounted, exit_code_of
from . import manifest
from .arguments import add_max_bad_share, exit_code
from .source import find, survey
from .storage import Storage, open_storage


@dataclass(frozen=True)
class Account:
    """Counts of the whole output. `rows_per_second` is the sum of the shards' speeds; None without any summary."""

    rows: int
    answered: int
    bad: int
    bad_share: float
    rows_per_second: "float | None"


def account(input_: str, output: str, rates: Sequence[float]) -> Account:
    """Writes the manifest. `rates` are the shards' rows per second. Raises `ContainerError`."""
    storage = open_storage(output)
    described = _claimed(storage)
    with tempfile.TemporaryDirectory(prefix="account-") as scratch:
        sources, chunks = survey(find(input_, Path(scratch)), described["chunk_rows"])
    manifest.claim(storage, {**described, "input": [source.document() for source in sources]})
    names = storage.names()
    missing = [chunk for chunk in chunks if manifest.predictions_name(chunk.number) not in names]
    if missing:
        raise RowsUnaccounted(
            f"{output}: {sum(chunk.rows for chunk in missing):,} rows of the input are neither answered nor refused "
            f"({len(missing)} chunks have no predictions). Run every shard again, with the same --output: each does "
            "what is missing."
        )
    made = manifest.account(storage, described, chunks)  # raises where a chunk's files have more rows or fewer
    storage.write(manifest.MANIFEST, manifest.dump(made))
    rows, bad = made["rows"], made["bad"]
    return Account(rows, made["answered"], bad, bad / rows if rows else 0.0, sum(rates) if rates else None)


def shard_rates(location: str) -> list[float]:
    """Returns the rows per second of each shard that answered any."""
    storage = open_storage(location)
    summaries = [json.loads(storage.read(name)) for name in sorted(storage.names()) if name.endswith(".json")]
    return [summary["rows_per_second"] for summary in summaries if summary["rows_per_second"] is not None]


def report(done: Account, environment: Mapping[str, str], at_s: float) -> dict[str, Any]:
    """Returns the account as a document, with embedded metrics where a stack asks for them. `at_s` is Unix time."""
    stack, workload = environment.get("METRICS_STACK"), environment.get("METRICS_WORKLOAD")
    if not stack or not workload:
        return asdict(done)
    metrics = [LogMetric("Rows", "Count", done.rows), LogMetric("BadRows", "Count", done.bad)]
    if done.rows_per_second is not None:
        metrics.append(LogMetric("RowsPerSecond", "Count/Second", done.rows_per_second))
    return {**asdict(done), **embedded_metrics.document({"Workload": workload, "Stack": stack}, metrics, at_s)}


def main(arguments: "Sequence[str] | None" = None) -> int:
    parsed = _parser().parse_args(arguments)
    try:
        done = account(parsed.input, parsed.output, shard_rates(parsed.summaries) if parsed.summaries else [])
    except ContainerError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(error, file=sys.stderr)
        return 3
    print(json.dumps(report(done, os.environ, time.time())))
    return exit_code(done.bad_share, parsed.max_bad_share)


def _claimed(storage: Storage) -> dict[str, Any]:
    if manifest.JOB not in storage.names():
        raise ContainerError(
            f"--output {storage.location}: there is no job.json, so nothing was made there. Run the shards first."
        )
    claimed: dict[str, Any] = json.loads(storage.read(manifest.JOB))
    return claimed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=f"python -m {__package__}.account",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--input", required=True, help="as the shards had it")
    parser.add_argument("--output", required=True, help="as the shards had it")
    parser.add_argument("--summaries", help="folder, or s3://, of the shards' --summary files and nothing else")
    add_max_bad_share(parser)
    return parser


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
