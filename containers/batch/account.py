"""python -m containers.batch.account: after all shards, whether every row of the input is in the output, once.

Reads the input again and every file of the output, and writes manifest.json. With --summaries it also adds up what the
shards' --summary files say of their speed. Standard output is one JSON document; with METRICS_STACK and
METRICS_WORKLOAD in the environment it is one that CloudWatch Logs reads metrics from, too.

Exit codes: 0 every row is accounted for; 1 rows are missing, or more of them are bad than --max-bad-share; 2 the input
is not the one that the output was made from; 3 S3 or the disk refuses.
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
from ..embedded_metrics import Metric
from . import manifest
from .errors import BatchError, NotBegun, RowsMissing
from .options import share
from .source import find, survey
from .storage import Storage, open_storage


@dataclass(frozen=True)
class Account:
    """`rows_per_second` of all shards together, each timed while it answered; None where none says."""

    rows: int
    answered: int
    bad: int
    bad_share: float
    rows_per_second: "float | None"


def account(input_: str, output: str, rates: Sequence[float]) -> Account:
    """Writes the manifest. Raises `BatchError`, `RowsMissing` among them."""
    storage = open_storage(output)
    described = _claimed(storage)
    with tempfile.TemporaryDirectory(prefix="account-") as scratch:
        sources, chunks = survey(find(input_, Path(scratch)), described["chunk_rows"])
    manifest.claim(storage, {**described, "input": [source.document() for source in sources]})
    names = storage.names()
    missing = [chunk for chunk in chunks if manifest.predictions_name(chunk.number) not in names]
    if missing:
        raise RowsMissing(output, len(missing), sum(chunk.rows for chunk in missing))
    made = manifest.account(storage, described, chunks)  # raises where a chunk's files have more rows or fewer
    storage.write(manifest.MANIFEST, manifest.dump(made))
    rows, bad = made["rows"], made["bad"]
    return Account(rows, made["answered"], bad, bad / rows if rows else 0.0, sum(rates) if rates else None)


def shard_rates(location: str) -> list[float]:
    """Rows a second of each shard that answered any."""
    storage = open_storage(location)
    summaries = [json.loads(storage.read(name)) for name in sorted(storage.names()) if name.endswith(".json")]
    return [summary["rows_per_second"] for summary in summaries if summary["rows_per_second"] is not None]


def report(done: Account, environment: Mapping[str, str], at_s: float) -> dict[str, Any]:
    """The account, and around it what CloudWatch Logs wants to see where a stack asks for metrics."""
    stack, workload = environment.get("METRICS_STACK"), environment.get("METRICS_WORKLOAD")
    if not stack or not workload:
        return asdict(done)
    metrics = [Metric("Rows", "Count", done.rows), Metric("BadRows", "Count", done.bad)]
    if done.rows_per_second is not None:
        metrics.append(Metric("RowsPerSecond", "Count/Second", done.rows_per_second))
    return {**asdict(done), **embedded_metrics.document({"Workload": workload, "Stack": stack}, metrics, at_s)}


def main(arguments: "Sequence[str] | None" = None) -> int:
    parsed = _parser().parse_args(arguments)
    try:
        done = account(parsed.input, parsed.output, shard_rates(parsed.summaries) if parsed.summaries else [])
    except BatchError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(error, file=sys.stderr)
        return 3
    print(json.dumps(report(done, os.environ, time.time())))
    if done.bad_share > parsed.max_bad_share:
        told = f"{done.bad_share:.2%} of the rows are bad; --max-bad-share allows {parsed.max_bad_share:.2%}."
        print(told, file=sys.stderr)
        return 1
    return 0


def _claimed(storage: Storage) -> dict[str, Any]:
    if manifest.JOB not in storage.names():
        raise NotBegun(storage.location)
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
    parser.add_argument(
        "--max-bad-share", type=share, default=0.01, help="exit code 1 above this share of bad rows (default 0.01)"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
