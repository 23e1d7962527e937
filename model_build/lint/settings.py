"""A model's config.pbtxt by itself: name, batching, tensors, warm-up, the Python environment. Pure.

The rules are those of ValidateModelConfig, ValidateIOShape and the warm-up in Triton's core.
"""

from collections.abc import Iterator

from model_build.lint.backends import backend_of, model_file
from model_build.lint.contents import Contents, join, normalised
from model_build.lint.finding import Finding
from model_build.lint.layout import Model
from model_build.lint.model_config import ModelConfig, Warmup
from model_build.lint.paths import is_torchscript

MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
REPOSITORY = "/opt/ml/model/"


def check_settings(model: Model, contents: Contents) -> list[Finding]:
    config = model.config
    if config is None:
        return []
    return [
        *_name(model, config),
        *_batching(model, config),
        *_tensors(model, config),
        *_warmups(model, config, contents),
        *_environment(model, config, contents),
        *_torchscript(model, contents),
    ]


def _name(model: Model, config: ModelConfig) -> Iterator[Finding]:
    if config.name and config.name != model.name:
        yield Finding(
            code="name-mismatch",
            severity="error",
            what=f"name is '{config.name}', but the folder is called '{model.name}'.",
            file=model.config_file,
            line=model.line("name"),
            key="name",
            why="Triton does not load it: 'directory name must equal model name'.",
            fix=f'Write `name: "{model.name}"`, drop the line, or rename the folder.',
        )
    if any(character.isspace() for character in model.name):
        yield Finding(
            code="odd-path",
            severity="error",
            what=f"The model folder's name '{model.name}' has a space in it.",
            file=model.name,
            why="The container's start script splits folder names at spaces and looks for models that are not there.",
            fix="Use letters, digits, `_`, `-` and `.` only.",
        )


def _batching(model: Model, config: ModelConfig) -> Iterator[Finding]:
    if "max_batch_size" not in config.lines:
        yield Finding(
            code="max-batch-size-unset",
            severity="warning",
            what="max_batch_size is not written out.",
            file=model.config_file,
            key="max_batch_size",
            why="Unwritten it is 0, no batching, unless the backend completes it to a size of its own (4 by default): "
            "which of the two decides the shapes that requests must have.",
            fix="Write it, also when it is 0.",
        )
    elif config.max_batch_size < 0:
        yield _batch_size(model, "max_batch_size", f"max_batch_size is {config.max_batch_size}; allowed: 0 or more.")
    if config.dynamic_batching and config.max_batch_size == 0:
        yield _dynamic_without_batch(model, config)
        return
    too_large = [size for size in config.preferred_batch_sizes if size > config.max_batch_size or size < 1]
    if too_large:
        yield _batch_size(
            model,
            "dynamic_batching.preferred_batch_size",
            f"preferred_batch_size {', '.join(map(str, too_large))} is not within 1 and max_batch_size "
            f"{config.max_batch_size}.",
        )


def _batch_size(model: Model, key: str, what: str) -> Finding:
    return Finding(
        code="batch-size",
        severity="error",
        what=what,
        file=model.config_file,
        line=model.line(key),
        key=key,
        why="Triton refuses the configuration.",
        fix="Write sizes from 1 to max_batch_size; max_batch_size itself may be 0, which is no batching.",
    )


def _dynamic_without_batch(model: Model, config: ModelConfig) -> Finding:
    refused = bool(config.preferred_batch_sizes)
    return Finding(
        code="batching-without-batch",
        severity="error" if refused else "warning",
        what="dynamic_batching is set, but max_batch_size is 0.",
        file=model.config_file,
        line=model.line("dynamic_batching"),
        key="dynamic_batching",
        why="Triton refuses preferred batch sizes above max_batch_size."
        if refused
        else "A model without a batch dimension gets its requests one by one: the setting does nothing.",
        fix="Give the model a batch dimension and set max_batch_size, or drop dynamic_batching.",
    )


