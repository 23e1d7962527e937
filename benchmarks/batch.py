"""Rows per second of the duplicates batch: us beside Hugging Face on all cores of this machine, and with a stand-in for
NeuronCores us beside another checkout.

  python -m model_build build duplicates --target cpu-int8     and --target cpu: what is measured of ours
  python benchmarks/batch.py                                   every engine in turn, then 200,000 pairs killed twice
  git worktree add /tmp/before COMMIT
  python benchmarks/batch.py --cores 16 --beside /tmp/before   stand-in: in pairs, in changing order

Engines, each alone in its own process:

  huggingface pipeline   `TextClassificationPipeline` over the same weights, one process with as many threads as cores
  huggingface forward    tokenizer, padded batches and `forward` by hand: without the pipeline's own cost
  huggingface sorted     the same, rows sorted by length first
  ours                   `python -m containers.batch`, reading JSON lines and writing predictions

Hugging Face answers texts that are in memory already and gives the relation only, not the score; each of its engines
runs at the fastest of several batch sizes and thread counts, tried first. Loading a model does not count. Prints
medians over rounds, ratios to the pipeline, and what share of the tokens computed was padding; then how the batch of
200,000 went that was killed with SIGKILL and started again, twice. One JSON document on the last line.

The stand-in for a NeuronCore runs `NEURON_BATCH_ROWS` rows in `--device-ms`, one batch after the other, and takes no
CPU. A core's occupancy is the share of the time, from when the models are loaded to the last chunk, in which it runs a
batch. By default it is as slow as BERT-base on Inf1, by AWS's published figures.
"""

import argparse
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

from side_by_side import alone, machine

from workloads import ROOT, Example, Row, load_workload

