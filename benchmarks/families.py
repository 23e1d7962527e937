"""A classifier of each family at base size with 128 tokens: ours in fp32 and int8 beside other projects, on CPU.

  make peers                                        Optimum and CTranslate2, which are left out without it
  python benchmarks/families.py                     every family, 1 and 16 rows
  python benchmarks/families.py --family roberta --rows 1 --rounds 9

Weights are seeded and random. Every engine has all cores. Milliseconds are those of a call of all rows, from token ids
to logits. In fp32 each engine has to return Hugging Face's logits. CTranslate2 computes the encoder only, so its
numbers are not compared. Optimum is its own export, as exported, optimised by its levels O2 and O3, and quantised by
its recipe for AVX-512 VNNI.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import harness, peers
from benchmarks.harness import BASELINE

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
GOALS = (
    ("ours fp32", "optimum fp32", 1.0),
    ("ours fp32", "optimum O2 fp32", 1.0),
    ("ours int8", BASELINE, 2.0),
)
PACKAGES = ("onnxruntime", "torch", "transformers")
Answer = Callable[[str], list[list[float]]]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--family", action="append", choices=CONFIGS, help="only this; may be repeated")
    parser.add_argument("--rows", type=int, action="append", help="rows of a call (default 1 and 16)")
    parser.add_argument("--rounds", type=int, default=5, help="turns of each engine (default 5)")
    parser.add_argument("--engine", choices=ENGINES, action="append", help="only this; may be repeated")
    options = parser.parse_args(arguments)
    return peers.compare(
        Path(__file__),
        PACKAGES,
        options.family or list(CONFIGS),
        [f"{rows} rows" for rows in options.rows or (1, 16)],
        options.engine or ENGINES,
        GOALS,
        _check,
        rounds=options.rounds,
        threads=os.cpu_count() or 1,
        offers=lambda family, name: family in CTRANSLATE2 or not name.startswith("ctranslate2"),
    )


def _check(family: str, case: str, answers: Mapping[str, list[list[float]]]) -> dict[str, Any]:
    """Returns the largest difference from Hugging Face's logits by engine."""
    expected = [number for row in answers[BASELINE] for number in row]
    off = {}
    for name, logits in answers.items():
        if not name.startswith("ctranslate2"):
            made = [number for row in logits for number in row]
            off[name] = max(abs(a - b) for a, b in zip(made, expected, strict=True))
    for name in EXACT:
        if off.get(name, 0.0) > TOLERANCE:
            raise SystemExit(f"{name} of {family} is {off[name]:.3g} off Hugging Face's logits.")
    return {"logits_off": off}


def _make(name: str, family: str, folder: Path) -> None:
    made, checkpoint = folder / name, folder / "checkpoint"
    made.mkdir(parents=True, exist_ok=True)
    if name == "checkpoint":
        _make_checkpoint(family, made)
    elif name.startswith("optimum"):
        _make_optimum(name, checkpoint, made)
    elif name.startswith("ctranslate2"):
        peers.convert_to_ctranslate2(name, checkpoint, made)
    else:
        _make_ours("int8" if name.endswith("int8") else "fp32", checkpoint, made)


def _make_checkpoint(family: str, made: Path) -> None:
    import torch
    from transformers import AutoConfig, AutoModelForSequenceClassification

    torch.manual_seed(0)
    config: Any = AutoConfig.for_model(family, **CONFIGS[family])
    AutoModelForSequenceClassification.from_config(config).save_pretrained(made)
    peers.write_tokenizer(made, config.vocab_size, SPECIAL)


def _make_optimum(name: str, checkpoint: Path, made: Path) -> None:
    from optimum.onnxruntime import ORTModelForSequenceClassification, ORTOptimizer, ORTQuantizer
    from optimum.onnxruntime.configuration import AutoOptimizationConfig, AutoQuantizationConfig

    exported = ORTModelForSequenceClassification.from_pretrained(checkpoint, export=True)
    if name == "optimum int8":
        settings = AutoQuantizationConfig.avx512_vnni(is_static=False, per_channel=True)
        ORTQuantizer.from_pretrained(exported).quantize(save_dir=made, quantization_config=settings)
    elif name == "optimum fp32":
        exported.save_pretrained(made)
    else:
        level = AutoOptimizationConfig.O2() if " O2 " in name else AutoOptimizationConfig.O3()
        ORTOptimizer.from_pretrained(exported).optimize(save_dir=made, optimization_config=level)


