"""The three Triton models of an encoder workload and their ensemble, laid out by hand as the build lays them out."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import containers
from containers.encoder import MODULES
from containers.encoder.answers import OUTPUTS
from containers.encoder.settings import Settings
from tests.containers.encoder.encoder_miniature import make_folder

SOURCES = Path(containers.__path__[0]) / "encoder"
MAX_BATCH_SIZE = 8
FIXED = "[ 1 ] reshape { shape: [ ] }"  # valid_length and score have one number per row, and Triton no empty dims.


def lay_out(repository: Path, settings: Settings, model: str, extra: Mapping[str, str] | None = None) -> Path:
    """`extra` is config.pbtxt text by model name: ensemble, tokenise, engine, postprocess."""
    configs = {
        "tokenise": _tokenise(settings),
        "engine": _engine(settings),
        "postprocess": _postprocess(settings),
        "ensemble": _ensemble(settings),
    }
    for name, config in configs.items():
        version = repository / name / "1"
        version.mkdir(parents=True)
        (repository / name / "config.pbtxt").write_text(f"{config}\n{(extra or {}).get(name, '')}\n")
        for number, source in enumerate(MODULES.get(name, ())):
            shutil.copy(SOURCES / source, version / (source if number else "model.py"))
    made = make_folder(repository.parent / "made", settings, model)
    for name, file in (("tokenise", "tokenizer.json"), ("engine", model)):
        shutil.copy(made / file, repository / name / "1" / file)
    for name in MODULES:
        shutil.copy(made / "settings.json", repository / name / "1" / "settings.json")
    return made


def _tokenise(settings: Settings) -> str:
    fields = {field.upper(): "[ 1 ]" for field in settings.fields}
    return _python(
        "tokenise", _tensors("input", "TYPE_STRING", fields), _tensors("output", "TYPE_INT64", _made(settings))
    )


def _engine(settings: Settings) -> str:
    inputs = _tensors("input", "TYPE_INT64", {name: _dims(name) for name in settings.inputs}, ragged=True)
    outputs = {name: _dims(name, len(settings.labels)) for name in settings.graph_outputs}
    return _python("engine", inputs, _tensors("output", "TYPE_FP32", outputs))


def _postprocess(settings: Settings) -> str:
    graph = {name: _dims(name, len(settings.labels)) for name in settings.graph_outputs}
    inputs = _tensors("input", "TYPE_FP32", graph, ragged=settings.task == "question-answering")
    if settings.task == "question-answering":
        inputs += _tensors("input", "TYPE_INT64", {"answer_spans": "[ -1, 2 ]"}, ragged=True)
        inputs += _tensors("input", "TYPE_STRING", _contexts(settings))
    return _python("postprocess", inputs, _answers(settings))


def _ensemble(settings: Settings) -> str:
    fields = [field.upper() for field in settings.fields]
    to_postprocess = list(settings.graph_outputs)
    if settings.task == "question-answering":
        to_postprocess += ["answer_spans", *_contexts(settings)]
    steps = [
        _step("tokenise", fields, list(_made(settings))),
        _step("engine", list(settings.inputs), list(settings.graph_outputs)),
        _step("postprocess", to_postprocess, [name for name, _ in OUTPUTS[settings.task]]),
    ]
    inputs = _tensors("input", "TYPE_STRING", dict.fromkeys(fields, "[ 1 ]"))
    return (
        f'name: "ensemble"\nplatform: "ensemble"\nmax_batch_size: {MAX_BATCH_SIZE}\n{inputs}{_answers(settings)}'
        f"ensemble_scheduling {{\n{''.join(steps)}}}"
    )


def _made(settings: Settings) -> dict[str, str]:
    """Returns the outputs of tokenise, with their dims."""
    spans = {"answer_spans": "[ -1, 2 ]"} if settings.task == "question-answering" else {}
    return {name: _dims(name) for name in settings.inputs} | spans


def _contexts(settings: Settings) -> dict[str, str]:
    return dict.fromkeys([field.upper() for field in settings.segments[1]], "[ 1 ]")


def _dims(name: str, labels: int = 0) -> str:
    return {"valid_length": FIXED, "score": FIXED, "logits": f"[ {labels} ]"}.get(name, "[ -1 ]")


def _answers(settings: Settings) -> str:
    return "".join(_tensors("output", data_type, {name: "[ 1 ]"}) for name, data_type in OUTPUTS[settings.task])


def _tensors(kind: str, data_type: str, dims: Mapping[str, str], ragged: bool = False) -> str:
    return "".join(
        f'{kind} {{ name: "{name}" data_type: {data_type} dims: {shape}'
        f"{' allow_ragged_batch: true' if ragged and '-1' in shape else ''} }}\n"
        for name, shape in dims.items()
    )


def _python(name: str, inputs: str, outputs: str) -> str:
    return f'name: "{name}"\nbackend: "python"\nmax_batch_size: {MAX_BATCH_SIZE}\n{inputs}{outputs}'


def _step(model: str, inputs: list[str], outputs: list[str]) -> str:
    """Tensors of the ensemble have the names they have in its models."""
    lines = [f'    input_map {{ key: "{name}" value: "{name}" }}' for name in inputs]
    lines += [f'    output_map {{ key: "{name}" value: "{name}" }}' for name in outputs]
    return f'  step {{\n    model_name: "{model}"\n    model_version: -1\n' + "\n".join(lines) + "\n  }\n"
