"""Tokenises by a TorchScript module, in place of a tokenizer of the tokenizers library.

The module takes rows of one or two texts (`List[List[str]]`) and returns two lists with an entry per row: its token
ids, with special ones, and for each of these the number of its text, 0 or 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Tokens:
    """A tokenised row with the attributes that `Preprocessor` reads; no token has a place in the text."""

    ids: list[int]
    type_ids: list[int]
    offsets: tuple[tuple[int, int], ...] = ()

    @property
    def sequence_ids(self) -> list[int]:
        return self.type_ids

    def __len__(self) -> int:
        return len(self.ids)


class TorchScriptTokenizer:
    def __init__(self, file: Path) -> None:
        jit: Any = torch.jit
        self._module = jit.load(str(file), map_location="cpu").eval()

    def no_truncation(self) -> None:
        """Does nothing: the module decides, also about padding."""

    no_padding = no_truncation

    def encode_batch_fast(self, rows: Sequence["str | Sequence[str]"]) -> list[Tokens]:
        if not rows:
            return []
        with torch.no_grad():
            ids, types = self._module([[row] if isinstance(row, str) else list(row) for row in rows])
        if [len(each) for each in ids] != [len(each) for each in types] or len(ids) != len(rows):
            raise ValueError("preprocess.pt has to return a list of token ids and one of types for each row")
        return [Tokens(row, kinds) for row, kinds in zip(ids, types, strict=True)]
