"""The models of latency.py: checkpoints in published sizes with made-up weights, and spellcheck's own."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import peers

SETUP = "setup.json"
VOCABULARY = 32128
T5_SHAPES: dict[str, dict[str, int]] = {
    "t5-small": {"d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 6, "num_heads": 8},
    "t5-base": {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12},
}
SEQUENCES: dict[str, dict[str, Any]] = {
    "bart": {
        "config": {"vocab_size": 50265, "d_model": 768, "activation_function": "gelu"},
        "stack": {"layers": 6, "attention_heads": 12, "ffn_dim": 3072},
        "tokens": {"bos_token": 0, "pad_token": 1, "eos_token": 2, "unk_token": 3},
        "start": 2,
    },
    "marian": {
        "config": {"vocab_size": 58101, "d_model": 512, "activation_function": "swish", "scale_embedding": True},
        "stack": {"layers": 6, "attention_heads": 8, "ffn_dim": 2048},
        "tokens": {"eos_token": 0, "unk_token": 1, "pad_token": 58100},
        "start": 58100,
    },
}
"""The dimensions and tokens of facebook/bart-base and of Helsinki-NLP's opus-mt models."""
ONE_ROW = "11 tokens"
CHANGED, UNCHANGED = "10 % changed", "unchanged"
GREEDY, BEAMS = "greedy", "4 beams"
EVALUATION, EVALUATION_ROWS = "evaluation", 200
SOURCE_WORDS, SOURCES = 30, 3
"""Words of a source of which 10 % are changed, and the number of these sources."""


