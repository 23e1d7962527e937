"""A one-layer BERT with random weights for each encoder task, and the folder it is served from: made in seconds.

Its answers are nonsense, but the same nonsense every time, and other rows of a batch must not change them.
"""

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import Tensor, nn

from containers.encoder.settings import Settings

LETTERS = "abcdefghijklmnopqrstuvwxyz"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WIDTH, HEADS, LONGEST = 16, 2, 64
FIVE_INPUTS = ("input_ids", "attention_mask", "position_ids", "valid_length", "token_type_ids")

CLASSIFICATION = Settings(
    task="text-classification",
    segments=(("text",),),
    inputs=("input_ids", "attention_mask", "token_type_ids"),
    max_input_tokens=32,
    labels=("navigate", "buy", "ask"),
    max_answer_tokens=0,
    pad_token_id=0,
    threads=1,
    pad_to=(),
    batch_size=0,
)
PAIR_SCORING = replace(
    CLASSIFICATION,
    task="text-pair-scoring",
    segments=(("left_brand", "left_title"), ("right_brand", "right_title")),
    inputs=FIVE_INPUTS,
    labels=("duplicate", "variant", "different"),
    pad_to=(8, 16, 32),
)
QUESTION_ANSWERING = replace(
    CLASSIFICATION,
    task="question-answering",
    segments=(("question",), ("context",)),
    max_input_tokens=48,
    labels=(),
    max_answer_tokens=5,
)
MULTI_LABEL = replace(CLASSIFICATION, problem_type="multi_label_classification", threshold=0.4)
REGRESSION = replace(CLASSIFICATION, problem_type="regression", labels=())
RANKING = replace(
    CLASSIFICATION, task="text-ranking", segments=(("query",), ("text",)), labels=(), activation="sigmoid"
)
TAGGING = replace(
    CLASSIFICATION,
    task="token-classification",
    labels=("O", "B-SIZE", "I-SIZE", "B-COLOUR", "I-COLOUR"),
    aggregation="simple",
)
EMBEDDING = replace(CLASSIFICATION, task="feature-extraction", labels=())
KINDS = (CLASSIFICATION, PAIR_SCORING, QUESTION_ANSWERING, MULTI_LABEL, REGRESSION, RANKING, TAGGING, EMBEDDING)
SETTINGS = {settings.kind: settings for settings in KINDS}


def flat(answer: Any) -> dict[str, Any]:
    """Returns an answer without lists in it, so that `pytest.approx` can compare its numbers."""
    read = {key: json.loads(value) if key in ("ENTITIES", "LABELS") else value for key, value in answer.items()}
    found: dict[str, Any] = {}
    for key, value in read.items():
        for place, each in enumerate(value if isinstance(value, list) else [value]):
            parts = each if isinstance(each, dict) else {"": each}
            found |= {f"{key} {place} {name}": part for name, part in parts.items()}
    return found


def make_tokenizer() -> Tokenizer:
    """Letters as tokens. It says to cut at 8 tokens and to pad to 20, which serving must not do."""
    pieces = [*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS)]
    tokenizer = Tokenizer(models.WordPiece({piece: index for index, piece in enumerate(pieces)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.enable_truncation(8)
    tokenizer.enable_padding(length=20)
    return tokenizer


class Graph(nn.Module):
    """Takes the tensors of `settings.inputs` by position, gives those of `settings.graph_outputs`."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.names = settings.inputs
        self.task = settings.task
        self.words = nn.Embedding(len(SPECIAL) + 2 * len(LETTERS), WIDTH)
        self.positions = nn.Embedding(LONGEST, WIDTH)
        self.types = nn.Embedding(2, WIDTH)
        self.projection = nn.Linear(WIDTH, 3 * WIDTH)
        self.head = nn.Linear(WIDTH, 2 if settings.task == "question-answering" else max(1, len(settings.labels)) + 1)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given = dict(zip(self.names, tensors, strict=True))
        token_ids = given["input_ids"]
        positions = torch.arange(token_ids.shape[1]).unsqueeze(0)
        real = given["attention_mask"]
        if "valid_length" in given:  # Both say the same of a well-made batch.
            real = real * (positions < given["valid_length"].unsqueeze(1))
        embedded = (
            self.words(token_ids)
            + self.positions(given.get("position_ids", positions))
            + self.types(given["token_type_ids"])
        )
        hidden = torch.tanh(embedded + self._attend(embedded, real))
        if self.task == "question-answering":
            start, end = (3 * self.head(hidden)).unbind(-1)
            return start, end
        if self.task == "token-classification":
            return (9 * self.head(hidden)[:, :, 1:],)
        if self.task == "feature-extraction":
            return ((hidden * real[:, :, None]).sum(1) / real.sum(1, keepdim=True),)
        outputs = 3 * self.head(hidden[:, 0])
        return (outputs[:, 1:], outputs[:, 0].sigmoid()) if self.task == "text-pair-scoring" else (outputs[:, 1:],)

    def _attend(self, embedded: Tensor, real: Tensor) -> Tensor:
        query, key, value = self.projection(embedded).unflatten(-1, (3, HEADS, WIDTH // HEADS)).unbind(-3)
        scores = torch.einsum("bqhd,bkhd->bhqk", query, key) + (1.0 - real[:, None, None, :].float()) * -1e9
        attended: Tensor = torch.einsum("bhqk,bkhd->bqhd", scores.softmax(-1), value).flatten(-2)
        return attended


def make_folder(folder: Path, settings: Settings, model: str) -> Path:
    """settings.json, tokenizer.json and `model`, which is model.onnx, model.pt or model.xml."""
    folder.mkdir(parents=True)
    (folder / "settings.json").write_text(settings.to_json())
    make_tokenizer().save(str(folder / "tokenizer.json"))
    graph = Graph(settings).eval()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Of tracing and of the exporter.
        if model == "model.pt":
            trace: Any = torch.jit.trace
            trace(graph, _example(settings)).save(str(folder / model))
        else:
            onnx = folder / "model.onnx"
            _export_onnx(graph, settings, onnx)
            if model == "model.xml":
                import openvino

                openvino.save_model(openvino.Core().read_model(onnx), folder / model, compress_to_fp16=False)
                onnx.unlink()
    return folder


def _export_onnx(graph: Graph, settings: Settings, file: Path) -> None:
    outputs = settings.graph_outputs
    per_token = {*settings.inputs, *(outputs if settings.per_token else ())} - {"valid_length"}
    names = (*settings.inputs, *outputs)
    torch.onnx.export(
        graph,
        _example(settings),
        str(file),
        input_names=list(settings.inputs),
        output_names=list(outputs),
        dynamic_axes={name: {0: "rows", 1: "length"} if name in per_token else {0: "rows"} for name in names},
        dynamo=False,
    )


def _example(settings: Settings) -> tuple[Tensor, ...]:
    rows, length = 2, 7
    return tuple(
        torch.full((rows,), length) if name == "valid_length" else torch.ones(rows, length, dtype=torch.int64)
        for name in settings.inputs
    )
