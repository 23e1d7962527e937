"""Answers texts with texts: checks and tokenises rows, decodes the batch, and gives each request its answer or refusal.

It does not know Triton: a request is a list of rows as bytes, an answer a list of rows as bytes or a `Refusal`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from .beams import beam_search
from .decoding import Engine, Tokens, greedy
from .generation import Generation
from .guided import MOST_ROWS, guided
from .length_groups import group_by_length
from .search import by_chance, most_likely, one_by_one
from .settings import Settings

GENEROUS_TOKEN = 32
"""Characters per allowed token. A text is cut there first, and refused if that much has too many tokens already: the 6
MB that SageMaker lets through take seconds to tokenise, and the whole batch would wait for them."""


@dataclass(frozen=True)
class Refusal:
    """The reason why a request cannot be answered."""

    message: str


class TextGenerator:
    """Tokenizer, engine and settings of a served model."""

    def __init__(self, tokenizer: Tokenizer, engine: Engine[Any], settings: Settings) -> None:
        # tokenizer.json's truncation and padding are those of training: serving refuses a long row and never cuts it.
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.tokenizer = tokenizer
        self.engine = engine
        self.settings = settings

    @classmethod
    def load(cls, folder: Path, settings: Settings, device: int = 0) -> "TextGenerator":
        """Loads a model's version folder. `device` is the GPU of an engine that needs one."""
        engine = _load_engine(folder, settings, device)
        return cls(Tokenizer.from_file(str(folder / "tokenizer.json")), engine, settings)

    def answer(
        self, requests: Sequence[Sequence[bytes]], parameters: Sequence[Mapping[str, Any]] | None = None
    ) -> list[list[bytes] | Refusal]:
        """Returns one answer per request. Good rows of similar lengths that are decoded in one way are one batch.

        Triton has one error per request, not per row: a request with a bad row is refused as a whole, the message names
        its bad rows, and the other requests of the batch are answered. `parameters` are each request's own.
        """
        served = self.settings.generation
        asked = [_asked(served, each) for each in parameters] if parameters else [served] * len(requests)
        checked = [
            generation if isinstance(generation, Refusal) else self._check_request(rows)
            for rows, generation in zip(requests, asked, strict=True)
        ]
        answers: list[list[bytes] | Refusal] = [rows if isinstance(rows, Refusal) else [] for rows in checked]
        for way in dict.fromkeys(_way(generation) for generation in asked if not isinstance(generation, Refusal)):
            self._answer_together(way, checked, asked, answers)
        return answers

    def tokenise(self, row: bytes) -> list[int] | Refusal:
        """Returns the token ids of one row, or a refusal that completes a sentence which begins with the row's name."""
        try:
            text = row.decode("utf-8")
        except UnicodeDecodeError as error:
            return Refusal(f"is not UTF-8: byte {error.start} is 0x{row[error.start]:02x}")
        if not text.strip():
            return Refusal("is empty or blank")
        return self._encode(text)

    def generate(
        self,
        rows: Sequence[Sequence[int]],
        generation: Generation | None = None,
        chances: Sequence[np.random.Generator] = (),
    ) -> list[Tokens]:
        """Returns the output tokens of each row of token ids; `chances` are the rows' own, where they are sampled."""
        if not rows:
            return []
        generation, lengths = generation or self.settings.generation, list(map(len, rows))
        launch_tokens, outputs = self.settings.launch_tokens or inf, dict[int, Tokens]()
        for group in group_by_length(lengths, launch_tokens, most_tokens=max(lengths) * len(rows)):
            own = [chances[row] for row in group] if chances else ()
            outputs |= zip(group, self._decode_group([rows[row] for row in group], generation, own), strict=True)
        return [outputs[row] for row in range(len(rows))]

    def _decode_group(
        self, rows: Sequence[Sequence[int]], generation: Generation, chances: Sequence[np.random.Generator]
    ) -> list[Tokens]:
        """Returns the output tokens of rows that are padded to one length."""
        engine: Any = self.engine  # those of GPUs search no beams, which the build refuses
        batch = (engine, *pad(rows, self.settings.pad_token_id), self.settings)
        if generation.plain and generation.guided != "off" and len(rows) <= MOST_ROWS:
            return guided(*batch, generation.guided, rows)[0]
        if generation.plain:
            return greedy(*batch)
        if generation.num_beams > 1:
            return beam_search(*batch, generation)
        choose = by_chance(generation, chances) if generation.do_sample else most_likely
        return one_by_one(*batch, generation, choose)

    def decode(self, outputs: Sequence[Tokens]) -> list[str]:
        return [self.tokenizer.decode(tokens.tolist(), skip_special_tokens=True) for tokens in outputs]

    def _answer_together(
        self,
        way: Generation,
        checked: Sequence[list[list[int]] | Refusal],
        asked: Sequence[Generation | Refusal],
        answers: list[list[bytes] | Refusal],
    ) -> None:
        """Decodes the rows of all requests that are decoded in this way, and puts their texts into `answers`."""
        rows, chances, owners = [], [], []
        for index, (request, generation) in enumerate(zip(checked, asked, strict=True)):
            if isinstance(request, Refusal) or isinstance(generation, Refusal) or _way(generation) != way:
                continue
            rows += request
            owners += [index] * len(request)
            if way.do_sample:
                # A row's answer depends on its request's seed and its place in it, on no neighbour in the batch.
                chances += [_chance(generation.seed, place) for place in range(len(request))]
        for index, text in zip(owners, self.decode(self.generate(rows, way, chances)), strict=True):
            answer = answers[index]
            assert isinstance(answer, list)
            answer.append(text.encode())

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
        # A tokenizer that adds an end token never returns none; from another, an empty row would fail the whole batch.
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


def _asked(served: Generation, parameters: Mapping[str, Any]) -> Generation | Refusal:
    try:
        return served.asked(parameters)
    except ValueError as error:
        return Refusal(str(error))


def _way(generation: Generation) -> Generation:
    """Returns all of it but the seed: rows of several seeds are decoded together."""
    return generation if generation.seed is None else replace(generation, seed=None)


def _chance(seed: int | None, place: int) -> np.random.Generator:
    return np.random.default_rng(None if seed is None else (seed, place))


def _load_engine(folder: Path, settings: Settings, device: int) -> Engine[Any]:
    """Chooses the runtime by the files in the folder. A container has only the runtime of its own model."""
    if any(folder.glob("*.plan")):
        from .tensorrt_engine import load

        return load(folder, device)
    if (folder / "decoder.pt").exists():
        from . import torch_engine

        return torch_engine.load(
            folder, f"cuda:{device}", most_rows=settings.max_batch_size, longest=settings.max_input_tokens
        )
    from .engine import OnnxEngine

    return OnnxEngine(folder / "encoder.onnx", folder / "decoder.onnx", settings.threads)


def pad(rows: Sequence[Sequence[int]], pad_token_id: int) -> tuple[Tokens, Tokens]:
    """Pads token ids on the right to the longest row, and returns them with their mask: [rows, length] each."""
    lengths = np.array([len(row) for row in rows])
    mask = (np.arange(lengths.max()) < lengths[:, None]).astype(np.int64)
    token_ids = np.full(mask.shape, pad_token_id, np.int64)
    token_ids[mask.astype(bool)] = np.concatenate([np.asarray(row, np.int64) for row in rows])
    return token_ids, mask