BASELINE = "huggingface pipeline"
HUGGING_FACE = (BASELINE, "huggingface forward", "huggingface sorted")
OURS = {"ours fp32": "cpu", "ours int8": "cpu-int8"}
BATCH_ROWS = (4, 16, 64)
TRIAL_ROWS, WARM_UP_ROWS = 800, 100
SEGMENTS = ("text", "text_pair")
NEURON_BATCH_ROWS = 8
DEVICE = """
import os, threading, time
import numpy as np
from containers.encoder import goldens, load_engine

class Core:
    def __init__(self):
        self.free_at = 0.0
        self.lock = threading.Lock()

    def run(self, tensors):
        with self.lock:
            self.free_at = ends_at = max(self.free_at, time.monotonic()) + float(os.environ["DEVICE_MS"]) / 1000
        time.sleep(max(0.0, ends_at - time.monotonic()))
        rows = len(tensors["input_ids"])
        return {"logits": np.zeros((rows, 3), np.float32), "score": np.zeros(rows, np.float32)}

load_engine.load = lambda folder, settings: Core()
goldens.check = lambda engine, settings, folder: None
"""
"""Python runs this before it runs a worker. A batch that is given while another runs begins when that has ended."""
LAY_OUT = """
import sys
from pathlib import Path
from model_build.plan import plan
from model_build.triton.repository import lay_out
from workloads import load_workload

folder = Path(sys.argv[1])
contents = plan(load_workload("duplicates"), "inf1", folder).contents(folder)
missing = {name for name, content in contents.items() if isinstance(content, Path) and not content.exists()}
lay_out(folder, {name: "" if name in missing else content for name, content in contents.items()})
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3, help="runs of each engine, in turn (default 3)")
    parser.add_argument("--rows", type=int, default=4_000, help="rows of a Hugging Face run (default 4000)")
    parser.add_argument("--our-rows", type=int, default=32_000, help="rows of a run of ours (default 32000)")
    parser.add_argument("--killed-rows", type=int, default=200_000, help="rows of the killed batch (default 200000)")
    device = parser.add_argument_group("with a stand-in for NeuronCores")
    device.add_argument("--cores", type=int, help="NeuronCores, a process for each; measures nothing else")
    device.add_argument("--device-ms", type=float, default=29.0, help="milliseconds of a batch (default 29)")
    device.add_argument("--chunks", type=int, default=4, help="chunks for each core (default 4)")
    device.add_argument("--chunk-rows", type=int, default=1024, help="rows of a chunk (default 1024)")
    device.add_argument("--pairs", type=int, default=5, help="runs of each checkout (default 5)")
    device.add_argument("--beside", type=Path, metavar="CHECKOUT", help="another checkout, whose program takes turns")
    parser.add_argument("--child", nargs=4, metavar=("ENGINE", "THREADS", "BATCH_ROWS", "ROWS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        engine, threads, batch_rows, rows = options.child
        print(json.dumps(_measure(engine, int(threads), int(batch_rows), int(rows))))
        return 0
    if options.cores:
        return _on_stand_in(options)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pairs.jsonl"
        best = {engine: _best(engine) for engine in HUGGING_FACE}
        _write(source, options.our_rows)
        rounds = [_round(best, source, options.rows, Path(folder) / str(at)) for at in range(options.rounds)]
        _write(source, options.killed_rows)
        killed = _killed_twice(source, Path(folder) / "killed", options.killed_rows)
    _print({engine: [each[engine] for each in rounds] for engine in rounds[0]}, best, killed)
    return 0


def _round(best: dict[str, dict[str, int]], source: Path, rows: int, folder: Path) -> dict[str, dict[str, Any]]:
    measured = {engine: _hugging_face(engine, **best[engine], rows=rows) for engine in HUGGING_FACE}
    for engine, target in OURS.items():
        print(f"… {engine}", file=sys.stderr)
        measured[engine] = _ours(_command(target, source, folder / target), folder / target)
    return measured


def _best(engine: str) -> dict[str, int]:
    """Returns the fastest of the batch sizes, on all cores and on a single core."""
    tried = [
        {"threads": threads, "batch_rows": batch_rows}
        for threads in sorted({1, os.cpu_count() or 1})
        for batch_rows in BATCH_ROWS
    ]
    return max(tried, key=lambda setting: _hugging_face(engine, **setting, rows=TRIAL_ROWS)["rows_per_second"])


def _hugging_face(engine: str, threads: int, batch_rows: int, rows: int) -> dict[str, Any]:
    return dict(alone(Path(__file__), "--child", engine, str(threads), str(batch_rows), str(rows), threads=threads))


def _measure(engine: str, threads: int, batch_rows: int, count: int) -> dict[str, Any]:
    import torch

    torch.set_num_threads(threads)
    texts = [_segments(pair.row) for pair in _pairs(count)]
    classify, tokenizer = (_pipeline if engine == BASELINE else _forward)(batch_rows)
    lengths = [
        len(ids) for ids in tokenizer(*map(list, zip(*(text.values() for text in texts), strict=True)))["input_ids"]
    ]
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
    weights = {
        f"bert.{name.removeprefix('bert.')}": tensor
        for name, tensor in load_file(backbone / "model.safetensors").items()
    }
    for name, tensor in load_file(head / "head.safetensors").items():
        if not name.startswith("scorer."):
            weights[f"bert.{name}" if name.startswith("pooler.") else name] = tensor
    model.load_state_dict(weights)
    return model.eval(), AutoTokenizer.from_pretrained(backbone)


def _pairs(count: int) -> Iterator[Example]:
    """Yields the evaluation pairs of the workload, repeated."""
    return itertools.islice(itertools.cycle(load_workload("duplicates").evaluation()), count)


def _segments(row: Row) -> dict[str, str]:
    return {
        "text": f"{row['title']} {row['brand']}",
        "text_pair": f"{row['other_title']} {row['other_brand']}",
    }


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
    last = json.loads(subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout)
    times = Counter(answer["id"] for answer in _answers(output))
    return {
        "rows": rows,
        "rows_finished_when_killed": done_at_kill,
        "rows_lost": rows - len(times),
        "rows_repeated": sum(count > 1 for count in times.values()),
        "rows_of_the_last_run": last["rows"],
        "rows_per_second_of_the_last_run": round(last["rows_per_second"]),
    }


def _kill_at(command: list[str], output: Path, rows: int) -> int:
    print(f"… killed after {rows} rows", file=sys.stderr)
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
    while (finished := sum(1 for _ in _answers(output))) < rows and process.poll() is None:
        time.sleep(0.5)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return finished


def _on_stand_in(options: argparse.Namespace) -> int:
    checkouts = {"this": ROOT, **({"other": options.beside.resolve()} if options.beside else {})}
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in checkouts}
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "pairs.jsonl"
        models = {name: _stand_in_model(checkout, Path(folder) / name) for name, checkout in checkouts.items()}
        _write(source, options.cores * options.chunks * options.chunk_rows)
        for turn in range(options.pairs):
            for name in checkouts if turn % 2 else reversed(checkouts):
                runs[name].append(
                    _stand_in_run(checkouts[name], models[name], source, Path(folder) / f"{name}-{turn}", options)
                )
                print(f"… {name:6}", runs[name][-1], file=sys.stderr)
    names = list(runs["this"][0])
    results = {name: {key: statistics.median(run[key] for run in each) for key in names} for name, each in runs.items()}
    if options.beside:
        pairs_ = list(zip(runs["this"], runs["other"], strict=True))
        results["ratio"] = {key: statistics.median(ours[key] / other[key] for ours, other in pairs_) for key in names}
    print(f"{'':8}" + "".join(f"{key:>20}" for key in names))
    for name, row in results.items():
        print(f"{name:8}" + "".join(f"{row[key]:>20,.3f}" for key in names))
    asked = {key: getattr(options, key) for key in ("cores", "device_ms", "chunks", "chunk_rows", "pairs")}
    document = {"benchmark": "batch on a stand-in for NeuronCores", **machine(["tokenizers"]), **asked}
    print(json.dumps({**document, "load_average": os.getloadavg()[1], "results": results}))
    return 0


def _stand_in_model(checkout: Path, folder: Path) -> Path:
    """Lays out what the checkout's build for Inf1 would, with empty graphs, and what runs the stand-in instead."""
    command = [sys.executable, "-c", LAY_OUT, str(folder)]
    subprocess.run(command, cwd=checkout, env={**os.environ, "PYTHONPATH": str(checkout)}, check=True)
    (folder / "sitecustomize.py").write_text(DEVICE)
    return folder


