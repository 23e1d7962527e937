"""Embeddings are those of sentence-transformers.

embeddings.json has, for the seeded BERT, `SentenceTransformer.encode(TEXTS, normalize_embeddings=…, truncate_dim=…)` of
each pooling. The original that builds are compared with and the network that is compiled are each compared with it.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from containers.encoder.row import Refusal
from model_build.checkpoint import read
from model_build.encoder import export
from model_build.encoder.graphs import settings
from model_build.encoder.reference import Reference
from tests.containers.encoder.seeded_bert import save_encoder
from workloads import FeatureExtraction, OnnxRuntimeTarget

EMBEDDINGS = json.loads(Path(__file__).with_name("embeddings.json").read_text("utf-8"))["embeddings"]
TEXTS = ("red shoe", "a blue-ish lamp, xl", "do you sell warm winter socks in size xl", "socks")
CUT, LONGEST = 6, 64
WAYS = [
    (way, normalize, dimensions)
    for way in ("mean", "cls", "max", "last")
    for normalize in (False, True)
    for dimensions in (0, CUT)
]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("embeddings") / "encoder"
    save_encoder(folder)
    return folder


@pytest.mark.parametrize(("way", "normalize", "dimensions"), WAYS)
def test_original_and_served_embeddings_are_those_of_sentence_transformers(
    encoder: Path, way: Any, normalize: bool, dimensions: int
) -> None:
    keys = {"max_input_tokens": LONGEST, "pooling": way, "normalize": normalize, "dimensions": dimensions}
    model = FeatureExtraction(task="feature-extraction", checkpoint="./encoder", **keys)
    checkpoint = read(encoder, encoder, model)
    recorded = EMBEDDINGS[f"{way} normalize={normalize} dimensions={dimensions}"]
    rows = [{"text": text} for text in TEXTS]
    original = [window["embedding"] for (window,) in Reference(checkpoint, model).outputs(rows)]
    np.testing.assert_allclose(original, recorded, atol=2e-5)
    known = settings(model, OnnxRuntimeTarget(runtime="onnxruntime"), checkpoint)
    served: Any = Predictor(
        Preprocessor(Tokenizer.from_file(str(encoder / "tokenizer.json")), known),
        Compiled(export.load(checkpoint, model)),
    ).predict(rows)
    for answer, expected in zip(served, recorded, strict=True):
        assert not isinstance(answer, Refusal)
        np.testing.assert_allclose(answer["EMBEDDING"], expected, atol=2e-5)


class Compiled:
    """The network that is exported, as the compiled model."""

    def __init__(self, network: Any) -> None:
        self._network = network

    def run(self, tensors: Mapping[str, Any]) -> dict[str, Any]:
        with torch.inference_mode():
            outputs = self._network(*(torch.from_numpy(tensors[name]) for name in self._network.inputs))
        return dict(zip(self._network.outputs, (output.numpy() for output in outputs), strict=True))
