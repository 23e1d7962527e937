"""The batch from end to end: survey the input, claim the output, answer what is missing, account for every row."""

import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from . import archive, manifest
from .answering import Counts
from .chunks import Chunk, shard
from .cores import neuron_groups, on_cpu, on_neuron
from .crew import Crew
from .errors import OutputInsideInput
from .predictor import Compiled, find_model
from .source import find, survey
from .storage import Storage, open_storage

Progress = Callable[[str], None]
PROGRESS_SECONDS = 5.0


@dataclass(frozen=True)
class Options:
    """`shard` is which of how many, from 0. `workers`, `batch_rows`: None leaves them to the machine and the model."""

    model: str
    input: str
    output: str
    workers: int | None = None
    shard: tuple[int, int] = (0, 1)
    chunk_rows: int = 4096
    batch_rows: int | None = None


@dataclass(frozen=True)
class Summary:
    """Rows of this run, and of the whole output once every chunk is finished.

    `rows_per_second` counts from when the models are loaded to the last chunk; `seconds` is all of the run.
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

    @property
    def bad_share(self) -> float:
        """Of the whole output where it is finished, else of this run's rows."""
        rows, bad = (self.manifest["rows"], self.manifest["bad"]) if self.manifest else (self.rows, self.bad)
        return bad / rows if rows else 0.0

    def document(self) -> dict[str, Any]:
        whole = {key: self.manifest[key] for key in ("rows", "answered", "bad")} if self.manifest else None
        return {**asdict(self), "bad_share": self.bad_share, "manifest": whole}


def run(options: Options, environment: Mapping[str, str], progress: Progress) -> Summary:
    """Raises `BatchError`. What is finished stays, whatever ends it."""
    started = time.monotonic()
    _refuse_output_inside_input(options)
    with tempfile.TemporaryDirectory(prefix="batch-") as scratch:
        folder = archive.as_folder(options.model, Path(scratch))
        compiled = find_model(folder)
        batch_rows = options.batch_rows or compiled.batch_rows
        worker_environments = _environments(compiled, options.workers, environment)
        files = find(options.input, Path(scratch))
        sources, chunks = survey(files, options.chunk_rows)
        model = manifest.model_sha256(folder)
        described = manifest.job(model, sources, options.chunk_rows, batch_rows)
        storage = open_storage(options.output)
        manifest.claim(storage, described)
        mine = shard(chunks, *options.shard)
        left = _unfinished(storage, mine)
        progress(_plan_line(mine, left, len(worker_environments)))
        arguments = [str(folder.resolve()), options.output, str(batch_rows)]
        worked = _answer(left, files, Crew(arguments, worker_environments[: len(left)]), progress)
    return Summary(
        rows=worked.counts.answered + worked.counts.bad,
        answered=worked.counts.answered,
        bad=worked.counts.bad,
        rows_done_before=_rows(mine) - _rows(left),
        workers=min(len(worker_environments), len(left)),
        load_seconds=worked.load_seconds,
        rows_per_second=_rows(left) / worked.seconds if left else None,
        padding_share=1 - worked.counts.tokens / worked.counts.slots if worked.counts.slots else None,
        manifest=_account(storage, described, chunks),
        seconds=time.monotonic() - started,
    )


def _environments(compiled: Compiled, workers: int | None, environment: Mapping[str, str]) -> list[dict[str, str]]:
    if compiled.neuron:
        return on_neuron(neuron_groups(compiled.graphs, environment), workers, environment)
    return on_cpu(workers, environment)


@dataclass(frozen=True)
class _Worked:
    counts: Counts
    load_seconds: float
    seconds: float


def _answer(chunks: Sequence[Chunk], files: Mapping[str, Path], crew: Crew, progress: Progress) -> _Worked:
    started = time.monotonic()
    counts = Counts()
    with crew:
        crew.load()
        loaded = told = time.monotonic()
        for done in crew.answer(chunks, files):
            counts += done
            if (now := time.monotonic()) - told > PROGRESS_SECONDS:
                told = now
                progress(_progress_line(counts.answered + counts.bad, _rows(chunks), now - loaded))
    return _Worked(counts, loaded - started, time.monotonic() - loaded)


def _unfinished(storage: Storage, chunks: Sequence[Chunk]) -> list[Chunk]:
    names = storage.names()
    return [chunk for chunk in chunks if manifest.predictions_name(chunk.number) not in names]


def _account(storage: Storage, described: Mapping[str, Any], chunks: Sequence[Chunk]) -> dict[str, Any] | None:
    """None while other shards are still at work; then the last one's run writes it."""
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
        raise OutputInsideInput(options.output, options.input)


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
