"""Runs the batch: surveys the input, claims the output, answers what is missing and accounts for every row."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import ContainerError
from . import archive, manifest
from .answering import Counts
from .chunks import Chunk, shard
from .predictor import find_model
from .source import find, survey
from .storage import Storage, open_storage
from .worker_pool import WorkerPool, worker_environments

Progress = Callable[[str], None]
PROGRESS_SECONDS = 5.0


@dataclass(frozen=True)
class Options:
    """Options of one run.

    `shard` is (index from 0, count). None leaves `workers` to the machine, `batch_rows` to the model.
    """

    model: str
    input: str
    output: str
    workers: int | None = None
    shard: tuple[int, int] = (0, 1)
    chunk_rows: int = 4096
    batch_rows: int | None = None


@dataclass(frozen=True)
class Summary:
    """Counts of this run, and the manifest of the whole output once every chunk is finished.

    `rows_per_second` is measured from the moment the models are loaded to the last chunk; `seconds` covers all of the
    run.
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
    archive_sha256: str | None
    """None where the model was a folder."""
    stack: str | None
    """The stack whose run this is, on AWS."""

    @property
    def bad_share(self) -> float:
        """The share of bad rows in the whole output where it is finished, else among this run's rows."""
        rows, bad = (self.manifest["rows"], self.manifest["bad"]) if self.manifest else (self.rows, self.bad)
        return bad / rows if rows else 0.0

    def document(self) -> dict[str, Any]:
        whole = {key: self.manifest[key] for key in ("rows", "answered", "bad")} if self.manifest else None
        return {**asdict(self), "bad_share": self.bad_share, "manifest": whole}


def run(options: Options, environment: Mapping[str, str], progress: Progress) -> Summary:
    """Raises `ContainerError`. Finished chunks stay, whatever ends the run."""
    started = time.monotonic()
    _refuse_output_inside_input(options)
    with tempfile.TemporaryDirectory(prefix="batch-") as scratch:
        folder = archive.as_folder(options.model, Path(scratch))
        compiled = find_model(folder)
        batch_rows = options.batch_rows or compiled.batch_rows
        environments = worker_environments(compiled, options.workers, environment)
        files = find(options.input, Path(scratch))
        sources, chunks = survey(files, options.chunk_rows)
        model = archive.model_sha256(folder)
        archive_sha256 = archive.archive_sha256(options.model, Path(scratch))
        described = manifest.job(model, sources, options.chunk_rows, batch_rows)
        storage = open_storage(options.output)
        manifest.claim(storage, described)
        mine = shard(chunks, *options.shard)
        left = _unfinished(storage, mine)
        progress(_plan_line(mine, left, len(environments)))
        arguments = [str(folder.resolve()), options.output, str(batch_rows)]
        worked = _answer(left, files, WorkerPool(arguments, environments[: len(left)]), progress)
    return Summary(
        rows=worked.counts.answered + worked.counts.bad,
        answered=worked.counts.answered,
        bad=worked.counts.bad,
        rows_done_before=_rows(mine) - _rows(left),
        workers=min(len(environments), len(left)),
        load_seconds=worked.load_seconds,
        rows_per_second=_rows(left) / worked.seconds if left else None,
        padding_share=1 - worked.counts.tokens / worked.counts.slots if worked.counts.slots else None,
        manifest=_account(storage, described, chunks),
        archive_sha256=archive_sha256,
        stack=None if "AWS_ENDPOINT_URL" in environment else environment.get("METRICS_STACK"),
        seconds=time.monotonic() - started,
    )


@dataclass(frozen=True)
class _Worked:
    counts: Counts
    load_seconds: float
    seconds: float


def _answer(chunks: Sequence[Chunk], files: Mapping[str, Path], pool: WorkerPool, progress: Progress) -> _Worked:
    started = time.monotonic()
    counts = Counts()
    with pool:
        pool.load()
        loaded = told = time.monotonic()
        for done in pool.answer(chunks, files):
            counts += done
            if (now := time.monotonic()) - told > PROGRESS_SECONDS:
                told = now
                progress(_progress_line(counts.answered + counts.bad, _rows(chunks), now - loaded))
    return _Worked(counts, loaded - started, time.monotonic() - loaded)


def _unfinished(storage: Storage, chunks: Sequence[Chunk]) -> list[Chunk]:
    names = storage.names()
    return [chunk for chunk in chunks if manifest.predictions_name(chunk.number) not in names]


def _account(storage: Storage, described: Mapping[str, Any], chunks: Sequence[Chunk]) -> dict[str, Any] | None:
    """Writes and returns the manifest if this was the last shard to finish; None while other shards are at work."""
    if _unfinished(storage, chunks):
        return None
    account = manifest.account(storage, described, chunks)
    storage.write(manifest.MANIFEST, manifest.dump(account))
    storage.tidy()
    return account


def _refuse_output_inside_input(options: Options) -> None:
    places = [
        place.rstrip("/") + "/" if place.startswith("s3://") else f"{Path(place).resolve()}/"
        for place in (options.output, options.input)
    ]
    if places[0].startswith(places[1]):
        raise ContainerError(
            f"--output {options.output}: lies inside --input {options.input}, so that a restart would read its own "
            "predictions. Give another place."
        )


def _rows(chunks: Sequence[Chunk]) -> int:
    return sum(chunk.rows for chunk in chunks)


def _plan_line(mine: Sequence[Chunk], left: Sequence[Chunk], workers: int) -> str:
    return (
        f"{_rows(mine):,} rows in {len(mine)} chunks, {len(mine) - len(left)} of them finished before; "
        f"{workers} worker{'s' if workers > 1 else ''}"
    )


def _progress_line(done: int, rows: int, seconds: float) -> str:
    rate = done / seconds
    return f"{done:,} of {rows:,} rows, {rate:,.0f} rows/s, {(rows - done) / rate:,.0f} s left"
