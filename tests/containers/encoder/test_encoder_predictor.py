"""The whole way in one process on real engines: batches answer as rows alone, and as the graph itself does."""

from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from containers.encoder import load_engine
from containers.encoder.engine import FixedBatch
from containers.encoder.predictor import Predictor
from containers.encoder.row import Refusal
from containers.encoder.settings import Settings
from containers.encoder.tensors import Encoding, tensors
from tests.containers.encoder.encoder_miniature import CLASSIFICATION, LETTERS, SETTINGS, Graph, flat, make_folder

MODELS = ("model.onnx", "model.pt")


def make_rows(settings: Settings, count: int = 12) -> list[dict[str, str]]:
    """Makes rows of different lengths, none too long."""
    random = Random(7)
    return [
        {field: " ".join(random.choices(LETTERS, k=random.randint(1, 6))) for field in settings.fields}
        for _ in range(count)
    ]


@pytest.fixture(scope="module", params=[(kind, model) for kind in SETTINGS for model in MODELS], ids="-".join)
def predictor(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Predictor:
    kind, model = request.param
    return Predictor.load(make_folder(tmp_path_factory.mktemp("made") / "folder", SETTINGS[kind], model))


def encodings_of(predictor: Predictor) -> list[Encoding]:
    encoded = predictor.preprocessor.encode(make_rows(predictor.settings))
    encodings = [row for row in encoded if isinstance(row, Encoding)]
    assert len(set(map(len, encodings))) > 3, "the tests need rows of different lengths"
    return encodings


def test_a_batch_gives_each_row_what_the_graph_gives_it_alone(predictor: Predictor) -> None:
    settings, encodings = predictor.settings, encodings_of(predictor)
    graph = Graph(settings).eval()
    outputs = predictor.outputs(encodings)
    assert len(outputs) == 12
    for encoding, own in zip(encodings, outputs, strict=True):
        alone = tensors([encoding], settings.inputs, (), settings.pad_token_id)
        with torch.no_grad():
            expected = graph(*(torch.from_numpy(alone[name]) for name in settings.inputs))
        assert tuple(own) == settings.graph_outputs
        for output, wanted in zip(own.values(), expected, strict=True):
            np.testing.assert_allclose(output, wanted[0].numpy(), atol=1e-5)


def test_batching_changes_no_answer(predictor: Predictor) -> None:
    rows = make_rows(predictor.settings)
    together = predictor.predict(rows)
    for row, answer in zip(rows, together, strict=True):
        [alone] = predictor.predict([row])
        assert flat(answer) == pytest.approx(flat(alone), abs=1e-5)


def test_refused_rows_keep_their_place(predictor: Predictor) -> None:
    rows = make_rows(predictor.settings, 4)
    answers = predictor.predict([{}, rows[0], {}, rows[1]])
    assert [type(answer) for answer in answers] == [Refusal, dict, Refusal, dict]
    assert [answers[1], answers[3]] == predictor.predict(rows[:2])


def test_nothing_but_refused_rows_never_reaches_the_engine(predictor: Predictor) -> None:
    assert [type(answer) for answer in predictor.predict([{}])] == [Refusal]
    assert predictor.predict([]) == []
    assert predictor.outputs([]) == []


@pytest.mark.parametrize("batch_size", [1, 5])
def test_a_model_compiled_for_one_batch_size_gives_the_same_answers(predictor: Predictor, batch_size: int) -> None:
    rows = make_rows(predictor.settings)
    fixed = Predictor(predictor.preprocessor, FixedBatch(predictor.engine, batch_size))
    for answer, expected in zip(fixed.predict(rows), predictor.predict(rows), strict=True):
        assert flat(answer) == pytest.approx(flat(expected), abs=1e-5)


def test_the_settings_say_that_a_batch_size_is_compiled_in(tmp_path: Path) -> None:
    folder = make_folder(tmp_path / "fixed", replace(CLASSIFICATION, batch_size=4), "model.onnx")
    assert isinstance(Predictor.load(folder).engine, FixedBatch)


def test_a_folder_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as error:
        load_engine.load(tmp_path, CLASSIFICATION)
    assert str(error.value) == f"{tmp_path} holds no model: none of model.onnx, model.pt is there."