def _make_ours(precision: str, checkpoint: Path, made: Path) -> None:
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
        target = OnnxRuntimeTarget.model_validate({"runtime": "onnxruntime", "precision": precision})
        optimise.optimise(portable, made / "model.onnx", target, ())


def _ids(rows: str) -> Any:
    import numpy as np

    return np.random.default_rng(0).integers(FIRST_TOKEN, LAST_TOKEN, (int(rows.split()[0]), LENGTH)).astype(np.int64)


def _threads() -> int:
    return int(os.environ["OMP_NUM_THREADS"])


def _hugging_face(name: str, family: str, folder: Path) -> Answer:
    import torch
    from transformers import AutoModelForSequenceClassification

    torch.set_num_threads(_threads())
    network: Any = AutoModelForSequenceClassification.from_pretrained(folder / "checkpoint", dtype=torch.float32)
    network.eval()

    def answer(rows: str) -> list[list[float]]:
        with torch.inference_mode():
            tensor = torch.from_numpy(_ids(rows))
            logits: list[list[float]] = network(
                input_ids=tensor, attention_mask=torch.ones_like(tensor)
            ).logits.tolist()
            return logits

    return answer


def _optimum(name: str, family: str, folder: Path) -> Answer:
    import torch
    from optimum.onnxruntime import ORTModelForSequenceClassification

    network = ORTModelForSequenceClassification.from_pretrained(
        folder / name, session_options=peers.onnx_options(_threads())
    )

    def answer(rows: str) -> list[list[float]]:
        tensor = torch.from_numpy(_ids(rows))
        given = {"input_ids": tensor, "attention_mask": torch.ones_like(tensor)}
        if "token_type_ids" in network.input_names:
            given["token_type_ids"] = torch.zeros_like(tensor)
        logits: list[list[float]] = network(**given).logits.tolist()
        return logits

    return answer


def _ours(name: str, family: str, folder: Path) -> Answer:
    import numpy as np

    from containers.encoder.onnx_engine import OnnxEngine

    engine = OnnxEngine(folder / name / "model.onnx", _threads())
    names = {node.name for node in engine._session.get_inputs()}

    def answer(rows: str) -> list[list[float]]:
        ids = _ids(rows)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        logits: list[list[float]] = engine.run({key: given[key] for key in names})["logits"].tolist()
        return logits

    return answer


def _ctranslate2(name: str, family: str, folder: Path) -> Answer:
    import ctranslate2
    import numpy as np

    encoder = ctranslate2.Encoder(str(folder / name), compute_type=peers.ct2_type(name), intra_threads=_threads())

    def answer(rows: str) -> list[list[float]]:
        hidden = encoder.forward_batch(_ids(rows).tolist()).last_hidden_state
        first: list[list[float]] = np.array(hidden)[:, 0, :2].tolist()
        return first

    return answer


ENGINES: dict[str, Callable[[str, str, Path], Answer]] = {
    BASELINE: _hugging_face,
    "optimum fp32": _optimum,
    "optimum O2 fp32": _optimum,
    "optimum O3 fp32": _optimum,
    "optimum int8": _optimum,
    "ctranslate2 fp32": _ctranslate2,
    "ctranslate2 int8": _ctranslate2,
    "ours fp32": _ours,
    "ours int8": _ours,
}


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        name, family, folder = sys.argv[2:]
        harness.answer_turns(lambda: ENGINES[name](name, family, Path(folder)))
    elif sys.argv[1:2] == ["--make"]:
        _make(*sys.argv[2:4], Path(sys.argv[4]))
    else:
        sys.exit(main())
