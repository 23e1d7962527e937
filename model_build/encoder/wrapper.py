"""Makes transformers' own module of a family exportable: for families whose layers are not those of our own network.

`forward` takes the workload's `model.inputs` and returns the task's outputs, as `bert.Bert` does. Every `Linear`
becomes one whose weight is [in, out], so that the graph has the products that the quantiser and the fusions know.
Embeddings are pooled by `heads`, from the hidden states of the encoder.

It needs transformers. AWS's Neuron images lack it, so they trace this project's own network.
"""

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from containers.encoder.settings import GRAPH_OUTPUTS
from model_build.checkpoint import Checkpoint, broken, loading
from model_build.encoder.bert import real_tokens
from model_build.encoder.heads import answering, embed, parameter
from workloads import EncoderModel


def auto_class(task: str) -> Any:
    """Returns transformers' class that finds the module of a family for a task."""
    import transformers

    classes = {
        "text-classification": transformers.AutoModelForSequenceClassification,
        "text-ranking": transformers.AutoModelForSequenceClassification,
        "token-classification": transformers.AutoModelForTokenClassification,
        "question-answering": transformers.AutoModelForQuestionAnswering,
        "feature-extraction": transformers.AutoModel,
    }
    return classes[task]


def load(checkpoint: Checkpoint, model: EncoderModel) -> "Wrapped":
    """Loads the checkpoint's weights in fp32, ready to infer. Raises `UsageError` where they are not config.json's."""
    with loading(checkpoint.folder):
        network, report = auto_class(model.task).from_pretrained(
            checkpoint.folder,
            attn_implementation="eager",
            dtype=torch.float32,
            local_files_only=True,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are told below
        )
    _check(checkpoint, report, embedding=model.task == "feature-extraction")
    return Wrapped(network.eval(), model, checkpoint.encoder_config["max_position_embeddings"]).eval()


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
        self.embedding = answering(model).embedding
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
        if self.embedding is not None:
            return (embed(self.embedding, answer["last_hidden_state"], real),)
        return tuple(answer[name] for name in self.outputs)


def _products(module: nn.Module) -> None:
    """Replaces every `Linear` in a module, in place; a shared one stays shared."""
    made: dict[int, Product] = {}
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if type(child) is nn.Linear:
                setattr(parent, name, made.setdefault(id(child), Product(child)))


def _check(checkpoint: Checkpoint, report: dict[str, Any], *, embedding: bool) -> None:
    """Raises `UsageError` for a weight that is missing, of another shape, or has no place; a head is left where an
    embedding is made without it.
    """
    folder = checkpoint.folder
    pooler = {name for name in report["missing_keys"] if embedding and "pooler." in name}
    if missing := sorted(set(report["missing_keys"]) - pooler):
        raise broken(
            folder, f"its files hold no weight '{missing[0]}', which config.json asks for. Save the model again."
        )
    if mismatched := sorted(report["mismatched_keys"]):
        name, stored, wanted = mismatched[0]
        raise broken(
            folder,
            f"its weight '{name}' has the shape {list(stored)}, but config.json asks for {list(wanted)}. Save the "
            "model again.",
        )
    if (unknown := sorted(report["unexpected_keys"])) and not embedding:
        raise broken(folder, f"config.json has no place for its weight '{unknown[0]}'. Save the model again.")
