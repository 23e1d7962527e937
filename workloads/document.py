"""Reads and writes every document of the contract: strict, frozen, and with errors that name file and key."""

import json
import sys
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import ErrorDetails
from typing_extensions import Self

from workloads.errors import InvalidDocument
from workloads.files import replace_text

if sys.version_info >= (3, 11):
    import tomllib
else:  # Inf1's image, in which models are compiled for it
    import tomli as tomllib

TOO_DEEP = "is nested too deeply."


def parse_toml(text: str) -> dict[str, Any]:
    """Raises ValueError for text that is not TOML."""
    return tomllib.loads(text)


PositiveInt = Annotated[int, Field(ge=1)]
PositiveFloat = Annotated[float, Field(gt=0)]


class Document(BaseModel):
    """A frozen value with no unknown keys. Unknown is None, never 0."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @classmethod
    def from_toml(cls, file: Path) -> Self:
        """Reads `file`. Raises `InvalidDocument`, which lists every problem in it."""
        try:
            return cls.from_table(file, tomllib.loads(file.read_text("utf-8")))
        except RecursionError as error:  # The depth at which the parser fails depends on the interpreter's limit.
            raise InvalidDocument(file, [TOO_DEEP]) from error
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
            raise InvalidDocument(file, [f"cannot be read: {error}"]) from error

    @classmethod
    def from_table(cls, file: Path, table: Mapping[str, Any]) -> Self:
        """Validates a parsed document; `file` is the one that errors name. Raises `InvalidDocument`."""
        # Through JSON: strict mode then still takes a list for a tuple, and never "80" for a number.
        return cls.from_json_text(file, json.dumps(table, default=str))

    @classmethod
    def from_json(cls, file: Path) -> Self:
        """Reads `file`. Raises `InvalidDocument`."""
        try:
            return cls.from_json_text(file, file.read_text("utf-8"))
        except (UnicodeDecodeError, OSError) as error:
            raise InvalidDocument(file, [f"cannot be read: {error}"]) from error

    @classmethod
    def from_json_text(cls, file: Path, text: str) -> Self:
        """Validates a line or a document that came as JSON; `file` is the one that errors name."""
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            problems = [_sentence(cls, detail) for detail in error.errors(include_url=False)]
            raise InvalidDocument(file, problems) from error

    def write_json(self, file: Path, mode: int = 0o666) -> None:
        """Writes atomically, keys in the order of the fields, so that a diff of two documents reads well."""
        replace_text(file, self.model_dump_json(indent=2) + "\n", mode)


@lru_cache(maxsize=32)
def _schema(document: type[BaseModel]) -> dict[str, Any]:
    """Returns the JSON schema of a document, which takes some ms to make. It must not be changed."""
    return document.model_json_schema()


def _sentence(document: type[BaseModel], detail: ErrorDetails) -> str:
    keys, allowed = _walk(_schema(document), detail["loc"])
    key = ".".join(keys) or "(document)"
    match detail["type"]:
        case "extra_forbidden":
            return f"{key}: unknown key. Allowed here: {', '.join(allowed)}."
        case "missing":
            return f"{key}: is required but missing."
        case "union_tag_invalid":
            got, allowed_tags = detail["ctx"]["tag"], detail["ctx"]["expected_tags"]
            return f"{key}.{_tag(detail)}: got {json.dumps(got)}. Allowed: {allowed_tags}."
        case "union_tag_not_found":
            return f"{key}.{_tag(detail)}: is required but missing."
        case "json_invalid" if "recursion limit exceeded" in detail["msg"]:
            return TOO_DEEP
        case "json_invalid":
            return f"is not valid JSON: {detail['msg']}."
        case "value_error":
            # A rule across keys (a model validator): its text already names the values.
            return f"{key}: {detail['ctx']['error']}"
        case _:
            return f"{key}: got {json.dumps(detail['input'], default=str)}. {detail['msg']}."


def _tag(detail: ErrorDetails) -> str:
    """Returns the key that chooses between the members of a union; pydantic quotes it."""
    return str(detail["ctx"]["discriminator"]).strip("'")


def _walk(schema: dict[str, Any], location: tuple[int | str, ...]) -> tuple[list[str], list[str]]:
    """Returns the key path as the author wrote it, and the keys allowed beside its last step.

    pydantic puts the tag of a discriminated union into the location as one more step; no such key is in the file.
    """
    keys: list[str] = []
    node, siblings = schema, schema
    for part in location:
        siblings = _resolve(schema, node)
        if (variant := _variant(siblings, part)) is not None:
            node = variant
        else:
            keys.append(str(part))
            node = _child(siblings, part)
    return keys, sorted(siblings.get("properties", {}))


def _variant(node: dict[str, Any], tag: int | str) -> dict[str, Any] | None:
    """Returns the member of a union that `tag` chose, or None when `node` is no union."""
    if (mapping := node.get("discriminator", {}).get("mapping", {})) and tag in mapping:
        return {"$ref": mapping[tag]}
    options: list[dict[str, Any]] = node.get("oneOf", [])
    return next((option for option in options if option.get("$ref", option.get("title", "")).endswith(str(tag))), None)


def _child(node: dict[str, Any], part: int | str) -> dict[str, Any]:
    if isinstance(part, int):
        return dict(node.get("items", {}))
    by_pattern = next(iter(node.get("patternProperties", {}).values()), None)
    anything = by_pattern or node.get("additionalProperties") or {}
    return dict(node.get("properties", {}).get(part, anything))


def _resolve(schema: dict[str, Any], node: dict[str, Any]) -> dict[str, Any]:
    match node:
        case {"anyOf": [only, {"type": "null"}]}:  # a key that may be left out
            node = only
    reference = node.get("$ref")
    return dict(schema["$defs"][reference.rsplit("/", 1)[1]]) if reference else node
