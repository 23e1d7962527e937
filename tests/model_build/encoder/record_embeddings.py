"""Asks sentence-transformers for embeddings by a seeded BERT and writes them to embeddings.json.

It is no requirement of this repository. With it first on the path, beside the torch and transformers of `.venv`:

    pip install --target OTHER --no-deps sentence-transformers==6.2.0 scikit-learn joblib threadpoolctl narwhals
    PYTHONPATH=OTHER:. python -m tests.model_build.encoder.record_embeddings
"""

import importlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.containers.encoder.seeded_bert import save_encoder

TEXTS = ("red shoe", "a blue-ish lamp, xl", "do you sell warm winter socks in size xl", "socks")
POOLINGS = {"mean": "mean", "cls": "cls", "max": "max", "last": "lasttoken"}
"""The names of poolings in workload.toml, and those of sentence-transformers."""
CUT = 6
LONGEST = 64
RECORDED = Path(__file__).with_name("embeddings.json")


def main() -> None:
    library: Any = importlib.import_module("sentence_transformers")
    modules: Any = importlib.import_module("sentence_transformers.sentence_transformer.modules")
    answers = {}
    files = {}
    with TemporaryDirectory() as folder:
        save_encoder(Path(folder) / "encoder")
        for ours, theirs in POOLINGS.items():
            network = modules.Transformer(str(Path(folder) / "encoder"), max_seq_length=LONGEST)
            pooling = modules.Pooling(network.get_embedding_dimension(), pooling_mode=theirs)
            model = library.SentenceTransformer(modules=[network, pooling], device="cpu")
            for normalize in (False, True):
                for dimensions in (None, CUT):
                    found = model.encode(list(TEXTS), normalize_embeddings=normalize, truncate_dim=dimensions)
                    key = f"{ours} normalize={normalize} dimensions={dimensions or 0}"
                    answers[key] = [[round(float(number), 6) for number in vector] for vector in found]
            saved = library.SentenceTransformer(modules=[network, pooling, modules.Normalize()], device="cpu")
            saved.save(str(Path(folder) / ours))
            names = ("modules.json", "1_Pooling/config.json", "sentence_bert_config.json", "tokenizer_config.json")
            files[ours] = {name: json.loads((Path(folder) / ours / name).read_text("utf-8")) for name in names}
    document = {"sentence_transformers": library.__version__, "embeddings": answers, "files": files}
    RECORDED.write_text(json.dumps(document, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
