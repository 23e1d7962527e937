"""A BERT with a head, the same for every runtime: plain arithmetic over the checkpoint's own weights.

`forward` takes the workload's `model.inputs`, in order, each int64: input_ids, attention_mask, position_ids and
token_type_ids [rows, length], valid_length [rows]. It returns a tuple, named by `outputs`:

    text-classification  logits [rows, labels]
    text-pair-scoring    logits [rows, labels], score [rows], through a sigmoid
    question-answering   start_logits, end_logits [rows, length]

Query, key and value are one product, which is then split. `apart` has three products instead, and a head for each of
the two logits of question answering: neuronx-cc can compile `split` to wrong numbers without a word, and slices in its
place too from two rows on (aws-neuron-sdk #1140, #1323). Padding is kept out of the attention by -1e4, which fp16 can
hold and whose exponential is 0 in fp32 too.

Builds for Inf1 run this under the torch 1.13.1 of its image; tests/model_build/neuron holds it to that version's names.
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from model_build.checkpoint import Checkpoint, loading
from model_build.checkpoint.weights import plain_name
from workloads import EncoderModel

MASKED = -1e4
OUTPUTS = {
    "text-classification": ("logits",),
    "text-pair-scoring": ("logits", "score"),
    "question-answering": ("start_logits", "end_logits"),
}
ACTIVATIONS = {"gelu": "none", "gelu_new": "tanh", "gelu_pytorch_tanh": "tanh"}

Weights = Mapping[str, Tensor]


def load(checkpoint: Checkpoint, model: EncoderModel, *, apart: bool = False) -> "Bert":
    """Loads the checkpoint's weights in fp32, ready to infer. Raises `UsageError`."""
    weights: dict[str, Tensor] = {}
    with loading(checkpoint.folder):
        for file in checkpoint.weights:
            with safe_open(file, framework="pt") as stored:
                for name in stored.keys():  # noqa: SIM118 - not a mapping
                    weights[plain_name(name)] = stored.get_tensor(name).float()
        return Bert(weights, checkpoint.encoder_config, model, apart=apart).eval()


class Linear(nn.Module):
    """Projections of one input, side by side in a single product. Weights are [in, out]; `outputs` chooses some."""

    def __init__(self, weights: Weights, *names: str, outputs: slice = slice(None)) -> None:
        super().__init__()
        self.weight = _parameter(torch.cat([weights[f"{name}.weight"] for name in names])[outputs].T.contiguous())
        self.bias = _parameter(torch.cat([weights[f"{name}.bias"] for name in names])[outputs])

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden @ self.weight + self.bias


class Norm(nn.Module):
    def __init__(self, weights: Weights, name: str, epsilon: float) -> None:
        super().__init__()
        self.weight, self.bias = _parameter(weights[f"{name}.weight"]), _parameter(weights[f"{name}.bias"])
        self.epsilon = epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.layer_norm(hidden, self.weight.shape, self.weight, self.bias, self.epsilon)


class Embeddings(nn.Module):
    def __init__(self, weights: Weights, config: Mapping[str, Any]) -> None:
        super().__init__()
        self.word, self.position, self.token_type = (
            _parameter(weights[f"embeddings.{name}_embeddings.weight"]) for name in ("word", "position", "token_type")
        )
        self.norm = Norm(weights, "embeddings.LayerNorm", config["layer_norm_eps"])

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None) -> Tensor:
        hidden = nn.functional.embedding(input_ids, self.word)
        if position_ids is None:
            hidden = hidden + self.position[: input_ids.shape[1]]
        else:
            hidden = hidden + nn.functional.embedding(position_ids, self.position)
        if token_type_ids is None:
            hidden = hidden + self.token_type[0]
        else:
            hidden = hidden + nn.functional.embedding(token_type_ids, self.token_type)
        return self.norm(hidden)  # type: ignore[no-any-return]


