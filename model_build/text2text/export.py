"""Exports a T5 checkpoint to two portable ONNX graphs. The decoder's cache grows, or has all its places from the start.

    encoder.onnx  input_ids, attention_mask [batch, source]
                  → cross [batch, layers * 2 * heads, source, d_kv]: keys and values of every decoder layer
                    cross_bias [batch, 1, 1, source]: what padding adds to the attention scores
    decoder.onnx  tokens [batch, 1], cross_bias, cross, past [batch, layers * 2 * heads, past, d_kv]
                  → next_tokens [batch, 1], logits [batch, vocabulary], present (past and one position more)
    static        tokens, position [1], cross_bias, cross, past [batch, layers * 2 * heads, places, d_kv]
                  → next_tokens, logits, present (past with `position` written), next_position

The growing cache is the faster one on CPU, which would copy and attend to empty places. On a GPU every step of the
static one has the same shapes and addresses, so that a CUDA graph can hold several: places behind `position` are
masked, and `next_tokens` and `next_position` are what the next step takes.

The heads of all layers, keys then values, share axis 1: a step has one cache in and one out, taking rows out is one
index, and the graph needs a single split instead of a squeeze per layer. The modules below are T5's arithmetic over the
checkpoint's own weights, with q, k and v in one product; position biases come from transformers' own formula, as a
table up to the workload's longest input and output. The parity gate compares all of it with `generate`.

The residual stream is `SCALE` times the checkpoint's: what is added to it (embeddings, every `o` and `wo`) is times
`SCALE`, and each norm's epsilon by its square, so that a norm gives what it gave before. A power of two changes
exponents alone. In fp32 every answer is the same to the last bit, and in fp16 the stream stays below its end at 65504.

torch lives here and in verify.py only.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn
from transformers import T5ForConditionalGeneration

from containers.text2text.static_cache import cache_places
from model_build.checkpoint import loading

OPSET = 18
SCALE = 2.0**-5
"""Scale of the residual stream. fp16 then holds one of up to 2.1 million, where published T5s go to 66,000
(huggingface/transformers issue 5651) and mT5 to 280,000 (pull request 10956). A smaller scale would cost small weights
their last bits, as fp16 has fewer of them below 6e-5."""
Axes = Mapping[str, tuple[str | int | None, ...]]
AXES: dict[str, tuple[str | int | None, ...]] = {
    "input_ids": ("batch", "source"),
    "attention_mask": ("batch", "source"),
    "tokens": ("batch", 1),
    "position": (1,),
    "cross_bias": ("batch", 1, 1, "source"),
    "cross": ("batch", None, "source", None),
    "past": ("batch", None, "past", None),
    "present": ("batch", None, "present", None),
    "next_tokens": ("batch", 1),
    "logits": ("batch", None),
    "next_position": (1,),
}
STATIC_AXES = AXES | dict.fromkeys(("past", "present"), ("batch", None, None, None))


def load(folder: Path) -> Any:
    """Loads the original model in fp32, ready to infer. Raises `UsageError`."""
    with loading(folder):
        model: Any = T5ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32, local_files_only=True)
        return model.eval()


def export(model: Any, folder: Path, *, max_input_tokens: int, max_output_tokens: int, static: bool = False) -> None:
    """Writes `encoder.onnx` and `decoder.onnx` into `folder`."""
    config = model.config
    channels = 2 * config.num_decoder_layers * config.num_heads
    decoder = StaticDecoder(model, cache_places(max_output_tokens)) if static else Decoder(model, max_output_tokens)
    # Any sizes above 1 do: torch would take 0 and 1 for constants. Lengths stay within the position tables.
    batch, source, past = 3, min(5, max_input_tokens), decoder.places if static else min(2, max_output_tokens)
    _write(
        Encoder(model, max_input_tokens),
        # Two tensors: torch takes one tensor in two places for one input.
        {name: torch.ones(batch, source, dtype=torch.long) for name in ("input_ids", "attention_mask")},
        ("cross", "cross_bias"),
        folder / "encoder.onnx",
    )
    _write(
        decoder,
        {
            "tokens": torch.ones(batch, 1, dtype=torch.long),
            **({"position": torch.zeros(1, dtype=torch.long)} if static else {}),
            "cross_bias": torch.zeros(batch, 1, 1, source),
            "cross": torch.zeros(batch, channels, source, config.d_kv),
            "past": torch.zeros(batch, channels, past, config.d_kv),
        },
        ("next_tokens", "logits", "present", *(["next_position"] if static else [])),
        folder / "decoder.onnx",
        STATIC_AXES if static else AXES,
    )


def trace(model: Any, folder: Path, *, max_input_tokens: int, max_output_tokens: int, half: bool = False) -> None:
    """Writes the static graphs as TorchScript, `encoder.pt` and `decoder.pt`, with their weights in fp32 or fp16.

    Inputs and outputs are those of the ONNX files, in their order. They run on any device.
    """
    graphs = Encoder(model, max_input_tokens), StaticDecoder(model, cache_places(max_output_tokens))
    encoder, decoder = (graph.eval().apply(_halve) if half else graph.eval() for graph in graphs)
    tokens = torch.ones(3, min(5, max_input_tokens), dtype=torch.long)
    with torch.inference_mode():
        cross, cross_bias = encoder(tokens, torch.ones_like(tokens))
        past = cross.new_zeros(*cross.shape[:2], decoder.places, cross.shape[3])
        step = (tokens[:, :1], torch.zeros(1, dtype=torch.long), cross_bias, cross, past)
        for name, graph, inputs in (
            ("encoder", encoder, (tokens, torch.ones_like(tokens))),
            ("decoder", decoder, step),
        ):
            traced: Any = torch.jit.trace(graph, inputs, check_trace=False)  # type: ignore[no-untyped-call]
            torch.jit.save(traced, str(folder / f"{name}.pt"))


class Norm(nn.Module):
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
        self.norm, self.activation = Norm(layer.layer_norm), dense.act
        self.gated = hasattr(dense, "wi_0")
        self.into = _weights(dense.wi_0 if self.gated else dense.wi)
        self.gate = _weights(dense.wi_1) if self.gated else None
        self.out = _added(dense.wo)

    def forward(self, hidden: Tensor) -> Tensor:
        normed = self.norm(hidden)
        inner = self.activation(normed @ self.into)
        if self.gate is not None:
            inner = inner * (normed @ self.gate)
        out: Tensor = hidden + inner @ self.out
        return out


class EncoderLayer(nn.Module):
    def __init__(self, block: Any) -> None:
        super().__init__()
        attention = block.layer[0].SelfAttention
        self.heads, self.d_kv = attention.n_heads, attention.key_value_proj_dim
        self.norm = Norm(block.layer[0].layer_norm)
        self.qkv, self.out = _weights(attention.q, attention.k, attention.v), _added(attention.o)
        self.feed_forward = FeedForward(block.layer[1])

    def forward(self, hidden: Tensor, bias: Tensor) -> Tensor:
        batch, length, _ = hidden.shape
        qkv = (self.norm(hidden) @ self.qkv).reshape(batch, length, 3 * self.heads, self.d_kv).transpose(1, 2)
        q, k, v = torch.split(qkv, self.heads, 1)
        mixed = torch.softmax(q @ k.transpose(2, 3) + bias, -1) @ v
        joined = mixed.transpose(1, 2).reshape(batch, length, self.heads * self.d_kv)
        out: Tensor = self.feed_forward(hidden + joined @ self.out)
        return out


class Encoder(nn.Module):
    def __init__(self, model: Any, max_input_tokens: int) -> None:
        super().__init__()
        blocks = model.encoder.block
        self.embedding = _embedding(model.encoder)
        bias = blocks[0].layer[0].SelfAttention.compute_bias(max_input_tokens, max_input_tokens)
        self.bias = nn.Buffer(bias.detach())  # [1, heads, query, key]
        self.layers = nn.ModuleList(EncoderLayer(block) for block in blocks)
        self.norm = Norm(model.encoder.final_layer_norm)
        attentions = [block.layer[1].EncDecAttention for block in model.decoder.block]
        self.cross_weights = _weights(*(weights for a in attentions for weights in (a.k, a.v)))
        self.channels, self.d_kv = 2 * len(attentions) * model.config.num_heads, model.config.d_kv

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> tuple[Tensor, Tensor]:
        batch, length = input_ids.shape
        hidden = self.embedding(input_ids)
        padding = (1.0 - attention_mask.to(hidden.dtype))[:, None, None, :] * torch.finfo(hidden.dtype).min
        bias = self.bias[:, :, :length, :length] + padding
        for layer in self.layers:
            hidden = layer(hidden, bias)
        cross = (self.norm(hidden) @ self.cross_weights).reshape(batch, length, self.channels, self.d_kv)
        return cross.transpose(1, 2), padding


Append = Callable[[Tensor, Tensor], Tensor]
"""Takes a layer's cached keys or values and the new ones of one place, and returns them together."""


