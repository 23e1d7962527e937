"""Counts, cuts and joins payloads by the tokenizer of the build, as the model itself reads them.

In: rows of payloads.jsonl, the text of each field. Out: tokens with the special ones, or rows of a stated number of
tokens. The tokenizer is tokenizer.json of the built repository, which is the checkpoint's own.
"""

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from workloads import (
    ROOT,
    PayloadLengths,
    Row,
    TextToText,
    TokenCounts,
    UsageError,
    Workload,
    WorkloadFolder,
    artifact_file,
)

TOKENIZER = "tokenizer.json"
CUTS = 8
"""A text is cut so often at most until it has no more tokens than asked for: the cut word may have more of them."""


class PayloadTokenizer:
    """Counts the tokens of a row as the served model does: a segment's fields are joined by a space, and one or two
    segments are encoded together with their special tokens.
    """

    def __init__(self, tokenizer: Any, segments: Sequence[Sequence[str]], most: int, *, cuts: bool = False) -> None:
        """`tokenizer` is one of the tokenizers library, `most` the model's max_input_tokens; a model that `cuts` reads
        no more than those of a longer row.
        """
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self._tokenizer = tokenizer
        self._segments = segments
        self._cuts = cuts
        self.most = most

    @classmethod
    def load(cls, file: Path, workload: Workload) -> "PayloadTokenizer":
        """Raises `UsageError` where `file` cannot be read."""
        model = workload.model
        try:
            from tokenizers import Tokenizer

            tokenizer = Tokenizer.from_file(str(file))
        except ImportError:
            raise UsageError(
                "The package tokenizers is missing, which counts tokens: `make setup` installs it."
            ) from None
        except Exception as error:  # the library raises this very class
            raise UsageError(f"{file}: cannot be read as a tokenizer: {error}. Build {workload.name} again.") from error
        if isinstance(model, TextToText):
            return cls(tokenizer, (model.fields,), model.max_input_tokens)
        return cls(tokenizer, model.segments, model.max_input_tokens, cuts=model.truncation)

    def count(self, rows: Sequence[Row]) -> list[int]:
        """Returns the tokens that the model reads of each row, special ones included."""
        texts = [self._texts(row) for row in rows]
        encoded = self._tokenizer.encode_batch([each if len(each) > 1 else each[0] for each in texts])
        return [min(len(each), self.most) if self._cuts else len(each) for each in encoded]

    def count_texts(self, texts: Sequence[str]) -> list[int]:
        """Returns the tokens of each text with those that end it, as a decoder writes it."""
        return [len(each) for each in self._tokenizer.encode_batch(list(texts))]

    def resized(self, rows: Sequence[Row], start: int, tokens: int) -> Row:
        """Returns row `start` with `tokens` tokens, or as near below as words allow: its longest field is cut, or goes
        on with that of the rows after it. A row whose other fields alone have more keeps one token of that field.
        """
        row = rows[start % len(rows)]
        field = max(row, key=lambda name: len(row[name]))
        text, following = row[field], start
        while self._tokens({**row, field: text}) < tokens:
            following += 1
            text = f"{text} {rows[following % len(rows)][field]}".strip()
        for _ in range(CUTS):
            excess = self._tokens({**row, field: text}) - tokens
            if excess <= 0:
                break
            ends = [end for _, end in self._tokenizer.encode(text, add_special_tokens=False).offsets]
            text = text[: ends[max(len(ends) - excess, 1) - 1]].rstrip()
        return {**row, field: text}

    def _tokens(self, row: Row) -> int:
        texts = self._texts(row)
        return len(self._tokenizer.encode(*texts))

    def _texts(self, row: Row) -> tuple[str, ...]:
        return tuple(" ".join(row[field] for field in segment) for segment in self._segments)


def built_tokenizer(folder: WorkloadFolder, target: str | None = None) -> PayloadTokenizer:
    """Returns the tokenizer of a target's build, by default the hosted one's. Raises `UsageError` where it has none."""
    workload = folder.workload
    built = target or workload.hosting.target
    repository = artifact_file(folder.builds(ROOT), workload.name, built).with_name("repository")
    file = next(iter(sorted(repository.glob(f"*/1/{TOKENIZER}"))), None)
    if file is None:
        raise UsageError(
            f"{repository}: has no {TOKENIZER}, by which payloads are counted. Build it here: `python -m model_build "
            f"build {workload.name} --target {built}`; a model that tokenises with a TorchScript module has none."
        )
    return PayloadTokenizer.load(file, workload)


def token_counts(counts: Sequence[int]) -> TokenCounts:
    """Returns the percentiles of one count or more, by nearest rank."""
    ordered = sorted(counts)
    p50, p90, p99 = (ordered[max(math.ceil(share * len(ordered)) - 1, 0)] for share in (0.5, 0.9, 0.99))
    return TokenCounts(mean=sum(ordered) / len(ordered), p50=p50, p90=p90, p99=p99, maximum=ordered[-1])


def payload_lengths(tokenizer: PayloadTokenizer, rows: Sequence[Row]) -> PayloadLengths:
    return PayloadLengths(
        payloads=len(rows), max_input_tokens=tokenizer.most, input_tokens=token_counts(tokenizer.count(rows))
    )


def known_lengths(folder: WorkloadFolder, say: Callable[[str], None]) -> PayloadLengths | None:
    """Returns the lengths of the workload's payloads; says why where its build has no tokenizer, and returns None."""
    try:
        return payload_lengths(built_tokenizer(folder), folder.payloads())
    except UsageError as error:
        say(f"The recommendation will not say for which lengths of payloads it is. {error}")
        return None
