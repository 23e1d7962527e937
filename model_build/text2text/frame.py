"""The frame that every family's graphs share: what goes in and out, the caches, and a decoder's step over its layers.

    encoder   input_ids, attention_mask [batch, source]
              → cross [batch, layers * 2 * heads, source, d_kv]: keys and values of every decoder layer
                cross_bias [batch, 1, 1, source]: what padding adds to the attention scores
    decoder   tokens [batch, queries], distances [batch or 1, queries, past + queries], cross_bias,
              cross.0, cross.1, … [sources, heads, source, d_kv]: keys, then values of the first layer, of the second, …
              past.0, past.1, … [batch, heads, past, d_kv]
              → next_tokens [batch, queries], logits [batch, queries, vocabulary], present.0, … (past and the queries)
    static    tokens [batch, 1], position [1], cross_bias, cross, past [batch, layers * 2 * heads, places, d_kv]
              → next_tokens, logits [batch, vocabulary], present (past with `position` written), next_position
    check     tokens [batch, CHECKED_TOKENS], position [1], cross_bias, cross, past
              → next_tokens [batch, CHECKED_TOKENS], present (past with the tokens from `position`)

`distances` are in tokens, from a key to its query. A query does not attend to a key with a negative one. The first key
is that of an answer's first token.

The growing cache is the faster one on CPU, which would copy and attend to empty places. On a GPU every step of the
static one has the same shapes and addresses, so that a CUDA graph can hold several: places behind `position` are
masked, and `next_tokens` and `next_position` are what the next step takes.

The heads of all layers, keys then values, share axis 1 of the static cache: a CUDA graph has one cache in and one out.
A growing one is an array for each layer's keys and values, because a split copies all of them. Beams of one source
share its `cross`: a batch has the same number of rows for each source, those of the first source first.

A family gives its embeddings, the projections and norms of its layers, and its head, over the checkpoint's weights
(`t5.py`, `bart.py`).
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from containers.text2text.static_cache import CHECKED_TOKENS

Append = Callable[[Tensor, Tensor], Tensor]
"""Takes a layer's cached keys or values and the new ones of the queries, and returns them together."""


class Projection(nn.Module):
    """Several projections of one input, side by side. Their results are times `scales`."""

    def __init__(self, linears: Sequence[nn.Linear], scales: Sequence[float] | None = None) -> None:
        super().__init__()
        scaled = list(zip(linears, scales or [1.0] * len(linears), strict=True))
        joined = torch.cat([linear.weight * scale for linear, scale in scaled])
        self.weight = nn.Parameter(joined.detach().T.contiguous(), requires_grad=False)
        biases = [linear.bias * scale for linear, scale in scaled if linear.bias is not None]
        self.bias = nn.Parameter(torch.cat(biases).detach(), requires_grad=False) if biases else None

    def forward(self, hidden: Tensor) -> Tensor:
        product = hidden @ self.weight
        return product if self.bias is None else product + self.bias


class Layer(nn.Module):
    """The parts that layers of both stacks have: attention to themselves, and the feed-forward."""

    qkv: Projection
    out: Projection
    norm: nn.Module
    feed_forward: Callable[[Tensor], Tensor]

    def __init__(self, heads: int, d_kv: int, *, norm_first: bool) -> None:
        super().__init__()
        self.heads, self.d_kv, self.norm_first = heads, d_kv, norm_first

    def before(self, norm: nn.Module, hidden: Tensor) -> Tensor:
        """Returns what a part of the layer reads."""
        return norm(hidden) if self.norm_first else hidden

    def after(self, norm: nn.Module, hidden: Tensor) -> Tensor:
        """Returns the sum of a part's input and output as the next part gets it."""
        return hidden if self.norm_first else norm(hidden)


