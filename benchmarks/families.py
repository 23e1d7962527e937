"""A classifier of each family at base size with 128 tokens: ours in fp32 and int8 beside other projects, on CPU.

  python benchmarks/families.py                     every family, 1 and 16 rows, after `make peers`

Weights are seeded and random. Every engine has all cores. Milliseconds are those of a call of all rows, from token ids
to logits. In fp32 each engine has to return Hugging Face's logits. CTranslate2 computes the encoder only, so its
numbers are not compared. Optimum is its own export: plain, by its levels O2 and O3, and quantised for AVX-512 VNNI.
"""

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import harness, peers
from benchmarks.harness import BASELINE, Answer

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
EXACT = ("optimum fp32", "optimum O2 fp32", "ours fp32")
TOLERANCE = 1e-3
OPTIMUM = "ORTModelForSequenceClassification"
GOALS = (
    ("ours fp32", "optimum fp32", 1.0),
    ("ours fp32", "optimum O2 fp32", 1.0),
    ("ours int8", BASELINE, 2.0),
)


def main() -> int:
    rounds = harness.options(__doc__, rounds=(5, "turns of each engine")).rounds
    return harness.compare(
        Path(__file__),
        list(CONFIGS),
        ["1 rows", "16 rows"],
        ENGINES,
        GOALS,
        _check,
        rounds=rounds,
        threads=os.cpu_count() or 1,
        offers=lambda family, name: family in CTRANSLATE2 or not name.startswith("ctranslate2"),
    )


def _check(family: str, case: str, answers: Mapping[str, list[list[float]]]) -> dict[str, Any]:
    """Returns the largest difference from Hugging Face's logits by engine."""
    compared = {name: np.array(logits) for name, logits in answers.items() if not name.startswith("ctranslate2")}
    off = {name: float(np.abs(logits - compared[BASELINE]).max()) for name, logits in compared.items()}
    for name in EXACT:
        if off.get(name, 0.0) > TOLERANCE:
            raise SystemExit(f"{name} of {family} is {off[name]:.3g} off Hugging Face's logits.")
    return {"logits_off": off}


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
    from model_build.encoder import export, optimise
    from workloads import OnnxRuntimeTarget, TextClassification

    model = TextClassification(
        task="text-classification", checkpoint="./checkpoint", labels=("no", "yes"), max_input_tokens=LENGTH
    )
    own, encoder_config, kind = read_encoder(checkpoint, checkpoint, model)
    read = Checkpoint(
        folder=checkpoint, encoder=checkpoint, config=own, encoder_config=encoder_config, sha256="", family=kind
    )
    model = model.model_copy(update={"inputs": inputs_for(model, encoder_config, made / "workload.toml")})
    with tempfile.TemporaryDirectory() as scratch:
        portable = export.export_checkpoint(read, model, Path(scratch))
        target = OnnxRuntimeTarget.model_validate({"runtime": "onnxruntime", "precision": name.split()[-1]})
        optimise.optimise(portable, made / "model.onnx", target, ())


def _ids(rows: str) -> Any:
    return np.random.default_rng(0).integers(FIRST_TOKEN, LAST_TOKEN, (int(rows.split()[0]), LENGTH)).astype(np.int64)


def _hugging_face(name: str, family: str, folder: Path) -> Answer:
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.set_num_threads(THREADS)
    network: Any = AutoModelForSequenceClassification.from_pretrained(folder / "checkpoint", dtype=torch.float32)
    network.eval()

    def answer(rows: str) -> Any:
        with torch.inference_mode():
            tensor = torch.from_numpy(_ids(rows))
            return network(input_ids=tensor, attention_mask=torch.ones_like(tensor)).logits.tolist()

    return answer


def _optimum(name: str, family: str, folder: Path) -> Answer:
    import torch

    network = peers.load_optimum(OPTIMUM, folder / name, THREADS)

    def answer(rows: str) -> Any:
        tensor = torch.from_numpy(_ids(rows))
        given = {"input_ids": tensor, "attention_mask": torch.ones_like(tensor)}
        if "token_type_ids" in network.input_names:
            given["token_type_ids"] = torch.zeros_like(tensor)
        return network(**given).logits.tolist()

    return answer


def _ours(name: str, family: str, folder: Path) -> Answer:
    from containers.encoder.onnx_engine import OnnxEngine

    engine = OnnxEngine(folder / name / "model.onnx", THREADS)
    names = {node.name for node in engine._session.get_inputs()}

    def answer(rows: str) -> Any:
        ids = _ids(rows)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        return engine.run({key: given[key] for key in names})["logits"].tolist()

    return answer


def _ctranslate2(name: str, family: str, folder: Path) -> Answer:
    import ctranslate2

    encoder = ctranslate2.Encoder(str(folder / name), compute_type=peers.ct2_type(name), intra_threads=THREADS)

    def answer(rows: str) -> Any:
        return np.array(encoder.forward_batch(_ids(rows).tolist()).last_hidden_state)[:, 0, :2].tolist()

    return answer


ENGINES: dict[str, harness.Load] = {
    BASELINE: _hugging_face,
    **dict.fromkeys(("optimum fp32", "optimum O2 fp32", "optimum O3 fp32", "optimum int8"), _optimum),
    **dict.fromkeys(("ctranslate2 fp32", "ctranslate2 int8"), _ctranslate2),
    **dict.fromkeys(("ours fp32", "ours int8"), _ours),
}


if __name__ == "__main__":
    peers.dispatch(main, ENGINES, checkpoint=_make_checkpoint, ours=_make_ours, optimum=OPTIMUM)
