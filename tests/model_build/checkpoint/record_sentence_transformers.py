"""Records sentence-transformers with a seeded BERT: its files beside the weights, and its embeddings.

It adds the files to sentence_transformers.json, by its version, and writes embeddings.json.

It is no requirement of this repository. With it first on the path, beside the torch of `.venv`, for versions from 5 on:

    pip install --target OTHER --no-deps sentence-transformers==6.2.0 scikit-learn joblib threadpoolctl narwhals
    PYTHONPATH=OTHER:. python -m tests.model_build.checkpoint.record_sentence_transformers

and for older ones (2.7.0, 3.4.1) also with transformers==4.57.6 tokenizers==0.22.2 huggingface_hub==0.36.2.
"""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from tests.containers.encoder.seeded_bert import save_encoder

RECORDED = Path(__file__).with_name("sentence_transformers.json")
EMBEDDINGS = Path(__file__).parents[1] / "encoder" / "embeddings.json"
TEXTS = ("red shoe", "a blue-ish lamp, xl", "do you sell warm winter socks in size xl", "socks")
POOLINGS = {"mean": "mean", "cls": "cls", "max": "max", "last": "lasttoken"}
"""The names of poolings in workload.toml, and those of sentence-transformers."""
CUT = 6
LONGEST = 64
KEPT = ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "config_sentence_transformers.json")
PROMPTS = {"query": "query: ", "document": ""}
ACTIVATIONS: dict[str, Callable[[], Any] | None] = {
    "reranker": None,
    "sigmoid": torch.nn.Sigmoid,
    "identity": torch.nn.Identity,
}


def main() -> None:
    library: Any = importlib.import_module("sentence_transformers")
    saved: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as scratch:
        encoder = Path(scratch) / "encoder"
        save_encoder(encoder)
        models = _embeddings(library, encoder)
        rerankers = {name: _reranker(library, encoder, each) for name, each in ACTIVATIONS.items()}
        for name, model in {**models, **rerankers}.items():
            model.save(str(Path(scratch) / name))
            saved[name] = _files(Path(scratch) / name)
        answers = {
            f"{way} normalize={normalize} dimensions={cut}": model.encode(
                list(TEXTS), normalize_embeddings=normalize, truncate_dim=cut or None
            )
            for way in POOLINGS
            for normalize in (False, True)
            for cut in (0, CUT)
            if (model := models.get(way))
        }
    recorded = json.loads(RECORDED.read_text("utf-8")) if RECORDED.exists() else {}
    recorded[library.__version__] = saved
    RECORDED.write_text(json.dumps(dict(sorted(recorded.items())), indent=1) + "\n", "utf-8")
    rounded = {key: [[round(float(x), 6) for x in vector] for vector in found] for key, found in answers.items()}
    document = {"sentence_transformers": library.__version__, "embeddings": rounded}
    EMBEDDINGS.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


def _embeddings(library: Any, encoder: Path) -> dict[str, Any]:
    """Returns embeddings that pool in every way, one with a prompt, and one with a module that is not built."""
    modules = _modules(library)

    def made(*more: Any, **pooling: Any) -> Any:
        network = modules.Transformer(str(encoder), max_seq_length=LONGEST)
        pool = modules.Pooling(_width(network), **pooling)
        return library.SentenceTransformer(modules=[network, pool, *more], device="cpu")

    models = {way: made(pooling_mode=way) for way in ("mean", "cls", "max")}
    models["normalized"] = made(modules.Normalize(), pooling_mode="mean")
    models["dense"] = made(modules.Dense(16, 8), pooling_mode="mean")
    if library.__version__ >= "2.4":
        models["last"] = made(pooling_mode="lasttoken")
        models["weighted"] = made(pooling_mode="weightedmean")
        models["prompted"] = made(pooling_mode="mean")
        models["prompted"].prompts, models["prompted"].default_prompt_name = PROMPTS, "query"
        models["with prompts"] = made(pooling_mode="mean")
        models["with prompts"].prompts = PROMPTS
    return models


def _modules(library: Any) -> Any:
    try:
        return importlib.import_module("sentence_transformers.sentence_transformer.modules")
    except ImportError:
        return library.models


def _width(network: Any) -> int:
    own = getattr(network, "get_embedding_dimension", None) or network.get_word_embedding_dimension
    return int(own())


def _reranker(library: Any, encoder: Path, activation: Callable[[], Any] | None) -> Any:
    """Returns a reranker; None as its activation leaves it to the library."""
    name = "activation_fn" if library.__version__ >= "4" else "default_activation_function"
    known = {} if activation is None else {name: activation()}
    return library.CrossEncoder(str(encoder), num_labels=1, device="cpu", **known)


def _files(folder: Path) -> dict[str, Any]:
    """Returns the files that sentence-transformers has a say in, and of others the keys that it writes."""
    files = {name: json.loads((folder / name).read_text("utf-8")) for name in KEPT if (folder / name).exists()}
    config = json.loads((folder / "config.json").read_text("utf-8"))
    own = ("sentence_transformers", "sbert_ce_default_activation_function", "architectures", "id2label")
    tokenizer = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    files["config.json"] = {key: config[key] for key in own if key in config}
    files["tokenizer_config.json"] = {"model_max_length": tokenizer.get("model_max_length")}
    return files


if __name__ == "__main__":
    main()
