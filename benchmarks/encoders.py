"""A classifier of each family at base size with 128 tokens: our builds beside other projects, on CPU.

  python benchmarks/encoders.py                                every family, 1, 4 and 16 rows, after `make peers`
  python benchmarks/encoders.py --group bert --rounds 1        a single family

Weights are seeded and random. Every engine has all cores. Milliseconds are those of a call of all rows, from token ids
to logits. In fp32 each engine has to return Hugging Face's logits, and in lower precision logits close to them.
CTranslate2 computes the encoder only, so its numbers are not compared. Optimum is its own export: plain, by its levels
O2 and O3, and quantised for AVX-512 VNNI. OpenVINO's int8 is static, by NNCF. The goal of a cell compares our fastest
engine with the fastest of all others in the same class of precision: fp32, or bf16 and int8.
"""

import os
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import goals, harness, peers
from benchmarks.goals import Goal
from benchmarks.harness import BASELINE, Answer, Checked, Comparison

PROGRAM = Path(__file__)
THREADS = int(os.environ.get("OMP_NUM_THREADS", 1))
"""Threads of an engine's process."""
LENGTH, FIRST_TOKEN, LAST_TOKEN = 128, 5, 30_000
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
"""Keys that turn transformers' defaults into the base size. XLM-RoBERTa and CamemBERT have RoBERTa's network."""
CTRANSLATE2 = ("bert", "roberta", "distilbert")
"""The families that CTranslate2 converts."""
SPECIAL = {"pad_token": 0, "bos_token": 1, "eos_token": 2, "unk_token": 3}
TOLERANCES = {"fp32": 1e-3, "bf16": 0.1, "int8": 0.3}
"""Largest difference from Hugging Face's logits, by precision."""
CLASSES = {"fp32": ("fp32",), "bf16 or int8": ("bf16", "int8")}
"""The precisions that are compared with one another."""
CELL, GEOMETRIC_MEAN = 1.0, 1.3
"""How many times as fast our best has to be as the best of the others: in each cell, and over all."""
CLASSIFICATION = "ModelForSequenceClassification"
ROWS = (1, 4, 16)
OPENVINO = "ours openvino"
"""Prefix of our builds for OpenVINO; their precision follows."""


def main() -> int:
    parser = harness.parser(__doc__, rounds=(5, "turns of each engine"))
    parser.add_argument("--group", choices=CONFIGS, action="append", help="only this family; may be repeated")
    options = parser.parse_args()
    threads = os.cpu_count() or 1
    compared: list[Comparison] = []
    for family in options.group or CONFIGS:
        names = [name for name in ENGINES if family in CTRANSLATE2 or not name.startswith("ctranslate2")]
        cases = {f"{rows} rows": [str(rows)] for rows in ROWS}
        check = partial(_check, family)
        compared += harness.compare(PROGRAM, family, names, cases, check, rounds=options.rounds, threads=threads)
    document = {"threads": threads, "cases": {each.title: each.document() for each in compared}}
    return goals.finish("encoders", harness.PACKAGES, document, list(judge(compared)))


def judge(compared: Sequence[Comparison]) -> Iterator[Goal]:
    """Yields the goal of each cell and class of precision, and the one of their geometric mean."""
    cells = [_cell(each, name, precisions) for each in compared for name, precisions in CLASSES.items()]
    yield from cells
    ratios = [cell.figure for cell in cells if cell.figure is not None]
    complete = len(ratios) == len(cells)
    mean = statistics.geometric_mean(ratios) if complete else None
    note = "" if complete else f"{len(cells) - len(ratios)} of {len(cells)} cells have no figure"
    yield Goal(cell="geometric mean of all cells", limit=GEOMETRIC_MEAN, figure=mean, note=note)


def _cell(compared: Comparison, name: str, precisions: Sequence[str]) -> Goal:
    cell = f"{compared.title}, {name}: our best over the best other"
    of_class = [engine for engine in (*compared.turns, *compared.absent) if engine.split()[-1] in precisions]
    missing = [engine for engine in of_class if (absent := compared.absent.get(engine)) and not absent.failed]
    ours, others = (
        [engine for engine in of_class if engine in compared.turns and engine.startswith("ours") == own]
        for own in (True, False)
    )
    if missing or not ours or not others:
        note = ", ".join(f"{engine}: {compared.absent[engine].reason}" for engine in missing)
        return Goal(cell=cell, limit=CELL, note=note, failed=not ours)
    best, other = (min(of, key=lambda each: harness.medians(compared.turns[each]).ms) for of in (ours, others))
    faster = harness.times_faster(compared.turns, best, other)
    return Goal(cell=cell, limit=CELL, figure=faster.ms, note=f"{best} over {other}, {harness.cpu_note(faster)}")


def _check(family: str, case: str, answers: Mapping[str, list[list[list[float]]]]) -> dict[str, Checked]:
    """Compares the logits of all engines but CTranslate2's with Hugging Face's."""
    checked = {}
    for name, (logits,) in answers.items():
        if not name.startswith("ctranslate2"):
            off = float(np.abs(np.array(logits) - np.array(answers[BASELINE][0])).max())
            checked[name] = Checked(f"off by {off:.2g}", off <= TOLERANCES[name.split()[-1]])
    return checked