class EncoderLayer(Layer):
    def forward(self, hidden: Tensor, bias: Tensor) -> Tensor:
        batch, length, _ = hidden.shape
        qkv = self.qkv(self.before(self.norm, hidden))
        q, k, v = torch.split(qkv.reshape(batch, length, 3 * self.heads, self.d_kv).transpose(1, 2), self.heads, 1)
        joined = attend(q, k, v, bias).transpose(1, 2).reshape(batch, length, self.heads * self.d_kv)
        return self.feed_forward(self.after(self.norm, hidden + self.out(joined)))


class DecoderLayer(Layer):
    cross_q: Projection
    cross_out: Projection
    cross_norm: nn.Module

    def forward(
        self,
        hidden: Tensor,
        queries: int,
        past: tuple[Tensor, Tensor],
        append: Append,
        bias: Tensor | None,
        cross: tuple[Tensor, Tensor],
        padding: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        flat = self.qkv(self.before(self.norm, hidden))
        qkv = flat.reshape(-1, queries, 3 * self.heads, self.d_kv).transpose(1, 2)
        q, k, v = torch.split(qkv, self.heads, 1)
        keys, values = append(past[0], k), append(past[1], v)
        hidden = self.after(self.norm, hidden + self.out(attend_flat(q, keys, values, bias)))
        mixed = attend_to_sources(self.cross_q(self.before(self.cross_norm, hidden)), *cross, padding)
        hidden = self.after(self.cross_norm, hidden + self.cross_out(mixed))
        return self.feed_forward(hidden), keys, values


class Decoder(nn.Module):
    """The parts of a decoder that do not depend on its cache, for answers of up to `places` tokens.

    A class has a kind of cache first among its bases, then the family's decoder, whose arguments it takes.
    """

    layers: nn.ModuleList
    """Each takes (hidden, queries, (keys, values), append, bias, (cross keys, cross values), cross_bias), hidden being
    [batch * queries, d_model], and returns hidden and its keys and values with the new places."""
    bias: Tensor | None
    """A term of the scores of a layer's own attention, [1, heads or 1, 1, places]: that of the last place's
    query, the farthest key first. None where nothing is added."""

    def __init__(self, places: int, heads: int) -> None:
        super().__init__()
        self.places, self.heads = places, heads

    def embed(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Returns the input of the first layer, [tokens, d_model]. Positions are as many as tokens, or one for all."""
        raise NotImplementedError

    def score(self, hidden: Tensor) -> Tensor:
        """Returns the logits, [batch * queries, vocabulary]."""
        raise NotImplementedError

    def layer_bias(self, bias: Tensor | None, index: int) -> Tensor | None:
        """Returns what of `bias` is a layer's: all layers share it, unless a family's have their own."""
        return bias

    def step(
        self,
        hidden: Tensor,
        queries: int,
        cross_bias: Tensor,
        crosses: Sequence[Tensor],
        pasts: Sequence[Tensor],
        bias: Tensor | None,
        append: Append,
    ) -> tuple[Tensor, list[Tensor]]:
        """Returns the logits and the caches with the queries' places. Keys and values take turns in the caches."""
        present: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            pair = slice(2 * index, 2 * index + 2)
            own = self.layer_bias(bias, index)
            hidden, keys, values = layer(hidden, queries, pasts[pair], append, own, crosses[pair], cross_bias)
            present += [keys, values]
        return self.score(hidden), present


class GrowingDecoder(Decoder):
    """Has a cache that each step makes longer by its queries."""

    def __init__(self, model: Any, places: int) -> None:
        super().__init__(model, places)
        known = torch.zeros(1, 1, 1, places) if self.bias is None else self.bias.flip(3)
        # By distance. Negative ones count from the end.
        hidden = torch.full((1, known.shape[1], 1, places), torch.finfo(torch.float32).min)
        self.bias = nn.Buffer(torch.cat([known, hidden], 3)[0, :, 0].contiguous())

    def forward(
        self, tokens: Tensor, distances: Tensor, cross_bias: Tensor, cross: list[Tensor], past: list[Tensor]
    ) -> tuple[Tensor, ...]:
        assert self.bias is not None
        queries = tokens.shape[1]
        bias = self.bias[:, distances].transpose(0, 1)
        hidden = self.embed(tokens.reshape(-1), distances[:, :, 0])
        logits, present = self.step(
            hidden, queries, cross_bias, cross, past, bias, lambda past, new: torch.cat([past, new], 2)
        )
        logits = logits.reshape(-1, queries, logits.shape[1])
        return torch.argmax(logits, -1), logits, *present


class StaticDecoder(Decoder):
    """Has a cache of `places`, of which a step writes one. The values behind it must be finite."""

    def __init__(self, model: Any, places: int) -> None:
        super().__init__(model, places)
        known = torch.zeros(1, 1, 1, places) if self.bias is None else self.bias
        # Behind the bias of every distance comes the mask of the places that are still ahead.
        ahead = torch.full((1, known.shape[1], 1, places - 1), torch.finfo(torch.float32).min)
        self.bias = nn.Buffer(torch.cat([known, ahead], 3))
        self.steps = nn.Buffer(torch.arange(places).reshape(1, 1, places, 1))
        self.tail = nn.Buffer(torch.arange(places - 1, 2 * places - 1))
        self.queries = nn.Buffer(torch.arange(CHECKED_TOKENS))

    def forward(
        self, tokens: Tensor, position: Tensor, cross_bias: Tensor, cross: Tensor, past: Tensor
    ) -> tuple[Tensor, ...]:
        assert self.bias is not None
        written = self.steps == position
        # A row of the table's last `places` entries, from the place that is being written backwards.
        bias = torch.index_select(self.bias, 3, self.tail - position)
        hidden = self.embed(tokens[:, 0], position)
        logits, present = self.step(
            hidden,
            1,
            cross_bias,
            torch.split(cross, self.heads, 1),
            torch.split(past, self.heads, 1),
            bias,
            lambda past, new: torch.where(written, new, past),
        )
        return torch.argmax(logits, -1, keepdim=True), logits, torch.cat(present, 1), position + 1

    def check(
        self, tokens: Tensor, position: Tensor, cross_bias: Tensor, cross: Tensor, past: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Reads several tokens at once. Those behind the last place are not written, and their results mean nothing."""
        assert self.bias is not None
        offsets = self.steps - position
        written = (offsets >= 0) & (offsets < CHECKED_TOKENS)
        sources = torch.clamp(offsets.reshape(-1), 0, CHECKED_TOKENS - 1)
        positions = torch.clamp(position + self.queries, max=self.places - 1)
        bias = self.bias[0, :, 0][:, self.tail - positions[:, None]][None]
        logits, present = self.step(
            self.embed(tokens.reshape(-1), positions),
            CHECKED_TOKENS,
            cross_bias,
            torch.split(cross, self.heads, 1),
            torch.split(past, self.heads, 1),
            bias,
            lambda past, new: torch.where(written, torch.index_select(new, 2, sources), past),
        )
        return torch.argmax(logits, -1).reshape(-1, CHECKED_TOKENS), torch.cat(present, 1)


def attend(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """Returns softmax(q kᵀ + bias) v, [batch, heads, queries, d_kv]; q is scaled already where a family scales it."""
    scores = q @ keys.transpose(2, 3)
    return torch.softmax(scores if bias is None else scores + bias, -1) @ values


def attend_flat(q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None) -> Tensor:
    """Returns what `attend` does as [batch * queries, heads * d_kv]."""
    return attend(q, keys, values, bias).transpose(1, 2).reshape(-1, q.shape[1] * q.shape[3])


def attend_to_sources(flat: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
    """Takes queries [batch * queries, heads * d_kv] and returns the same shape. The keys are those of the sources."""
    sources, heads, _, d_kv = keys.shape
    return attend_flat(flat.reshape(sources, -1, heads, d_kv).transpose(1, 2), keys, values, bias)


def padding_bias(attention_mask: Tensor, like: Tensor) -> Tensor:
    """Returns what padding adds to the scores, [batch, 1, 1, source]: nothing, or the least number of the type."""
    return (1.0 - attention_mask.to(like.dtype))[:, None, None, :] * torch.finfo(like.dtype).min
