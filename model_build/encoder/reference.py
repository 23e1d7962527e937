"""Runs the original of an encoder task by transformers: a compiled model is compared with it.

It is independent of `bert.py`, which is what gets compiled. Tokens come from transformers' own tokenizer, so that ours
is compared too.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors import safe_open
from transformers import (
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForQuestionAnswering,
    BertForSequenceClassification,
    BertModel,
)

from model_build.checkpoint import Checkpoint, loading
from model_build.checkpoint.families import FAMILIES
from model_build.torch_threads import every_core
from workloads import EncoderModel, Row, TextClassification, TextPairScoring

AUTO: dict[str, Any] = {
    "text-classification": AutoModelForSequenceClassification,
    "question-answering": AutoModelForQuestionAnswering,
}
Floats = NDArray[np.float32]
Outputs = dict[str, Floats]
"""The outputs of one row, by name."""


class Reference:
    """One original model in fp32."""

    def __init__(self, checkpoint: Checkpoint, model: EncoderModel) -> None:
        self._model = model
        self._folder = checkpoint.folder
        with loading(checkpoint.encoder):
            self._tokenizer = AutoTokenizer.from_pretrained(checkpoint.encoder, local_files_only=True)
        with loading(checkpoint.folder):
            self._network = _network(checkpoint, model).eval()
        self._taken = inspect.signature(self._network.forward).parameters.keys()

    def outputs(self, rows: Sequence[Row]) -> list[Outputs]:
        """Returns for each row what the compiled model should give; starts and ends [length] without the padding."""
        segments = [[" ".join(row[field] for field in segment) for row in rows] for segment in self._model.segments]
        with loading(self._folder), torch.inference_mode(), every_core():
            inputs = self._tokenizer(*segments, padding=True, return_tensors="pt", **self._cut())
            outputs = self._forward({name: tensor for name, tensor in inputs.items() if name in self._taken})
        lengths = inputs["attention_mask"].sum(1).tolist()
        return [
            {name: _own(name, output[index], length) for name, output in outputs.items()}
            for index, length in enumerate(lengths)
        ]

    def _cut(self) -> dict[str, Any]:
        return {"truncation": True, "max_length": self._model.max_input_tokens} if self._model.truncation else {}

    def _forward(self, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        answer = self._network(**inputs)
        match self._model:
            case TextClassification():
                return {"logits": answer.logits}
            case TextPairScoring():
                pooled = answer.pooler_output
                score = torch.sigmoid(self._network.scorer(pooled))[:, 0]
                return {"logits": self._network.classifier(pooled), "score": score}
            case _:
                return {"start_logits": answer.start_logits, "end_logits": answer.end_logits}


def _own(name: str, output: torch.Tensor, length: int) -> Floats:
    values: Floats = output.numpy()
    return values[:length] if name in ("start_logits", "end_logits") else values


def _network(checkpoint: Checkpoint, model: EncoderModel) -> Any:
    """Loads transformers' own class with the checkpoint's weights."""
    if checkpoint.family is not None and checkpoint.family.model_type != "bert":
        auto: Any = AUTO[model.task]
        return auto.from_pretrained(
            checkpoint.folder, attn_implementation="eager", dtype=torch.float32, local_files_only=True
        )
    kind: Any = BertConfig
    config = kind(**{**checkpoint.encoder_config, **_labels(model)}, attn_implementation="eager")
    network: Any
    match model:
        case TextClassification():
            network = BertForSequenceClassification(config)
        case TextPairScoring():
            network = BertModel(config)
            network.classifier = torch.nn.Linear(config.hidden_size, len(model.labels))
            network.scorer = torch.nn.Linear(config.hidden_size, 1)
        case _:
            network = BertForQuestionAnswering(config)
    prefix = "" if isinstance(model, TextPairScoring) else "bert."
    places, weights = network.state_dict().keys(), _weights(checkpoint, prefix)
    weights = {name: tensor for name, tensor in weights.items() if name in places}  # the others, it has no use for
    network.load_state_dict(weights, assign=True)  # the files' own pages, not a copy
    return network


def _labels(model: EncoderModel) -> Mapping[str, Any]:
    return {} if not hasattr(model, "labels") else {"id2label": dict(enumerate(model.labels))}


def _weights(checkpoint: Checkpoint, prefix: str) -> dict[str, torch.Tensor]:
    weights = {}
    for file in checkpoint.weights:
        with safe_open(file, framework="pt") as stored:
            for name in stored.keys():  # noqa: SIM118 - not a mapping
                bare = FAMILIES["bert"].plain_name(name)
                own = bare.startswith(("embeddings.", "encoder.", "pooler."))
                weights[f"{prefix}{bare}" if own else bare] = stored.get_tensor(name).float()
    return weights
