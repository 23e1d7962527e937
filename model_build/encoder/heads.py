"""The heads of the encoder tasks: from the hidden states of the last layer to the outputs of the graph.

    text-classification, text-ranking   logits [rows, labels], of the first token
    text-pair-scoring                   logits [rows, labels], score [rows], through a sigmoid
    token-classification                logits [rows, length, labels]
    question-answering                  start_logits, end_logits [rows, length]
    feature-extraction                  embedding [rows, dimensions]

A head on the first token is two products: dense, whose activation is the family's, and the classifier.

Builds for Inf1 run this under the torch 1.13.1 of its image.
"""

from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from workloads import EncoderModel, FeatureExtraction

Weights = Mapping[str, Tensor]
FAR_BELOW = -1e4
"""Added to the vectors of padding, so that none of their numbers is the largest; fp16 can hold it."""
SHORTEST = 1e-9
"""The least length by which a vector is divided: one of zeros stays one."""


class Linear(nn.Module):
    """Projections of one input, side by side in a single product. Weights are [in, out]; `outputs` chooses some."""

    def __init__(self, weights: Weights, *names: str, outputs: slice = slice(None)) -> None:
        super().__init__()
        self.weight = parameter(torch.cat([weights[f"{name}.weight"] for name in names])[outputs].T.contiguous())
        self.bias = parameter(torch.cat([weights[f"{name}.bias"] for name in names])[outputs])

    def forward(self, hidden: Tensor) -> Tensor:
        return hidden @ self.weight + self.bias


def parameter(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor, requires_grad=False)


def head_layers(weights: Weights, model: EncoderModel, *, apart: bool) -> Iterator[Linear]:
    """Yields the products of the task's head; for question answering, one for both logits or one for each."""
    task: str = model.task
    if task == "question-answering":
        for outputs in [slice(0, 1), slice(1, 2)] if apart else [slice(None)]:
            yield Linear(weights, "qa_outputs", outputs=outputs)
    elif task == "token-classification":
        yield Linear(weights, "classifier")
    elif task != "feature-extraction":
        names = ["pooler.dense", "classifier", *(["scorer"] if task == "text-pair-scoring" else [])]
        yield from (Linear(weights, name) for name in names)


def answer(model: EncoderModel, pooler: str, heads: nn.ModuleList, hidden: Tensor, real: Tensor) -> tuple[Tensor, ...]:
    """Returns the outputs of the task. `hidden` is [rows, length, width]; `real`, [rows, length], is 0 for padding.

    `pooler` is the activation within a head on the first token: tanh, relu or gelu.
    """
    if model.task == "question-answering":
        both = [head(hidden) for head in heads]
        start, end = both if len(both) == 2 else torch.split(both[0], 1, 2)
        return start.squeeze(2), end.squeeze(2)
    if model.task == "token-classification":
        return (heads[0](hidden),)
    if isinstance(model, FeatureExtraction):
        return (embed(model, hidden, real),)
    first, *others = heads
    pooled = _activate(first(hidden[:, 0]), pooler)
    logits, *scores = (head(pooled) for head in others)
    return (logits, *(torch.sigmoid(score).squeeze(1) for score in scores))


def embed(model: FeatureExtraction, hidden: Tensor, real: Tensor) -> Tensor:
    """Returns a vector for each row, [rows, dimensions], of those of its tokens: pooled, cut, then normalised."""
    vector = _pooled(model.pooling, hidden, real.to(hidden.dtype)[:, :, None])
    if model.dimensions:
        vector = vector[:, : model.dimensions]
    if model.normalize:
        vector = vector / torch.sqrt((vector * vector).sum(1, keepdim=True)).clamp(min=SHORTEST)
    return vector


def _pooled(pooling: str, hidden: Tensor, real: Tensor) -> Tensor:
    """Returns [rows, width] of [rows, length, width]; `real`, [rows, length, 1], is 0 for padding, on the right."""
    if pooling == "cls":
        return hidden[:, 0]
    if pooling == "mean":
        return (hidden * real).sum(1) / real.sum(1)
    if pooling == "max":
        return (hidden + (1.0 - real) * FAR_BELOW).amax(1)
    after = torch.cat([real[:, 1:], torch.zeros_like(real[:, :1])], 1)
    return (hidden * (real - after)).sum(1)  # 1 where padding or the end is next


def _activate(pooled: Tensor, pooler: str) -> Tensor:
    if pooler == "gelu":
        return nn.functional.gelu(pooled)
    return torch.relu(pooled) if pooler == "relu" else torch.tanh(pooled)
