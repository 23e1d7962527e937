"""The lines of evaluation.jsonl: a request, and what its answer should be.

Beside the model's fields a line has, by task:

    text-classification    label; of several labels that apply: labels, a list; of a regression: score
    text-pair-scoring      label, and score: how alike the two are, 0 to 1
    text-ranking           score: how relevant the text is to the query, 0 for not at all. The lines with one query are
                           ranked against each other
    token-classification   entities: a list of label, start and end. Places count characters (code points) of the text,
                           the end is excluded; a label is one of the model's without its B- or I-
    feature-extraction     other and score, where the model is to be measured: another text, and how alike they are
    the others             label: the answer's text
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, create_model

from workloads.document import Document
from workloads.errors import InvalidDocument
from workloads.model import (
    FeatureExtraction,
    Model,
    TextClassification,
    TextPairScoring,
    TextRanking,
    TokenClassification,
)

Row = Mapping[str, str]
"""A request: the text of each of the model's fields."""
Finite = Annotated[float, Field(allow_inf_nan=False)]
Place = Annotated[int, Field(ge=0)]
NOTHING = "O"
"""The label of a token that is part of no entity."""


class Entity(Document):
    """A labelled piece of a text, from `start` up to before `end`."""

    label: str
    start: Place
    end: Place


@dataclass(frozen=True, kw_only=True, slots=True)
class Example:
    """A line of evaluation.jsonl. Which of the values a line has beside its row, the task says."""

    row: Row
    label: str = ""
    labels: tuple[str, ...] = ()
    score: float | None = None
    entities: tuple[Entity, ...] = ()
    other: str | None = None

    @property
    def wanted(self) -> str:
        """The answer that it should be, as answers are shown."""
        if self.entities:
            text = " ".join(self.row.values())
            return ", ".join(f"{each.label} {text[each.start : each.end]!r}" for each in self.entities)
        if self.labels:
            return ", ".join(sorted(self.labels))
        return self.label or ("none" if self.score is None else f"{self.score:.4f}")


def fields_of(model: Model) -> type[Document]:
    """Returns what a line of payloads.jsonl is: the model's fields, and how often it is sent relative to the others."""
    return _document(model, {"weight": (Annotated[int, Field(ge=1, le=1000)], 1)})


def line_of(model: Model) -> type[Document]:
    """Returns what a line of evaluation.jsonl is: the model's fields, and what the answer should be."""
    match model:
        case TextClassification(problem_type="multi_label_classification"):
            return _document(model, {"labels": (tuple[str, ...], ...)})
        case TextClassification(problem_type="regression") | TextRanking():
            return _document(model, {"score": (Finite, ...)})
        case TextPairScoring():
            return _document(model, {"label": (str, ...), "score": (Finite, ...)})
        case TokenClassification():
            return _document(model, {"entities": (tuple[Entity, ...], ...)})
        case FeatureExtraction():
            return _document(model, {"other": (str | None, None), "score": (Finite | None, None)})
        case _:
            return _document(model, {"label": (str, ...)})


def example(model: Model, place: Path, line: Document) -> Example:
    """Returns a line as the gate takes it. Raises `InvalidDocument` for an answer that the model cannot give.

    `place` is the file and the line's number, as the error names them.
    """
    values = {key: getattr(line, key) for key in type(line).model_fields}
    row = {field: values.pop(field) for field in model.fields}
    made = Example(row=row, **values)
    if problems := list(_problems(model, made)):
        raise InvalidDocument(place, problems)
    return made


def _document(model: Model, answer: dict[str, Any]) -> type[Document]:
    kinds: dict[str, Any] = dict.fromkeys(model.fields, (str, ...))
    return create_model("Line", __base__=Document, **(kinds | answer))


def _problems(model: Model, line: Example) -> Iterator[str]:
    match model:
        case TextClassification(problem_type="single_label_classification") | TextPairScoring():
            yield from _unknown("label", {line.label}, model.labels)
        case TextClassification():
            yield from _unknown("labels", set(line.labels), model.labels)
        case TokenClassification():
            # Tokens are labelled B-… and I-…, as transformers' pipeline expects; an entity has the label without it.
            known = tuple(dict.fromkeys(label.split("-", 1)[-1] for label in model.labels if label != NOTHING))
            yield from _unknown("entities", {entity.label for entity in line.entities}, known)
            text = " ".join(line.row[field] for field in model.fields)
            for entity in line.entities:
                if not entity.start < entity.end <= len(text):
                    yield (
                        f"entities: got {entity.start} to {entity.end} for {entity.label}, but the text has "
                        f"{len(text)} characters; the end is excluded and after the start."
                    )
        case FeatureExtraction() if (line.other is None) != (line.score is None):
            yield "score: how alike the text and `other` are; a line has both of them or neither."


def _unknown(key: str, given: set[str], known: tuple[str, ...]) -> Iterator[str]:
    if unknown := sorted(given - set(known)):
        yield f"{key}: got {', '.join(map(repr, unknown))}. Allowed, from model.labels: {', '.join(known)}."
