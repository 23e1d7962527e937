"""A tiny T5 and a tiny BERT with its encoder elsewhere, and all that can befall their files. Needs no torch."""

import json
import shutil
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from model_build.checkpoint import Checkpoint, read
from model_build.checkpoint.architectures import bert_weights
from model_build.text2text.repository import settings
from tests.fuzz.mutations import damaged_bytes, damaged_document
from workloads import Model, OnnxRuntimeTarget, ProjectError, TextClassification, TextToText

LETTERS = "abcdefghijklmnopqrstuvwxyz"
LABELS = ("buy", "ask")
T5_MODEL = TextToText(task="text2text-generation", checkpoint="./t5", max_input_tokens=8, max_output_tokens=4)
BERT_MODEL = TextClassification(
    task="text-classification", checkpoint="./bert", backbone="./shared", labels=LABELS, max_input_tokens=8
)
T5 = {
    "architectures": ["T5ForConditionalGeneration"],
    "model_type": "t5",
    "vocab_size": 32,
    "d_model": 8,
    "d_kv": 4,
    "d_ff": 16,
    "num_layers": 1,
    "num_decoder_layers": 1,
    "num_heads": 2,
    "feed_forward_proj": "gated-gelu",
    "relative_attention_num_buckets": 4,
    "tie_word_embeddings": True,
    "decoder_start_token_id": 0,
    "pad_token_id": 0,
    "eos_token_id": 1,
}
BERT = {
    "architectures": ["BertModel"],
    "model_type": "bert",
    "vocab_size": 64,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": 16,
    "type_vocab_size": 2,
    "layer_norm_eps": 1e-12,
    "hidden_act": "gelu",
    "pad_token_id": 0,
}
HEAD = {"architectures": ["BertForSequenceClassification"], "id2label": dict(enumerate(LABELS))}


def write_checkpoints(root: Path) -> None:
    """Makes the folders t5, and bert with its encoder in shared."""
    _write(root / "t5", T5, _weights(dict(_t5_shapes())))
    shapes = bert_weights(BERT, BERT_MODEL.task, len(LABELS))
    weights = _weights({name: shape for name, shape, _ in shapes})
    own = {name: tensor for name, tensor in weights.items() if name.startswith(("bert.embeddings", "bert.encoder"))}
    _write(root / "shared", BERT, own)
    _write(root / "bert", HEAD, {name: tensor for name, tensor in weights.items() if name not in own})
    _tokenizer("<pad>", "</s>", "<unk>").save(str(root / "t5/tokenizer.json"))
    _tokenizer("[PAD]", "[UNK]", "[CLS]", "[SEP]").save(str(root / "shared/tokenizer.json"))
    (root / "t5/generation_config.json").write_text(json.dumps({"eos_token_id": [1, 2]}))
    index = {"metadata": {}, "weight_map": dict.fromkeys(own, "model.safetensors")}
    (root / "shared/model.safetensors.index.json").write_text(json.dumps(index))
    for folder, pad in (("t5", "<pad>"), ("shared", "[PAD]")):
        kinds = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": pad}
        (root / folder / "tokenizer_config.json").write_text(json.dumps(kinds))


def _write(folder: Path, config: dict[str, Any], weights: dict[str, Any]) -> None:
    from safetensors.numpy import save_file

    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(weights, folder / "model.safetensors")


def _t5_shapes() -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yields the names and shapes of the weights of `T5`, whose heads together are as wide as its layers."""
    yield "shared.weight", (32, 8)
    for stack, attentions in (("encoder", ["SelfAttention"]), ("decoder", ["SelfAttention", "EncDecAttention"])):
        layers = f"{stack}.block.0.layer"
        for place, attention in enumerate(attentions):
            yield from ((f"{layers}.{place}.{attention}.{part}.weight", (8, 8)) for part in "qkvo")
        yield f"{layers}.0.SelfAttention.relative_attention_bias.weight", (4, 2)
        dense = f"{layers}.{len(attentions)}.DenseReluDense"
        yield from ((f"{dense}.{part}.weight", (16, 8)) for part in ("wi_0", "wi_1"))
        yield f"{dense}.wo.weight", (8, 16)
        yield from ((f"{layers}.{place}.layer_norm.weight", (8,)) for place in range(len(attentions) + 1))
        yield f"{stack}.final_layer_norm.weight", (8,)


def _weights(shapes: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    return {name: generator.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def _tokenizer(*special: str) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors

    unknown = next(token for token in special if "unk" in token.lower())
    vocabulary = {token: number for number, token in enumerate([*special, *LETTERS])}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token=unknown))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    if "[SEP]" in special:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    tokenizer.add_special_tokens(list(special))
    return tokenizer


@st.composite
def damaged_header(draw: st.DrawFn, content: bytes) -> bytes:
    """A safetensors file with another header, or with another length of it."""
    (length,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + length]), content[8 + length :]
    text = json.dumps(draw(damaged_document(header))).encode()
    if draw(st.booleans()):  # as long as it was, so that all else still fits
        text = text[:length].ljust(length)
    told = draw(st.just(len(text)) | st.integers(0, 2 * len(text)) | st.sampled_from([2**63, 2**64 - 1]))
    return struct.pack("<Q", told) + text + data


@st.composite
def damage(draw: st.DrawFn, whole: Path, folder: str) -> tuple[Path, bytes | None]:
    """A file of the folder, and what it holds now: None where it is gone."""
    file = draw(st.sampled_from(sorted((whole / folder).iterdir())))
    content = file.read_bytes()
    kinds: list[Callable[[], bytes | None]] = [lambda: draw(damaged_bytes(content)), lambda: None]
    if file.suffix == ".json":
        kinds += [lambda: json.dumps(draw(damaged_document(json.loads(content)))).encode()] * 4
    else:
        kinds += [lambda: draw(damaged_header(content))] * 4
    return file.relative_to(whole), draw(st.sampled_from(kinds))()


class Damaged:
    """A copy of the folders, in which one file at a time is in another state."""

    def __init__(self, whole: Path, copy: Path) -> None:
        self.whole = whole
        self._copy = shutil.copytree(whole, copy)
        self._last: Path | None = None

    def put(self, file: Path, content: bytes | None) -> Path:
        """Returns the folders with that file so, and all others whole."""
        if self._last is not None:
            shutil.copyfile(self.whole / self._last, self._copy / self._last)
        self._last = file
        if content is None:
            (self._copy / file).unlink()
        else:
            (self._copy / file).write_bytes(content)
        return self._copy


def read_checkpoint(root: Path, model: Model) -> Checkpoint:
    """Reads one of the two as a plan does."""
    if model is T5_MODEL:
        checkpoint = read(root / "t5", root / "t5", model)
        settings(T5_MODEL, OnnxRuntimeTarget(runtime="onnxruntime"), checkpoint)
        return checkpoint
    return read(root / "bert", root / "shared", model)


PARTS = [("t5", T5_MODEL), ("bert", BERT_MODEL), ("shared", BERT_MODEL)]
"""The folders that a test damages, each with the model that it is a part of."""


def refused_or(use: Callable[[Checkpoint], None], root: Path, model: Model) -> None:
    """Reads and uses the checkpoint, which may be refused, with exit code 2 and a sentence that names the file."""
    refusal: ProjectError | None = None
    try:
        use(read_checkpoint(root, model))
    except ProjectError as error:
        refusal = error
    if refusal is not None:
        assert refusal.exit_code == 2
        assert str(refusal).startswith(str(root))
