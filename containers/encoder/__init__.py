"""Serving the encoder tasks: text classification, text pair scoring, question answering.

`predictor.Predictor` does it all in one process: the batch program, the HTTP server and the build's parity gate use it.
In Triton the same work is an ensemble of three models, tokenise, engine and postprocess. `python -m model_build` copies
the files that `MODULES` names into each one's version folder, the first of them as model.py; Triton imports them as the
package `1`, which is why they import each other relatively. Beside them:

- tokenise: settings.json, tokenizer.json
- engine: settings.json, and the compiled model: model.onnx or model.pt
- postprocess: settings.json
"""

MODULES: dict[str, tuple[str, ...]] = {
    "tokenise": ("triton_tokenise.py", "encoding.py", "padding.py", "preprocess.py", "row.py", "settings.py"),
    "engine": (
        "triton_engine.py",
        "engine.py",
        "fixed_batch.py",
        "onnx_engine.py",
        "padding.py",
        "settings.py",
        "torchscript_engine.py",
    ),
    "postprocess": ("triton_postprocess.py", "answers.py", "encoding.py", "padding.py", "row.py", "settings.py"),
}