class Layer(nn.Module):
    def __init__(self, weights: Weights, index: int, config: Mapping[str, Any], *, apart: bool) -> None:
        super().__init__()
        name, epsilon = f"encoder.layer.{index}", config["layer_norm_eps"]
        self.heads = config["num_attention_heads"]
        self.size = config["hidden_size"] // self.heads
        self.apart = apart
        parts = [f"{name}.attention.self.{part}" for part in ("query", "key", "value")]
        if apart:
            self.query, self.key, self.value = (Linear(weights, part) for part in parts)
        else:
            self.qkv = Linear(weights, *parts)
        self.joined = Linear(weights, f"{name}.attention.output.dense")
        self.attention_norm = Norm(weights, f"{name}.attention.output.LayerNorm", epsilon)
        self.into, self.out = Linear(weights, f"{name}.intermediate.dense"), Linear(weights, f"{name}.output.dense")
        self.norm = Norm(weights, f"{name}.output.LayerNorm", epsilon)
        self.approximate = ACTIVATIONS[config["hidden_act"]]

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        hidden = self.attention_norm(hidden + self.joined(self._attend(hidden, mask)))
        inner = nn.functional.gelu(self.into(hidden), approximate=self.approximate)
        return self.norm(hidden + self.out(inner))  # type: ignore[no-any-return]

    def _attend(self, hidden: Tensor, mask: Tensor) -> Tensor:
        rows, length = hidden.shape[0], hidden.shape[1]
        if self.apart:
            q, k, v = (self._by_head(part(hidden), self.heads) for part in (self.query, self.key, self.value))
        else:
            q, k, v = torch.split(self._by_head(self.qkv(hidden), 3 * self.heads), self.heads, 1)
        scores = q @ k.transpose(2, 3) / math.sqrt(self.size) + mask
        return (torch.softmax(scores, -1) @ v).transpose(1, 2).reshape(rows, length, self.heads * self.size)

    def _by_head(self, projected: Tensor, heads: int) -> Tensor:
        """Returns [rows, heads, length, size] of [rows, length, heads · size]."""
        return projected.reshape(projected.shape[0], projected.shape[1], heads, self.size).transpose(1, 2)


class Bert(nn.Module):
    def __init__(
        self, weights: Weights, config: Mapping[str, Any], model: EncoderModel, *, apart: bool = False
    ) -> None:
        super().__init__()
        self.inputs, self.outputs = model.inputs, OUTPUTS[model.task]
        self.embeddings = Embeddings(weights, config)
        # A table, not an `arange`: a trace would hold on to the device that it was made on.
        self.places: Tensor
        self.register_buffer("places", torch.arange(len(self.embeddings.position)))
        layers = range(config["num_hidden_layers"])
        self.layers = nn.ModuleList(Layer(weights, index, config, apart=apart) for index in layers)
        self.heads = nn.ModuleList(_heads(weights, model, apart=apart))

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given: dict[str, Tensor] = dict(zip(self.inputs, tensors, strict=True))
        hidden = self.embeddings(given["input_ids"], given.get("token_type_ids"), given.get("position_ids"))
        mask = _mask(given, self.places, hidden.dtype)
        for layer in self.layers:
            hidden = layer(hidden, mask)
        return self._answer(hidden)

    def _answer(self, hidden: Tensor) -> tuple[Tensor, ...]:
        if self.outputs == OUTPUTS["question-answering"]:
            both = [head(hidden) for head in self.heads]
            start, end = both if len(both) == 2 else torch.split(both[0], 1, 2)
            return start.squeeze(2), end.squeeze(2)
        first, *others = self.heads
        pooled = torch.tanh(first(hidden[:, 0]))
        logits, *scores = (head(pooled) for head in others)
        return (logits, *(torch.sigmoid(score).squeeze(1) for score in scores))


def _heads(weights: Weights, model: EncoderModel, *, apart: bool) -> Iterator[Linear]:
    """Yields the pooler and a head for each output; for question answering, one for both logits or one for each."""
    if model.task == "question-answering":
        for outputs in [slice(0, 1), slice(1, 2)] if apart else [slice(None)]:
            yield Linear(weights, "qa_outputs", outputs=outputs)
        return
    names = ["pooler.dense", "classifier", *(["scorer"] if model.task == "text-pair-scoring" else [])]
    yield from (Linear(weights, name) for name in names)


def _mask(given: Mapping[str, Tensor], places: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns what is added to attention scores, [rows, 1, 1, length]: 0 for a token, `MASKED` for padding."""
    input_ids = given["input_ids"]
    real = given.get("attention_mask", torch.ones_like(input_ids))
    if (length := given.get("valid_length")) is not None:
        real = real * (places[: input_ids.shape[1]] < length[:, None]).long()
    return (1.0 - real.to(dtype))[:, None, None, :] * MASKED


def _parameter(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)
