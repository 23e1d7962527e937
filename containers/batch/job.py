"""Runs the batch: surveys the input, claims the output, answers unfinished chunks and accounts for every row."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..container_errors import ContainerError
from . import account, archive
from .answering import ChunkCounts, find_model
from .source import Chunk, find, shard, survey
from .storage import open_storage
from .worker_pool import WorkerPool, worker_environments

Progress = Callable[[str], None]
PROGRESS_SECONDS = 5.0


@dataclass(frozen=True)
class BatchOptions:
    """The command line's options. `shard` is (index from 0, count)."""

    model: str
    input: str
    output: str
    workers: int | None
    shard: tuple[int, int]
    chunk_rows: int
    batch_rows: int | None
    max_bad_share: float
    summary: str | None


@dataclass(frozen=True)
class RunSummary:
    """Counts of this run, and the manifest of the whole output once every chunk is finished.

    `rows_per_second` starts when the models are loaded and ends with the last chunk; `seconds` covers the whole run.
    """

    rows: int
    answered: int
    bad: int
    rows_done_before: int
    workers: int
    load_seconds: float
    seconds: float
    rows_per_second: float | None
    padding_share: float | None
    manifest: dict[str, Any] | None
    archive_sha256: str | None  # None if the model was a folder
    stack: str | None  # the stack whose run this is, on AWS

    @property
    def bad_share(self) -> float:
        """The share of bad rows in the whole output if it is finished, else among this run's rows."""
        rows, bad = (self.manifest["rows"], self.manifest["bad"]) if self.manifest else (self.rows, self.bad)
        return bad / rows if rows else 0.0

    def document(self) -> dict[str, Any]:
        whole = {key: self.manifest[key] for key in ("rows", "answered", "bad")} if self.manifest else None
        return {**asdict(self), "bad_share": self.bad_share, "manifest": whole}


def run(options: BatchOptions, environment: Mapping[str, str], progress: Progress) -> RunSummary:
    """Raises `ContainerError`. Finished chunks are kept however the run ends."""
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
        mine = shard(chunks, *options.shard)
        left = account.unfinished(storage, mine)
        progress(
            f"{_rows(mine):,} rows in {len(mine)} chunks, {len(mine) - len(left)} of them finished before; "
            f"{len(environments)} worker{'s' if len(environments) > 1 else ''}"
        )
        pool = WorkerPool([str(folder.resolve()), options.output, str(batch_rows)], environments[: len(left)])
        counts, load_seconds, seconds = _answer(left, files, pool, progress)
    finished = None
    if not account.unfinished(storage, chunks):  # this shard was the last
        finished = account.write_manifest(storage, described, chunks)
        storage.tidy()
    return RunSummary(
        rows=counts.answered + counts.bad,
        answered=counts.answered,
        bad=counts.bad,
        rows_done_before=_rows(mine) - _rows(left),
        workers=min(len(environments), len(left)),
        load_seconds=load_seconds,
        rows_per_second=_rows(left) / seconds if left else None,
        padding_share=1 - counts.tokens / counts.slots if counts.slots else None,
        manifest=finished,
        archive_sha256=archive_sha256,
        stack=None if "AWS_ENDPOINT_URL" in environment else environment.get("METRICS_STACK"),
        seconds=time.monotonic() - started,
    )


def _answer(
    chunks: Sequence[Chunk], files: Mapping[str, Path], pool: WorkerPool, progress: Progress
) -> tuple[ChunkCounts, float, float]:
    """Returns the counts, and the seconds of loading and of answering."""
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
                progress(f"{rows:,} of {_rows(chunks):,} rows, {rate:,.0f} rows/s, {left_s:,.0f} s left")
    return counts, loaded - started, time.monotonic() - loaded


def _refuse_output_inside_input(options: BatchOptions) -> None:
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
