"""Holds how a checkpoint asks for its answers, in transformers' words, and how far a request may change it.

The build writes it into config.pbtxt as JSON, the container reads it from there. A request brings its own in KServe's
`parameters`; each is checked against what is served, and a wrong one is a sentence for the caller.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal

SAMPLING = ("do_sample", "temperature", "top_k", "top_p", "seed")
SETTABLE = ("num_beams", "guided", *SAMPLING)
"""Parameters that requests may set, where they are served. Others, Triton's own among them, are left alone."""
GUIDED = ("off", "input", "ngram")
MOST_TEMPERATURE = 100.0


@dataclass(frozen=True)
class Generation:
    """Defaults are transformers' own: greedy, and nothing forbidden or forced. Lengths count tokens."""

    num_beams: int = 1
    length_penalty: float = 1.0
    early_stopping: bool | Literal["never"] = False
    do_sample: bool = False
    temperature: float = 1.0
    top_k: int = 50
    top_p: float = 1.0
    seed: int | None = None
    """None: other answers every time. Only a request has one."""
    min_length: int = 0
    """The token that decoding starts with counts, too."""
    min_new_tokens: int = 0
    no_repeat_ngram_size: int = 0
    repetition_penalty: float = 1.0
    renormalize_logits: bool = False
    forced_bos_token_id: int | None = None
    forced_eos_token_ids: tuple[int, ...] = ()
    bad_words_ids: tuple[tuple[int, ...], ...] = ()
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    guided: Literal["off", "input", "ngram"] = "off"
    """Parts of the source that greedy decoding tries as drafts. transformers has no such key."""
    settable: tuple[str, ...] = ()
    """Those of `SETTABLE` that a request may set."""

    @property
    def constrained(self) -> bool:
        """Whether something is forbidden, forced or made less likely."""
        free = Generation()
        return any(getattr(self, name) != getattr(free, name) for name in CONSTRAINTS)

    @property
    def plain(self) -> bool:
        """Whether the most likely token is always the next one."""
        return self.num_beams == 1 and not self.do_sample and not self.constrained

    def to_json(self) -> str:
        """Returns what differs from the defaults."""
        free = asdict(Generation())
        return json.dumps({name: value for name, value in asdict(self).items() if value != free[name]}, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Generation":
        return cls(**{name: _tuples(value) for name, value in json.loads(text).items()})

    def asked(self, parameters: Mapping[str, Any]) -> "Generation":
        """Returns what a request with these parameters gets. Raises ValueError with a sentence for the caller."""
        given = {name: value for name, value in parameters.items() if name in SETTABLE}
        for name in given:
            if name not in self.settable:
                can = ", ".join(self.settable) or "no parameter"
                raise ValueError(f"The parameter {name} cannot be set here; {can} can.")
        checked = {name: self._check(name, value) for name, value in given.items()}
        if "do_sample" not in checked and any(name in checked for name in SAMPLING):
            checked["do_sample"] = True
        made = replace(self, **checked) if checked else self
        if made.do_sample and "num_beams" not in checked:
            made = replace(made, num_beams=1)
        if made.do_sample and made.num_beams > 1:
            raise ValueError("The parameters num_beams and do_sample exclude each other: beams are not sampled here.")
        if made.guided != "off" and not made.plain:
            if checked.get("guided", "off") != "off":
                raise ValueError('The parameter guided needs greedy decoding. Send guided = "off", or no sampling.')
            made = replace(made, guided="off")
        return made

    def _check(self, name: str, value: Any) -> Any:
        match name:
            case "num_beams":
                return _whole(name, value, 1, self.num_beams)
            case "top_k":
                return _whole(name, value, 0, 2**31 - 1)
            case "seed":
                return _whole(name, value, 0, 2**63 - 1)
            case "temperature":
                return _real(name, value, MOST_TEMPERATURE)
            case "top_p":
                return _real(name, value, 1.0)
            case "guided":
                if value not in GUIDED:
                    raise ValueError(f"The parameter guided is {value!r}, but has to be one of {', '.join(GUIDED)}.")
                return value
            case _:
                return _truth(name, value)


CONSTRAINTS = (
    "min_length",
    "min_new_tokens",
    "no_repeat_ngram_size",
    "repetition_penalty",
    "forced_bos_token_id",
    "forced_eos_token_ids",
    "bad_words_ids",
    "suppress_tokens",
    "begin_suppress_tokens",
)
NAMES = frozenset(field.name for field in fields(Generation))


def _whole(name: str, value: Any, least: int, most: int) -> int:
    number = _number(value)
    if number is None or number != math.floor(number) or not least <= number <= most:
        raise ValueError(f"The parameter {name} is {value!r}, but has to be a whole number from {least} to {most}.")
    return int(number)


def _real(name: str, value: Any, most: float) -> float:
    number = _number(value)
    if number is None or not 0 < number <= most:
        raise ValueError(f"The parameter {name} is {value!r}, but has to be a number above 0 and up to {most:g}.")
    return float(number)


def _truth(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("true", "false"):
        return bool(value == "true")
    raise ValueError(f"The parameter {name} is {value!r}, but has to be true or false.")


def _number(value: Any) -> int | float | None:
    """Returns None for what is no finite number. Text is read, too: older clients of KServe cannot send a float."""
    if isinstance(value, str) and len(value) <= 40:
        try:
            value = json.loads(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return value


def _tuples(value: Any) -> Any:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
