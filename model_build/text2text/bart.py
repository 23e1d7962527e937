"""BART's arithmetic over a checkpoint's own weights: BART, mBART, Marian, Pegasus and M2M100 (NLLB, too).

They are one transformer. `BartFamily` has the differences: the place of norms, and the source of positions. Norms over
the embeddings and behind the last layer exist if the checkpoint has them. q, k and v are one product,
and q is scaled by its weights; embeddings are scaled in their table.
"""

import copy
import math
from dataclasses import dataclass
from typing import Any, Literal

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


@dataclass(frozen=True, kw_only=True, slots=True)
class BartFamily:
    norm_first: bool
    """Whether a norm comes before an attention or a feed-forward, or behind the sum."""
    positions: Literal["learned", "sinusoidal", "counted"]
    """learned: a table whose first two rows are never used. sinusoidal: a table from the first row. counted:
    sinusoidal, and padding has no position: the tokens before a token are counted without it."""


FAMILIES = {
    "bart": BartFamily(norm_first=False, positions="learned"),
    "mbart": BartFamily(norm_first=True, positions="learned"),
    "marian": BartFamily(norm_first=False, positions="sinusoidal"),
    "pegasus": BartFamily(norm_first=True, positions="sinusoidal"),
    "m2m_100": BartFamily(norm_first=True, positions="counted"),
}
"""By `model_type` of config.json. Source: transformers' modeling files of these names."""
LEARNED_OFFSET = 2


class BartLayer(Layer):
    def __init__(self, layer: Any, family: BartFamily) -> None:
        own = layer.self_attn
        super().__init__(own.num_heads, own.head_dim, norm_first=family.norm_first)
        self.qkv = Projection([own.q_proj, own.k_proj, own.v_proj], [self.d_kv**-0.5, 1.0, 1.0])
        self.out, self.norm = Projection([own.out_proj]), _copied(layer.self_attn_layer_norm)
        self.activation = layer.activation_fn
        self.into, self.outof = Projection([layer.fc1]), Projection([layer.fc2])
        self.final_norm = _copied(layer.final_layer_norm)

    def feed_forward(self, hidden: Tensor) -> Tensor:
        inner = self.activation(self.into(self.before(self.final_norm, hidden)))
        return self.after(self.final_norm, hidden + self.outof(inner))


class BartEncoderLayer(EncoderLayer, BartLayer):
    """A layer of BART's encoder."""


class BartDecoderLayer(DecoderLayer, BartLayer):
    def __init__(self, layer: Any, family: BartFamily) -> None:
        super().__init__(layer, family)
        cross = layer.encoder_attn
        self.cross_q, self.cross_out = Projection([cross.q_proj], [self.d_kv**-0.5]), Projection([cross.out_proj])
        self.cross_norm = _copied(layer.encoder_attn_layer_norm)


class BartEncoder(nn.Module):
    def __init__(self, model: Any, max_input_tokens: int) -> None:
        super().__init__()
        stack, family = model.model.encoder, FAMILIES[model.config.model_type]
        self.embedding, self.positions = _embedding(model, stack), _positions(stack, family, max_input_tokens)
        self.padding = stack.padding_idx if family.positions == "counted" else None
        if self.padding is not None:
            self.earlier = nn.Buffer(torch.triu(torch.ones(max_input_tokens, max_input_tokens)))
        self.embedding_norm, self.norm = _norm(stack, "layernorm_embedding"), _norm(stack, "layer_norm")
        self.layers = nn.ModuleList(BartEncoderLayer(layer, family) for layer in stack.layers)
        attentions = [layer.encoder_attn for layer in model.model.decoder.layers]
        self.cross = Projection([projection for a in attentions for projection in (a.k_proj, a.v_proj)])
        self.channels, self.d_kv = 2 * len(attentions) * attentions[0].num_heads, attentions[0].head_dim

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = input_ids.shape
        hidden = self.embedding_norm(self.embedding(input_ids) + self._positions(input_ids))
        padding = padding_bias(attention_mask, hidden)
        for layer in self.layers:
            hidden = layer(hidden, padding)
        cross = self.cross(self.norm(hidden)).reshape(batch, length, self.channels, self.d_kv)
        return cross.transpose(1, 2), padding

    def _positions(self, input_ids: Tensor) -> Tensor:
        length = input_ids.shape[1]
        if self.padding is None:
            return self.positions[:length]
        tokens = (input_ids != self.padding).to(self.positions.dtype)
        # A product with a triangle of ones, which every runtime has, in the place of a cumulative sum.
        places = (tokens @ self.earlier[:length, :length]) * tokens
        return nn.functional.embedding(places.to(torch.long), self.positions)


