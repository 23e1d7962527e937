"""A BERT with a head, the same for every runtime: plain arithmetic over the checkpoint's own weights.

`forward` takes the workload's `model.inputs`, in order, each int64: input_ids, attention_mask, position_ids and
token_type_ids [rows, length], valid_length [rows]. It returns a tuple, named by `outputs` (`heads`).

Families that differ from BERT in names alone are this network, too (`checkpoint/families.py`); what else they have is
here: RoBERTa counts positions from behind that of the padding, DistilBERT has no token types, ELECTRA's embeddings
may be narrower than its layers, ALBERT's layers share weights, and MPNet adds a bias for each distance between two
tokens. A "<pad>" that a text itself holds counts as any other token here; transformers gives it RoBERTa's position of
the padding.

Query, key and value are one product, which is then split. `apart` has three products instead, and a head for each of
the two logits of question answering: neuronx-cc can compile `split` to wrong numbers without a word, and slices in its
place too from two rows on (aws-neuron-sdk #1140, #1323). Padding is kept out of the attention by -1e4, which fp16 can
hold and whose exponential is 0 in fp32 too.

Builds for Inf1 run this under the torch 1.13.1 of its image; tests/model_build/neuron holds it to that version's names.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from containers.encoder.settings import GRAPH_OUTPUTS
from model_build.checkpoint import Checkpoint, loading
from model_build.checkpoint.families import FAMILIES, Family
from model_build.encoder.heads import Linear, Weights, answer, head_layers, parameter
from workloads import EncoderModel

MASKED = -1e4
ACTIVATIONS = {
    "gelu": ("gelu", "none"),
    "gelu_python": ("gelu", "none"),
    "gelu_new": ("gelu", "tanh"),
    "gelu_fast": ("gelu", "tanh"),
    "gelu_pytorch_tanh": ("gelu", "tanh"),
    "relu": ("relu", ""),
    "silu": ("silu", ""),
    "swish": ("silu", ""),
}


def load(checkpoint: Checkpoint, model: EncoderModel, *, apart: bool = False) -> "Bert":
    """Loads the checkpoint's weights in fp32, ready to infer. Raises `UsageError`."""
    family = checkpoint.family or FAMILIES["bert"]
    weights: dict[str, Tensor] = {}
    with loading(checkpoint.folder):
        for file in checkpoint.weights:
            with safe_open(file, framework="pt") as stored:
                for name in family.read_for(model.task, list(stored.keys())):
                    weights[family.plain_name(name)] = stored.get_tensor(name).float()
        return Bert(weights, checkpoint.encoder_config, model, family, apart=apart).eval()


class Norm(nn.Module):
    def __init__(self, weights: Weights, name: str, epsilon: float) -> None:
        super().__init__()
        self.weight, self.bias = parameter(weights[f"{name}.weight"]), parameter(weights[f"{name}.bias"])
        self.epsilon = epsilon

    def forward(self, hidden: Tensor) -> Tensor:
        return nn.functional.layer_norm(hidden, self.weight.shape, self.weight, self.bias, self.epsilon)


