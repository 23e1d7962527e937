"""T5's arithmetic over a checkpoint's own weights: T5, T5 v1.1, Flan-T5, mT5 and umT5.

q, k and v are one product; position biases come from transformers' own formula, as a table up to the workload's longest
input and output. A umT5 has such a table in each layer, the others have one in all.

The residual stream is `SCALE` times the checkpoint's: every summand (embeddings, every `o` and `wo`) is times
`SCALE`, and each norm's epsilon by its square, so that a norm gives what it gave before. A power of two changes
only exponents. In fp32 every answer is the same to the last bit, and in fp16 the stream stays below its end at 65504.
"""

from typing import Any

import torch
from torch import Tensor, nn

from model_build.text2text.frame import (
    Decoder,
    DecoderLayer,
    EncoderLayer,
    GrowingDecoder,
    Layer,
    Projection,
    StaticDecoder,
    padding_bias,
)

SCALE = 2.0**-5
"""Scale of the residual stream. fp16 then holds one of up to 2.1 million, where published T5s go to 66,000
(huggingface/transformers issue 5651) and mT5 to 280,000 (pull request 10956). A smaller scale would cost small weights
their last bits, as fp16 has fewer of them below 6e-5."""


class T5Norm(nn.Module):
    """T5's layer norm of the scaled residual stream: a root mean square and a scale."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.weight = nn.Parameter(original.weight.detach().clone(), requires_grad=False)
        # Of one element, not a scalar: the exporter takes a scalar below 1e-8 for zero and leaves its addition out.
        self.epsilon = nn.Buffer(torch.tensor([original.variance_epsilon * SCALE**2]))

    def forward(self, hidden: Tensor) -> Tensor:
        # Written as ONNX Runtime and TensorRT know it, so that they fuse it into one kernel.
        # fp16 ends at 65504, the square of 256; the two casts are none in fp32.
        wide = hidden.float()
        normed = wide / torch.sqrt(wide.pow(2).mean(-1, keepdim=True) + self.epsilon)
        scaled: Tensor = self.weight * normed.to(hidden.dtype)
        return scaled


class FeedForward(nn.Module):
    def __init__(self, layer: Any) -> None:
        super().__init__()
        dense = layer.DenseReluDense
        self.norm, self.activation = T5Norm(layer.layer_norm), dense.act
        self.gated = hasattr(dense, "wi_0")
        self.into = Projection([dense.wi_0 if self.gated else dense.wi])
        self.gate = Projection([dense.wi_1]) if self.gated else None
        self.out = Projection([dense.wo], [SCALE])

    def forward(self, hidden: Tensor) -> Tensor:
        normed = self.norm(hidden)
        inner = self.activation(self.into(normed))
        if self.gate is not None:
            inner = inner * self.gate(normed)
        out: Tensor = hidden + self.out(inner)
        return out


class T5Layer(Layer):
    def __init__(self, block: Any) -> None:
        own = block.layer[0].SelfAttention
        super().__init__(own.n_heads, own.key_value_proj_dim, norm_first=True)
        self.norm = T5Norm(block.layer[0].layer_norm)
        self.qkv, self.out = Projection([own.q, own.k, own.v]), Projection([own.o], [SCALE])
        self.feed_forward = FeedForward(block.layer[-1])


class T5EncoderLayer(EncoderLayer, T5Layer):
    """A layer of T5's encoder."""


class T5Encoder(nn.Module):
    def __init__(self, model: Any, max_input_tokens: int) -> None:
        super().__init__()
        blocks = model.encoder.block
        self.embedding = _embedding(model.encoder)
        tables = [
            block.layer[0].SelfAttention.compute_bias(max_input_tokens, max_input_tokens)
            for block in _with_tables(blocks)
        ]
        self.bias = nn.Buffer(torch.cat(tables, 1).detach())  # [1, tables * heads, query, key]
        self.heads, self.own_tables = model.config.num_heads, len(tables) > 1
        self.layers = nn.ModuleList(T5EncoderLayer(block) for block in blocks)
        self.norm = T5Norm(model.encoder.final_layer_norm)
        attentions = [block.layer[1].EncDecAttention for block in model.decoder.block]
        self.cross_weights = Projection([projection for a in attentions for projection in (a.k, a.v)])
        self.channels, self.d_kv = 2 * len(attentions) * model.config.num_heads, model.config.d_kv

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = input_ids.shape
        hidden = self.embedding(input_ids)
        padding = padding_bias(attention_mask, hidden)
        bias = self.bias[:, :, :length, :length]
        shared = None if self.own_tables else bias + padding
        for index, layer in enumerate(self.layers):
            own = _heads(bias, self.heads, index) + padding if shared is None else shared
            hidden = layer(hidden, own)
        cross = self.cross_weights(self.norm(hidden)).reshape(batch, length, self.channels, self.d_kv)
        return cross.transpose(1, 2), padding


class T5DecoderLayer(DecoderLayer, T5Layer):
    def __init__(self, block: Any) -> None:
        super().__init__(block)
        cross = block.layer[1].EncDecAttention
        self.cross_norm = T5Norm(block.layer[1].layer_norm)
        self.cross_q, self.cross_out = Projection([cross.q]), Projection([cross.o], [SCALE])


class T5Decoder(Decoder):
    def __init__(self, model: Any, places: int) -> None:
        super().__init__(places, model.config.num_heads)
        blocks = model.decoder.block
        self.embedding = _embedding(model.decoder)
        tables = [block.layer[0].SelfAttention.compute_bias(places, places) for block in _with_tables(blocks)]
        # The last query's row holds the bias of every distance, the farthest first.
        self.bias = nn.Buffer(torch.cat([bias[:, :, -1:, :] for bias in tables], 1).detach().contiguous())
        self.own_tables = len(tables) > 1
        self.layers = nn.ModuleList(T5DecoderLayer(block) for block in blocks)
        self.norm = T5Norm(model.decoder.final_layer_norm)
        self.head = Projection([model.lm_head], [_head_scale(model.config)])

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        hidden: Tensor = self.embedding(tokens)
        return hidden

    def score(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(hidden))
        return logits

    def layer_bias(self, bias: Tensor | None, index: int) -> Tensor | None:
        assert bias is not None
        return _heads(bias, self.heads, index) if self.own_tables else bias


class GrowingT5Decoder(GrowingDecoder, T5Decoder):
    """T5's decoder with a growing cache."""


class StaticT5Decoder(StaticDecoder, T5Decoder):
    """T5's decoder with a static cache."""


def _with_tables(blocks: Any) -> list[Any]:
    """Returns the blocks whose attention has a table of position biases: the first, or in umT5 all."""
    return [block for block in blocks if block.layer[0].SelfAttention.has_relative_attention_bias]


def _heads(bias: Tensor, heads: int, index: int) -> Tensor:
    return bias[:, index * heads : (index + 1) * heads]


def _head_scale(config: Any) -> float:
    """Returns the factor of a decoder's outputs before the head: T5 has it where its head is the embeddings, as its
    config says; mT5 never; umT5 where transformers ties the two."""
    scaled = {"t5": "scale_decoder_outputs", "umt5": "tie_word_embeddings"}.get(config.model_type)
    return float(config.d_model**-0.5) if scaled and getattr(config, scaled) else 1.0


def _embedding(stack: Any) -> nn.Embedding:
    table = stack.embed_tokens.weight.detach() * SCALE
    return nn.Embedding(table.shape[0], table.shape[1], _weight=table)
