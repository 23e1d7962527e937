"""python -m containers.batch.account: checks, after all shards, that every row of the input is in the output once.

Reads the input again and every file of the output, and writes manifest.json. With --summaries it also adds up the
speeds of the shards' --summary files. Standard output is one JSON document. With METRICS_STACK and METRICS_WORKLOAD in
the environment it includes metrics for CloudWatch Logs.

Exit codes: 0 every row is accounted for; 1 rows are missing, or more of them are bad than --max-bad-share; 2 the output
was made from another input; 3 S3 or the disk fails; 70 internal error, a log is named.
"""

import argparse
import hashlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ..container_errors import ContainerError, RowsUnaccounted, exit_code_of, parser_of
from ..embedded_metrics import LogMetric, dimensions, document
from .source import Chunk, find, survey
from .storage import OutputStorage, open_storage

FORMAT = 1
JOB, MANIFEST = "job.json", "manifest.json"


def predictions_name(number: int) -> str:
    return f"predictions-{number:06}.jsonl"


def bad_name(number: int) -> str:
    return f"bad-{number:06}.jsonl"


def claim(storage: OutputStorage, described: Mapping[str, Any]) -> None:
    """Starts the output, or checks that the same job started it. Raises `ContainerError`."""
    present = json.loads(storage.create(JOB, _dump(described)))
    if changed := [key for key in described if present.get(key) != described[key]]:
        differences = [_difference(key, present.get(key), described[key]) for key in changed]
        raise ContainerError(
            f"{storage.location}/job.json: this output was made from something else: {'; '.join(differences)}. Use the "
            "same input, model and options, or another --output."
        )


def unfinished(storage: OutputStorage, chunks: Sequence[Chunk]) -> list[Chunk]:
    names = storage.names()
    return [chunk for chunk in chunks if predictions_name(chunk.number) not in names]


def write_manifest(storage: OutputStorage, described: Mapping[str, Any], chunks: Sequence[Chunk]) -> dict[str, Any]:
    """Writes and returns the manifest, counted from the files of all chunks. Raises `RowsUnaccounted`."""
    if missing := unfinished(storage, chunks):
        raise RowsUnaccounted(
            f"{storage.location}: {sum(chunk.rows for chunk in missing):,} rows of the input have no answer "
            f"({len(missing)} chunks have no predictions). Run every shard again with the same --output: it computes "
            "only missing chunks."
        )
    names = storage.names()
    parts = [_part(storage, chunk, bad_name(chunk.number) in names) for chunk in chunks]
    totals = {key: sum(part[key] for part in parts) for key in ("rows", "answered", "bad")}
    made = {**described, **totals, "parts": parts}
    storage.write(MANIFEST, _dump(made))
    return made


def _dump(written: Mapping[str, Any]) -> bytes:
    return (json.dumps(written, indent=2) + "\n").encode()


def _part(storage: OutputStorage, chunk: Chunk, has_bad_rows: bool) -> dict[str, Any]:
    predictions = storage.read(predictions_name(chunk.number))
    bad = storage.read(bad_name(chunk.number)) if has_bad_rows else b""
    answered_rows, bad_rows = predictions.count(b"\n"), bad.count(b"\n")
    if answered_rows + bad_rows != chunk.rows:
        raise RowsUnaccounted(
            f"{storage.location}: chunk {chunk.number} has {chunk.rows} rows, but its files have {answered_rows} "
            f"answers and {bad_rows} bad rows. Delete {predictions_name(chunk.number)} and start again."
        )
    own = {key: getattr(chunk, key) for key in ("file", "first_line", "lines", "rows")}
    return {
        "chunk": chunk.number,
        **own,
        "answered": answered_rows,
        "bad": bad_rows,
        "predictions_sha256": hashlib.sha256(predictions).hexdigest(),
        "bad_sha256": hashlib.sha256(bad).hexdigest() if has_bad_rows else None,
    }


def _difference(key: str, was: Any, now: Any) -> str:
    if key != "input":
        return f"{key} was {was}, is {now}"
    before, after = ({source["name"]: source for source in sources or ()} for sources in (was, now))
    changed = sorted(name for name in before | after if before.get(name) != after.get(name))
    return f"the input differs in {', '.join(changed) or 'the order of its files'}"


def account(input_: str, output: str, rates: Sequence[float]) -> dict[str, Any]:
    """Writes the manifest, and returns its counts and the sum of the shards' rows per second.

    The sum is None without any rate. Raises `ContainerError`.
    """
    storage = open_storage(output)
    if JOB not in storage.names():
        raise ContainerError(f"--output {storage.location}: there is no job.json. Run the shards first.")
    described = json.loads(storage.read(JOB))
    with tempfile.TemporaryDirectory(prefix="account-") as scratch:
        sources, chunks = survey(find(input_, Path(scratch)), described["chunk_rows"])
    described["input"] = [asdict(source) for source in sources]
    claim(storage, described)
    made = write_manifest(storage, described, chunks)
    counts = {key: made[key] for key in ("rows", "answered", "bad")}
    return {**counts, "bad_share": share_of_bad(made), "rows_per_second": sum(rates) if rates else None}


def shard_rates(location: str) -> list[float]:
    """Returns the rows per second of each shard that answered any."""
    storage = open_storage(location)
    summaries = [json.loads(storage.read(name)) for name in sorted(storage.names()) if name.endswith(".json")]
    return [summary["rows_per_second"] for summary in summaries if summary["rows_per_second"] is not None]


def add_max_bad_share(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--max-bad-share", type=_share, default=0.01, help="exit code 1 above this share of bad rows (default 0.01)"
    )


def share_of_bad(counts: Mapping[str, Any]) -> float:
    return float(counts["bad"] / counts["rows"]) if counts["rows"] else 0.0


def exit_code(bad_share: float, max_bad_share: float) -> int:
    """Returns 0, or 1 with a line on standard error if too many rows are bad."""
    if bad_share <= max_bad_share:
        return 0
    print(
        f"{bad_share:.2%} of the rows are bad. --max-bad-share allows {max_bad_share:.2%}.", file=sys.stderr, flush=True
    )
    return 1


def _share(text: str) -> float:
    if not 0 <= (fraction := float(text)) <= 1:
        raise ValueError
    return fraction


def main(arguments: "Sequence[str] | None" = None) -> int:
    parser = parser_of(f"{__package__}.account", __doc__)
    parser.add_argument("--input", required=True, help="the shards' --input")
    parser.add_argument("--output", required=True, help="the shards' --output")
    parser.add_argument("--summaries", help="folder, or s3://, with only the shards' --summary files")
    add_max_bad_share(parser)
    parsed = parser.parse_args(arguments)
    done = account(parsed.input, parsed.output, shard_rates(parsed.summaries) if parsed.summaries else [])
    metrics = [LogMetric("Rows", "Count", done["rows"]), LogMetric("BadRows", "Count", done["bad"])]
    if done["rows_per_second"] is not None:
        metrics.append(LogMetric("RowsPerSecond", "Count/Second", done["rows_per_second"]))
    named = dimensions(os.environ)
    print(json.dumps({**done, **(document(named, metrics, time.time()) if named else {})}))
    return exit_code(done["bad_share"], parsed.max_bad_share)


if __name__ == "__main__":
    sys.exit(exit_code_of(main))
