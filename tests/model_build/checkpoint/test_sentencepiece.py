"""tokenizer.json of a Marian and of an M2M100 gives the ids that transformers' own tokenizers with SentencePiece gave.

m2m100.json has the ids of 400 texts by transformers' M2M100Tokenizer, with the small model of SentencePiece in m2m100/.
`TEXTS` has what MarianTokenizer of transformers 5.23 with SentencePiece 0.2.3 gave.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from transformers.utils import sentencepiece_model_pb2_new as protobuf

from model_build.checkpoint.sentencepiece import prepared, tokenizer
from model_build.init import checkpoint_source
from tests.builders import message_of
from workloads import UsageError

M2M100: dict[str, Any] = json.loads(Path(__file__).with_name("m2m100.json").read_text("utf-8"))
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
def m2m100(tmp_path: Path) -> Path:
    return Path(shutil.copytree(Path(__file__).with_name("m2m100"), tmp_path / "m2m100"))


@pytest.fixture
def marian(tmp_path: Path) -> Path:
    proto: Any = protobuf
    model = proto.ModelProto()
    for piece, score, kind in [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3), *((p, s, 1) for p, s in PIECES.items())]:
        model.pieces.add(piece=piece, score=score, type=kind)
    folder = tmp_path / "marian"
    folder.mkdir()
    (folder / "source.spm").write_bytes(model.SerializeToString())
    pieces = ["</s>", "<unk>", *PIECES, *TARGET, ">>fr<<", "<pad>"]
    (folder / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(pieces)}))
    return folder


def test_marian_texts_and_answers(marian: Path) -> None:
    made = tokenizer(marian)
    assert {text: made.encode(text).ids for text in TEXTS} == {
        text: [made.token_to_id(piece) for piece in pieces] for text, pieces in TEXTS.items()
    }
    answer = [made.token_to_id(piece) for piece in ("▁rote", "▁Schuhe", "n", "</s>", "<pad>")]
    assert made.decode(answer, skip_special_tokens=True) == "rote Schuhen"


@pytest.mark.parametrize("language", ["en", "de"])
def test_m2m100_texts_and_answers(language: str, m2m100: Path) -> None:
    """Answers are joined as in transformers, but for spaces around them."""
    (m2m100 / "tokenizer_config.json").write_text(json.dumps({"src_lang": language}))
    made = tokenizer(m2m100)
    assert [made.encode(text).ids for text in M2M100["texts"]] == M2M100["ids"][language]
    assert [made.decode(ids, skip_special_tokens=True).strip() for ids in M2M100["ids"]["en"]] == M2M100["decoded"]


def test_a_folder_without_tokenizer_json_gets_one_in_the_cache(marian: Path, tmp_path: Path) -> None:
    (marian / "config.json").write_text("{}")
    made = prepared(marian, tmp_path / "cache")
    assert made == prepared(marian, tmp_path / "cache")
    names = ["config.json", "source.spm", "tokenizer.json", "tokenizer_config.json", "vocab.json"]
    assert sorted(file.name for file in made.iterdir()) == names
    assert [file.name for file in (tmp_path / "cache").iterdir()] == [made.name], "no other file is left"
    (marian / "tokenizer.json").touch()
    assert prepared(marian, tmp_path / "cache") == marian


def test_another_language_makes_another_tokenizer(m2m100: Path, tmp_path: Path) -> None:
    made = {}
    for language in (None, "fr"):
        (m2m100 / "tokenizer_config.json").write_text(json.dumps({"src_lang": language}))
        file = prepared(m2m100, tmp_path / "cache") / "tokenizer.json"
        made[language] = Tokenizer.from_file(str(file)).encode("train").tokens[0]
    assert made == {None: "__en__", "fr": "__fr__"}
    assert checkpoint_source.fetch(str(m2m100), tmp_path / "copy").copied


REFUSALS = {
    "language": (
        {"language_codes": "wmt21", "src_lang": "tlh"},
        "src_lang: got 'tlh'. Allowed: en, ha, is, ja, cs, ru, zh, de.",
    ),
    "codes": ({"language_codes": "mine"}, "language_codes: got 'mine'. Allowed: m2m100, wmt21."),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_an_unknown_language_is_refused(name: str, m2m100: Path, tmp_path: Path) -> None:
    config, message = REFUSALS[name]
    file = m2m100 / "tokenizer_config.json"
    file.write_text(json.dumps(config))
    assert message_of(UsageError, prepared, m2m100, tmp_path / "cache") == f"{file}: {message}"


def test_a_vocabulary_that_does_not_fit_the_pieces_is_refused(m2m100: Path, tmp_path: Path) -> None:
    file = m2m100 / "vocab.json"
    pieces = sorted(json.loads(file.read_text()).items(), key=lambda each: each[1])
    for vocabulary, problem in (
        ({"</s>": 0, "<unk>": 2}, "its ids are not those from 0 on, one for each piece. Copy it again."),
        (dict(pieces[:-1]), f"has no {pieces[-1][0]!r}, which is a piece of sentencepiece.bpe.model. Copy both again."),
    ):
        file.write_text(json.dumps(vocabulary))
        assert message_of(UsageError, prepared, m2m100, tmp_path / "cache") == f"{file}: {problem}"
