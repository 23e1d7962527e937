"""A tiny BERT of random weights that classifies into three, and the workload's model for it: for Neuron's tests."""

from typing import cast

import torch
from torch import Tensor
from transformers import BertConfig, BertModel

from workloads import TextClassification

THREE = ("input_ids", "attention_mask", "token_type_ids")
FIVE = ("input_ids", "attention_mask", "position_ids", "valid_length", "token_type_ids")
LABELS = ("shoes", "lamps", "socks")
WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "blue", "shoe", "lamp", "sock", "for", "with", "a")


class Classifier(torch.nn.Module):
    """transformers' own BERT behind the workload's inputs, which come by position."""

    def __init__(self, inputs: tuple[str, ...]) -> None:
        super().__init__()
        torch.manual_seed(7)
        config = BertConfig(
            vocab_size=len(WORDS),
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=64,
            initializer_range=0.5,
        )
        config._attn_implementation = "eager"
        self.inputs = inputs
        self.bert = BertModel(config)
        self.head = torch.nn.Linear(16, len(LABELS))

    def forward(self, *tensors: Tensor) -> tuple[Tensor]:
        given = dict(zip(self.inputs, tensors, strict=True))
        mask = given.pop("attention_mask")
        if (length := given.pop("valid_length", None)) is not None:
            mask = mask * (torch.arange(mask.shape[1]) < length[:, None]).long()
        # A mask of four dimensions is used unchanged; transformers would make one with operators Neuron does not list.
        additive = (1.0 - mask.float())[:, None, None, :] * -1e4
        return (cast(Tensor, self.head(self.bert(attention_mask=additive, **given).pooler_output)),)


def make_model(inputs: tuple[str, ...] = THREE, max_input_tokens: int = 32) -> TextClassification:
    return TextClassification(
        task="text-classification",
        checkpoint="./checkpoint",
        labels=LABELS,
        inputs=inputs,  # type: ignore[arg-type]
        max_input_tokens=max_input_tokens,
    )