class BartDecoder(Decoder):
    def __init__(self, model: Any, places: int) -> None:
        stack, family = model.model.decoder, FAMILIES[model.config.model_type]
        super().__init__(places, model.config.decoder_attention_heads)
        self.register_buffer("bias", None)
        self.embedding, self.positions = _embedding(model, stack), _positions(stack, family, places)
        self.padding = stack.padding_idx if family.positions == "counted" else None
        self.embedding_norm, self.norm = _norm(stack, "layernorm_embedding"), _norm(stack, "layer_norm")
        self.layers = nn.ModuleList(BartDecoderLayer(layer, family) for layer in stack.layers)
        self.head = Projection([model.lm_head])
        bias = getattr(model, "final_logits_bias", None)
        self.head_bias = nn.Buffer(bias.detach().clone()) if bias is not None and bias.any() else None

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        embedded = self.embedding(tokens).reshape(-1, positions.shape[-1], self.positions.shape[1])
        place = nn.functional.embedding(positions + (0 if self.padding is None else 1), self.positions)
        if self.padding is not None:
            place = place * (tokens != self.padding).to(place.dtype).reshape(-1, positions.shape[-1], 1)
        hidden: Tensor = self.embedding_norm(embedded + place)
        return hidden.reshape(-1, self.positions.shape[1])

    def score(self, hidden: Tensor) -> Tensor:
        logits: Tensor = self.head(self.norm(hidden))
        return logits if self.head_bias is None else logits + self.head_bias


class GrowingBartDecoder(GrowingDecoder, BartDecoder):
    """BART's decoder with a growing cache."""


class StaticBartDecoder(StaticDecoder, BartDecoder):
    """BART's decoder with a static cache."""


def _embedding(model: Any, stack: Any) -> nn.Embedding:
    scale = math.sqrt(model.config.d_model) if model.config.scale_embedding else 1.0
    table = stack.embed_tokens.weight.detach() * scale
    return nn.Embedding(table.shape[0], table.shape[1], _weight=table)


def _positions(stack: Any, family: BartFamily, places: int) -> nn.Buffer:
    """Returns the vectors of the positions, [places, d_model]; of counted ones, that of padding comes first."""
    table = stack.embed_positions
    if family.positions == "counted":
        padding = int(table.padding_idx)
        rows = table.get_embedding(padding + 1 + places, table.embedding_dim, padding)[padding:]
    else:
        offset = LEARNED_OFFSET if family.positions == "learned" else 0
        rows = table.weight[offset : offset + places]
    # A static cache may have up to three places more than the table; answers there are dropped.
    missing = max(0, places - len(rows))
    return nn.Buffer(nn.functional.pad(rows.detach(), (0, 0, 0, missing)).clone())


def _norm(stack: Any, name: str) -> nn.Module:
    return _copied(getattr(stack, name)) if hasattr(stack, name) else nn.Identity()


def _copied(norm: nn.Module) -> nn.Module:
    """Returns a copy: half precision would change the checkpoint's own."""
    made: nn.Module = copy.deepcopy(norm).requires_grad_(False)
    return made
