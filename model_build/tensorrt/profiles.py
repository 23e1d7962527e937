"""Derives the shapes an engine is built for, its optimisation profiles, from a workload's lengths and batch sizes.

In: `[model]` and `[serving]` of a workload. Out: for every input of a graph whose shape varies the smallest shape it
must take, the shape TensorRT times its kernels at, and the largest. Lengths are tokens, batches rows.

- Smallest: one row, one token. Nothing is shorter, and the lower end costs nothing. Where every request is
  padded to the full length, there is no other.
- Timed: the largest preferred batch size, because that is what dynamic batching makes under load; one row when
  batches are not formed. The full input length: the objective is a percentile, and the long requests are its tail.
- Largest: `max_batch_size` rows of the model's limits.

A T5 has two profiles. The first is for one row, timed at the shortest source that its engine pads to, which is what
most queries are; the second is for the batches, timed as above. Its engine asks for a few sizes alone
(`containers/text2text/static_cache.py`), and its cache always has all its places.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from containers.text2text.static_cache import batch_sizes, cache_places
from workloads import EncoderModel, Model, Serving, TextToText

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Range:
    """The shapes of one input: the smallest, the one kernels are timed at, and the largest."""

    min: Shape
    opt: Shape
    max: Shape


Profile = Mapping[str, Range]
"""The ranges of all inputs whose shape varies, in the graph's order."""


def profiles(model: Model, serving: Serving, config: Mapping[str, Any]) -> dict[str, tuple[Profile, ...]]:
    """Returns the profiles of all graphs by their names; `config` is the checkpoint's config.json."""
    if not isinstance(model, TextToText):
        return {"model": (encoder_profile(model, serving),)}
    channels = 2 * config["num_decoder_layers"] * config["num_heads"]
    return text2text_profiles(model, serving, channels=channels, d_kv=config["d_kv"])


def encoder_profile(model: EncoderModel, serving: Serving) -> Profile:
    """Returns the profile of model.onnx: [batch, sequence] for all inputs but valid_length, which is [batch]."""
    longest, most = model.max_input_tokens, serving.max_batch_size
    shortest = longest if model.padding == "max_length" else 1
    sizes = ((1, shortest), (timed_rows(serving) or 1, longest), (most, longest))
    shapes: list[dict[str, Shape]] = [
        {name: size[:1] if name == "valid_length" else size for name in model.inputs} for size in sizes
    ]
    return _ranges(*shapes)


def text2text_profiles(
    model: TextToText, serving: Serving, *, channels: int, d_kv: int
) -> dict[str, tuple[Profile, ...]]:
    """Returns those of encoder.onnx and decoder.onnx. `channels` is decoder layers × 2 × heads, as in `past`."""
    longest, most, places = model.max_input_tokens, serving.max_batch_size, cache_places(model.max_output_tokens)
    _, shortest = batch_sizes(most, longest)[0]
    sizes = [((1, shortest), (1, shortest), (1, longest))]
    if most > 1:
        # Without dynamic batching, batches come from clients.
        sizes.append(((2, shortest), (max(2, timed_rows(serving) or most), longest), (most, longest)))
    return {
        "encoder": tuple(
            _ranges(*(dict.fromkeys(("input_ids", "attention_mask"), size) for size in one)) for one in sizes
        ),
        "decoder": tuple(
            _ranges(*(_decoder_shapes(batch, source, places, channels, d_kv) for batch, source in one)) for one in sizes
        ),
    }


def timed_rows(serving: Serving) -> int | None:
    """Returns the rows of a batch under load; None without dynamic batching."""
    return max(serving.preferred_batch_sizes, default=None) if serving.dynamic_batching else None


def _decoder_shapes(batch: int, source: int, places: int, channels: int, d_kv: int) -> dict[str, Shape]:
    """Returns those that vary: `position` is always one number."""
    return {
        "tokens": (batch, 1),
        "cross_bias": (batch, 1, 1, source),
        "cross": (batch, channels, source, d_kv),
        "past": (batch, channels, places, d_kv),
    }


def _ranges(smallest: Mapping[str, Shape], timed: Mapping[str, Shape], largest: Mapping[str, Shape]) -> Profile:
    return {name: Range(min=smallest[name], opt=timed[name], max=largest[name]) for name in smallest}
