"""The encoder's ensemble in a real Triton: answers, ragged dynamic batches, refusals and windows.

tests/model_build/test_variants_served.py has the response cache and instance groups.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from containers.encoder.predictor import Predictor
from containers.encoder.row import Refusal
from containers.encoder.settings import Settings
from local_aws.process.triton import TritonServer
from model_build.encoder import ensemble
from model_build.triton.repository import TritonModel, contents, lay_out
from tests.containers.encoder.encoder_miniature import (
    CLASSIFICATION,
    QUESTION_ANSWERING,
    SETTINGS,
    TAGGING,
    flat,
    make_folder,
)
from tests.quick_triton import start_triton, statistics
from workloads import OnnxRuntimeTarget, Serving

pytestmark = pytest.mark.integration

MAX_BATCH_SIZE = 8
SERVING = Serving(max_batch_size=MAX_BATCH_SIZE, max_queue_delay_ms=100.0)
"""Requests that are sent together meet in the first step, however busy the machine is."""
Row = Mapping[str, str]
GRAPHS = {"text-classification": "model.pt", "text-pair-scoring": "model.xml"}
"""The tasks that TorchScript and OpenVINO serve; ONNX Runtime serves the others."""


class Served:
    """A server, and the same model loaded here for the expected answers."""

    def __init__(self, server: TritonServer, predictor: Predictor) -> None:
        self.server = server
        self.predictor = predictor
        self.settings = predictor.settings

    def post(self, rows: Sequence[Row]) -> tuple[int, Any]:
        """Posts through SageMaker's front end; returns the status with the answers or with the error's text."""
        tensor = {"shape": [len(rows), 1], "datatype": "BYTES"}
        inputs = [
            {**tensor, "name": field.upper(), "data": [row[field] for row in rows]} for field in self.settings.fields
        ]
        answer = self.server.invoke(json.dumps({"inputs": inputs}).encode(), {"Content-Type": "application/json"})
        found = json.loads(answer.body)
        if answer.status != 200:
            return answer.status, found["error"]
        columns = {output["name"]: output["data"] for output in found["outputs"]}
        by_row = {name: _by_row(values, len(rows)) for name, values in columns.items()}
        return 200, [flat(dict(zip(by_row, values, strict=True))) for values in zip(*by_row.values(), strict=True)]

    def expected(self, rows: Sequence[Row]) -> Any:
        """Returns the answers, whose keys may come in any order: Triton has its own for an ensemble's outputs."""
        return [
            pytest.approx(flat(answer), abs=1e-5)
            for answer in self.predictor.predict(rows)
            if not isinstance(answer, Refusal)
        ]

    def batch_sizes(self, model: str) -> set[int]:
        return {entry["batch_size"] for entry in statistics(self.server, model)["batch_stats"]}

    def at_once(self, requests: Sequence[Sequence[Row]]) -> list[tuple[int, Any]]:
        barrier = threading.Barrier(len(requests))

        def send(request: Sequence[Row]) -> tuple[int, Any]:
            barrier.wait()
            return self.post(request)

        with ThreadPoolExecutor(len(requests)) as threads:
            return list(threads.map(send, requests))


def _by_row(values: list[Any], rows: int) -> list[Any]:
    """Returns the value of each row, or its list of several: JSON has all of a tensor's in one list."""
    width = len(values) // rows
    return values if width == 1 else [values[row * width : (row + 1) * width] for row in range(rows)]


def triton_models(settings: Settings, made: Path) -> list[TritonModel]:
    """Returns the models that the build makes of these settings."""
    target = OnnxRuntimeTarget(runtime="onnxruntime")
    tokenizer: Any = SimpleNamespace(tokenizer=made / "tokenizer.json")
    row = dict.fromkeys(settings.fields, "a")
    return [
        TritonModel(config=ensemble._ensemble("tiny", settings, SERVING, target)),
        ensemble._tokenise("tiny_tokenise", settings, SERVING, tokenizer, row),
        ensemble._model("tiny_model", settings, SERVING, target, {file.name: file for file in made.glob("model.*")}),
        ensemble._postprocess("tiny_postprocess", settings, SERVING),
    ]


Serve = Callable[[Settings], Served]


