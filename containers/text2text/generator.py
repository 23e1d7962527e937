"""Texts in, texts out: checks rows, tokenises, decodes the batch, and gives every request its own answer or refusal.

It does not know Triton: a request is the list of its rows as bytes, an answer the rows as bytes or a `Refusal`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from .decoding import Engine, Tokens, greedy
from .settings import Settings

# Characters. A text of which this many per allowed token are too many tokens already is not read to its end: the 6 MB
# that SageMaker lets through take seconds to tokenise, and the whole batch would wait for them.
GENEROUS_TOKEN = 32


@dataclass(frozen=True)
class Refusal:
    """Why a request cannot be answered."""

    message: str


class TextGenerator:
    """The model as served."""

    def __init__(self, tokenizer: Tokenizer, engine: Engine[Any], settings: Settings) -> None:
        # What tokenizer.json says of cutting and padding is not for serving: a long row is refused, never cut.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self.engine = engine
        self.settings = settings

    @classmethod
    def load(cls, folder: Path, settings: Settings, device: int = 0) -> "TextGenerator":
        """From a model's version folder; `device` is the GPU of an engine that needs one."""
        engine = _load_engine(folder, settings, device)
        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")), engine, settings)

    def answer(self, requests: Sequence[Sequence[bytes]]) -> list[list[bytes] | Refusal]:
        """One answer per request, all good rows decoded together.

        Triton has one error per request, not per row: a request with a bad row is refused as a whole and the message
        names its bad rows; the other requests of the batch are answered.
        """
        checked = [self._check_request(rows) for rows in requests]
        good = [rows for rows in checked if not isinstance(rows, Refusal)]
        texts = iter(self.decode(self.generate([row for rows in good for row in rows])))
        return [rows if isinstance(rows, Refusal) else [next(texts).encode() for _ in rows] for rows in checked]

    def tokenise(self, row: bytes) -> list[int] | Refusal:
        """The token ids of one row; the refusal completes a sentence that begins with the row's name."""
        try:
            text = row.decode("utf-8")
        except UnicodeDecodeError as error:
            return Refusal(f"is not UTF-8: byte {error.start} is 0x{row[error.start]:02x}")
        if not text.strip():
            return Refusal("is empty or blank")
        return self._encode(text)

    def generate(self, rows: Sequence[Sequence[int]]) -> list[Tokens]:
        """The output tokens of each row of token ids."""
        return greedy(self.engine, *pad(rows, self.settings.pad_token_id), self.settings) if rows else []

    def decode(self, outputs: Sequence[Tokens]) -> list[str]:
        return [self.tokenizer.decode(tokens.tolist(), skip_special_tokens=True) for tokens in outputs]

    def _encode(self, text: str) -> list[int] | Refusal:
        limit = self.settings.max_input_tokens
        head = text[: limit * GENEROUS_TOKEN]
        token_ids: list[int] = self.tokenizer.encode(head).ids
        if len(head) < len(text) and len(token_ids) > limit:
            return Refusal(
                f"has {len(text)} characters; the first {len(head)} are {len(token_ids)} tokens already, "
                f"at most {limit} are allowed"
            )
        if len(head) < len(text):
            token_ids = self.tokenizer.encode(text).ids
        if len(token_ids) > limit:
            return Refusal(f"has {len(token_ids)} tokens, at most {limit} are allowed")
        # No tokenizer that ends its texts gives none; one that doesn't would stop the graphs for the whole batch.
        return token_ids or Refusal("has no tokens")

    def _check_request(self, rows: Sequence[bytes]) -> list[list[int]] | Refusal:
        tokenised = [self.tokenise(row) for row in rows]
        reasons = [
            f"TEXT row {index} {row.message}." for index, row in enumerate(tokenised) if isinstance(row, Refusal)
        ]
        if reasons and len(rows) > 1:
            reasons.append("No row of this request was answered.")
        if reasons:
            return Refusal(" ".join(reasons))
        return [row for row in tokenised if not isinstance(row, Refusal)]


def _load_engine(folder: Path, settings: Settings, device: int) -> Engine[Any]:
    """By what lies in the folder. A container has the runtime of its own model and no other."""
    if any(folder.glob("*.plan")):
        from .tensorrt_engine import TensorRtEngine

        return TensorRtEngine(folder, device)
    from .engine import OnnxEngine

    return OnnxEngine(folder / "encoder.onnx", folder / "decoder.onnx", settings.threads)


def pad(rows: Sequence[Sequence[int]], pad_token_id: int) -> tuple[Tokens, Tokens]:
    """Token ids padded on the right to the longest row, and their mask: [rows, length] each."""
    lengths = np.array([len(row) for row in rows])
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    token_ids = np.full(mask.shape, pad_token_id, np.int64)
    token_ids[mask.astype(bool)] = np.concatenate([np.asarray(row, np.int64) for row in rows])
    return token_ids, mask