def _make_checkpoint(family: str, made: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    torch.manual_seed(0)
    config: Any = AutoConfig.for_model(family, **CONFIGS[family])
    AutoModelForSequenceClassification.from_config(config).save_pretrained(made)
    peers.write_tokenizer(made, config.vocab_size, SPECIAL)


def _make_ours(name: str, family: str, checkpoint: Path, made: Path) -> None:
    from model_build.checkpoint import Checkpoint
    from model_build.checkpoint.encoder_config import inputs_for, read_encoder
    from model_build.encoder import export, graphs, openvino_graph, optimise
    from workloads import OnnxRuntimeTarget, OpenVinoTarget, TextClassification

    model = TextClassification(
        task="text-classification", checkpoint="./checkpoint", labels=("no", "yes"), max_input_tokens=LENGTH
    )
    own, encoder_config, kind = read_encoder(checkpoint, checkpoint, model)
    read = Checkpoint(
        folder=checkpoint, encoder=checkpoint, config=own, encoder_config=encoder_config, sha256="", family=kind
    )
    model = model.model_copy(update={"inputs": inputs_for(model, encoder_config, made / "workload.toml")})
    with tempfile.TemporaryDirectory() as scratch:
        portable = export.write("onnx", read, model, Path(scratch))
        precision = name.split()[-1]
        target: OnnxRuntimeTarget | OpenVinoTarget
        if name.startswith(OPENVINO):
            target = OpenVinoTarget.model_validate({"runtime": "openvino", "precision": precision})
            batches = [{str(key): each[key] for key in model.inputs} for each in _calibration()]
            openvino_graph.compile_graph(portable, made, target, batches)
        else:
            target = OnnxRuntimeTarget.model_validate({"runtime": "onnxruntime", "precision": precision})
            optimise.optimise(portable, made / "model.onnx", target)
    (made / "settings.json").write_text(graphs.settings(model, target, read).to_json(), "utf-8")


def _ids(rows: str, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(FIRST_TOKEN, LAST_TOKEN, (int(rows), LENGTH)).astype(np.int64)


def _inputs(ids: Any) -> dict[str, Any]:
    return {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}


def _calibration() -> list[dict[str, Any]]:
    return [_inputs(_ids("1", seed)) for seed in range(1, 65)]


def _torch(name: str, family: str, folder: Path) -> Answer:
    import torch

    network = peers.load_torch(f"Auto{CLASSIFICATION}", name, folder, THREADS)

    def answer(rows: str) -> Any:
        with torch.inference_mode(not name.startswith("zentorch")), torch.no_grad():
            tensor = torch.from_numpy(_ids(rows))
            return network(input_ids=tensor, attention_mask=torch.ones_like(tensor)).logits.tolist()

    return answer


def _optimum(name: str, family: str, folder: Path) -> Answer:
    return _classifying(peers.load_optimum(f"ORT{CLASSIFICATION}", folder / name, THREADS))


def _openvino(name: str, family: str, folder: Path) -> Answer:
    return _classifying(peers.load_openvino(f"OV{CLASSIFICATION}", name, folder, THREADS))


def _classifying(network: Any) -> Answer:
    import torch

    def answer(rows: str) -> Any:
        given = {
            key: torch.from_numpy(value) for key, value in _inputs(_ids(rows)).items() if key in network.input_names
        }
        return network(**given).logits.tolist()

    return answer


def _ours(name: str, family: str, folder: Path) -> Answer:
    from containers.encoder.engines import load_engine
    from containers.encoder.settings import Settings

    settings = Settings.from_json((folder / name / "settings.json").read_text("utf-8"))
    engine = load_engine.load(folder / name, replace(settings, threads=THREADS))

    def answer(rows: str) -> Any:
        given = _inputs(_ids(rows))
        return engine.run({key: given[key] for key in settings.inputs})["logits"].tolist()

    return answer


def _ctranslate2(name: str, family: str, folder: Path) -> Answer:
    import ctranslate2

    encoder = ctranslate2.Encoder(str(folder / name), compute_type=peers.ct2_type(name), intra_threads=THREADS)

    def answer(rows: str) -> Any:
        return np.array(encoder.forward_batch(_ids(rows).tolist()).last_hidden_state)[:, 0, :2].tolist()

    return answer


COMPILED = ("huggingface compiled fp32", "huggingface compiled bf16", "zentorch fp32", "zentorch bf16")
ENGINES: dict[str, harness.Load] = {
    **dict.fromkeys((BASELINE, "huggingface bf16", *COMPILED), _torch),
    **dict.fromkeys(("optimum fp32", "optimum O2 fp32", "optimum O3 fp32", "optimum int8"), _optimum),
    **dict.fromkeys(("openvino fp32", "openvino bf16", "openvino int8"), _openvino),
    **dict.fromkeys(("ctranslate2 fp32", "ctranslate2 int8"), _ctranslate2),
    **dict.fromkeys(("ours fp32", "ours int8", *(f"{OPENVINO} {each}" for each in ("fp32", "bf16", "int8"))), _ours),
}


def run() -> None:
    own: dict[str, Any] = {"checkpoint": _make_checkpoint, "ours": _make_ours}
    peers.dispatch(main, ENGINES, **own, optimum=CLASSIFICATION, calibration=_calibration())


if __name__ == "__main__":
    run()
