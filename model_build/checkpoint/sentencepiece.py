"""Makes a tokenizer.json of a Marian's or an M2M100's SentencePiece files: transformers has no fast tokenizer of them.

In: a checkpoint's folder. Out: a folder below the cache with links to all its files, tokenizer.json and a
tokenizer_config.json that names it. SentencePiece itself is not needed.

A Marian's source.spm splits a text by the likelihoods of its pieces; vocab.json has their ids, and those of the
target's pieces, which take part only where no piece of the source does. sacremoses' normalisation is left out, as in
transformers. An M2M100's sentencepiece.bpe.model joins the neighbours whose piece has the best score. The tokens of
the languages follow behind vocab.json's pieces, and a text begins with `src_lang` of tokenizer_config.json, or English.
An answer that begins or ends with a space keeps it, other than in transformers.
"""

import contextlib
import hashlib
import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model_build.checkpoint.files import broken, loading, read_json
from workloads import file_sha256

CONFIG, VOCABULARY = "tokenizer_config.json", "vocab.json"
MARIAN, M2M100 = "source.spm", "sentencepiece.bpe.model"
"""The model of SentencePiece by which a family is recognised."""
SPECIAL = {MARIAN: ("</s>", "<unk>", "<pad>"), M2M100: ("<s>", "<pad>", "</s>", "<unk>")}
NORMAL = 1
"""The type of a piece in SentencePiece's model; others are unknown, control and unused ones."""
FOREIGN = -1e4
"""Score of a single character that source.spm does not have: below all sums of pieces that it has."""
FOREIGN_PIECE = -1e7
"""Score of a longer piece of the target: below all that single characters can do."""
LANGUAGES: dict[str, str] = json.loads(Path(__file__).with_name("m2m100_languages.json").read_text("utf-8"))
"""An M2M100's languages in the order of their ids, by `language_codes` of tokenizer_config.json. Source: transformers'
tokenization_m2m_100.py."""


def prepared(folder: Path, cache: Path) -> Path:
    """Returns the folder itself where it has a tokenizer.json, or files that are not converted. Raises `UsageError`."""
    source = next((name for name in SPECIAL if (folder / name).exists() and (folder / VOCABULARY).exists()), None)
    if source is None or (folder / "tokenizer.json").exists():
        return folder
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != CONFIG)
    facts = [
        str(folder),
        *(file.name for file in files),
        *(file_sha256(folder / name) for name in (source, VOCABULARY, CONFIG) if (folder / name).exists()),
    ]
    made = cache / f"sentencepiece-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}"
    if made.exists():
        return made
    cache.mkdir(parents=True, exist_ok=True)
    # Atomic: another process may do the same.
    with tempfile.TemporaryDirectory(dir=cache) as scratch:
        half = Path(scratch) / made.name
        half.mkdir()
        with loading(folder / source):
            tokenizer(folder).save(str(half / "tokenizer.json"))
        special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
        (half / CONFIG).write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", **special}))
        for file in files:
            (half / file.name).symlink_to(file)
        with contextlib.suppress(OSError):  # the other was first
            half.rename(made)
    return made


def tokenizer(folder: Path) -> Any:
    """Returns the `tokenizers.Tokenizer` of a Marian or an M2M100. Raises `UsageError`, and what protobuf raises."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    source = MARIAN if (folder / MARIAN).exists() else M2M100
    pieces = _pieces_in_order(folder / VOCABULARY, SPECIAL[source])
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    model = _read_model(folder / source)
    scores: dict[str, float] = {piece.piece: piece.score for piece in model.pieces if piece.type == NORMAL}
    begin, added = "", list[Any]()
    if source == MARIAN:
        scored = [(piece, scores.get(piece, FOREIGN if len(piece) == 1 else FOREIGN_PIECE)) for piece in pieces]
        made = Tokenizer(models.Unigram(scored, vocabulary["<unk>"]))
        # The target's language, before the text where a model has several.
        added = [AddedToken(piece, rstrip=True) for piece in pieces if piece[:2] == ">>" and piece[-2:] == "<<"]
        special = list(SPECIAL[source])
    else:
        if lost := next((piece for piece in scores if piece not in vocabulary), None):
            raise broken(folder / VOCABULARY, f"has no {lost!r}, which is a piece of {source}. Copy both again.")
        languages, begin = _languages(folder)
        made = Tokenizer(models.BPE(vocabulary, list(_merges(scores)), unk_token="<unk>", fuse_unk=True))
        special = [*SPECIAL[source], *languages]
    charsmap = model.normalizer_spec.precompiled_charsmap
    # Strips and joins spaces as `remove_extra_whitespaces` does.
    spaces = [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    made.normalizer = normalizers.Sequence([*([normalizers.Precompiled(charsmap)] if charsmap else []), *spaces])
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=False)
    made.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=False)
    made.add_special_tokens(special)
    made.add_tokens(added)
    around = [token for token in (begin, "</s>") if token]
    made.post_processor = processors.TemplateProcessing(
        single=f"{begin} $A </s>".strip(), special_tokens=[(token, made.token_to_id(token)) for token in around]
    )
    return made


def _pieces_in_order(file: Path, special: tuple[str, ...]) -> list[str]:
    """Returns the pieces of a vocab.json by their ids. Raises `UsageError`."""
    vocabulary = read_json(file)
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise broken(file, "its ids are not those from 0 on, one for each piece. Copy it again.")
    for piece in special:
        if piece not in vocabulary:
            raise broken(file, f"has no '{piece}'. Copy it again.")
    return pieces


def _read_model(file: Path) -> Any:
    """Reads SentencePiece's model by its protobuf, which transformers carries."""
    from transformers.utils import sentencepiece_model_pb2_new as protobuf

    proto: Any = protobuf
    model = proto.ModelProto()
    model.ParseFromString(file.read_bytes())
    return model


def _merges(scores: dict[str, float]) -> Iterator[tuple[str, str]]:
    """Yields the pairs that make a piece, the best piece's first."""
    for piece in sorted(scores, key=lambda each: -scores[each]):
        for cut in range(1, len(piece)):
            if piece[:cut] in scores and piece[cut:] in scores:
                yield piece[:cut], piece[cut:]


def _languages(folder: Path) -> tuple[list[str], str]:
    """Returns the tokens of all languages, and that of the texts."""
    file = folder / CONFIG
    config = read_json(file) if file.exists() else {}
    codes = config.get("language_codes") or "m2m100"
    if codes not in LANGUAGES:
        raise broken(file, f"language_codes: got {codes!r}. Allowed: {', '.join(LANGUAGES)}.")
    known, language = LANGUAGES[codes].split(), config.get("src_lang") or "en"
    if language not in known:
        raise broken(file, f"src_lang: got {language!r}. Allowed: {', '.join(known)}.")
    return [f"__{code}__" for code in known], f"__{language}__"
