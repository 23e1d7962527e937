"""Tokenises rows of text fields: each becomes an `Encoding` or a `Refusal`.

The tokenizer is the checkpoint's tokenizer.json, which also knows how it marks one segment or two, or where there is a
preprocess.pt, that TorchScript module.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from .row import Refusal, segment_texts
from .settings import Settings
from .tensors import Encoding

TORCHSCRIPT = "preprocess.pt"
GENEROUS_TOKEN = 128
"""Characters per allowed token. No natural text has so many, and of a text that has, no more are tokenised, or it is
refused: the 6 MB that SageMaker lets through take a second, and the whole batch would wait for them."""


class Preprocessor:
    """The first step of serving. Keeps no state between calls."""

    def __init__(self, tokenizer: Any, settings: Settings) -> None:
        # tokenizer.json's truncation and padding are those of training: here the workload's keys say what happens.
        if settings.truncation:
            tokenizer.enable_truncation(settings.max_input_tokens)  # the longer segment first
        else:
            tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self.settings = settings
        self._answers = settings.task == "question-answering"

    @classmethod
    def load(cls, folder: Path) -> "Preprocessor":
        """Loads a folder with settings.json and tokenizer.json or preprocess.pt."""
        if (folder / TORCHSCRIPT).exists():
            from .torchscript_tokenizer import TorchScriptTokenizer

            return cls(TorchScriptTokenizer(folder / TORCHSCRIPT), Settings.load(folder / "settings.json"))
        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")), Settings.load(folder / "settings.json"))

    def encode(self, rows: Sequence[Mapping[str, object]]) -> list[Encoding | Refusal]:
        """Returns one encoding or refusal for each row, in order. Ignores fields that the settings do not name."""
        read = [self._read(row) for row in rows]
        good = [texts if len(texts) > 1 else texts[0] for texts in read if not isinstance(texts, Refusal)]
        # Only the slower of the two methods keeps track of characters.
        encode = self.tokenizer.encode_batch if self._answers else self.tokenizer.encode_batch_fast
        encoded = iter(encode(good))
        return [texts if isinstance(texts, Refusal) else self._check(next(encoded)) for texts in read]

    def _read(self, row: Mapping[str, object]) -> tuple[str, ...] | Refusal:
        texts = segment_texts(row, self.settings.segments)
        if isinstance(texts, Refusal):
            return texts
        characters, limit = sum(map(len, texts)), self.settings.max_input_tokens
        if self.settings.truncation:
            return tuple(text[: limit * GENEROUS_TOKEN] for text in texts)
        if characters > limit * GENEROUS_TOKEN:
            return Refusal(f"has {characters} characters, at most {limit * GENEROUS_TOKEN} are read for {limit} tokens")
        return texts

    def _check(self, encoded: Any) -> Encoding | Refusal:
        limit = self.settings.max_input_tokens
        if len(encoded) > limit:
            return Refusal(f"has {len(encoded)} tokens, at most {limit} are allowed")
        segment_of_token = encoded.sequence_ids
        for index, segment in enumerate(self.settings.segments):
            if index not in segment_of_token:  # It has nothing but characters that the tokenizer drops.
                return Refusal(f"has no token in {', '.join(segment)}")
        spans = _answer_spans(encoded.offsets, segment_of_token) if self._answers else ()
        return Encoding(tuple(encoded.ids), tuple(encoded.type_ids), spans)


def _answer_spans(
    offsets: Sequence[tuple[int, int]], segment_of_token: Sequence[int | None]
) -> tuple[tuple[int, int], ...]:
    return tuple(span if segment == 1 else (-1, -1) for span, segment in zip(offsets, segment_of_token, strict=True))
