"""Reads SentencePiece's model by its protobuf, and what tokenizers made of one have in common."""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from model_build.checkpoint.files import broken

NORMAL = 1
"""The type of a piece in SentencePiece's model; others are unknown, control and unused ones."""


def in_order(file: Path, vocabulary: dict[str, Any], special: Collection[str]) -> list[str]:
    """Returns the pieces of a vocab.json by their ids. Raises `UsageError`."""
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise broken(file, "its ids are not those from 0 on, one for each piece. Copy it again.")
    for piece in special:
        if piece not in vocabulary:
            raise broken(file, f"has no '{piece}'. Copy it again.")
    return pieces


def read_model(file: Path) -> Any:
    """Reads SentencePiece's model by its protobuf, which transformers carries."""
    from transformers.utils import sentencepiece_model_pb2_new as protobuf

    proto: Any = protobuf
    model = proto.ModelProto()
    model.ParseFromString(file.read_bytes())
    return model


def normalizer(spm: Any) -> Any:
    """Returns the `tokenizers` normaliser that a model of SentencePiece asks for."""
    from tokenizers import Regex, normalizers

    charsmap = spm.normalizer_spec.precompiled_charsmap
    steps = [normalizers.Precompiled(charsmap)] if charsmap else []
    # As `remove_extra_whitespaces` does.
    return normalizers.Sequence([*steps, normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")])
