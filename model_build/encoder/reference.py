"""Runs the original of an encoder task by transformers: a compiled model is compared with it.

It is independent of `bert.py`, which is what gets compiled. Tokens come from transformers' own tokenizer, so that ours
is compared too. An embedding is pooled, cut and normalised as sentence-transformers does with `truncate_dim` and
`normalize_embeddings`: tests/model_build/encoder/embeddings.json has its own answers. A Normalize module saved with a
model would come before the cut there, and leave a cut vector shorter than one.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors import safe_open

from containers.encoder.tensors import own_tokens
from model_build.checkpoint import Checkpoint, broken, loading
from model_build.checkpoint.families import FAMILIES
from model_build.encoder.wrapper import AUTO
from model_build.torch_threads import every_core
from workloads import (
    EncoderModel,
    FeatureExtraction,
    QuestionAnswering,
    Row,
    TextClassification,
    TextPairScoring,
    TextRanking,
    TokenClassification,
)

Floats = NDArray[np.float32]
Outputs = dict[str, Floats]
"""The outputs of one row, or of one window of a row, by name."""


class Reference:
    """One original model in fp32."""

    def __init__(self, checkpoint: Checkpoint, model: EncoderModel) -> None:
        self._model = model
        self._folder = checkpoint.folder
        with loading(checkpoint.encoder):
            self._tokenizer = transformers.AutoTokenizer.from_pretrained(checkpoint.encoder, local_files_only=True)
        if self._tokenizer.pad_token is None:
            self._tokenizer.pad_token = _padding_token(checkpoint, self._tokenizer)
        with loading(checkpoint.folder):
            self._network = _network(checkpoint, model).eval()
        self._taken = inspect.signature(self._network.forward).parameters.keys()

    def outputs(self, rows: Sequence[Row]) -> list[list[Outputs]]:
        """Returns for each window of each row what the compiled model should give; padding is left out.

        A row is one window, but for a long one of a model with `stride`.
        """
        segments = [[" ".join(row[field] for field in segment) for row in rows] for segment in self._model.segments]
        with loading(self._folder), torch.inference_mode(), every_core():
            inputs = self._tokenizer(
                *segments, padding=True, return_attention_mask=True, return_tensors="pt", **self._cut()
            )
            outputs = self._forward({name: tensor for name, tensor in inputs.items() if name in self._taken})
        lengths = inputs["attention_mask"].sum(1).tolist()
        found: list[list[Outputs]] = [[] for _ in rows]
        for window, row in enumerate(inputs.get("overflow_to_sample_mapping", torch.arange(len(rows))).tolist()):
            own = {name: output[window].numpy() for name, output in outputs.items()}
            found[row].append({name: own_tokens(name, output, lengths[window]) for name, output in own.items()})
        return found

    def _cut(self) -> dict[str, Any]:
        """Returns the truncation argument of transformers' tokenizer for rows that are too long."""
        model = self._model
        if isinstance(model, QuestionAnswering | TokenClassification) and model.stride is not None:
            moved = "only_second" if len(model.segments) > 1 else "only_first"
            windows = {"stride": model.stride, "return_overflowing_tokens": True}
            return {"truncation": moved, "max_length": model.max_input_tokens, **windows}
        return {"truncation": True, "max_length": model.max_input_tokens} if model.truncation else {}

    def _forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        answer = self._network(**inputs)
        match self._model:
            case TextClassification() | TextRanking() | TokenClassification():
                return {"logits": answer.logits}
            case TextPairScoring():
                pooled = answer.pooler_output
                score = torch.sigmoid(self._network.scorer(pooled))[:, 0]
                return {"logits": self._network.classifier(pooled), "score": score}
            case FeatureExtraction() as model:
                return {"embedding": _embedding(model, answer.last_hidden_state, inputs["attention_mask"])}
            case _:
                return {"start_logits": answer.start_logits, "end_logits": answer.end_logits}


def _padding_token(checkpoint: Checkpoint, tokenizer: Any) -> str:
    """Returns the token of config.json's pad_token_id, for a tokenizer that names none. Raises `UsageError`."""
    number = checkpoint.encoder_config.get("pad_token_id")
    token = tokenizer.convert_ids_to_tokens(number) if isinstance(number, int) else None
    if token is None:
        file = checkpoint.encoder / "tokenizer_config.json"
        problem = "has no pad_token" if file.exists() else "is missing"
        raise broken(
            file,
            f"{problem}, and config.json's pad_token_id names no token. Save the tokenizer again: AutoTokenizer's "
            "`save_pretrained` writes this file.",
        )
    return str(token)


def _embedding(model: FeatureExtraction, hidden: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Pools the vectors of the tokens, [rows, length, width], to [rows, dimensions]."""
    real = mask[:, :, None]
    match model.pooling:
        case "cls":
            pooled = hidden[:, 0]
        case "max":
            pooled = hidden.masked_fill(real == 0, -torch.inf).max(1).values
        case "last":
            pooled = hidden[torch.arange(len(hidden)), mask.sum(1) - 1]
        case _:
            pooled = (hidden * real).sum(1) / real.sum(1)
    cut = pooled[:, : model.dimensions or None]
    return torch.nn.functional.normalize(cut, dim=1) if model.normalize else cut


def _network(checkpoint: Checkpoint, model: EncoderModel) -> Any:
    """Loads transformers' own class with the checkpoint's weights."""
    auto: Any = getattr(transformers, AUTO[model.task])
    if checkpoint.family is not None and checkpoint.family.model_type != "bert":
        return auto.from_pretrained(
            checkpoint.folder, attn_implementation="eager", dtype=torch.float32, local_files_only=True
        )
    labels = dict(enumerate(model.label_names or [f"LABEL_{index}" for index in range(model.head_size)]))
    kind: Any = transformers.BertConfig
    config = kind(**checkpoint.encoder_config | {"id2label": labels})
    network: Any = auto.from_config(config, attn_implementation="eager")
    if isinstance(model, TextPairScoring):
        network.classifier = torch.nn.Linear(config.hidden_size, len(model.labels))
        network.scorer = torch.nn.Linear(config.hidden_size, 1)
    if isinstance(model, FeatureExtraction):
        network.pooler = None
    places = network.state_dict().keys()
    prefix = "" if "embeddings.LayerNorm.weight" in places else "bert."
    weights = {}
    for file in checkpoint.weights:
        with safe_open(file, framework="pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - not a mapping
                bare = FAMILIES["bert"].plain_name(name)
                own = bare.startswith(("embeddings.", "encoder.", "pooler."))
                place = f"{prefix}{bare}" if own else bare
                if place in places:  # it has no use for the others
                    weights[place] = stored.get_tensor(name).float()
    network.load_state_dict(weights, assign=True)  # the files' own pages, not a copy
    return network