class DecoderLayer(nn.Module):
    """One position; hidden is [batch, d_model]."""

    def __init__(self, block: Any) -> None:
        super().__init__()
        own, cross = block.layer[0].SelfAttention, block.layer[1].EncDecAttention
        self.heads, self.d_kv = own.n_heads, own.key_value_proj_dim
        self.norm, self.cross_norm = Norm(block.layer[0].layer_norm), Norm(block.layer[1].layer_norm)
        self.qkv, self.out = _weights(own.q, own.k, own.v), _added(own.o)
        self.cross_q, self.cross_out = _weights(cross.q), _added(cross.o)
        self.feed_forward = FeedForward(block.layer[2])

    def forward(
        self,
        hidden: Tensor,
        past: tuple[Tensor, Tensor],
        append: Append,
        bias: Tensor,
        cross: tuple[Tensor, Tensor],
        padding: Tensor,
    ) -> tuple[Tensor, Tensor, Tensor]:
        qkv = (self.norm(hidden) @ self.qkv).reshape(-1, 3 * self.heads, 1, self.d_kv)
        q, k, v = torch.split(qkv, self.heads, 1)
        keys, values = append(past[0], k), append(past[1], v)
        hidden = hidden + self._attend(q, keys, values, bias) @ self.out
        q = (self.cross_norm(hidden) @ self.cross_q).reshape(-1, self.heads, 1, self.d_kv)
        hidden = hidden + self._attend(q, *cross, padding) @ self.cross_out
        return self.feed_forward(hidden), keys, values

    def _attend(self, q: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        mixed = torch.softmax(q @ keys.transpose(2, 3) + bias, -1) @ values
        return mixed.reshape(-1, self.heads * self.d_kv)


class Decoder(nn.Module):
    """Has a cache that each step makes one place longer, up to `places`."""

    def __init__(self, model: Any, places: int) -> None:
        super().__init__()
        blocks = model.decoder.block
        self.embedding = _embedding(model.decoder)
        self.places, self.heads = places, model.config.num_heads
        bias = blocks[0].layer[0].SelfAttention.compute_bias(places, places)
        # The last query's row holds the bias of every distance, the farthest first: a step's is its tail.
        self.bias = nn.Buffer(bias[:, :, -1:, :].detach().contiguous())
        self.layers = nn.ModuleList(DecoderLayer(block) for block in blocks)
        self.norm = Norm(model.decoder.final_layer_norm)
        scale = model.config.d_model**-0.5 if model.config.scale_decoder_outputs else 1.0
        self.head = nn.Parameter(_weights(model.lm_head) * scale, requires_grad=False)

    def forward(self, tokens: Tensor, cross_bias: Tensor, cross: Tensor, past: Tensor) -> tuple[Tensor, ...]:
        bias = self.bias[:, :, :, self.places - 1 - past.shape[2] :]
        return self.step(tokens, cross_bias, cross, past, bias, lambda past, new: torch.cat([past, new], 2))

    def step(
        self, tokens: Tensor, cross_bias: Tensor, cross: Tensor, past: Tensor, bias: Tensor, append: Append
    ) -> tuple[Tensor, Tensor, Tensor]:
        hidden = self.embedding(tokens[:, 0])
        pasts, crosses = torch.split(past, self.heads, 1), torch.split(cross, self.heads, 1)
        present: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            pair = slice(2 * index, 2 * index + 2)
            hidden, keys, values = layer(hidden, pasts[pair], append, bias, crosses[pair], cross_bias)
            present += [keys, values]
        logits = self.norm(hidden) @ self.head
        return torch.argmax(logits, -1, keepdim=True), logits, torch.cat(present, 1)


class StaticDecoder(Decoder):
    """Has a cache of `places`, of which a step writes one. What is in the places behind it must be finite."""

    def __init__(self, model: Any, places: int) -> None:
        super().__init__(model, places)
        # Behind the bias of every distance comes the mask of the places that are still ahead.
        ahead = torch.full((1, self.heads, 1, places - 1), torch.finfo(torch.float32).min)
        self.bias = nn.Buffer(torch.cat([self.bias, ahead], 3))
        self.steps = nn.Buffer(torch.arange(places).reshape(1, 1, places, 1))
        self.tail = nn.Buffer(torch.arange(places - 1, 2 * places - 1))

    def forward(  # type: ignore[override]
        self, tokens: Tensor, position: Tensor, cross_bias: Tensor, cross: Tensor, past: Tensor
    ) -> tuple[Tensor, ...]:
        written = self.steps == position
        # A row of the table's last `places` entries, from the place that is being written backwards.
        bias = torch.index_select(self.bias, 3, self.tail - position)
        made = self.step(tokens, cross_bias, cross, past, bias, lambda past, new: torch.where(written, new, past))
        return *made, position + 1


def _weights(*linears: nn.Linear) -> nn.Parameter:
    """Returns the weights of several projections of one input, side by side: [in, out]."""
    joined = torch.cat([linear.weight for linear in linears]).detach().T.contiguous()
    return nn.Parameter(joined, requires_grad=False)


def _added(linear: nn.Linear) -> nn.Parameter:
    """Returns the weights of a projection whose result is added to the residual stream."""
    return nn.Parameter(_weights(linear) * SCALE, requires_grad=False)


def _halve(module: nn.Module) -> None:
    """Casts what a module itself holds to fp16, except a norm's epsilon: it is less than fp16 has."""
    for parameter in module.parameters(recurse=False):
        parameter.data = parameter.data.half()
    for name, values in module.named_buffers(recurse=False):
        if values.is_floating_point() and name != "epsilon":
            setattr(module, name, values.half())


def _embedding(stack: Any) -> nn.Embedding:
    weights = stack.embed_tokens.weight.detach() * SCALE
    return nn.Embedding(weights.shape[0], weights.shape[1], _weight=weights)


def _write(
    module: nn.Module, inputs: dict[str, Tensor], outputs: tuple[str, ...], file: Path, axes: Axes = AXES
) -> None:
    dynamic = tuple(
        {i: torch.export.Dim.DYNAMIC for i, axis in enumerate(axes[name]) if isinstance(axis, str)} for name in inputs
    )
    program = torch.onnx.export(
        module.eval(),
        tuple(inputs.values()),
        dynamo=True,
        opset_version=OPSET,
        dynamic_shapes=dynamic,
        input_names=list(inputs),
        output_names=list(outputs),
        verbose=False,
    )
    if program is None:
        raise RuntimeError("torch.onnx.export returned no program")
    graph = program.model_proto
    _name_axes(graph, axes)
    onnx.save(graph, file)


def _name_axes(model: onnx.ModelProto, axes: Axes) -> None:
    """Names the dynamic axes, which torch numbers."""
    for value in (*model.graph.input, *model.graph.output):
        for dimension, axis in zip(value.type.tensor_type.shape.dim, axes[value.name], strict=True):
            if isinstance(axis, str):
                dimension.dim_param = axis
