"""Encoder–decoders at published sizes, 9 tokens in and 11 out: ours beside its peers, greedy and with beams, on CPU.

  make peers                                        Optimum and CTranslate2, which are left out without it
  python benchmarks/generation.py                   bart-base and opus-mt, 1 and 16 rows, greedy and 4 beams
  python benchmarks/generation.py --model marian --rows 16 --beams 1 --rounds 9

Weights are seeded and random in the dimensions of bart-base and of opus-mt. The end is never said, so that every answer
has 11 tokens. Every engine gets the same rows and one thread, and in fp32 has to give Hugging Face's tokens, or the
program stops; CTranslate2 follows rules of its own where beams are as good as each other, so there it is told how many
rows are the same. `turns.py` says how the figures are taken. Milliseconds are those of a call of all rows. Prints a
table for each case with the goals, and one JSON document on the last line.

Optimum is its own export of the checkpoint, as it is and optimised by its level O2, and its `generate`. What is made of
a checkpoint stays in `--models FOLDER` where it is given, so that a second run only measures.
"""

import argparse
import json
import logging
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks import turns
from benchmarks.side_by_side import alone, machine

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
BASELINE = "huggingface fp32"
EXACT = (BASELINE, "optimum fp32", "optimum O2 fp32", "ours fp32")
GOALS = (
    ("ours fp32", BASELINE, 2.5),
    ("ours int8", BASELINE, 5.0),
)
GREEDY = "greedy"
PACKAGES = ("numpy", "onnxruntime", "torch", "transformers")
Answer = Callable[[str], list[list[int]]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=MODELS, action="append", help="only this; may be repeated")
    parser.add_argument("--rows", type=int, action="append", help="rows of a call (default 1 and 16)")
    parser.add_argument("--beams", type=int, action="append", help="1 is greedy (default 1 and 4)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each engine (default 5)")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="only this; may be repeated")
    parser.add_argument("--models", type=Path, help="where models are made, and found by the next run")
    parser.add_argument("--peers", type=Path, default=turns.PEERS_PYTHON, help="Python of the peers' environment")
    options = parser.parse_args(arguments)
    cases = [_case(rows, beams) for rows in options.rows or [1, 16] for beams in options.beams or [1, 4]]
    load, results = os.getloadavg()[0], {}
    with tempfile.TemporaryDirectory(prefix="generation_") as scratch:
        for model in options.model or MODELS:
            folder = (options.models or Path(scratch)) / model
            for case, found in _compare(model, folder, cases, options):
                results[f"{model}, {case}"] = found
                print(turns.table(f"{model}, {case}", found), end="\n\n", flush=True)
    about = {"benchmark": "generation", **machine(PACKAGES), "load_average": load, "threads": THREADS}
    print(json.dumps({**about, "cases": results}))
    return 0


def _case(rows: int, beams: int) -> str:
    return f"{rows} rows, {f'{beams} beams' if beams > 1 else GREEDY}"


def _sizes(case: str) -> tuple[int, int]:
    rows, beams = case.split(" rows, ")
    return int(rows), 1 if beams == GREEDY else int(beams.removesuffix(" beams"))


def _compare(
    model: str, folder: Path, cases: list[str], options: argparse.Namespace
) -> Iterator[tuple[str, dict[str, Any]]]:
    names = [BASELINE, *(name for name in options.engine or ENGINES if name != BASELINE)]
    if left_out := [name for name in names if _is_peer(name) and not options.peers.exists()]:
        print(f"Left out, because {options.peers} is not there: {', '.join(left_out)}.", file=sys.stderr)
        names = [name for name in names if name not in left_out]

    def python(name: str) -> Path:
        return options.peers if _is_peer(name) else Path(sys.executable)

    for name in ("checkpoint", *names):
        if name != BASELINE and not (made := folder / name / "made").exists():
            alone(Path(__file__), "--make", name, model, str(folder), threads=THREADS, python=str(python(name)))
            made.touch()
    with ExitStack() as stack:
        engines = [
            stack.enter_context(
                turns.Engine(Path(__file__), name, model, str(folder), threads=THREADS, python=python(name))
            )
            for name in names
        ]
        for case in cases:
            same = _check(model, case, {engine.name: engine.answer(case) for engine in engines})
            measured = turns.in_turn(engines, case, options.rounds)
            yield case, {**turns.summary(measured, BASELINE, GOALS), "same_answers": same}


def _check(model: str, case: str, answers: Mapping[str, list[list[int]]]) -> dict[str, float]:
    """Returns the share of rows in which an engine gives Hugging Face's tokens."""
    wanted = answers[BASELINE]
    if any(len(row) != ANSWER for row in wanted):
        raise SystemExit(f"{model}, {case}: Hugging Face's answers are not {ANSWER} tokens long.")
    same = {
        name: sum(a == b for a, b in zip(rows, wanted, strict=True)) / len(wanted) for name, rows in answers.items()
    }
    for name in EXACT:
        if same.get(name, 1.0) < 1.0:
            raise SystemExit(f"{model}, {case}: the tokens of {name} are not Hugging Face's.")
    return same


def _is_peer(name: str) -> bool:
    return name.startswith(("optimum", "ctranslate2"))


