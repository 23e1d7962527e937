"""Exports an encoder–decoder checkpoint to two portable graphs, whose inputs and outputs `frame.py` tells.

    encoder.onnx, decoder.onnx   standard ONNX; the decoder's cache grows, or has all its places from the start
    encoder.pt, decoder.pt       TorchScript, with the static cache

The modules are a family's own arithmetic over the checkpoint's weights. The parity gate compares all of it with
transformers' `generate`. torch lives in this package's export, frame, t5, bart and verify only.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx
import torch
from torch import Tensor, nn

from containers.text2text.static_cache import CHECKED_TOKENS, cache_places
from model_build.checkpoint.weights import load_pretrained
from model_build.text2text import bart, t5
from model_build.text2text.frame import Decoder

OPSET = 18
Axes = Mapping[str, tuple[str | int | None, ...]]
AXES: dict[str, tuple[str | int | None, ...]] = {
    "input_ids": ("batch", "source"),
    "attention_mask": ("batch", "source"),
    "tokens": ("batch", "queries"),
    "distances": ("positions", "queries", "present"),
    "position": (1,),
    "cross_bias": ("batch", 1, 1, "source"),
    "cross": ("batch", None, "source", None),
    "past": ("batch", None, "past", None),
    "present": ("batch", None, "present", None),
    "next_tokens": ("batch", "queries"),
    "logits": ("batch", "queries", None),
    "next_position": (1,),
}
GROWING_AXES = AXES | {"cross_bias": ("sources", 1, 1, "source"), "cross": ("sources", None, "source", None)}
STATIC_AXES = AXES | {
    **dict.fromkeys(("past", "present"), ("batch", None, None, None)),
    **dict.fromkeys(("tokens", "next_tokens"), ("batch", 1)),
    "logits": ("batch", None),
}


def load(folder: Path) -> Any:
    """Loads the original model in fp32, ready to infer. Raises `UsageError`."""
    return load_pretrained("AutoModelForSeq2SeqLM", folder)


def export(model: Any, folder: Path, *, max_input_tokens: int, max_output_tokens: int, static: bool = False) -> None:
    """Writes `encoder.onnx` and `decoder.onnx` into `folder`."""
    encoder, decoder = graphs(model, max_input_tokens, max_output_tokens, static)
    # Any sizes above 1 do: torch would take 0 and 1 for constants. Lengths stay within the position tables.
    batch, source, queries = 3, min(5, max_input_tokens), 1 if static else 4
    past = decoder.places if static else min(2, max_output_tokens)
    cross_bias, cross = torch.zeros(batch, 1, 1, source), torch.zeros(batch, encoder.channels, source, encoder.d_kv)
    cache = torch.zeros(batch if static else 2 * batch, encoder.channels, past, encoder.d_kv)
    _write(
        encoder,
        # Two tensors: torch takes one tensor in two places for one input.
        {name: torch.ones(batch, source, dtype=torch.long) for name in ("input_ids", "attention_mask")},
        ("cross", "cross_bias"),
        folder / "encoder.onnx",
    )
    if static:
        tokens, position = torch.ones(batch, queries, dtype=torch.long), torch.zeros(1, dtype=torch.long)
        given = {"tokens": tokens, "position": position, "cross_bias": cross_bias, "cross": cross, "past": cache}
        made = ("next_tokens", "logits", "present", "next_position")
        _write(decoder, given, made, folder / "decoder.onnx", STATIC_AXES)
        return
    _write(
        decoder,
        {
            "tokens": torch.ones(len(cache), queries, dtype=torch.long),
            "distances": torch.zeros(len(cache), queries, past + queries, dtype=torch.long),
            "cross_bias": cross_bias,
            "cross": [part.contiguous() for part in torch.split(cross, decoder.heads, 1)],
            "past": [part.contiguous() for part in torch.split(cache, decoder.heads, 1)],
        },
        ("next_tokens", "logits", *(f"present.{part}" for part in range(encoder.channels // decoder.heads))),
        folder / "decoder.onnx",
        GROWING_AXES,
    )


def trace(model: Any, folder: Path, *, max_input_tokens: int, max_output_tokens: int, half: bool = False) -> None:
    """Writes the static graphs as TorchScript, `encoder.pt` and `decoder.pt`, with their weights in fp32 or fp16.

    Inputs and outputs are those of the ONNX files, in their order. They run on any device. The decoder has two methods
    with the same weights: a call takes a step, and `check` reads several tokens.
    """
    encoder, decoder = graphs(model, max_input_tokens, max_output_tokens, static=True)
    for graph in (encoder, decoder):
        graph.eval()
        if half:
            graph.apply(_halve)
    tokens = torch.ones(3, min(5, max_input_tokens), dtype=torch.long)
    with torch.inference_mode():
        cross, cross_bias = encoder(tokens, torch.ones_like(tokens))
        past = cross.new_zeros(*cross.shape[:2], decoder.places, cross.shape[3])
        step = (torch.zeros(1, dtype=torch.long), cross_bias, cross, past)
        checked = tokens[:, :1].repeat(1, CHECKED_TOKENS)
        methods: dict[str, tuple[nn.Module, dict[str, tuple[Tensor, ...]]]] = {
            "encoder": (encoder, {"forward": (tokens, torch.ones_like(tokens))}),
            "decoder": (decoder, {"forward": (tokens[:, :1], *step), "check": (checked, *step)}),
        }
        for name, (module, inputs) in methods.items():
            traced: Any = torch.jit.trace_module(module, inputs, check_trace=False)  # type: ignore[no-untyped-call]
            torch.jit.save(traced, str(folder / f"{name}.pt"))


def graphs(
    model: Any, max_input_tokens: int, max_output_tokens: int, static: bool
) -> tuple[t5.T5Encoder | bart.BartEncoder, Decoder]:
    """Returns both graphs of the model's family."""
    places = cache_places(max_output_tokens) if static else max_output_tokens
    if model.config.model_type in bart.FAMILIES:
        decoder = bart.StaticBartDecoder if static else bart.GrowingBartDecoder
        return bart.BartEncoder(model, max_input_tokens), decoder(model, places)
    return t5.T5Encoder(model, max_input_tokens), (t5.StaticT5Decoder if static else t5.GrowingT5Decoder)(model, places)


