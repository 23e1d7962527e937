"""Turns the fields of one row of a request into the texts of one or two segments, or says why it cannot.

A field is text or UTF-8 bytes. Every other JSON value is refused here, so callers may pass on what they were sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """The reason why a row cannot be answered; `message` completes a sentence that begins with the row's name."""

    message: str


def segment_texts(row: Mapping[str, object], segments: Sequence[Sequence[str]]) -> tuple[str, ...] | Refusal:
    """Joins the fields of each segment by one space. Some fields may be blank, but not all of a segment."""
    missing = [field for segment in segments for field in segment if field not in row]
    if missing:
        return Refusal(f"lacks the field{'s' if len(missing) > 1 else ''} {', '.join(missing)}")
    texts = []
    for segment in segments:
        fields = []
        for field in segment:
            text = _text(field, row[field])
            if isinstance(text, Refusal):
                return text
            fields.append(text)
        texts.append(" ".join(fields))
        if not texts[-1].strip():
            return Refusal(f"has no text in {', '.join(segment)}")
    return tuple(texts)


def _text(field: str, value: object) -> str | Refusal:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:  # Half of a surrogate pair: JSON can spell it, UTF-8 cannot.
            return Refusal(f"is not UTF-8 in {field}: character {error.start} is U+{ord(value[error.start]):04X}")
        return value
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError as error:
            return Refusal(f"is not UTF-8 in {field}: byte {error.start} is 0x{value[error.start]:02x}")
    return Refusal(f"has a value of type {type(value).__name__} in {field}, and text is wanted")
