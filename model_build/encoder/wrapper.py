"""Makes transformers' own module of a family exportable: for families whose layers are not those of our own network.

`forward` takes the workload's `model.inputs` and returns the task's outputs, as `bert.Bert` does. Every `Linear`
becomes one whose weight is [in, out], so that the graph has the products that the quantiser and the fusions know.
Embeddings are pooled by `heads`, from the hidden states of the encoder.

It needs transformers. AWS's Neuron images lack it, so they trace this project's own network.
"""

import inspect

import torch
from torch import Tensor, nn

from containers.encoder.settings import GRAPH_OUTPUTS
from model_build.checkpoint import Checkpoint
from model_build.checkpoint.weights import load_pretrained
from model_build.encoder.bert import real_tokens
from model_build.encoder.heads import embed, parameter
from workloads import EncoderModel, FeatureExtraction

AUTO: dict[str, str] = {
    "text-classification": "AutoModelForSequenceClassification",
    "text-ranking": "AutoModelForSequenceClassification",
    "token-classification": "AutoModelForTokenClassification",
    "question-answering": "AutoModelForQuestionAnswering",
    "feature-extraction": "AutoModel",
    "text-pair-scoring": "AutoModel",
}
"""transformers' classes that find the module of a family for a task."""


def load(checkpoint: Checkpoint, model: EncoderModel) -> "Wrapped":
    """Loads the checkpoint's weights in fp32, ready to infer. Raises `UsageError` where they are not config.json's."""
    encoder_only = model.task == "feature-extraction"
    network = load_pretrained(
        AUTO[model.task], checkpoint.folder, encoder_only=encoder_only, attn_implementation="eager"
    )
    return Wrapped(network, model, checkpoint.encoder_config["max_position_embeddings"]).eval()


class Product(nn.Module):
    """A `Linear` with its weight as [in, out]."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight = parameter(linear.weight.detach().T.contiguous())
        self.bias = None if linear.bias is None else parameter(linear.bias.detach())

    def forward(self, hidden: Tensor) -> Tensor:
        product = hidden @ self.weight
        return product if self.bias is None else product + self.bias


class Wrapped(nn.Module):
    def __init__(self, network: nn.Module, model: EncoderModel, positions: int) -> None:
        super().__init__()
        self.inputs, self.outputs = model.inputs, GRAPH_OUTPUTS[model.task]
        self.taken = tuple(inspect.signature(network.forward).parameters)
        self.places: Tensor
        self.register_buffer("places", torch.arange(positions))
        self.network = network
        self.model = model
        _products(network)

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        given: dict[str, Tensor] = dict(zip(self.inputs, tensors, strict=True))
        real = real_tokens(given, self.places)
        taken = {name: given[name] for name in ("token_type_ids", "position_ids") if name in given}
        answer = self.network(
            input_ids=given["input_ids"],
            attention_mask=real,
            **{name: tensor for name, tensor in taken.items() if name in self.taken},
        )
        if isinstance(self.model, FeatureExtraction):
            return (embed(self.model, answer["last_hidden_state"], real),)
        return tuple(answer[name] for name in self.outputs)


def _products(module: nn.Module) -> None:
    """Replaces every `Linear` in a module, in place; a shared one stays shared."""
    made: dict[int, Product] = {}
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, made.setdefault(id(child), Product(child)))