def _stand_in_run(
    checkout: Path, model: Path, source: Path, output: Path, options: argparse.Namespace
) -> dict[str, float]:
    arguments = ["--model", model, "--input", source, "--output", output, "--chunk-rows", options.chunk_rows]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{model}:{checkout}",
        "NEURON_RT_NUM_CORES": str(options.cores),
        "DEVICE_MS": str(options.device_ms),
    }
    command = [sys.executable, "-m", "containers.batch", *map(str, arguments)]
    done = subprocess.run(command, cwd=checkout, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    rate = json.loads(done.stdout)["rows_per_second"]
    return {
        "rows_per_second": rate,
        "occupancy": rate * options.device_ms / 1000 / NEURON_BATCH_ROWS / options.cores,
    }


def _print(measured: dict[str, list[dict[str, Any]]], best: dict[str, dict[str, int]], killed: dict[str, Any]) -> None:
    peak = load_workload("duplicates").workload.objective.rows_per_second
    rates = {
        engine: statistics.median(each["rows_per_second"] for each in rounds) for engine, rounds in measured.items()
    }
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
    print(
        f"{killed['rows']:,} pairs, killed at {at} rows: "
        f"{killed['rows_lost']} lost, {killed['rows_repeated']} repeated; "
        f"{killed['rows_per_second_of_the_last_run']:,} rows/s in the last run"
    )
    document = {"benchmark": "batch", **machine(["onnxruntime", "tokenizers", "torch", "transformers"])}
    print(json.dumps({**document, "objective_rows_per_second": peak, "engines": results, "killed_twice": killed}))


if __name__ == "__main__":
    sys.exit(main())