def _make(name: str, model: str, folder: Path) -> None:
    logging.disable(logging.INFO)  # a line for each node that is quantised
    made, checkpoint = folder / name, folder / "checkpoint"
    made.mkdir(parents=True, exist_ok=True)
    if name == "checkpoint":
        network = _network(model)
        network.save_pretrained(made)
        turns.write_tokenizer(made, MODELS[model]["config"]["vocab_size"], MODELS[model]["tokens"])
    elif name.startswith("optimum"):
        from optimum.onnxruntime import ORTModelForSeq2SeqLM, ORTOptimizer
        from optimum.onnxruntime.configuration import AutoOptimizationConfig

        exported = ORTModelForSeq2SeqLM.from_pretrained(checkpoint, export=True)
        if " O2 " in name:
            ORTOptimizer.from_pretrained(exported).optimize(
                save_dir=made, optimization_config=AutoOptimizationConfig.O2()
            )
        else:
            exported.save_pretrained(made)
    elif name.startswith("ctranslate2"):
        from ctranslate2.converters import TransformersConverter

        kind = {"fp32": "float32", "int8": "int8"}[name.split()[-1]]
        TransformersConverter(str(checkpoint)).convert(str(made), quantization=kind, force=True)
    else:
        from model_build.text2text import export, optimise

        with tempfile.TemporaryDirectory() as portable:
            export.export(export.load(checkpoint), Path(portable), max_input_tokens=16, max_output_tokens=16)
            optimise.optimise(Path(portable), made, "int8" if name.endswith("int8") else "fp32")


def _network(model: str) -> Any:
    """Returns a model with seeded weights. Its end is none that generation configurations name."""
    import torch
    from transformers import BartConfig, BartForConditionalGeneration, MarianConfig, MarianMTModel

    size = MODELS[model]
    stacks = {f"{stack}_{key}": value for stack in ("encoder", "decoder") for key, value in size["stack"].items()}
    ids = {f"{name}_id": token for name, token in size["tokens"].items()}
    # CTranslate2 reads the last two, which published files have and transformers has forgotten.
    old = {"normalize_before": False, "normalize_embedding": model == "bart"}
    configure: Any = BartConfig if model == "bart" else MarianConfig
    build: Any = BartForConditionalGeneration if model == "bart" else MarianMTModel
    torch.manual_seed(0)
    config = configure(
        **size["config"], **stacks, **ids, **old, decoder_start_token_id=size["start"], forced_eos_token_id=None
    )
    return build(config).eval()


def _rows(case: str) -> list[list[int]]:
    import numpy as np

    rows: list[list[int]] = (
        np.random.default_rng(0).integers(FIRST_TOKEN, LAST_TOKEN, (_sizes(case)[0], SOURCE)).tolist()
    )
    return rows


def _end(model: str) -> int:
    end: int = MODELS[model]["tokens"]["eos_token"]
    return end


def _hugging_face(name: str, model: str, folder: Path) -> Answer:
    from transformers import AutoModelForSeq2SeqLM

    network: Any = AutoModelForSeq2SeqLM.from_pretrained(folder / "checkpoint")
    return _generating(network.eval(), model)


def _optimum(name: str, model: str, folder: Path) -> Answer:
    import onnxruntime
    from optimum.onnxruntime import ORTModelForSeq2SeqLM

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = THREADS
    return _generating(ORTModelForSeq2SeqLM.from_pretrained(folder / name, session_options=options), model)


def _generating(network: Any, model: str) -> Answer:
    import torch

    torch.set_num_threads(THREADS)

    def answer(case: str) -> list[list[int]]:
        source = torch.tensor(_rows(case))
        with torch.inference_mode():
            said = network.generate(
                input_ids=source,
                attention_mask=torch.ones_like(source),
                num_beams=_sizes(case)[1],
                do_sample=False,
                suppress_tokens=[_end(model)],
                max_new_tokens=ANSWER,
            )
        tokens: list[list[int]] = said[:, 1:].tolist()
        return tokens

    return answer


def _ctranslate2(name: str, model: str, folder: Path) -> Answer:
    import ctranslate2

    words = json.loads((folder / "checkpoint" / "tokenizer.json").read_text("utf-8"))["model"]["vocab"]
    by_id = {token: word for word, token in words.items()}
    translator = ctranslate2.Translator(
        str(folder / name),
        device="cpu",
        compute_type="float32" if name.endswith("fp32") else "int8",
        intra_threads=THREADS,
    )

    def answer(case: str) -> list[list[int]]:
        rows = [[by_id[token] for token in row] for row in _rows(case)]
        said = translator.translate_batch(
            rows, beam_size=_sizes(case)[1], min_decoding_length=ANSWER, max_decoding_length=ANSWER
        )
        return [[words[word] for word in each.hypotheses[0]] for each in said]

    return answer


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

    def answer(case: str) -> list[list[int]]:
        generation = Generation(num_beams=_sizes(case)[1], suppress_tokens=(_end(model),))
        return [row.tolist() for row in generator.generate(_rows(case), generation)]

    return answer


ENGINES: dict[str, Callable[[str, str, Path], Answer]] = {
    BASELINE: _hugging_face,
    "optimum fp32": _optimum,
    "optimum O2 fp32": _optimum,
    "ctranslate2 fp32": _ctranslate2,
    "ctranslate2 int8": _ctranslate2,
    "ours fp32": _ours,
    "ours int8": _ours,
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        name, model, folder = sys.argv[2:]
        turns.answer_turns(lambda: ENGINES[name](name, model, Path(folder)))
    elif sys.argv[1:2] == ["--make"]:
        _make(*sys.argv[2:4], Path(sys.argv[4]))
        print("null")
    else:
        sys.exit(main())
