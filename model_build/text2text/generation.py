"""Reads what a checkpoint's generation_config.json asks for, with the workload's own keys over it.

In: the checkpoint's keys, and the workload's `[model]`. Out: the `Generation` that the serving code decodes with. What
it has no code for is refused here, never left out in silence; keys that say nothing of the answer, and those that ask
for what happens anyway, are passed over. `max_length` and `max_new_tokens` are replaced by the workload's
`max_output_tokens`.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from containers.text2text.generation import SAMPLING, Generation
from model_build.checkpoint import Checkpoint, broken
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
LISTS = ("suppress_tokens", "begin_suppress_tokens")
MOST_BEAMS = 32


def served(model: TextToText, checkpoint: Checkpoint) -> Generation:
    """Returns how answers are decoded. Raises `UsageError` for unsupported or contradictory keys."""
    asked, file = checkpoint.config.get("generation", {}), checkpoint.folder / "generation_config.json"
    if not file.exists():
        file = checkpoint.folder / "config.json"
    for key, neutral in NEUTRAL.items():
        if key in asked and asked[key] not in neutral:
            raise broken(
                file,
                f"{key}: got {json.dumps(asked[key])}, which is not supported. Remove it. Supported: "
                "greedy search, beam search and sampling, with lengths, forced, suppressed and repeated tokens.",
            )
    own = model.generation.model_dump(exclude_none=True) if model.generation else {}
    if (token := own.pop("forced_bos_token", None)) is not None:
        own["forced_bos_token_id"] = _token_id(checkpoint, token)
    found = {name: read(file, name, asked[name]) for name, read in _READ.items() if name in asked} | own
    if "forced_eos_token_id" in asked:
        found["forced_eos_token_ids"] = _ids(file, "forced_eos_token_id", asked["forced_eos_token_id"])
    found["settable"] = _settable(found)
    made = Generation(**found)
    _check(file, made, model)
    return made


def _settable(found: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns what a request may set: fewer beams than are served, and sampling where the checkpoint speaks of it."""
    beams = ("num_beams",) if found.get("num_beams", 1) > 1 else ()
    speaks = found.get("do_sample") or any(name in found for name in ("temperature", "top_k", "top_p"))
    return (*beams, *(SAMPLING if speaks else ()))


def _check(file: Any, made: Generation, model: TextToText) -> None:
    longest, shortest = model.max_output_tokens, max(made.min_length, made.min_new_tokens + 1)
    if made.num_beams > 1 and made.do_sample:
        raise broken(
            file,
            f"num_beams is {made.num_beams} and do_sample true, but beams are not sampled here. Set "
            "model.generation.num_beams = 1, or do_sample = false, in workload.toml.",
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


def _whole(file: Any, key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise broken(file, f"{key}: got {json.dumps(value)}, but it is a whole number from 0.")
    return value


def _above_zero(file: Any, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise broken(file, f"{key}: got {json.dumps(value)}, but it is a number above 0.")
    return float(value)


def _number(file: Any, key: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
        raise broken(file, f"{key}: got {json.dumps(value)}, but it is a number.")
    return float(value)


def _truth(file: Any, key: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise broken(file, f"{key}: got {json.dumps(value)}, but it is true or false.")
    return value


def _early(file: Any, key: str, value: Any) -> Any:
    return "never" if value == "never" else _truth(file, key, value)


def _ids(file: Any, key: str, value: Any) -> tuple[int, ...]:
    listed = value if isinstance(value, list) else [value]
    return tuple(_whole(file, key, token) for token in listed)


def _words(file: Any, key: str, value: Any) -> tuple[tuple[int, ...], ...]:
    if not isinstance(value, list) or not all(isinstance(word, list) and word for word in value):
        raise broken(file, f"{key}: got {json.dumps(value)}, but it is a list of lists of token ids.")
    return tuple(_ids(file, key, word) for word in value)


_READ: dict[str, Callable[[Any, str, Any], Any]] = {
    "num_beams": _whole,
    "length_penalty": _number,
    "early_stopping": _early,
    "do_sample": _truth,
    "temperature": _above_zero,
    "top_k": _whole,
    "top_p": _above_zero,
    "min_length": _whole,
    "min_new_tokens": _whole,
    "no_repeat_ngram_size": _whole,
    "repetition_penalty": _above_zero,
    "renormalize_logits": _truth,
    "forced_bos_token_id": _whole,
    "bad_words_ids": _words,
    **dict.fromkeys(LISTS, _ids),
}
