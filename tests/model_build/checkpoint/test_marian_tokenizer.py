"""tokenizer.json of a Marian gives what MarianTokenizer of transformers 5.23 with SentencePiece 0.2.3 gave.

Where `sentencepiece` is installed, that tokenizer is asked itself.
"""

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers.utils import sentencepiece_model_pb2_new as protobuf

from model_build.checkpoint import converted, marian
from workloads import UsageError

PIECES = {"▁": -2.0, "▁red": -3.0, "▁shoe": -3.2, "s": -2.5, "▁r": -4.0, "e": -3.5, "d": -3.6, "o": -3.7, "h": -3.8}
TARGET = ("▁rote", "▁Schuhe", "ß", "n", "shoen")
TEXTS = {
    "red shoes": ["▁red", "▁shoe", "s", "</s>"],
    "  red   shoes ": ["▁red", "▁shoe", "s", "</s>"],
    "reed": ["▁r", "e", "e", "d", "</s>"],
    "heß": ["▁", "h", "e", "ß", "</s>"],
    "he漢字d": ["▁", "h", "e", "<unk>", "d", "</s>"],
    ">>fr<< red": [">>fr<<", "▁red", "</s>"],
    "hoes shoen": ["▁", "h", "o", "e", "s", "▁shoe", "n", "</s>"],
    "": ["</s>"],
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tokenizer's files of a Marian."""
    proto: Any = protobuf
    model = proto.ModelProto()
    for piece, score, kind in [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), *((p, s, 1) for p, s in PIECES.items())]:
        model.pieces.add(piece=piece, score=score, type=kind)
    model.trainer_spec.model_type = 1
    model.normalizer_spec.name = "identity"
    for name in ("source.spm", "target.spm"):
        (tmp_path / name).write_bytes(model.SerializeToString())
    pieces = ["</s>", "<unk>", *PIECES, *TARGET, ">>fr<<", "<pad>"]
    (tmp_path / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(pieces)}))
    return tmp_path


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_cut_as_marian_cuts_them(folder: Path, text: str) -> None:
    made = marian.tokenizer(folder)
    assert made.encode(text).ids == [made.token_to_id(piece) for piece in TEXTS[text]]


@pytest.mark.skipif(not importlib.util.find_spec("sentencepiece"), reason="sentencepiece is not installed")
@pytest.mark.parametrize("text", TEXTS)
def test_transformers_says_the_same(folder: Path, text: str) -> None:
    from transformers import MarianTokenizer

    kind: Any = MarianTokenizer
    original = kind(*(str(folder / name) for name in ("source.spm", "target.spm", "vocab.json")))
    assert original.convert_ids_to_tokens(original(text)["input_ids"]) == TEXTS[text]


def test_answers_are_joined_by_the_targets_pieces(folder: Path) -> None:
    made = marian.tokenizer(folder)
    ids = [made.token_to_id(piece) for piece in ("▁rote", "▁Schuhe", "n", "</s>", "<pad>")]
    assert made.decode(ids, skip_special_tokens=True) == "rote Schuhen"


def test_a_folder_without_tokenizer_json_gets_one_in_the_cache(folder: Path, tmp_path: Path) -> None:
    (folder / "config.json").write_text("{}")
    made = converted.prepared(folder, tmp_path / "cache")
    assert made == converted.prepared(folder, tmp_path / "cache")
    assert sorted(file.name for file in made.iterdir()) == [
        "config.json",
        "source.spm",
        "target.spm",
        "tokenizer.json",
        "tokenizer_config.json",
        "vocab.json",
    ]
    assert Tokenizer.from_file(str(made / "tokenizer.json")).encode("red").tokens == ["▁red", "</s>"]
    assert [file.name for file in (tmp_path / "cache").iterdir()] == [made.name], "no other file is left"
    (folder / "tokenizer.json").touch()
    assert converted.prepared(folder, tmp_path / "cache") == folder


def test_a_vocabulary_with_gaps_is_refused(folder: Path, tmp_path: Path) -> None:
    (folder / "vocab.json").write_text('{"</s>": 0, "<unk>": 1, "<pad>": 3}')
    with pytest.raises(UsageError) as refused:
        converted.prepared(folder, tmp_path / "cache")
    assert str(refused.value) == (
        f"{folder / 'vocab.json'}: its ids are not those from 0 on, one for each piece. Copy it again."
    )
