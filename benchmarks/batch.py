"""Rows per second of the duplicates batch: ours beside Hugging Face on all cores of this machine.

  python -m model_build build duplicates --target cpu          and --target cpu-int8
  python benchmarks/batch.py                                   every engine in turn, then 200,000 pairs killed twice

  huggingface pipeline   `TextClassificationPipeline` over the same weights
  huggingface forward    tokenizer, padded batches and `forward`, without the cost of the pipeline
  huggingface sorted     the same with rows sorted by length
  ours                   `python -m containers.batch`, from JSON lines to predictions

Each Hugging Face engine runs at its fastest batch size and number of threads, without loading. Prints medians over
rounds. Then a batch is killed with SIGKILL and started again, twice, and must lose and repeat no row.
"""

import itertools
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import harness
from workloads import ROOT, Example, Row, load_workload

BASELINE = "huggingface pipeline"
HUGGING_FACE = (BASELINE, "huggingface forward", "huggingface sorted")
OURS = {"ours fp32": "cpu", "ours int8": "cpu-int8"}
BATCH_ROWS = (4, 16, 64)
TRIAL_ROWS, WARM_UP_ROWS = 800, 100
ROWS, OUR_ROWS, KILLED_ROWS = 4_000, 32_000, 200_000
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
        _write(source, KILLED_ROWS)
        killed = _killed_twice(source, Path(folder) / "killed", KILLED_ROWS)
    return _report({engine: [each[engine] for each in turns] for engine in turns[0]}, best, killed)


def _round(best: dict[str, dict[str, int]], source: Path, folder: Path) -> dict[str, dict[str, Any]]:
    measured = {engine: _hugging_face(engine, **best[engine], rows=ROWS) for engine in HUGGING_FACE}
    for engine, target in OURS.items():
        print(f"… {engine}", file=sys.stderr)
        measured[engine] = _ours(_command(target, source, folder / target), folder / target)
    return measured


def _best(engine: str) -> dict[str, int]:
    """Returns the fastest of the batch sizes, on all cores and on a single core."""
    cores = sorted({1, os.cpu_count() or 1})
    tried = [{"threads": threads, "batch_rows": rows} for threads in cores for rows in BATCH_ROWS]
    return max(tried, key=lambda setting: _hugging_face(engine, **setting, rows=TRIAL_ROWS)["rows_per_second"])


def _hugging_face(engine: str, threads: int, batch_rows: int, rows: int) -> dict[str, Any]:
    numbers = map(str, (threads, batch_rows, rows))
    return dict(harness.run_json(Path(__file__), "--child", engine, *numbers, threads=threads))


def _measure(engine: str, threads: int, batch_rows: int, count: int) -> dict[str, Any]:
    import torch

    torch.set_num_threads(threads)
    texts = [_segments(pair.row) for pair in _pairs(count)]
    classify, tokenizer = (_pipeline if engine == BASELINE else _forward)(batch_rows)
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


Classify = Callable[[Sequence[dict[str, str]]], Iterable[str]]


def _pipeline(batch_rows: int) -> tuple[Classify, Any]:
    from transformers import TextClassificationPipeline

    model, tokenizer = _load()
    pipeline = TextClassificationPipeline(model=model, tokenizer=tokenizer, device="cpu")

    def classify(texts: Sequence[dict[str, str]]) -> Iterator[str]:
        return (answer["label"] for answer in pipeline(list(texts), batch_size=batch_rows))

    return classify, tokenizer


def _forward(batch_rows: int) -> tuple[Classify, Any]:
    import torch

    model, tokenizer = _load()
    labels = model.config.id2label

    def classify(texts: Sequence[dict[str, str]]) -> Iterator[str]:
        for start in range(0, len(texts), batch_rows):
            first, second = ([text[name] for text in texts[start : start + batch_rows]] for name in SEGMENTS)
            with torch.inference_mode():
                logits = model(**tokenizer(first, second, padding=True, return_tensors="pt")).logits
            yield from (labels[at] for at in logits.argmax(-1).tolist())

    return classify, tokenizer


def _load() -> tuple[Any, Any]:
    """Loads the shared backbone with the workload's own head, without the score, which no class of transformers has."""
    from safetensors.torch import load_file
    from transformers import AutoTokenizer, BertConfig, BertForSequenceClassification

    source = load_workload("duplicates")
    described = source.workload.model
    head = (source.path / described.checkpoint).resolve()
    backbone = (source.path / described.backbone).resolve()
    labels = dict(enumerate(described.labels))
    config = BertConfig.from_pretrained(backbone, id2label=labels, label2id={name: at for at, name in labels.items()})
    model = BertForSequenceClassification(config)
    loaded = load_file(backbone / "model.safetensors").items()
    weights = {f"bert.{name.removeprefix('bert.')}": tensor for name, tensor in loaded}
    for name, tensor in load_file(head / "head.safetensors").items():
        if not name.startswith("scorer."):
            weights[f"bert.{name}" if name.startswith("pooler.") else name] = tensor
    model.load_state_dict(weights)
    return model.eval(), AutoTokenizer.from_pretrained(backbone)


