"""Renders workload.toml from its template, with comments on each key. Pure."""

import json
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

TEMPLATE = Path(__file__).with_name("workload.toml.jinja")
TARGETS = ("cpu", "cpu-int8", "tensorrt", "inf1", "inf2")
"""The targets that the template has."""


def text(**values: Any) -> str:
    from jinja2 import Environment, StrictUndefined  # Inf1's image, which imports this module, does not have it

    environment = Environment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters |= {"toml": toml, "comment": _comment}
    environment.globals["line"] = _line
    return environment.from_string(TEMPLATE.read_text("utf-8")).render(values)


def _line(key: str, value: Any, note: str | None) -> str:
    line = f"{key} = {toml(value)}"
    return line if note is None else f"{line:<34} # {note}"


def toml(value: Any) -> str:
    """Returns a value as TOML: its strings are JSON's, except for a character that JSON does not escape."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(toml, value))}]"
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {toml(each)}" for key, each in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _comment(sentence: str) -> str:
    return textwrap.fill(
        sentence, 120, initial_indent="# ", subsequent_indent="# ", break_long_words=False, break_on_hyphens=False
    )