class Embeddings(nn.Module):
    def __init__(self, weights: Weights, config: Mapping[str, Any], *, first_position: int) -> None:
        super().__init__()
        self.word = parameter(weights["embeddings.word_embeddings.weight"])
        self.position = parameter(weights["embeddings.position_embeddings.weight"][first_position:])
        types = weights.get("embeddings.token_type_embeddings.weight")
        self.token_type = None if types is None else parameter(types)
        self.norm = Norm(weights, "embeddings.LayerNorm", config["layer_norm_eps"])
        self.project = Linear(weights, "embeddings_project") if "embeddings_project.weight" in weights else None

    def forward(self, input_ids: Tensor, token_type_ids: Tensor | None, position_ids: Tensor | None) -> Tensor:
        hidden = nn.functional.embedding(input_ids, self.word)
        if position_ids is None:
            hidden = hidden + self.position[: input_ids.shape[1]]
        else:
            hidden = hidden + nn.functional.embedding(position_ids, self.position)
        if self.token_type is not None:
            if token_type_ids is None:
                hidden = hidden + self.token_type[0]
            else:
                hidden = hidden + nn.functional.embedding(token_type_ids, self.token_type)
        normed: Tensor = self.norm(hidden)
        return normed if self.project is None else self.project(normed)


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
        self.activation, self.approximate = ACTIVATIONS[config["hidden_act"]]

    def forward(self, hidden: Tensor, mask: Tensor) -> Tensor:
        hidden = self.attention_norm(hidden + self.joined(self._attend(hidden, mask)))
        return self.norm(hidden + self.out(self._activate(self.into(hidden))))  # type: ignore[no-any-return]

    def _activate(self, inner: Tensor) -> Tensor:
        if self.activation == "gelu":
            return nn.functional.gelu(inner, approximate=self.approximate)
        return torch.relu(inner) if self.activation == "relu" else nn.functional.silu(inner)

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
        self,
        weights: Weights,
        config: Mapping[str, Any],
        model: EncoderModel,
        family: Family = FAMILIES["bert"],
        *,
        apart: bool = False,
    ) -> None:
        super().__init__()
        assert family.like_bert is not None
        self.inputs, self.outputs = model.inputs, GRAPH_OUTPUTS[model.task]
        first = config["pad_token_id"] + 1 if family.after_padding else 0
        self.embeddings = Embeddings(weights, config, first_position=first)
        # A table, not an `arange`: a trace would hold on to the device that it was made on.
        self.places: Tensor
        self.register_buffer("places", torch.arange(len(self.embeddings.position)))
        self.depth = config["num_hidden_layers"]
        groups = range(config.get("num_hidden_groups", self.depth))
        self.layers = nn.ModuleList(Layer(weights, index, config, apart=apart) for index in groups)
        distances = weights.get("encoder.relative_attention_bias.weight")
        self.bias = None if distances is None else parameter(position_bias(distances, len(self.places)))
        self.heads = nn.ModuleList(head_layers(weights, model, apart=apart))
        self.model, self.pooler = model, family.like_bert.pooler

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given: dict[str, Tensor] = dict(zip(self.inputs, tensors, strict=True))
        hidden = self.embeddings(given["input_ids"], given.get("token_type_ids"), given.get("position_ids"))
        real = real_tokens(given, self.places)
        mask = (1.0 - real.to(hidden.dtype))[:, None, None, :] * MASKED
        if self.bias is not None:
            length = hidden.shape[1]
            mask = mask + self.bias[:, :, :length, :length]
        for index in range(self.depth):
            hidden = self.layers[index * len(self.layers) // self.depth](hidden, mask)
        return answer(self.model, self.pooler, self.heads, hidden, real)


def position_bias(distances: Tensor, positions: int) -> Tensor:
    """Returns MPNet's bias of each pair, [1, heads, query, key]. Sixteen distances are of keys before the query."""
    places = torch.arange(positions)
    distance = places[:, None] - places
    near = distance.abs()
    steps = 8 + (torch.log(near.clamp(min=1).float() / 8) / math.log(128 / 8) * 8).long()
    bucket = torch.where(near < 8, near, steps.clamp(max=15)) + (distance < 0) * 16
    return distances[bucket].permute(2, 0, 1)[None].contiguous()


def real_tokens(given: Mapping[str, Tensor], places: Tensor) -> Tensor:
    """Returns 1 for a token and 0 for padding, int64 [rows, length]. `places` counts from 0 to the last position."""
    input_ids = given["input_ids"]
    real = given.get("attention_mask", torch.ones_like(input_ids))
    if (length := given.get("valid_length")) is not None:
        real = real * (places[: input_ids.shape[1]] < length[:, None]).long()
    return real
