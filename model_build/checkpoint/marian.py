"""Makes tokenizer.json of a Marian's source.spm and vocab.json, which transformers has no fast tokenizer for.

In: a checkpoint's folder. Out: a folder below the cache with links to all its files, tokenizer.json and a
tokenizer_config.json that names it. SentencePiece cuts a text by the likelihoods of source.spm's pieces, vocab.json has
their ids, those of the target's pieces among them. These take part only where no piece of the source does: text that
SentencePiece does not know is looked up in vocab.json as it is, too.

It does not know sacremoses' normalisation, which transformers leaves out of its own tokenizer as well. Characters side
by side that source.spm does not have are one unknown token there, and here each the target's where it has them; and
an answer that ends with a lone space keeps it here.
"""

import hashlib
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from model_build.checkpoint.files import broken, loading, read_json
from workloads import file_sha256

SOURCE, VOCABULARY = "source.spm", "vocab.json"
NORMAL = 1
"""The type of a piece in SentencePiece's model; others are unknown, control and unused ones."""
FOREIGN = -1e4
"""Score of a single character that source.spm does not have: below all sums of pieces that it has."""
FOREIGN_PIECE = -1e7
"""Score of a longer piece of the target: below all that single characters can do."""


def prepared(folder: Path, cache: Path) -> Path:
    """Returns the folder itself where it has a tokenizer.json, or is no Marian's. Raises `UsageError`."""
    if (folder / "tokenizer.json").exists() or not all((folder / name).exists() for name in (SOURCE, VOCABULARY)):
        return folder
    files = sorted(file for file in folder.iterdir() if file.is_file() and file.name != "tokenizer_config.json")
    facts = [
        str(folder),
        *(file.name for file in files),
        *(file_sha256(folder / name) for name in (SOURCE, VOCABULARY)),
    ]
    made = cache / f"marian-{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]}"
    if made.exists():
        return made
    with loading(folder / SOURCE):
        converted = tokenizer(folder)
    cache.mkdir(parents=True, exist_ok=True)
    # Whole or not at all: another process may be at the same.
    scratch = Path(tempfile.mkdtemp(dir=cache))
    for file in files:
        (scratch / file.name).symlink_to(file)
    converted.save(str(scratch / "tokenizer.json"))
    special = {"eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", **special}
    (scratch / "tokenizer_config.json").write_text(json.dumps(config))
    try:
        scratch.rename(made)
    except OSError:  # the other was first
        shutil.rmtree(scratch)
    return made


def tokenizer(folder: Path) -> Any:
    """Returns the `tokenizers.Tokenizer` of a Marian. Raises `UsageError`, and what protobuf raises."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

    vocabulary = read_json(folder / VOCABULARY)
    pieces = _in_order(folder / VOCABULARY, vocabulary)
    spm = _read(folder / SOURCE)
    scores = {piece.piece: piece.score for piece in spm.pieces if piece.type == NORMAL}
    made = Tokenizer(models.Unigram([(piece, _score(piece, scores)) for piece in pieces], vocabulary["<unk>"]))
    charsmap = spm.normalizer_spec.precompiled_charsmap
    steps = [normalizers.Precompiled(charsmap)] if charsmap else []
    made.normalizer = normalizers.Sequence(
        [*steps, normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]  # as `remove_extra_whitespaces` does
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(replacement="▁", prepend_scheme="always", split=False)
    made.decoder = decoders.Metaspace(replacement="▁", prepend_scheme="always", split=False)
    made.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", vocabulary["</s>"])])
    made.add_special_tokens(["</s>", "<unk>", "<pad>"])
    # The target's language, before the text where a model has several.
    made.add_tokens([AddedToken(piece, rstrip=True) for piece in pieces if piece[:2] == ">>" and piece[-2:] == "<<"])
    return made


def _in_order(file: Path, vocabulary: dict[str, Any]) -> list[str]:
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    if [vocabulary[piece] for piece in pieces] != list(range(len(pieces))):
        raise broken(file, "its ids are not those from 0 on, one for each piece. Copy it again.")
    for piece in ("</s>", "<unk>", "<pad>"):
        if piece not in vocabulary:
            raise broken(file, f"has no '{piece}'. Copy it again.")
    return pieces


def _score(piece: str, scores: dict[str, float]) -> float:
    return scores.get(piece, FOREIGN if len(piece) == 1 else FOREIGN_PIECE)


def _read(file: Path) -> Any:
    """Reads SentencePiece's model by its protobuf, which transformers carries."""
    from transformers.utils import sentencepiece_model_pb2_new as protobuf

    proto: Any = protobuf
    model = proto.ModelProto()
    model.ParseFromString(file.read_bytes())
    return model
