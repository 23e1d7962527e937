"""Encoder–decoders at published sizes with 9 tokens in and 11 out, on CPU: ours beside other projects.

  python benchmarks/generation.py                   bart-base and opus-mt, 1 and 16 rows, greedy and 4 beams

`make peers` installs Optimum and CTranslate2. Weights are seeded and random in the dimensions of bart-base and opus-mt.
The end token is suppressed, so every answer has 11 tokens. Every engine gets the same rows and one thread. In fp32 each
has to return Hugging Face's tokens, except CTranslate2, which has other rules for equally good beams.
"""

import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import harness, peers
from benchmarks.harness import BASELINE, Answer

SOURCE, ANSWER, LAYERS, THREADS = 9, 11, 6, 1
FIRST_TOKEN, LAST_TOKEN = 5, 30_000
MODELS: dict[str, dict[str, Any]] = {
    "bart": {
        "config": {"vocab_size": 50265, "d_model": 768, "activation_function": "gelu"},
        "stack": {"layers": LAYERS, "attention_heads": 12, "ffn_dim": 3072},
        "tokens": {"bos_token": 0, "pad_token": 1, "eos_token": 2, "unk_token": 3},
        "start": 2,
    },
    "marian": {
        "config": {"vocab_size": 58101, "d_model": 512, "activation_function": "swish", "scale_embedding": True},
        "stack": {"layers": LAYERS, "attention_heads": 8, "ffn_dim": 2048},
        "tokens": {"eos_token": 0, "unk_token": 1, "pad_token": 58100},
        "start": 58100,
    },
}
"""The dimensions and tokens of facebook/bart-base and of Helsinki-NLP's opus-mt models."""
EXACT = (BASELINE, "optimum fp32", "optimum O2 fp32", "ours fp32")
GOALS = (
    ("ours fp32", BASELINE, 2.5),
    ("ours int8", BASELINE, 5.0),
)
GREEDY = "greedy"
OPTIMUM = "ORTModelForSeq2SeqLM"


def main() -> int:
    rounds = harness.options(__doc__, rounds=(5, "turns of each engine")).rounds
    return harness.compare(
        Path(__file__),
        list(MODELS),
        [f"{rows} rows, {decoding}" for rows in (1, 16) for decoding in (GREEDY, "4 beams")],
        ENGINES,
        GOALS,
        _check,
        rounds=rounds,
        threads=THREADS,
    )


def _sizes(case: str) -> tuple[int, int]:
    rows, beams = case.split(" rows, ")
    return int(rows), 1 if beams == GREEDY else int(beams.removesuffix(" beams"))


def _check(model: str, case: str, answers: Mapping[str, list[list[int]]]) -> dict[str, Any]:
    """Returns the share of rows with Hugging Face's tokens by engine."""
    expected = answers[BASELINE]
    if any(len(row) != ANSWER for row in expected):
        raise SystemExit(f"{model}, {case}: Hugging Face's answers are not {ANSWER} tokens long.")
    same = {
        name: sum(a == b for a, b in zip(rows, expected, strict=True)) / len(expected) for name, rows in answers.items()
    }
    for name in EXACT:
        if same.get(name, 1.0) < 1.0:
            raise SystemExit(f"{model}, {case}: the tokens of {name} are not Hugging Face's.")
    return {"same_answers": same}


def _make_checkpoint(model: str, made: Path) -> None:
    """Writes a model with seeded weights and no forced end token."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel

    size = MODELS[model]
    stacks = {f"{stack}_{key}": value for stack in ("encoder", "decoder") for key, value in size["stack"].items()}
    ids = {f"{name}_id": token for name, token in size["tokens"].items()}
    # CTranslate2 reads these keys of published files.
    old = {"normalize_before": False, "normalize_embedding": model == "bart"}
    configure: Any = BartConfig if model == "bart" else MarianConfig
    build: Any = BartForConditionalGeneration if model == "bart" else MarianMTModel
    torch.manual_seed(0)
    config = configure(
        **size["config"], **stacks, **ids, **old, decoder_start_token_id=size["start"], forced_eos_token_id=None
    )
    build(config).save_pretrained(made)
    peers.write_tokenizer(made, size["config"]["vocab_size"], size["tokens"])


def _make_ours(name: str, model: str, checkpoint: Path, made: Path) -> None:
    from model_build.text2text import export, optimise

    with tempfile.TemporaryDirectory() as portable:
        export.export(export.load(checkpoint), Path(portable), max_input_tokens=16, max_output_tokens=16)
        optimise.optimise(Path(portable), made, "int8" if name.endswith("int8") else "fp32")


def _rows(case: str) -> Any:
    import numpy as np

    return np.random.default_rng(0).integers(FIRST_TOKEN, LAST_TOKEN, (_sizes(case)[0], SOURCE)).tolist()


def _end(model: str) -> int:
    return int(MODELS[model]["tokens"]["eos_token"])


def _hugging_face(name: str, model: str, folder: Path) -> Answer:
    import torch
    from transformers import AutoModelForSeq2SeqLM

    torch.set_num_threads(THREADS)
    network: Any = AutoModelForSeq2SeqLM.from_pretrained(folder / "checkpoint")
    return _generating(network.eval(), model)


def _optimum(name: str, model: str, folder: Path) -> Answer:
    return _generating(peers.load_optimum(OPTIMUM, folder / name, THREADS), model)


def _generating(network: Any, model: str) -> Answer:
    options = {"suppress_tokens": [_end(model)], "max_new_tokens": ANSWER}
    return lambda case: peers.generate(network, _rows(case), num_beams=_sizes(case)[1], **options)


def _ctranslate2(name: str, model: str, folder: Path) -> Answer:
    translate = peers.load_ctranslate2(name, folder, THREADS)
    length = {"min_decoding_length": ANSWER, "max_decoding_length": ANSWER}
    return lambda case: translate(_rows(case), beam_size=_sizes(case)[1], **length)


def _ours(name: str, model: str, folder: Path) -> Answer:
    from tokenizers import Tokenizer

    from containers.text2text.engine import OnnxEngine
    from containers.text2text.generation import Generation
    from containers.text2text.generator import TextGenerator
    from containers.text2text.settings import Settings

    settings = Settings(
        max_input_tokens=16,
        max_output_tokens=ANSWER,
        decoder_start_token_id=MODELS[model]["start"],
        eos_token_ids=(_end(model),),
        pad_token_id=MODELS[model]["tokens"]["pad_token"],
        threads=THREADS,
    )
    engine = OnnxEngine(folder / name / "encoder.onnx", folder / name / "decoder.onnx", THREADS)
    generator = TextGenerator(Tokenizer.from_file(str(folder / "checkpoint" / "tokenizer.json")), engine, settings)

    def answer(case: str) -> Any:
        generation = Generation(num_beams=_sizes(case)[1], suppress_tokens=(_end(model),))
        return [row.tolist() for row in generator.generate(_rows(case), generation)]

    return answer


ENGINES: dict[str, harness.Load] = {
    BASELINE: _hugging_face,
    **dict.fromkeys(("optimum fp32", "optimum O2 fp32"), _optimum),
    **dict.fromkeys(("ctranslate2 fp32", "ctranslate2 int8"), _ctranslate2),
    **dict.fromkeys(("ours fp32", "ours int8"), _ours),
}


if __name__ == "__main__":
    peers.dispatch(main, ENGINES, checkpoint=_make_checkpoint, ours=_make_ours, optimum=OPTIMUM)