@pytest.fixture(scope="module")
def serve(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Starts servers, which the end of the module stops."""
    servers = []

    def start(settings: Settings) -> Served:
        folder = tmp_path_factory.mktemp("served")
        graph = GRAPHS.get(settings.kind, "model.onnx")
        made = make_folder(folder / "made", settings, graph)
        lay_out(folder / "repository", contents(triton_models(settings, made)))
        servers.append(start_triton(folder / "repository", "tiny"))
        return Served(servers[-1], Predictor.load(made))

    yield start
    for server in servers:
        server.request_stop()
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def served(serve: Serve) -> Serve:
    """One server per task, batching dynamically in every step."""
    return cache(serve)


def _as_parameter(settings: Settings) -> Any:
    """Returns a task as a parameter of a test; those that are served as another is are left to `make test-all`."""
    slow = settings.kind in ("multi_label_classification", "regression", "text-ranking")
    return pytest.param(settings, id=settings.kind, marks=[pytest.mark.slow] if slow else [])


def make_rows(settings: Settings) -> list[dict[str, str]]:
    """Returns as many rows as a batch takes, each of another length."""
    return [
        {field: " ".join("abcdefgh"[: number + 1 if field == settings.fields[-1] else 2]) for field in settings.fields}
        for number in range(MAX_BATCH_SIZE)
    ]


@pytest.mark.parametrize("settings", [*map(_as_parameter, SETTINGS.values())])
def test_a_request_of_many_rows_is_answered_in_order(served: Serve, settings: Settings) -> None:
    model, rows = served(settings), make_rows(settings)
    assert model.post(rows) == (200, model.expected(rows))
    assert model.post(rows[3:4]) == (200, model.expected(rows[3:4]))


@pytest.mark.parametrize("settings", [CLASSIFICATION, QUESTION_ANSWERING], ids=lambda settings: settings.task)
def test_requests_of_different_lengths_share_a_batch(served: Serve, settings: Settings) -> None:
    """No two of these requests have the same shape, so every batch of two or more is a ragged one."""
    model = served(settings)
    requests = [[row] for row in make_rows(settings)[1:]]
    expected = [(200, model.expected(request)) for request in requests]
    before = model.batch_sizes("tiny_model")
    for _ in range(50):
        assert model.at_once(requests) == expected
        if max(model.batch_sizes("tiny_model") - before, default=1) > 1:
            return
    pytest.fail(f"Triton never put requests together: {model.batch_sizes('engine')}")


def test_a_refused_request_does_not_affect_others_in_its_batch(
    served: Serve,
) -> None:
    """400, not 500: SageMaker counts a 500 as an error of the model. Triton puts the ensemble's name before it."""
    model, rows = served(CLASSIFICATION), make_rows(CLASSIFICATION)
    requests = [[rows[0]], [{"text": ""}], [rows[5]], [{"text": "a" * 40}], [rows[7]], [rows[2]]]
    expected = [(200, model.expected(request)) for request in requests]
    expected[1] = (400, "in ensemble 'tiny', Row 0 has no text in text.")
    expected[3] = (400, "in ensemble 'tiny', Row 0 has 42 tokens, at most 32 are allowed.")
    for _ in range(50):
        assert model.at_once(requests) == expected
        # With 2 bad requests of 6, more than 4 in one execution hold at least one of each kind.
        if model.batch_sizes("tiny_tokenise") & {5, 6}:
            return
    pytest.fail(f"Triton never put more than 4 requests together: {model.batch_sizes('tokenise')}")


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(QUESTION_ANSWERING, id="question-answering"),
        pytest.param(TAGGING, id="token-classification", marks=pytest.mark.slow),
    ],
)
def test_long_texts_are_read_in_windows_and_each_row_has_one_answer(serve: Serve, settings: Settings) -> None:
    """A row is several of what the model is given, and so the steps between have another batch than the request."""
    model = serve(replace(settings, max_input_tokens=16, stride=3, max_windows=MAX_BATCH_SIZE))
    rows = [
        {**row, settings.fields[-1]: " ".join("abcdefghij" * count)}
        for row, count in zip(make_rows(settings)[:3], (1, 3, 2), strict=True)
    ]
    for request in ([rows[1]], rows[:2], [rows[2], rows[0]]):
        assert model.post(request) == (200, model.expected(request))
    status, problem = model.post(rows * 2)
    assert status == 400
    assert problem.startswith("in ensemble 'tiny', The rows are ")