def _tensors(model: Model, config: ModelConfig) -> Iterator[Finding]:
    for direction, tensors in (("input", config.inputs), ("output", config.outputs)):
        for index, tensor in enumerate(tensors):
            lacking = [
                name
                for name, missing in (
                    ("name", not tensor.name),
                    ("data_type", tensor.data_type == "TYPE_INVALID"),
                    ("dims", not tensor.dims),
                )
                if missing
            ]
            wrong = [size for size in tensor.dims if size < 1 and size != -1]
            if lacking or wrong:
                key = f"{direction}[{index}]"
                yield Finding(
                    code="incomplete-tensor",
                    severity="error",
                    what=f"{direction} '{tensor.name}' lacks {', '.join(lacking)}."
                    if lacking
                    else f"{direction} '{tensor.name}' has the dimension {wrong[0]}.",
                    file=model.config_file,
                    line=model.line(key),
                    key=key,
                    why="Triton refuses the configuration.",
                    fix="Write name, data_type and dims; each dimension is 1 or more, or -1 for any size.",
                )


def _warmups(model: Model, config: ModelConfig, contents: Contents) -> Iterator[Finding]:
    for index, sample in enumerate(config.warmups):
        key = f"model_warmup[{index}]"
        for name, file in sample.files.items():
            path = join(model.name, "warmup", file) if file else None
            if path and not contents.exists(path):
                yield Finding(
                    code="warmup-file",
                    severity="error",
                    what=f"The warm-up data of input '{name}' is not there.",
                    file=path,
                    why="Triton reads it from the folder warmup/ of the model while it loads it, and fails without.",
                    fix="Pack the file, or use zero_data or random_data.",
                )
        if problem := _warmup_problem(config, sample):
            yield Finding(
                code="warmup-request",
                severity="error",
                what=problem,
                file=model.config_file,
                line=model.line(key),
                key=key,
                why="Warm-up requests are checked like any other; a model that refuses its own is not loaded.",
                fix="Name the inputs of the model, all of them, and a batch size that it takes.",
            )


def _warmup_problem(config: ModelConfig, sample: Warmup) -> str | None:
    required = {tensor.name for tensor in config.inputs if not tensor.optional}
    if missing := sorted(required - set(sample.files)):
        return f"The warm-up request lacks the input '{missing[0]}'."
    if sample.batch_size > max(config.max_batch_size, 1):
        return f"The warm-up request has batch size {sample.batch_size}; max_batch_size is {config.max_batch_size}."
    return None


def _environment(model: Model, config: ModelConfig, contents: Contents) -> Iterator[Finding]:
    path = config.parameters.get("EXECUTION_ENV_PATH", "")
    if not path or backend_of(model, contents) != "python":
        return
    if not _is_missing(path, model.name, contents):
        return
    yield Finding(
        code="execution-environment",
        severity="error",
        what=f"EXECUTION_ENV_PATH '{path}' is not in the archive.",
        file=model.config_file,
        line=model.line("parameters"),
        key="parameters EXECUTION_ENV_PATH",
        why="The Python backend starts the model inside that environment, and does not load it without.",
        fix=f"Pack it, and write {MODEL_DIRECTORY}/FILE for a file in the model's folder.",
    )


def _is_missing(path: str, model: str, contents: Contents) -> bool:
    """False of an absolute path outside the repository: the image may have it. Any other has to be in the archive."""
    if path.startswith("/") and not path.startswith(REPOSITORY):
        return False
    inside = path.removeprefix(REPOSITORY).replace(MODEL_DIRECTORY, model, 1)
    place = normalised(inside) if inside != path else None
    return place is None or not contents.exists(place)


def _torchscript(model: Model, contents: Contents) -> Iterator[Finding]:
    expected = model_file(model, backend_of(model, contents))
    if backend_of(model, contents) != "pytorch" or expected is None or expected.endswith(".pt2"):
        return
    for version in model.versions:
        path = join(model.name, version, expected)
        member = contents.file(path)
        if member is None or is_torchscript(member) or (member.zip_names is None and member.head.startswith(b"PK")):
            continue
        yield Finding(
            code="not-torchscript",
            severity="error",
            what=f"{expected} is no TorchScript file.",
            file=path,
            why="Triton's PyTorch backend loads TorchScript; what torch.save wrote is a pickle of Python objects, and "
            "it refuses that.",
            fix="Save with `torch.jit.trace(model, example_inputs).save(file)`.",
        )
