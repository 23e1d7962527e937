"""Latency of a classifier of each family at base size, 128 tokens: ours in fp32 and int8 beside its peers, on CPU.

  python benchmarks/families.py                            every family, batch 1 and 16, three rounds
  python benchmarks/families.py --family roberta --rounds 1

Weights are seeded and random, the same for every engine. Each engine runs alone in a process of its own, in turn, round
after round, on all cores. Figures are medians over rounds of the median call, in milliseconds, of token ids to logits.
In fp32 each has to give Hugging Face's logits, or the program stops; CTranslate2 computes the encoder alone, so its
numbers are not compared. Prints a table for each family, the goals and one JSON document on the last line.

Optimum has an environment of its own, without which it is left out; benchmarks/t5/latency.py says how to make it.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks.side_by_side import ROOT, alone, machine, timed

OPTIMUM_PYTHON = ROOT / "build" / "venv-optimum" / "bin" / "python"
LENGTH, BATCHES, FIRST_TOKEN = 128, (1, 16), 5
BASELINE = "huggingface fp32"
BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
DEBERTA = {**BASE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]}
CONFIGS: dict[str, dict[str, Any]] = {
    "bert": {},
    "roberta": {"max_position_embeddings": 514, "type_vocab_size": 1},
    "distilbert": {},
    "electra": {**BASE, "embedding_size": 768},
    "albert": {**BASE, "embedding_size": 128},
    "mpnet": {"max_position_embeddings": 514},
    "deberta": DEBERTA,
    "deberta-v2": {**DEBERTA, "position_buckets": 256, "share_att_key": True, "norm_rel_ebd": "layer_norm"},
    "modernbert": {},
}
"""The keys that make transformers' defaults the size called base. XLM-RoBERTa and CamemBERT are RoBERTa's network."""
CTRANSLATE2 = ("bert", "roberta", "distilbert")
"""The families that CTranslate2 converts."""
GOALS = (
    # ours, beside, times faster
    ("ours fp32", "optimum fp32", 1.0),
    ("ours int8", BASELINE, 2.0),
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append", choices=CONFIGS, help="only this; may be repeated")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each engine, in turn (default 3)")
    options = parser.parse_args(arguments)
    load = os.getloadavg()[0]
    results = {family: _compare(family, options.rounds) for family in options.family or CONFIGS}
    for family, result in results.items():
        print(_table(family, result), end="\n\n")
    about = {"benchmark": "families", **machine(("ctranslate2", "onnxruntime", "torch", "transformers"))}
    print(json.dumps({**about, "load_average": load, "tokens": LENGTH, "families": results}))
    return 0


def _compare(family: str, rounds: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="families_") as folder:

        def run(task: str) -> Any:
            python = str(OPTIMUM_PYTHON) if task == "optimum fp32" else sys.executable
            threads = os.cpu_count() or 1
            return alone(Path(__file__), "--child", task, folder, family, threads=threads, python=python)

        run("make")
        left_out = {name: reason for name in ENGINES if (reason := _missing(name, family))}
        measured: dict[str, list[Any]] = {name: [] for name in ENGINES if name not in left_out}
        for _ in range(rounds):
            for name, answers in measured.items():
                answers.append(run(name))
    _check(family, measured)
    rows = {
        name: {size: statistics.median(each[str(size)] for each in answers) for size in BATCHES}
        for name, answers in measured.items()
    }
    return {"left_out": left_out, "ms": rows, "goals": _goals(rows)}


def _check(family: str, measured: dict[str, list[Any]]) -> None:
    wanted = measured[BASELINE][0]["logits"]
    for name in ("ours fp32", "optimum fp32"):
        for answer in measured.get(name, []):
            if (off := max(abs(a - b) for a, b in zip(answer["logits"], wanted, strict=True))) > 1e-3:
                raise SystemExit(f"{name} of {family} is {off:.3g} off Hugging Face's logits.")


def _goals(rows: dict[str, dict[int, float]]) -> list[dict[str, Any]]:
    return [
        {"ours": ours, "beside": other, "batch": size, "goal": goal, "times": rows[other][size] / rows[ours][size]}
        for ours, other, goal in GOALS
        if other in rows
        for size in BATCHES
    ]


def _table(family: str, result: dict[str, Any]) -> str:
    lines = [f"{family:18}" + "".join(f"{f'batch {size}, ms':>14}{'×':>7}" for size in BATCHES)]
    for name, by_batch in result["ms"].items():
        cells = (f"{by_batch[s]:14.2f}{result['ms'][BASELINE][s] / by_batch[s]:7.2f}" for s in BATCHES)
        lines.append(f"{name:18}" + "".join(cells))
    lines += [f"{name} is left out: {reason}." for name, reason in result["left_out"].items()]
    for goal in result["goals"]:
        met = "met" if goal["times"] >= goal["goal"] else "MISSED"
        what = f"{goal['ours']} beside {goal['beside']}, batch {goal['batch']}"
        lines.append(f"  {what}: {goal['times']:.2f} times as fast, the goal is {goal['goal']:g}: {met}")
    return "\n".join(lines)


def _missing(name: str, family: str) -> str | None:
    from importlib.util import find_spec

    if name == "optimum fp32" and not OPTIMUM_PYTHON.exists():
        return f"{OPTIMUM_PYTHON.parents[1].name} is not there"
    if name.startswith("ctranslate2") and family not in CTRANSLATE2:
        return "CTranslate2 does not have the family"
    if name.startswith("ctranslate2") and not find_spec("ctranslate2"):
        return "the package ctranslate2 is not installed; `make bench` installs it"
    return None


def _child(task: str, folder: Path, family: str) -> None:
    if task == "make":
        _make(folder, family)
        print(json.dumps({}))
        return
    import numpy as np

    call = ENGINES[task](folder)
    rng, document = np.random.default_rng(0), {}
    for size in BATCHES:
        ids = rng.integers(FIRST_TOKEN, 30_000, (size, LENGTH)).astype(np.int64)
        logits = call(ids)
        document.setdefault("logits", np.ravel(logits)[:2].tolist())
        document[str(size)] = statistics.median(timed(partial(call, ids), warm_up=2, at_least=7, seconds=2))
    print(json.dumps(document))


def _make(folder: Path, family: str) -> None:
    """Writes the checkpoint, and our two graphs of it."""
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    from model_build.checkpoint import Checkpoint
    from model_build.checkpoint.encoder_config import inputs_for, read_encoder
    from model_build.encoder import export, optimise
    from workloads import OnnxRuntimeTarget, TextClassification

    torch.manual_seed(0)
    config: Any = AutoConfig.for_model(family, **CONFIGS[family])
    AutoModelForSequenceClassification.from_config(config).save_pretrained(folder)
    model = TextClassification(
        task="text-classification", checkpoint="./checkpoint", labels=("no", "yes"), max_input_tokens=LENGTH
    )
    own, encoder_config, kind = read_encoder(folder, folder, model)
    checkpoint = Checkpoint(
        folder=folder, encoder=folder, config=own, encoder_config=encoder_config, sha256="", family=kind
    )
    model = model.model_copy(update={"inputs": inputs_for(model, encoder_config, folder / "workload.toml")})
    (folder / "graphs").mkdir()
    portable = export.export_checkpoint(checkpoint, model, folder / "graphs")
    for precision in ("fp32", "int8"):
        target = OnnxRuntimeTarget(runtime="onnxruntime", precision=precision)
        optimise.optimise(portable, folder / f"{precision}.onnx", target, ())


def _threads() -> int:
    return int(os.environ["OMP_NUM_THREADS"])


def _hugging_face(folder: Path) -> Callable[[Any], Any]:
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.set_num_threads(_threads())
    network = AutoModelForSequenceClassification.from_pretrained(folder, dtype=torch.float32).eval()

    def call(ids: Any) -> Any:
        with torch.inference_mode():
            tensor = torch.from_numpy(ids)
            return network(input_ids=tensor, attention_mask=torch.ones_like(tensor)).logits.numpy()

    return call


def _optimum(folder: Path) -> Callable[[Any], Any]:
    import onnxruntime
    import torch
    from optimum.onnxruntime import ORTModelForSequenceClassification

    options, made = onnxruntime.SessionOptions(), folder / "optimum"
    options.intra_op_num_threads = _threads()
    if not made.exists():
        ORTModelForSequenceClassification.from_pretrained(folder, export=True).save_pretrained(made)
    network = ORTModelForSequenceClassification.from_pretrained(made, session_options=options)

    def call(ids: Any) -> Any:
        tensor = torch.from_numpy(ids)
        given = {"input_ids": tensor, "attention_mask": torch.ones_like(tensor)}
        if "token_type_ids" in network.input_names:
            given["token_type_ids"] = torch.zeros_like(tensor)
        return network(**given).logits.numpy()

    return call


def _ours(precision: str) -> Callable[[Path], Callable[[Any], Any]]:
    def load(folder: Path) -> Callable[[Any], Any]:
        import numpy as np

        from containers.encoder.onnx_engine import OnnxEngine

        engine = OnnxEngine(folder / f"{precision}.onnx", _threads())
        names = {node.name for node in engine._session.get_inputs()}

        def call(ids: Any) -> Any:
            given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
            return engine.run({name: tensor for name, tensor in given.items() if name in names})["logits"]

        return call

    return load


def _ctranslate2(kind: str) -> Callable[[Path], Callable[[Any], Any]]:
    def load(folder: Path) -> Callable[[Any], Any]:
        import ctranslate2
        import numpy as np

        made = folder / f"ctranslate2-{kind}"
        if not made.exists():
            ctranslate2.converters.TransformersConverter(str(folder)).convert(str(made), quantization=kind)
        encoder = ctranslate2.Encoder(str(made), compute_type=kind, intra_threads=_threads())
        return lambda ids: np.array(encoder.forward_batch(ids.tolist()).last_hidden_state)[:, 0, :2]

    return load


ENGINES: dict[str, Callable[[Path], Callable[[Any], Any]]] = {
    BASELINE: _hugging_face,
    "optimum fp32": _optimum,
    "ctranslate2 fp32": _ctranslate2("float32"),
    "ctranslate2 int8": _ctranslate2("int8"),
    "ours fp32": _ours("fp32"),
    "ours int8": _ours("int8"),
}

if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        _child(sys.argv[2], Path(sys.argv[3]), sys.argv[4])
    else:
        sys.exit(main())
