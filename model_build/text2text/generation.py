"""Reads a checkpoint's generation_config.json, with the workload's own keys over it.

In: the checkpoint's keys, and the workload's `[model]`. Out: the `Generation` that the serving code decodes with. Keys
that change answers and are not supported are refused. `max_length` and `max_new_tokens` are replaced by the workload's
`max_output_tokens`.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from containers.text2text.generation import SAMPLING, Generation
from model_build.checkpoint import Checkpoint, broken
from model_build.checkpoint.files import ConfigKeys, known
from workloads import TextToText, UsageError

NEUTRAL: dict[str, tuple[Any, ...]] = {
    "diversity_penalty": (0.0,),
    "dola_layers": (),
    "encoder_no_repeat_ngram_size": (0,),
    "encoder_repetition_penalty": (1.0,),
    "epsilon_cutoff": (0.0,),
    "eta_cutoff": (0.0,),
    "exponential_decay_length_penalty": (),
    "force_words_ids": (),
    "guidance_scale": (1.0,),
    "constraints": (),
    "min_p": (0.0,),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "penalty_alpha": (0.0,),
    "remove_invalid_values": (False,),
    "sequence_bias": (),
    "stop_strings": (),
    "token_healing": (False,),
    "top_h": (),
    "typical_p": (1.0,),
    "watermarking_config": (),
}
"""Keys of transformers that change answers and are not decoded here, with the values that ask for nothing."""
MOST_BEAMS = 32

Count = Annotated[int, Field(ge=0)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class GenerationKeys(ConfigKeys):
    """The keys of generation_config.json that are decoded."""

    num_beams: Count = 1
    length_penalty: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    early_stopping: bool | Literal["never"] = False
    do_sample: bool = False
    temperature: Positive = 1.0
    top_k: Count = 50
    top_p: Positive = 1.0
    min_length: Count = 0
    min_new_tokens: Count = 0
    no_repeat_ngram_size: Count = 0
    repetition_penalty: Positive = 1.0
    renormalize_logits: bool = False
    forced_bos_token_id: Count | None = None
    forced_eos_token_id: Count | tuple[Count, ...] = ()
    bad_words_ids: tuple[Annotated[tuple[Count, ...], Field(min_length=1)], ...] = ()
    suppress_tokens: tuple[Count, ...] = ()
    begin_suppress_tokens: tuple[Count, ...] = ()


def served(model: TextToText, checkpoint: Checkpoint) -> Generation:
    """Returns how answers are decoded. Raises `UsageError` for unsupported or contradictory keys."""
    keys, file = checkpoint.config.get("generation", {}), checkpoint.folder / "generation_config.json"
    if not file.exists():
        file = checkpoint.folder / "config.json"
    for key, neutral in NEUTRAL.items():
        if key in keys and keys[key] not in neutral:
            raise broken(
                file,
                f"{key}: got {json.dumps(keys[key])}, which is not supported. Remove it. Supported: "
                "greedy search, beam search and sampling, with lengths, forced, suppressed and repeated tokens.",
            )
    own = model.generation.model_dump(exclude_none=True) if model.generation else {}
    if (token := own.pop("forced_bos_token", None)) is not None:
        own["forced_bos_token_id"] = _token_id(checkpoint, token)
    found = {key: value for key, value in known(GenerationKeys, file, keys).items() if key in keys} | own
    if (ends := found.pop("forced_eos_token_id", None)) is not None:
        found["forced_eos_token_ids"] = ends if isinstance(ends, tuple) else (ends,)
    made = Generation(**found, settable=_settable(found))
    _check(file, made, model)
    return made


def _settable(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what a request may set: fewer beams than are served, no drafts, and sampling if the checkpoint has a key
    of it."""
    beams = ("num_beams",) if found.get("num_beams", 1) > 1 else ()
    sampled = found.get("do_sample") or any(name in found for name in ("temperature", "top_k", "top_p"))
    guided = ("guided",) if found.get("guided", "off") != "off" else ()
    return (*beams, *guided, *(SAMPLING if sampled else ()))


def _check(file: Path, made: Generation, model: TextToText) -> None:
    longest, shortest = model.max_output_tokens, max(made.min_length, made.min_new_tokens + 1)
    if made.num_beams > 1 and made.do_sample:
        raise broken(
            file,
            f"num_beams is {made.num_beams} and do_sample true, but beams are not sampled here. Set "
            "model.generation.num_beams = 1, or do_sample = false, in workload.toml.",
        )
    if made.guided != "off" and not made.plain:
        raise broken(
            file,
            f"model.generation.guided is '{made.guided}', which needs greedy decoding, but the checkpoint or "
            'model.generation sets beams, sampling or constraints. Set guided = "off" in workload.toml.',
        )
    if made.num_beams > MOST_BEAMS:
        raise broken(file, f"num_beams: got {made.num_beams}, at most {MOST_BEAMS} are decoded here.")
    if shortest > longest:
        raise broken(
            file,
            f"min_length: an answer has at least {shortest} tokens, but model.max_output_tokens in workload.toml is "
            f"{longest}. Raise it, or set model.generation.min_length there.",
        )


def _token_id(checkpoint: Checkpoint, token: str) -> int:
    from tokenizers import Tokenizer

    found = Tokenizer.from_file(str(checkpoint.tokenizer)).token_to_id(token)
    if found is None:
        raise UsageError(
            f"workload.toml: model.generation.forced_bos_token: got '{token}', which is no token of "
            f"{checkpoint.tokenizer}. Write the target language's, as the tokenizer has it."
        )
    return int(found)
