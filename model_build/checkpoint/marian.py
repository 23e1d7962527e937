"""Makes a tokenizer of a Marian's source.spm and vocab.json, which transformers has no fast one for.

SentencePiece cuts a text by the likelihoods of source.spm's pieces, vocab.json has their ids, those of the target's
pieces among them. These take part only where no piece of the source does: text that SentencePiece does not know is
looked up in vocab.json unchanged, too.

It does not know sacremoses' normalisation, which transformers leaves out of its own tokenizer as well. Characters side
by side that source.spm does not have are one unknown token there, and here each the target's where it has them; and
an answer that ends with a lone space keeps it here.
"""

from pathlib import Path
from typing import Any

from model_build.checkpoint.files import read_json
from model_build.checkpoint.sentencepiece import NORMAL, in_order, normalizer, read_model

SOURCE, VOCABULARY = "source.spm", "vocab.json"
SPECIAL = ("</s>", "<unk>", "<pad>")
FOREIGN = -1e4
"""Score of a single character that source.spm does not have: below all sums of pieces that it has."""
FOREIGN_PIECE = -1e7
"""Score of a longer piece of the target: below all that single characters can do."""


def tokenizer(folder: Path) -> Any:
    """Returns the `tokenizers.Tokenizer` of a Marian. Raises `UsageError`, and what protobuf raises."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, processors

    vocabulary = read_json(folder / VOCABULARY)
    pieces = in_order(folder / VOCABULARY, vocabulary, SPECIAL)
    spm = read_model(folder / SOURCE)
    scores = {piece.piece: piece.score for piece in spm.pieces if piece.type == NORMAL}
    made = Tokenizer(models.Unigram([(piece, _score(piece, scores)) for piece in pieces], vocabulary["<unk>"]))
    made.normalizer = normalizer(spm)
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=False)
    made.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=False)
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", vocabulary["</s>"])])
    made.add_special_tokens(list(SPECIAL))
    # The target's language, before the text where a model has several.
    made.add_tokens([AddedToken(piece, rstrip=True) for piece in pieces if piece[:2] == ">>" and piece[-2:] == "<<"])
    return made


def _score(piece: str, scores: dict[str, float]) -> float:
    return scores.get(piece, FOREIGN if len(piece) == 1 else FOREIGN_PIECE)
