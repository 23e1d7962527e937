"""tokenizer.json of an M2M100 gives the ids that transformers' own tokenizer with SentencePiece gave, on 400 texts.

m2m100.json has what it gave, which `record_m2m100.py` wrote; where `sentencepiece` is installed, it is asked itself.
"""

import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer

from model_build.checkpoint import converted, m2m100
from model_build.init import checkpoint_source as source
from tests.model_build.checkpoint.record_m2m100 import FOLDER, RECORDED, transformers_own
from workloads import UsageError

GIVEN: dict[str, Any] = json.loads(RECORDED.read_text("utf-8"))
TEXTS: list[str] = GIVEN["texts"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The tokenizer's files of an M2M100."""
    return Path(shutil.copytree(FOLDER, tmp_path / "checkpoint"))


def refusal(folder: Path, cache: Path) -> str:
    with pytest.raises(UsageError) as refused:
        converted.prepared(folder, cache)
    return str(refused.value).removeprefix(f"{folder}/")


@pytest.mark.parametrize("language", ["en", "de"])
def test_every_text_has_the_ids_that_transformers_gave_it(language: str, folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"src_lang": language}))
    made = m2m100.tokenizer(folder)
    given = {text: made.encode(text).ids for text in TEXTS}
    assert len(given) > 350
    assert given == dict(zip(TEXTS, GIVEN["ids"][language], strict=True))


@pytest.mark.skipif(not importlib.util.find_spec("sentencepiece"), reason="sentencepiece is not installed")
@pytest.mark.parametrize("language", ["en", "de"])
def test_transformers_still_gives_them(language: str) -> None:
    original = transformers_own(language)
    assert [original(text)["input_ids"] for text in TEXTS] == GIVEN["ids"][language]


def test_answers_are_joined_as_transformers_joins_them_but_for_spaces_around(folder: Path) -> None:
    made = m2m100.tokenizer(folder)
    assert [made.decode(ids, skip_special_tokens=True).strip() for ids in GIVEN["ids"]["en"]] == GIVEN["decoded"]


def test_languages_have_the_ids_behind_the_pieces(folder: Path) -> None:
    made, pieces = m2m100.tokenizer(folder), len(json.loads((folder / "vocab.json").read_text()))
    assert [made.token_to_id(token) for token in ("__af__", "__en__", "__zu__")] == [pieces, pieces + 18, pieces + 99]


def test_a_folder_without_tokenizer_json_gets_one_for_its_language(folder: Path, tmp_path: Path) -> None:
    made = {}
    for language in (None, "fr"):
        (folder / "tokenizer_config.json").write_text(json.dumps({"src_lang": language}))
        prepared = converted.prepared(folder, tmp_path / "cache")
        assert sorted(file.name for file in prepared.iterdir()) == [
            "sentencepiece.bpe.model",
            "tokenizer.json",
            "tokenizer_config.json",
            "vocab.json",
        ]
        made[language] = Tokenizer.from_file(str(prepared / "tokenizer.json")).encode("train").tokens[0]
    assert made == {None: "__en__", "fr": "__fr__"}


def test_init_copies_it_too(folder: Path, tmp_path: Path) -> None:
    fetched = source.fetch(str(folder), tmp_path / "cache")
    assert Tokenizer.from_file(str(fetched.folder / "tokenizer.json")).encode(TEXTS[0]).ids == GIVEN["ids"]["en"][0]
    assert fetched.copied


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"src_lang": "tlh"}, "src_lang: got 'tlh'. Allowed: en, ha, is, ja, cs, ru, zh, de."),
        ({"language_codes": "mine"}, "language_codes: got 'mine'. Allowed: m2m100, wmt21."),
    ],
    ids=["language", "codes"],
)
def test_a_language_that_it_does_not_have_is_refused(
    config: dict[str, str], said: str, folder: Path, tmp_path: Path
) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"language_codes": "wmt21", **config}))
    assert refusal(folder, tmp_path / "cache") == f"tokenizer_config.json: {said}"


def test_a_piece_without_an_id_is_refused(folder: Path, tmp_path: Path) -> None:
    file = folder / "vocab.json"
    pieces = sorted(json.loads(file.read_text()).items(), key=lambda each: each[1])
    file.write_text(json.dumps({piece: index for index, (piece, _) in enumerate(pieces[:-1])}))
    assert refusal(folder, tmp_path / "cache") == (
        f"vocab.json: has no {pieces[-1][0]!r}, which is a piece of sentencepiece.bpe.model. Copy both again."
    )
