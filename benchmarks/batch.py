"""Rows per second of the duplicates batch: ours beside Hugging Face on all cores of this machine.

  python -m model_build build duplicates --target cpu          and --target cpu-int8
  python benchmarks/batch.py                                   every engine in turn

  huggingface pipeline   `TextClassificationPipeline` over the same weights
  huggingface forward    tokenizer, padded batches and `forward`, without the cost of the pipeline
  huggingface sorted     the same with rows sorted by length
  ours                   `python -m containers.batch`, from JSON lines to predictions

Each Hugging Face engine runs at its fastest batch size and number of threads, without loading. Prints medians over
rounds. Exits with 1 if ours has less than `GOAL` times the rows per second of the pipeline.
"""

import itertools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import goals, harness
from benchmarks.harness import Checked, Comparison, Turn
from workloads import ROOT, Example, Row, TextPairScoring, ThroughputObjective, load_workload

BASELINE = "huggingface pipeline"
HUGGING_FACE = (BASELINE, "huggingface forward", "huggingface sorted")
OURS = {"ours fp32": "cpu", "ours int8": "cpu-int8"}
BATCH_ROWS = (4, 16, 64)
TRIAL_ROWS, WARM_UP_ROWS = 800, 100
ROWS, OUR_ROWS = 4_000, 32_000
GOAL = 4.0
SEGMENTS = ("text", "text_pair")


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        engine, *numbers = sys.argv[2:]
        print(json.dumps(_measure(engine, *map(int, numbers))))
        return 0
    rounds = harness.options(__doc__, rounds=(3, "runs of each engine, in turn")).rounds
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pairs.jsonl"
        best = {engine: _best(engine) for engine in HUGGING_FACE}
        _write(source, OUR_ROWS)
        turns = [_round(best, source, Path(folder) / str(at)) for at in range(rounds)]
    return report({engine: [each[engine] for each in turns] for engine in turns[0]}, best)


def _round(best: dict[str, dict[str, int]], source: Path, folder: Path) -> dict[str, dict[str, Any]]:
    measured = {engine: _hugging_face(engine, **best[engine], rows=ROWS) for engine in HUGGING_FACE}
    for engine, target in OURS.items():
        print(f"… {engine}", file=sys.stderr)
        measured[engine] = _ours(target, source, folder / target)
    return measured


def _best(engine: str) -> dict[str, int]:
    """Returns the fastest of the batch sizes, on all cores and on a single core."""
    cores = sorted({1, os.cpu_count() or 1})
    tried = [{"threads": threads, "batch_rows": rows} for threads in cores for rows in BATCH_ROWS]
    return max(tried, key=lambda setting: _hugging_face(engine, **setting, rows=TRIAL_ROWS)["rows_per_second"])


