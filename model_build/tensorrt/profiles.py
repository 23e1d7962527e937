"""Derives the shapes an engine is built for, one optimisation profile, from a workload's lengths and batch sizes.

In: `[model]` and `[serving]` of a workload. Out: for every input of a graph the smallest shape it must take, the shape
TensorRT times its kernels at, and the largest. Lengths are tokens, batches rows.

- Smallest: one row, one token. Nothing shorter can be asked, and the lower end costs nothing.
- Timed: the largest preferred batch size, because that is what dynamic batching makes under load; one row when
  batches are not asked for. The full input length: the objective is a percentile, and the long requests are its tail.
  A decoder's cache is timed half full, because every length of it comes once per answer.
- Largest: `max_batch_size` rows of the model's limits.

A decoder's `past` begins empty. Optimisation profiles take a zero: NVIDIA documents empty tensors ("Data Formats and
Tensors" of the TensorRT inference library guide), ONNX Runtime GenAI builds its decoders' profiles with `x0x` in them,
and ONNX Runtime's TensorRT provider notes what is asked in return: an address that is not null and no one else's.
TensorRT 7.0 still refused it (NVIDIA/TensorRT issue 337), and Torch-TensorRT warns that it clamps such a minimum to 1.
Not run here: a builder that refuses it says so, and the build stops there.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workloads import EncoderModel, Model, Serving, TextToText

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The shapes of one input: the smallest, the one kernels are timed at, and the largest."""

    min: Shape
    opt: Shape
    max: Shape


Profile = Mapping[str, Range]
"""The ranges of all inputs, in the graph's order."""


def profiles(model: Model, serving: Serving, config: Mapping[str, Any]) -> dict[str, Profile]:
    """Returns the profiles of all graphs by their names; `config` is the checkpoint's config.json."""
    if not isinstance(model, TextToText):
        return {"model": encoder_profile(model, serving)}
    channels = 2 * config["num_decoder_layers"] * config["num_heads"]
    return text2text_profiles(model, serving, channels=channels, d_kv=config["d_kv"])


def encoder_profile(model: EncoderModel, serving: Serving) -> Profile:
    """Returns the profile of model.onnx: [batch, sequence] for all inputs but valid_length, which is [batch]."""
    shapes = [_encoder_shapes(model, batch, length) for batch, length in _sizes(serving, model.max_input_tokens)]
    return _ranges(*shapes)


def text2text_profiles(model: TextToText, serving: Serving, *, channels: int, d_kv: int) -> dict[str, Profile]:
    """Returns those of encoder.onnx and decoder.onnx. `channels` is decoder layers × 2 × heads, as in `past`."""
    # The last step reads everything written before it: one position less than the limit.
    last = model.max_output_tokens - 1
    sizes = _sizes(serving, model.max_input_tokens)
    steps = [
        _decoder_shapes(batch, source, past, channels, d_kv)
        for (batch, source), past in zip(sizes, (0, last // 2, last), strict=True)
    ]
    return {
        "encoder": _ranges(*(dict.fromkeys(("input_ids", "attention_mask"), size) for size in sizes)),
        "decoder": _ranges(*steps),
    }


def _sizes(serving: Serving, max_input_tokens: int) -> tuple[tuple[int, int], ...]:
    """Returns rows and tokens: smallest, timed, largest."""
    batched = serving.dynamic_batching and serving.preferred_batch_sizes
    timed = max(serving.preferred_batch_sizes) if batched else 1
    return (1, 1), (timed, max_input_tokens), (serving.max_batch_size, max_input_tokens)


def _encoder_shapes(model: EncoderModel, batch: int, length: int) -> dict[str, Shape]:
    return {name: (batch,) if name == "valid_length" else (batch, length) for name in model.inputs}


def _decoder_shapes(batch: int, source: int, past: int, channels: int, d_kv: int) -> dict[str, Shape]:
    return {
        "tokens": (batch, 1),
        "cross_bias": (batch, 1, 1, source),
        "cross": (batch, channels, source, d_kv),
        "past": (batch, channels, past, d_kv),
    }


def _ranges(smallest: Mapping[str, Shape], timed: Mapping[str, Shape], largest: Mapping[str, Shape]) -> Profile:
    return {name: Range(min=smallest[name], opt=timed[name], max=largest[name]) for name in smallest}
