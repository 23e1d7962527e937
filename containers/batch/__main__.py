"""The batch program's command line. Standard output is the summary, one JSON document; standard error has progress.

Exit codes: 0 done; 1 more bad rows than --max-bad-share, or files that lack rows of the input; 2 usage, input, or an
output of another job; 3 the model, a worker, S3 or the disk fails; 70 internal error, a log is named; 130 interrupted,
finished chunks are kept.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import Any

from ..container_errors import INTERRUPTED, ContainerError, exit_code_of, parser_of
from . import __doc__ as usage
from . import account, archive
from .account import add_max_bad_share, exit_code
from .answering import ChunkCounts, find_model
from .source import Chunk, find, survey
from .storage import open_storage, write_to
from .worker import WorkerPool, worker_environments

RESUME = "Finished chunks are kept. Run the same command again to continue."
PROGRESS_SECONDS = 5.0


def run(options: argparse.Namespace, environment: Mapping[str, str]) -> dict[str, Any]:
    """Returns the summary: this run's counts, and the manifest's once every chunk is finished. Raises `ContainerError`.

    Finished chunks are kept however the run ends.
    """
    started = time.monotonic()
    _refuse_output_inside_input(options)
    with tempfile.TemporaryDirectory(prefix="batch-") as scratch:
        folder, archive_sha256 = archive.as_folder(options.model, Path(scratch))
        model = find_model(folder)
        batch_rows = options.batch_rows or model.batch_rows
        environments = worker_environments(model, options.workers, environment)
        files = find(options.input, Path(scratch))
        sources, chunks = survey(files, options.chunk_rows)
        described = {  # everything that determines the bytes of the output
            "format": account.FORMAT,
            "model_sha256": archive.model_sha256(folder),
            "input": [asdict(source) for source in sources],
            "chunk_rows": options.chunk_rows,
            "batch_rows": batch_rows,
        }
        storage = open_storage(options.output)
        account.claim(storage, described)
        index, count = options.shard
        mine = [chunk for chunk in chunks if chunk.number % count == index]
        left = account.unfinished(storage, mine)
        _log(
            f"{_rows(mine):,} rows in {len(mine)} chunks, {len(mine) - len(left)} of them finished before; "
            f"{len(environments)} worker{'s' if len(environments) > 1 else ''}"
        )
        pool = WorkerPool([str(folder.resolve()), options.output, str(batch_rows)], environments[: len(left)])
        counts, load_seconds, seconds = _answer(left, files, pool)
    this_run = {"rows": counts.answered + counts.bad, "answered": counts.answered, "bad": counts.bad}
    finished = None
    if not account.unfinished(storage, chunks):  # this shard was the last
        manifest = account.write_manifest(storage, described, chunks)
        finished = {key: manifest[key] for key in this_run}
        storage.tidy()
    return {
        **this_run,
        "rows_done_before": _rows(mine) - _rows(left),
        "workers": min(len(environments), len(left)),
        "load_seconds": load_seconds,
        "rows_per_second": _rows(left) / seconds if left else None,  # from loaded models to the last chunk
        "padding_share": 1 - counts.tokens / counts.slots if counts.slots else None,
        "bad_share": account.share_of_bad(finished or this_run),
        "manifest": finished,
        "archive_sha256": archive_sha256,  # None if the model was a folder
        "stack": None if "AWS_ENDPOINT_URL" in environment else environment.get("METRICS_STACK"),
        "seconds": time.monotonic() - started,
    }


def _answer(chunks: Sequence[Chunk], files: Mapping[str, Path], pool: WorkerPool) -> tuple[ChunkCounts, float, float]:
    started = time.monotonic()
    counts = ChunkCounts()
    with closing(pool):
        pool.load()
        loaded = logged = time.monotonic()
        for done in pool.answer(chunks, files):
            counts += done
            if (now := time.monotonic()) - logged > PROGRESS_SECONDS:
                logged, rows = now, counts.answered + counts.bad
                rate = rows / (now - loaded)
                left_s = (_rows(chunks) - rows) / rate
                _log(f"{rows:,} of {_rows(chunks):,} rows, {rate:,.0f} rows/s, {left_s:,.0f} s left")
    return counts, loaded - started, time.monotonic() - loaded


def _refuse_output_inside_input(options: argparse.Namespace) -> None:
    output, input_ = (
        place.rstrip("/") + "/" if place.startswith("s3://") else f"{Path(place).resolve()}/"
        for place in (options.output, options.input)
    )
    if output.startswith(input_):
        raise ContainerError(
            f"--output {options.output}: is inside --input {options.input}, so a restart would read its own "
            "predictions. Give another folder."
        )


def _rows(chunks: Sequence[Chunk]) -> int:
    return sum(chunk.rows for chunk in chunks)


def main(arguments: Sequence[str] | None = None) -> int:
    arguments, parser = sys.argv[1:] if arguments is None else arguments, _parser()
    if not arguments:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(arguments)
    try:
        summary = run(options, os.environ)
        document = json.dumps(summary)
        if place := options.summary:
            index, count = options.shard
            write_to(f"{place}shard-{index + 1}-of-{count}.json" if place.endswith("/") else place, document.encode())
    except ContainerError as error:
        _log(str(error))
        return error.exit_code
    except OSError as error:
        _log(f"{error}. {RESUME}")
        return 3
    except KeyboardInterrupt:
        _log(f"Interrupted. {RESUME}")
        return INTERRUPTED
    print(document)
    return exit_code(summary["bad_share"], options.max_bad_share)


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(str(__package__), usage)
    parser.add_argument(
        "--model", required=True, help="folder of the built model or Triton repository, its .tar.gz, or s3://"
    )
    parser.add_argument("--input", required=True, help="file or folder of JSON lines, or s3://")
    parser.add_argument("--output", required=True, help="folder of this batch only, or s3://")
    parser.add_argument("--workers", type=_positive, help="processes, one core each (default: all cores)")
    parser.add_argument("--shard", type=_shard, default=(0, 1), metavar="I/N", help="1/4 is the first of four")
    parser.add_argument("--chunk-rows", type=_positive, default=4096, help="rows per file (default 4096)")
    parser.add_argument("--batch-rows", type=_positive, help="most rows per inference (default: the model's)")
    add_max_bad_share(parser)
    parser.add_argument(
        "--summary", help="also write the summary to this file or s3:// object, after a / as shard-I-of-N.json"
    )
    return parser


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def _shard(text: str) -> tuple[int, int]:
    """Reads 1/4 as (0, 4)."""
    index, count = map(int, text.split("/"))
    if not 1 <= index <= count:
        raise ValueError
    return index - 1, count


def _interrupt(signal_number: int, frame: FrameType | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the program ends: a second signal must not cut that short
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    raise KeyboardInterrupt


def _log(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGINT, _interrupt)
    signal.signal(signal.SIGTERM, _interrupt)
    sys.exit(exit_code_of(main))
