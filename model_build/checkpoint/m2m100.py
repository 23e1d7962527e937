"""Makes a tokenizer of an M2M100's sentencepiece.bpe.model and vocab.json, which transformers has no fast one for.

SentencePiece cuts a text by joining neighbours whose piece has the best score, vocab.json has the pieces' ids, and the
tokens of the languages follow behind these. A text begins with the token of its language: `src_lang` of
tokenizer_config.json, or English where it says none, as in transformers.

It does not know which of two pairs SentencePiece joins first where both make the same piece, nor `sp_model_kwargs`. An
answer that begins or ends with a space keeps it here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from model_build.checkpoint.files import broken, read_json
from model_build.checkpoint.sentencepiece import NORMAL, in_order, normalizer, read_model

MODEL, VOCABULARY = "sentencepiece.bpe.model", "vocab.json"
SPECIAL = ("<s>", "<pad>", "</s>", "<unk>")
LANGUAGES = {
    "m2m100": "af am ar ast az ba be bg bn br bs ca ceb cs cy da de el en es et fa ff fi fr fy ga gd gl gu ha he hi hr "
    "ht hu hy id ig ilo is it ja jv ka kk km kn ko lb lg ln lo lt lv mg mk ml mn mr ms my ne nl no ns oc or "
    "pa pl ps pt ro ru sd si sk sl so sq sr ss su sv sw ta th tl tn tr uk ur uz vi wo xh yi yo zh zu",
    "wmt21": "en ha is ja cs ru zh de",
}
"""The languages in the order of their ids, by `language_codes` of tokenizer_config.json. Source: transformers'
tokenization_m2m_100.py."""


def tokenizer(folder: Path) -> Any:
    """Returns the `tokenizers.Tokenizer` of an M2M100. Raises `UsageError`, and what protobuf raises."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    vocabulary = read_json(folder / VOCABULARY)
    in_order(folder / VOCABULARY, vocabulary, SPECIAL)
    spm = read_model(folder / MODEL)
    scores = {piece.piece: piece.score for piece in spm.pieces if piece.type == NORMAL}
    if lost := next((piece for piece in scores if piece not in vocabulary), None):
        raise broken(folder / VOCABULARY, f"has no {lost!r}, which is a piece of {MODEL}. Copy both again.")
    languages, language = _languages(folder)
    made = Tokenizer(models.BPE(vocabulary, list(_merges(scores)), unk_token="<unk>", fuse_unk=True))
    made.normalizer = normalizer(spm)
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=False)
    made.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=False)
    made.add_special_tokens([*SPECIAL, *languages])
    made.post_processor = processors.TemplateProcessing(
        single=f"{language} $A </s>",
        special_tokens=[(token, made.token_to_id(token)) for token in (language, "</s>")],
    )
    return made


def _merges(scores: dict[str, float]) -> Iterator[tuple[str, str]]:
    """Yields the pairs that make a piece, the best piece's first."""
    for piece in sorted(scores, key=lambda each: -scores[each]):
        for cut in range(1, len(piece)):
            if piece[:cut] in scores and piece[cut:] in scores:
                yield piece[:cut], piece[cut:]


def _languages(folder: Path) -> tuple[list[str], str]:
    """Returns the tokens of all languages, and that of the texts."""
    file = folder / "tokenizer_config.json"
    config = read_json(file) if file.exists() else {}
    codes = config.get("language_codes") or "m2m100"
    if codes not in LANGUAGES:
        raise broken(file, f"language_codes: got {codes!r}. Allowed: {', '.join(LANGUAGES)}.")
    known, language = LANGUAGES[codes].split(), config.get("src_lang") or "en"
    if language not in known:
        raise broken(file, f"src_lang: got {language!r}. Allowed: {', '.join(known)}.")
    return [f"__{code}__" for code in known], f"__{language}__"
