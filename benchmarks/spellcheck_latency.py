"""Latency of one spelling correction at batch 1: us beside Hugging Face `generate` and CTranslate2.

  make bench                                        installs the peers, builds both targets, then runs this
  python benchmarks/spellcheck_latency.py --rounds 9   more of it

Every engine runs alone in a process of its own, in turn, round after round, with one thread. Queries are the workload's
payloads. Prints a table of medians over rounds, each with its ratio to Hugging Face, and one JSON document on the last
line. Engines that give other answers than Hugging Face are counted.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from workloads import ROOT, load_workload

Answer = Callable[[str], str]
WARM_UP = 20
BASELINE = "huggingface fp32"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each engine, in turn (default 5)")
    parser.add_argument("--engine", choices=ENGINES, help="run this engine alone and print its latencies as JSON")
    options = parser.parse_args()
    if options.engine:
        print(json.dumps(_measure(ENGINES[options.engine]())))
        return 0
    rounds = [{name: _alone(name) for name in ENGINES} for _ in range(options.rounds)]
    _print({name: [each[name] for each in rounds] for name in ENGINES})
    return 0


def _alone(engine: str) -> dict[str, Any]:
    print(f"{engine} …", file=sys.stderr)
    command = [sys.executable, __file__, "--engine", engine]
    # Threads that spin while they wait would slow whatever runs beside them.
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _measure(answer: Answer) -> dict[str, Any]:
    texts = load_workload("spellcheck").payloads()
    for text in texts[:WARM_UP]:
        answer(text)
    milliseconds, answers = [], []
    for text in texts:
        start = time.perf_counter()
        answers.append(answer(text))
        milliseconds.append((time.perf_counter() - start) * 1000)
    return {"p50_ms": statistics.median(milliseconds), "p99_ms": _p99(milliseconds), "answers": answers}


def _p99(values: list[float]) -> float:
    return statistics.quantiles(values, n=100)[98]


def _print(measured: dict[str, list[dict[str, Any]]]) -> None:
    expected = measured[BASELINE][0]["answers"]
    medians = {name: statistics.median(each["p50_ms"] for each in rounds) for name, rounds in measured.items()}
    results = {
        name: {
            "p50_ms": round(medians[name], 3),
            "p99_ms": round(statistics.median(each["p99_ms"] for each in rounds), 3),
            "times_faster_than_huggingface": round(medians[BASELINE] / medians[name], 1),
            "other_answers": sum(a != b for a, b in zip(expected, rounds[0]["answers"], strict=True)),
        }
        for name, rounds in measured.items()
    }
    print(f"{'engine':24}{'p50 ms':>10}{'p99 ms':>10}{'× HF':>8}{'other answers':>16}")
    for name, row in results.items():
        print(
            f"{name:24}{row['p50_ms']:>10}{row['p99_ms']:>10}{row['times_faster_than_huggingface']:>8}"
            f"{row['other_answers']:>16}"
        )
    machine = {"cpu": _cpu(), "python": platform.python_version()}
    print(json.dumps({"benchmark": "spellcheck_latency", "queries": len(expected), **machine, "engines": results}))


def _cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    return next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _checkpoint() -> Path:
    return ROOT / "workloads" / "spellcheck" / "checkpoint"


def _hugging_face() -> Answer:
    import torch
    from transformers import AutoTokenizer, T5ForConditionalGeneration

    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(_checkpoint())
    model = T5ForConditionalGeneration.from_pretrained(_checkpoint()).eval()
    longest = load_workload("spellcheck").workload.model.max_output_tokens

    def answer(text: str) -> str:
        with torch.inference_mode():
            output = model.generate(**tokenizer(text, return_tensors="pt"), do_sample=False, max_new_tokens=longest)
        return str(tokenizer.decode(output[0], skip_special_tokens=True))

    return answer


def _ctranslate2(compute_type: str) -> Answer:
    import ctranslate2
    from ctranslate2.converters import TransformersConverter

    folder = tempfile.mkdtemp()
    TransformersConverter(str(_checkpoint())).convert(folder, force=True)
    translator = ctranslate2.Translator(folder, device="cpu", compute_type=compute_type, intra_threads=1)
    tokenizer = Tokenizer.from_file(str(_checkpoint() / "tokenizer.json"))
    longest = load_workload("spellcheck").workload.model.max_output_tokens

    def answer(text: str) -> str:
        tokens = tokenizer.encode(text).tokens
        (result,) = translator.translate_batch([tokens], beam_size=1, max_decoding_length=longest)
        return str(tokenizer.decode([tokenizer.token_to_id(token) for token in result.hypotheses[0]]))

    return answer


def _ours(target: str) -> Answer:
    from containers.text2text.generator import Refusal, TextGenerator
    from model_build.plan import plan
    from model_build.triton.repository import version_folder

    built = plan(load_workload("spellcheck"), target, ROOT)
    generator = TextGenerator.load(version_folder(built.repository, built.model), built.settings)

    def answer(text: str) -> str:
        (answered,) = generator.answer([[text.encode()]])
        if isinstance(answered, Refusal):
            raise SystemExit(answered.message)
        return answered[0].decode()

    return answer


ENGINES: dict[str, Callable[[], Answer]] = {
    BASELINE: _hugging_face,
    "ctranslate2 fp32": lambda: _ctranslate2("float32"),
    "ctranslate2 int8": lambda: _ctranslate2("int8"),
    "ours fp32": lambda: _ours("cpu"),
    "ours int8": lambda: _ours("cpu-int8"),
}

if __name__ == "__main__":
    sys.exit(main())