@dataclass(frozen=True, kw_only=True)
class Call:
    """Rows of tokens to answer. Without `ends`, the end token is suppressed and answers have `tokens` tokens."""

    rows: list[list[int]]
    tokens: int
    beams: int = 1
    ends: bool = True
    text: str = ""
    """The text of the row, if there is a single one."""


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Token ids, limits and calls of a checkpoint, in a file of its folder."""

    start: int
    end: int
    pad: int
    max_input_tokens: int
    max_output_tokens: int
    calls: dict[str, Call]

    @classmethod
    def read(cls, checkpoint: Path) -> "Setup":
        document = json.loads((checkpoint / SETUP).read_text("utf-8"))
        calls = {name: Call(**call) for name, call in document.pop("calls").items()}
        return cls(calls=calls, **document)


def make_checkpoint(group: str, folder: Path) -> None:
    """Writes the checkpoint of a group, which is a model and a device, and its setup."""
    name = group.split()[0]
    make = _spellcheck if name == "spellcheck" else _sequences if name in SEQUENCES else _t5
    (folder / SETUP).write_text(json.dumps(asdict(make(name, folder))), "utf-8")


def cases(name: str) -> dict[str, list[str]]:
    """Returns the calls of each case of a model."""
    if name in SEQUENCES:
        names = [f"{rows} rows, {decoding}" for rows in (1, 16) for decoding in (GREEDY, BEAMS)]
        return {case: [case] for case in names}
    if name == "spellcheck":
        return {EVALUATION: [str(number) for number, _ in enumerate(_evaluation())]}
    guided = {case: [f"{case} {number}" for number in range(SOURCES)] for case in (CHANGED, UNCHANGED)}
    return {ONE_ROW: [ONE_ROW], "encoder": [f"encode {ONE_ROW}"], **guided}


def _evaluation() -> list[str]:
    from workloads import load_workload

    texts = [str(example.row["text"]) for example in load_workload("spellcheck").evaluation()]
    return texts[:: max(1, len(texts) // EVALUATION_ROWS)]


def _spellcheck(name: str, folder: Path) -> Setup:
    from tokenizers import Tokenizer

    from workloads import ROOT

    shutil.copytree(ROOT / "workloads" / "spellcheck" / "checkpoint", folder, dirs_exist_ok=True)
    config = json.loads((folder / "config.json").read_text("utf-8"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    calls = {
        str(number): Call(rows=[tokenizer.encode(text).ids], tokens=64, text=text)
        for number, text in enumerate(_evaluation())
    }
    return Setup(
        start=config["decoder_start_token_id"],
        end=config["eos_token_id"],
        pad=config["pad_token_id"],
        max_input_tokens=64,
        max_output_tokens=64,
        calls=calls,
    )


def _sequences(name: str, folder: Path) -> Setup:
    """Writes a BART or Marian with seeded random weights and no forced end token."""
    import numpy as np
    import torch
    from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel

    size = SEQUENCES[name]
    stacks = {f"{stack}_{key}": value for stack in ("encoder", "decoder") for key, value in size["stack"].items()}
    ids = {f"{token}_id": number for token, number in size["tokens"].items()}
    # CTranslate2 reads these keys of published files.
    old = {"normalize_before": False, "normalize_embedding": name == "bart"}
    configure: Any = BartConfig if name == "bart" else MarianConfig
    build: Any = BartForConditionalGeneration if name == "bart" else MarianMTModel
    torch.manual_seed(0)
    config = configure(
        **size["config"], **stacks, **ids, **old, decoder_start_token_id=size["start"], forced_eos_token_id=None
    )
    build(config).save_pretrained(folder)
    peers.write_tokenizer(folder, size["config"]["vocab_size"], size["tokens"])
    sources = {rows: np.random.default_rng(0).integers(5, 30_000, (rows, 9)).tolist() for rows in (1, 16)}
    return Setup(
        start=size["start"],
        end=size["tokens"]["eos_token"],
        pad=size["tokens"]["pad_token"],
        max_input_tokens=16,
        max_output_tokens=11,
        calls={
            f"{rows} rows, {decoding}": Call(rows=source, tokens=11, beams=1 if decoding == GREEDY else 4, ends=False)
            for rows, source in sources.items()
            for decoding in (GREEDY, BEAMS)
        },
    )


def _t5(name: str, folder: Path) -> Setup:
    import numpy as np

    model = copying_t5(T5_SHAPES[name])
    model.save_pretrained(folder)
    peers.write_tokenizer(folder, VOCABULARY, {"pad_token": 0, "eos_token": 1, "unk_token": 2}, ends=True)
    random = np.random.default_rng(0)

    def call(words: int, changed: int) -> Call:
        """Returns a source of different words, of which some are those that the answer changes."""
        first = _changed().start
        kept = random.choice(np.arange(3, first), words - changed, replace=False)
        source = random.permutation([*kept, *random.choice(np.arange(first, VOCABULARY, 2), changed, replace=False)])
        tokens = source.tolist()
        return Call(rows=[[*tokens, 1]], tokens=words + 1, text=" ".join(f"w{token}" for token in tokens))

    calls = {ONE_ROW: call(10, 0)}
    for case, changed in ((CHANGED, SOURCE_WORDS // 10), (UNCHANGED, 0)):
        calls |= {f"{case} {number}": call(SOURCE_WORDS, changed) for number in range(SOURCES)}
    limits = {"max_input_tokens": 64, "max_output_tokens": SOURCE_WORDS + 1}
    return Setup(start=0, end=1, pad=0, calls=calls, **limits)


def copying_t5(shape: dict[str, int]) -> Any:
    """Returns a T5 that answers with its source, in which it changes the words of `_changed`.

    An embedding is a random vector in the first half of the dimensions. The first encoder layer copies the one of the
    previous token into the second half; for the first token this is the end token. The last decoder layer looks for the
    last output among the previous tokens and returns the token there. The two words of a pair differ in the sign of
    some dimensions, which the decoder inverts. All other layers add nearly nothing, so int8 changes no answer.
    """
    import torch
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    configure: Any = T5Config
    config = configure(vocab_size=VOCABULARY, decoder_start_token_id=0, **shape)
    model: Any = T5ForConditionalGeneration(config).eval()
    width, half = shape["d_model"], shape["d_model"] // 2
    constant, end, pad = half - 1, half - 2, half - 3
    sign = slice(pad - width // 16, pad)
    eye = torch.eye(width)
    words = eye[[place % sign.start for place in range(width)]]
    embedding = torch.zeros(VOCABULARY, width)
    embedding[:, : sign.start] = torch.randn(VOCABULARY, sign.start)
    embedding[:, constant] = 1.0
    pairs = embedding[_changed()].view(-1, 2, width)
    pairs[:, 1] = pairs[:, 0]
    pairs[:, :, sign] = torch.tensor([1.0, -1.0]).view(1, 2, 1)
    embedding[0] = embedding[1]
    embedding[1, end], embedding[0, pad] = 4.0, 4.0
    first, last = model.encoder.block[0].layer[0].SelfAttention, model.decoder.block[-1].layer[1].EncDecAttention
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith((".o.weight", ".wo.weight")):
                weight.mul_(1e-4)
        model.shared.weight.copy_(embedding)
        # The bias for the token to the left outweighs the key of the end token, which outweighs all others.
        first.relative_attention_bias.weight.zero_()[1] = 200.0
        first.q.weight.zero_()[:: shape["d_kv"], constant] = 3.5
        first.k.weight.zero_()[:: shape["d_kv"], end] = 3.5
        first.v.weight.copy_(eye)
        first.o.weight.zero_()[half:] = eye[:half]
        last.q.weight.copy_(8 * words)
        last.k.weight.copy_(words.roll(half, 1))
        last.v.weight.copy_(eye)[sign].neg_()
        last.o.weight.zero_()[:half] = 30 * eye[:half]
    return model


def _changed() -> slice:
    """Returns the words that the answer changes, an eighth of the vocabulary: each to the other one of its pair."""
    return slice(VOCABULARY - VOCABULARY // 16 * 2, VOCABULARY)
