"""Serves the encoder tasks: classification of texts and tokens, ranking, pair scoring, embeddings, question answering.

`predictor.Predictor` does all the work in one process: the batch program, the HTTP server and the build's parity gate
use it. In Triton the same work is an ensemble of three models: tokenise, engine and postprocess. `python -m
model_build` copies the files that `MODULES` names into the version folder of each, the first of them as model.py.
Triton imports them as the package `1`, which is why they import each other relatively. Beside them lie:

- tokenise: settings.json, tokenizer.json
- engine: settings.json, and the compiled model: model.onnx, model.pt, or model.xml with model.bin
- postprocess: settings.json
"""

MODULES: dict[str, tuple[str, ...]] = {
    "tokenise": ("triton_tokenise.py", "preprocess.py", "row.py", "settings.py", "tensors.py"),
    "engine": (
        "triton_engine.py",
        "engines/engine.py",
        "engines/length_groups.py",
        "engines/load_engine.py",
        "engines/onnx_engine.py",
        "engines/openvino_engine.py",
        "settings.py",
        "tensors.py",
        "engines/torchscript_engine.py",
    ),
    "postprocess": ("triton_postprocess.py", "answers.py", "entities.py", "row.py", "settings.py", "tensors.py"),
}