def _pairs(count: int) -> Iterator[Example]:
    """Yields the evaluation pairs of the workload, repeated."""
    return itertools.islice(itertools.cycle(load_workload("duplicates").evaluation()), count)


def _segments(row: Row) -> dict[str, str]:
    return dict(zip(SEGMENTS, (f"{row[f'{of}title']} {row[f'{of}brand']}" for of in ("", "other_")), strict=True))


def _write(file: Path, count: int) -> None:
    with file.open("w") as handle:
        for number, pair in enumerate(_pairs(count)):
            handle.write(json.dumps({"id": number, **pair.row}) + "\n")


def _command(target: str, source: Path, output: Path) -> list[str]:
    repository = ROOT / "build" / "duplicates" / target / "repository"
    arguments = ["--model", repository, "--input", source, "--output", output]
    return [sys.executable, "-m", "containers.batch", *map(str, arguments)]


def _ours(command: list[str], output: Path) -> dict[str, Any]:
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    summary = json.loads(done.stdout)
    answers = [answer["RELATION"] for answer in _answers(output)]
    return {"answers": answers, **{key: summary[key] for key in ("rows_per_second", "padding_share")}}


def _answers(output: Path) -> Iterator[dict[str, Any]]:
    for file in sorted(output.glob("predictions-*.jsonl")):
        yield from map(json.loads, file.read_text("utf-8").splitlines())


def _killed_twice(source: Path, output: Path, rows: int) -> dict[str, Any]:
    """Kills the whole process group with SIGKILL after a third and after two thirds of the chunks."""
    command = _command(OURS["ours int8"], source, output)
    done_at_kill = [_kill_at(command, output, rows * part // 3) for part in (1, 2)]
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, check=True)
    times = Counter(answer["id"] for answer in _answers(output))
    return {
        "rows": rows,
        "rows_finished_when_killed": done_at_kill,
        "rows_lost": rows - len(times),
        "rows_repeated": sum(count > 1 for count in times.values()),
    }


def _kill_at(command: list[str], output: Path, rows: int) -> int:
    print(f"… killed after {rows} rows", file=sys.stderr)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    while (finished := sum(1 for _ in _answers(output))) < rows and process.poll() is None:
        time.sleep(0.5)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return finished


def _report(measured: dict[str, list[dict[str, Any]]], best: dict[str, dict[str, int]], killed: dict[str, Any]) -> int:
    peak = load_workload("duplicates").workload.objective.rows_per_second
    rates = {name: statistics.median(each["rows_per_second"] for each in of) for name, of in measured.items()}
    expected = measured[BASELINE][0]["answers"]
    results = {
        engine: {
            "rows_per_second": round(rates[engine]),
            "times_faster_than_pipeline": round(rates[engine] / rates[BASELINE], 2),
            "padding_share": round(rounds[0]["padding_share"], 4),
            "other_answers": sum(got != label for got, label in zip(rounds[0]["answers"], expected, strict=False)),
            "machines_for_objective": math.ceil(peak / rates[engine]),
            **best.get(engine, {}),
        }
        for engine, rounds in measured.items()
    }
    print(f"{'engine':24}{'rows/s':>8}{'× pipeline':>12}{'padding':>9}{'other answers':>15}{f'for {peak:,.0f}/s':>14}")
    for engine, row in results.items():
        print(
            f"{engine:24}{row['rows_per_second']:>8,}{row['times_faster_than_pipeline']:>12}{row['padding_share']:>9.1%}"
            f"{row['other_answers']:>15}{row['machines_for_objective']:>10} such"
        )
    at = " and ".join(f"{rows:,}" for rows in killed["rows_finished_when_killed"])
    lost, repeated = killed["rows_lost"], killed["rows_repeated"]
    print(f"{killed['rows']:,} pairs, killed at {at} rows: {lost} lost, {repeated} repeated")
    goals = [{"goal": "a killed batch loses no row", "got": lost, "met": not lost and not repeated}]
    document = {"objective_rows_per_second": peak, "engines": results, "killed_twice": killed, "goals": goals}
    return harness.finish("batch", ["onnxruntime", "tokenizers", "torch", "transformers"], document, goals)


if __name__ == "__main__":
    sys.exit(main())
