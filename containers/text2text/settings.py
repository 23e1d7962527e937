"""The decoding loop's settings for a checkpoint and its workload, which `parameters` of config.pbtxt carry.

Both sides of the file are here: the build writes `to_parameters`, the container reads `from_model_config`.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from .generation import Generation


@dataclass(frozen=True)
class Settings:
    """Settings of one model. Token ids are the checkpoint's; lengths count tokens, end-of-sequence included."""

    max_input_tokens: int
    max_output_tokens: int
    decoder_start_token_id: int
    eos_token_ids: tuple[int, ...]
    pad_token_id: int
    threads: int
    generation: Generation = field(default_factory=Generation)
    launch_tokens: int = 0
    """The fixed cost of decoding a batch, in source tokens: rows of mixed lengths are decoded in groups of a low total
    cost. 0: all rows are decoded together."""
    max_batch_size: int = 1
    """Rows. Triton's own key of config.pbtxt, and so none of its `parameters`."""
    answer: str = "CORRECTED"
    """The output's name; config.pbtxt has it where it names the outputs."""

    def to_parameters(self) -> dict[str, str]:
        """Returns the settings as text for config.pbtxt; several end-of-sequence ids are joined by commas."""
        return {
            "decoder_start_token_id": str(self.decoder_start_token_id),
            "eos_token_ids": ",".join(map(str, self.eos_token_ids)),
            "max_input_tokens": str(self.max_input_tokens),
            "max_output_tokens": str(self.max_output_tokens),
            "pad_token_id": str(self.pad_token_id),
            "threads": str(self.threads),
            **({"launch_tokens": str(self.launch_tokens)} if self.launch_tokens else {}),
            **({} if self.generation == Generation() else {"generation": self.generation.to_json()}),
        }

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str]) -> "Settings":
        return cls(
            max_input_tokens=int(parameters["max_input_tokens"]),
            max_output_tokens=int(parameters["max_output_tokens"]),
            decoder_start_token_id=int(parameters["decoder_start_token_id"]),
            eos_token_ids=tuple(int(token) for token in parameters["eos_token_ids"].split(",")),
            pad_token_id=int(parameters["pad_token_id"]),
            threads=int(parameters["threads"]),
            launch_tokens=int(parameters.get("launch_tokens", 0)),
            generation=Generation.from_json(parameters.get("generation", "{}")),
        )

    @classmethod
    def from_model_config(cls, model_config: str) -> "Settings":
        """Reads the JSON of config.pbtxt that Triton passes to `initialize`."""
        config = json.loads(model_config)
        settings = cls.from_parameters({key: value["string_value"] for key, value in config["parameters"].items()})
        return replace(settings, max_batch_size=config["max_batch_size"], answer=config["output"][0]["name"])
