"""Tokenises rows of text fields: each becomes an `Encoding` or a `Refusal`.

The tokenizer is the checkpoint's tokenizer.json, which also knows how it marks one segment or two, or where there is a
preprocess.pt, that TorchScript module. With `settings.stride` a row that is too long for the model is read in windows
that overlap, of which the last segment is moved along and the others are whole.
"""

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
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
        self._pieces = settings.per_token
        self._tags = settings.task == "token-classification"
        self._windows: Any = None
        if settings.stride is not None:
            self._windows = deepcopy(tokenizer)
            strategy = "only_second" if len(settings.segments) > 1 else "only_first"
            self._windows.enable_truncation(settings.max_input_tokens, stride=settings.stride, strategy=strategy)

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
        encode = self.tokenizer.encode_batch if self._pieces else self.tokenizer.encode_batch_fast
        encoded = iter(encode(good))
        return [texts if isinstance(texts, Refusal) else self._check(next(encoded), texts) for texts in read]

    def _read(self, row: Mapping[str, object]) -> tuple[str, ...] | Refusal:
        texts = segment_texts(row, self.settings.segments)
        if isinstance(texts, Refusal):
            return texts
        characters, limit = sum(map(len, texts)), self.settings.max_input_tokens
        if self._windows is not None:
            limit *= self.settings.max_windows
        if self.settings.truncation:
            return tuple(text[: limit * GENEROUS_TOKEN] for text in texts)
        if characters > limit * GENEROUS_TOKEN:
            return Refusal(f"has {characters} characters, at most {limit * GENEROUS_TOKEN} are read for {limit} tokens")
        return texts

    def _check(self, encoded: Any, texts: tuple[str, ...]) -> Encoding | Refusal:
        limit = self.settings.max_input_tokens
        if len(encoded) > limit:
            if self._windows is None:
                return Refusal(f"has {len(encoded)} tokens, at most {limit} are allowed")
            return self._in_windows(encoded, texts)
        segment_of_token = encoded.sequence_ids
        for index, segment in enumerate(self.settings.segments):
            if index not in segment_of_token:  # It has nothing but characters that the tokenizer drops.
                return Refusal(f"has no token in {', '.join(segment)}")
        return self._encoding(encoded, texts)

    def _in_windows(self, encoded: Any, texts: tuple[str, ...]) -> Encoding | Refusal:
        """Reads a row that is too long. The tokenizers library panics where the windows would not move along."""
        settings, last = self.settings, len(self.settings.segments) - 1
        moved = encoded.sequence_ids.count(last)
        room = settings.max_input_tokens - (len(encoded) - moved)
        assert settings.stride is not None
        if room <= settings.stride:
            others = ", ".join(field for segment in settings.segments[:last] for field in segment) or "special tokens"
            return Refusal(
                f"has {len(encoded) - moved} tokens in {others}, which leave no room for windows of "
                f"{', '.join(settings.segments[last])} that overlap by {settings.stride} of {settings.max_input_tokens}"
            )
        # The first window has `room` tokens and each further one moves along by what is not shared.
        count = 1 + -(-(moved - room) // (room - settings.stride))
        if count > settings.max_windows:
            return Refusal(
                f"has {len(encoded)} tokens, which are {count} windows of {settings.max_input_tokens}; at most "
                f"{settings.max_windows} are read"
            )
        first = self._windows.encode(*texts)
        made = [self._encoding(window, texts) for window in (first, *first.overflowing)]
        return replace(made[0], more=tuple(made[1:]))

    def _encoding(self, encoded: Any, texts: tuple[str, ...]) -> Encoding:
        spans = tuple(self._spans(encoded, texts[-1])) if self._pieces else ()
        return Encoding(tuple(encoded.ids), tuple(encoded.type_ids), spans)

    def _spans(self, encoded: Any, text: str) -> Iterator[tuple[int, ...]]:
        """Yields `Encoding.spans` of the last segment, whose text is `text`."""
        last, outside = len(self.settings.segments) - 1, (-1, -1, -1) if self._tags else (-1, -1)
        goes_on = self._goes_on(encoded, text) if self._tags else None
        for place, (span, segment) in enumerate(zip(encoded.offsets, encoded.sequence_ids, strict=True)):
            if segment != last:
                yield outside
            else:
                yield span if goes_on is None else (*span, int(goes_on[place]))

    def _goes_on(self, encoded: Any, text: str) -> list[bool]:
        """Tells of each token whether it goes on with the word of the one before, as transformers' pipeline does.

        A tokenizer that marks such tokens (##) is believed: the token is then longer than its text. Of others a token
        begins a word where there is a space at its beginning or before it.
        """
        model = self.tokenizer.model
        unknown = self.tokenizer.token_to_id(getattr(model, "unk_token", None) or "<unk>")
        if getattr(model, "continuing_subword_prefix", None):
            marked = [
                len(token) != end - start for token, (start, end) in zip(encoded.tokens, encoded.offsets, strict=True)
            ]
        else:
            marked = [start > 0 and " " not in text[start - 1 : start + 1] for start, _ in encoded.offsets]
        return [mark and token_id != unknown for mark, token_id in zip(marked, encoded.ids, strict=True)]
