"""Writes the three Triton models of an encoder workload and their ensemble, like the build."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import containers
from containers.encoder import MODULES
from containers.encoder.answers import OUTPUTS, VECTORS
from containers.encoder.settings import Settings
from tests.containers.encoder.encoder_miniature import make_folder

SOURCES = Path(containers.__path__[0]) / "encoder"
MAX_BATCH_SIZE = 8
SEGMENT = {"segment": "[ 1 ]"}
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
    made = _tensors("output", "TYPE_INT64", _made(settings))
    if settings.per_token:
        made += _tensors("output", "TYPE_STRING", SEGMENT)
    return _python("tokenise", _tensors("input", "TYPE_STRING", fields), made)


def _engine(settings: Settings) -> str:
    inputs = _tensors("input", "TYPE_INT64", {name: _dims(name) for name in settings.inputs}, ragged=True)
    outputs = _graph_outputs(settings)
    return _python("engine", inputs, _tensors("output", "TYPE_FP32", outputs))


def _postprocess(settings: Settings) -> str:
    inputs = _tensors("input", "TYPE_FP32", _graph_outputs(settings), ragged=settings.per_token)
    if settings.per_token:
        inputs += _tensors("input", "TYPE_INT64", _spans(settings), ragged=True)
        inputs += _tensors("input", "TYPE_STRING", SEGMENT)
    return _python("postprocess", inputs, _answers(settings))


def _ensemble(settings: Settings) -> str:
    fields = [field.upper() for field in settings.fields]
    to_postprocess = list(settings.graph_outputs)
    if settings.per_token:
        to_postprocess += [*_spans(settings), *SEGMENT]
    steps = [
        _step("tokenise", fields, [*_made(settings), *(SEGMENT if settings.per_token else ())]),
        _step("engine", list(settings.inputs), list(settings.graph_outputs)),
        _step("postprocess", to_postprocess, [name for name, _ in OUTPUTS[settings.kind]]),
    ]
    inputs = _tensors("input", "TYPE_STRING", dict.fromkeys(fields, "[ 1 ]"))
    return (
        f'name: "ensemble"\nplatform: "ensemble"\nmax_batch_size: {MAX_BATCH_SIZE}\n{inputs}{_answers(settings)}'
        f"ensemble_scheduling {{\n{''.join(steps)}}}"
    )


def _made(settings: Settings) -> dict[str, str]:
    """Returns the outputs of tokenise, with their dims."""
    return {name: _dims(name) for name in settings.inputs} | _spans(settings)


def _spans(settings: Settings) -> dict[str, str]:
    return {"token_spans": f"[ -1, {3 if settings.labels else 2} ]"} if settings.per_token else {}


def _graph_outputs(settings: Settings) -> dict[str, str]:
    if settings.task == "token-classification":
        return {"logits": f"[ -1, {len(settings.labels)} ]"}
    return {name: _dims(name, max(1, len(settings.labels))) for name in settings.graph_outputs}


def _dims(name: str, labels: int = 0) -> str:
    return {"valid_length": FIXED, "score": FIXED, "logits": f"[ {labels} ]"}.get(name, "[ -1 ]")


def _answers(settings: Settings) -> str:
    return "".join(
        _tensors("output", data_type, {name: "[ -1 ]" if name in VECTORS else "[ 1 ]"})
        for name, data_type in OUTPUTS[settings.kind]
    )


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