def _halve(module: nn.Module) -> None:
    """Casts what a module itself holds to fp16, except a norm's epsilon: it is less than fp16 has."""
    for parameter in module.parameters(recurse=False):
        parameter.data = parameter.data.half()
    for name, values in module.named_buffers(recurse=False):
        if values.is_floating_point() and name != "epsilon":
            setattr(module, name, values.half())


def _write(
    module: nn.Module,
    inputs: Mapping[str, Tensor | list[Tensor]],
    outputs: tuple[str, ...],
    file: Path,
    axes: Axes = AXES,
) -> None:
    """Exports a module. The tensors of a list are inputs `name.0`, `name.1` and so on."""
    shapes: list[Any] = []
    names: list[str] = []
    for name, value in inputs.items():
        dynamic = {i: torch.export.Dim.DYNAMIC for i, axis in enumerate(axes[name]) if isinstance(axis, str)}
        shapes.append([dynamic] * len(value) if isinstance(value, list) else dynamic)
        names += [f"{name}.{part}" for part in range(len(value))] if isinstance(value, list) else [name]
    program = torch.onnx.export(
        module.eval(),
        tuple(inputs.values()),
        dynamo=True,
        opset_version=OPSET,
        dynamic_shapes=tuple(shapes),
        input_names=names,
        output_names=list(outputs),
        verbose=False,
    )
    assert program is not None, "dynamo returns one"
    graph = program.model_proto
    _name_axes(graph, axes)
    onnx.save(graph, file)


def _name_axes(model: onnx.ModelProto, axes: Axes) -> None:
    """Names the dynamic axes, which torch numbers."""
    for value in (*model.graph.input, *model.graph.output):
        for dimension, axis in zip(value.type.tensor_type.shape.dim, axes[value.name.split(".")[0]], strict=True):
            if isinstance(axis, str):
                dimension.dim_param = axis