def _hugging_face(engine: str, threads: int, batch_rows: int, rows: int) -> dict[str, Any]:
    """Runs `_measure` in a process of its own."""
    print(f"… {engine}, {threads} threads, batches of {batch_rows}, {rows} rows", file=sys.stderr)
    command = [sys.executable, __file__, "--child", engine, *map(str, (threads, batch_rows, rows))]
    done = subprocess.run(command, env=harness.environment(threads), stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _measure(engine: str, threads: int, batch_rows: int, count: int) -> dict[str, Any]:
    import torch

    torch.set_num_threads(threads)
    texts = [_segments(pair.row) for pair in _pairs(count)]
    model, tokenizer = _load()
    classify = partial(_pipeline if engine == BASELINE else _forward, model, tokenizer, batch_rows)
    lengths = list(map(len, tokenizer(*([text[name] for text in texts] for name in SEGMENTS))["input_ids"]))
    order = sorted(range(count), key=lengths.__getitem__) if engine == "huggingface sorted" else list(range(count))
    list(classify(texts[:WARM_UP_ROWS]))
    started = time.perf_counter()
    labels = dict(zip(order, classify([texts[at] for at in order]), strict=True))
    seconds = time.perf_counter() - started
    batches = [[lengths[at] for at in order[start : start + batch_rows]] for start in range(0, count, batch_rows)]
    return {
        "rows_per_second": count / seconds,
        "padding_share": 1 - sum(lengths) / sum(len(batch) * max(batch) for batch in batches),
        "answers": [labels[at] for at in range(count)],
    }


def _pipeline(model: Any, tokenizer: Any, batch_rows: int, texts: Sequence[dict[str, str]]) -> Iterator[str]:
    from transformers import TextClassificationPipeline

    pipeline = TextClassificationPipeline(model=model, tokenizer=tokenizer, device="cpu")
    return (answer["label"] for answer in pipeline(list(texts), batch_size=batch_rows))


def _forward(model: Any, tokenizer: Any, batch_rows: int, texts: Sequence[dict[str, str]]) -> Iterator[str]:
    import torch

    for start in range(0, len(texts), batch_rows):
        first, second = ([text[name] for text in texts[start : start + batch_rows]] for name in SEGMENTS)
        with torch.inference_mode():
            logits = model(**tokenizer(first, second, padding=True, return_tensors="pt")).logits
        yield from (model.config.id2label[at] for at in logits.argmax(-1).tolist())


def _load() -> tuple[Any, Any]:
    """Loads the shared backbone with the workload's own head, without the score, which no class of transformers has."""
    from safetensors.torch import load_file
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    source = load_workload("duplicates")
    scoring = source.workload.model
    assert isinstance(scoring, TextPairScoring)
    assert scoring.backbone is not None
    assert isinstance(scoring.checkpoint, str)
    backbone = source.path / scoring.backbone
    labels = dict(enumerate(scoring.labels))
    config = BertConfig.from_pretrained(backbone, id2label=labels, label2id={name: at for at, name in labels.items()})
    model = BertForSequenceClassification(config)
    loaded = load_file(backbone / "model.safetensors").items()
    weights = {f"bert.{name.removeprefix('bert.')}": tensor for name, tensor in loaded}
    for name, tensor in load_file(source.path / scoring.checkpoint / "head.safetensors").items():
        if not name.startswith("scorer."):
            weights[f"bert.{name}" if name.startswith("pooler.") else name] = tensor
    model.load_state_dict(weights)
    return model.eval(), AutoTokenizer.from_pretrained(backbone)


def _pairs(count: int) -> Iterator[Example]:
    return itertools.islice(itertools.cycle(load_workload("duplicates").evaluation()), count)


def _segments(row: Row) -> dict[str, str]:
    return dict(zip(SEGMENTS, (f"{row[f'{of}title']} {row[f'{of}brand']}" for of in ("", "other_")), strict=True))


def _write(file: Path, count: int) -> None:
    with file.open("w") as handle:
        for number, pair in enumerate(_pairs(count)):
            handle.write(json.dumps({"id": number, **pair.row}) + "\n")


def _ours(target: str, source: Path, output: Path) -> dict[str, Any]:
    repository = ROOT / "build" / "duplicates" / target / "repository"
    command = [sys.executable, "-m", "containers.batch", "--model", str(repository)]
    command += ["--input", str(source), "--output", str(output)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    summary = json.loads(done.stdout)
    files = sorted(output.glob("predictions-*.jsonl"))
    answers = [json.loads(line)["RELATION"] for file in files for line in file.read_text("utf-8").splitlines()]
    return {"answers": answers, **{key: summary[key] for key in ("rows_per_second", "padding_share")}}


def report(measured: dict[str, list[dict[str, Any]]], best: dict[str, dict[str, int]]) -> int:
    """`measured` has the rounds of each engine, `best` the settings of those of Hugging Face."""
    objective = load_workload("duplicates").workload.objective
    assert isinstance(objective, ThroughputObjective)
    expected, turns, notes = measured[BASELINE][0]["answers"], {}, {}
    for engine, rounds in measured.items():
        row_ms = [1000 / each["rows_per_second"] for each in rounds]
        turns[engine] = [Turn(ms, math.nan, ms, math.nan) for ms in row_ms]
        rate = statistics.median(each["rows_per_second"] for each in rounds)
        differ = sum(map(str.__ne__, rounds[0]["answers"], expected))
        machines = math.ceil(objective.rows_per_second / rate)
        padding = rounds[0]["padding_share"]
        notes[engine] = Checked(
            f"{rate:,.0f} rows/s, {machines} machines, padding {padding:.1%}, {differ} other answers"
        )
    compared = Comparison(title="duplicates, a row", turns=turns, answers=notes)
    print(compared.table())
    judged = list(harness.pair_goals(compared, [(engine, BASELINE, GOAL) for engine in OURS]))
    document = {"objective_rows_per_second": objective.rows_per_second, "settings": best, **compared.document()}
    return goals.finish("batch", ["onnxruntime", "tokenizers", "torch", "transformers"], document, judged)


if __name__ == "__main__":
    sys.exit(main())
