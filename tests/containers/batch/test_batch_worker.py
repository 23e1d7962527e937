"""A worker tokenises and queues the next chunk while the device runs the current one."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray

from containers.batch.answering import BatchPredictor
from containers.batch.source import Chunk, cut
from containers.batch.worker import WorkerPool, answers
from containers.encoder import goldens
from containers.encoder.engines import load_engine
from containers.encoder.predictor import Predictor as Encoder
from containers.encoder.preprocess import Preprocessor
from tests.containers.batch.batch_run import row, run, write_model, write_rows

HANGS_S = 60.0  # Ends a hanging test
CHUNK_ROWS, BATCH_ROWS = 12, 4


class Device:
    """An engine that calls `before` for each batch, and returns zeros."""

    def __init__(self, before: Callable[[], object]) -> None:
        self._before = before

    def run(self, tensors: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        self._before()
        rows = len(tensors["input_ids"])
        return {"logits": np.zeros((rows, 3), np.float32), "score": np.zeros(rows, np.float32)}


class Watched(Preprocessor):
    """Counts its calls."""

    encoded: threading.Semaphore

    def encode(self, rows: Sequence[Mapping[str, object]]) -> list[Any]:
        encodings = super().encode(rows)
        self.encoded.release()
        return encodings


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Four chunks of three batches, as the pool sends them."""
    source = write_rows(tmp_path_factory.mktemp("source") / "in.jsonl", map(row, range(4 * CHUNK_ROWS)))
    with source.open("rb") as handle:
        chunks = list(cut(source.name, handle, CHUNK_ROWS, 0))
    return [json.dumps({**asdict(chunk), "path": str(source)}) for chunk in chunks]


def ids(predictions: bytes) -> list[int]:
    return [json.loads(line)["id"] for line in predictions.splitlines()]


def test_one_chunk_is_tokenised_while_the_device_runs_another(model: Path, orders: list[str]) -> None:
    taken, released = [], threading.Event()
    preprocessor = Watched.load(model)
    assert isinstance(preprocessor, Watched)
    preprocessor.encoded = threading.Semaphore(0)
    predictor = BatchPredictor(Encoder(preprocessor, Device(lambda: released.wait(HANGS_S))), 1)

    def taking() -> Iterator[str]:
        for order in orders:
            taken.append(order)
            yield order

    answered = answers(taking(), predictor, BATCH_ROWS)
    with ThreadPoolExecutor(1) as thread:
        first = thread.submit(next, answered)
        assert preprocessor.encoded.acquire(timeout=HANGS_S)
        assert preprocessor.encoded.acquire(timeout=HANGS_S), "the second chunk waited for the first to be answered"
        assert not first.done()
        released.set()
        assert ids(first.result().predictions) == list(range(CHUNK_ROWS))
    assert taken == orders[:2]
    assert [ids(chunk.predictions)[0] for chunk in answered] == [CHUNK_ROWS, 2 * CHUNK_ROWS, 3 * CHUNK_ROWS]


@pytest.mark.parametrize("cores", [1, 2])
def test_each_neuron_core_has_a_batch_and_one_more_waits(
    model: Path, orders: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int
) -> None:
    """The device answers only when it has them all."""
    together = threading.Barrier(cores + 1)
    monkeypatch.setenv("NEURON_RT_NUM_CORES", str(cores))
    monkeypatch.setattr(load_engine, "load", lambda folder, settings: Device(lambda: together.wait(HANGS_S)))
    monkeypatch.setattr(goldens, "check", lambda engine, settings, folder: None)
    for name in ("settings.json", "tokenizer.json"):
        (tmp_path / name).write_bytes((model / name).read_bytes())
    (tmp_path / "model.40.neuron.pt").touch()
    answered = list(answers(orders, BatchPredictor.load(tmp_path), BATCH_ROWS))
    assert [ids(chunk.predictions)[0] for chunk in answered] == list(range(0, 4 * CHUNK_ROWS, CHUNK_ROWS))


def test_a_worker_whose_device_fails_ends_at_once(program: Path, tmp_path: Path) -> None:
    """Its vocabulary is too small, which no check finds before a batch runs."""
    model = write_model(tmp_path / "model")
    graph = onnx.load(model / "model.onnx")
    (words,) = (weight for weight in graph.graph.initializer if weight.name == "words.weight")
    words.CopyFrom(onnx.numpy_helper.from_array(np.zeros((2, 16), np.float32), "words.weight"))
    onnx.save(graph, model / "model.onnx")
    source = write_rows(tmp_path / "in.jsonl", map(row, range(8)))
    ended = run(program, "--model", model, "--input", source, "--output", tmp_path / "out")
    assert ended.code == 3
    assert "indices element out of data bounds" in ended.log
    assert ended.log.splitlines()[-1] == (
        "worker 0 ended with exit code 1. Finished chunks are kept. Run the same command again to continue."
    )


def test_a_worker_has_at_most_two_chunks_and_none_waits_while_another_worker_is_idle() -> None:
    pool = WorkerPool([], [])
    pool._chunks.extend(Chunk(number, "in.jsonl", 0, 0, 1, 1, 1) for number in range(5))
    pool._workers = [None, None]  # type: ignore[list-item]
    taken = [pool._take(running) for running in (0, 1, 2, 0, 1, 0, 0)]
    assert [chunk and chunk.number for chunk in taken] == [0, 1, None, 2, 3, 4, None]
