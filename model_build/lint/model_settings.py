"""Checks one model's config.pbtxt: name, batching, tensors, warm-up, the Python environment. Pure.

The rules are those of ValidateModelConfig, ValidateIOShape and the warm-up in Triton's core.
"""

from collections.abc import Iterator

from model_build.lint.backends import backend_of, model_file
from model_build.lint.contents import Contents, join, normalised
from model_build.lint.finding import Finding, FindingPlace, finding
from model_build.lint.layout import PackedModel, PackedRepository
from model_build.lint.model_config import required_inputs
from model_build.lint.paths import is_torchscript

MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
REPOSITORY = "/opt/ml/model/"


def check_name(model: PackedModel, _: PackedRepository) -> Iterator[Finding]:
    if model.config.name not in ("", model.name):
        yield finding("name-mismatch", model.place("name"), got=model.config.name, name=model.name)
    if any(character.isspace() for character in model.name):
        yield finding("odd-path/model", FindingPlace(model.name), name=model.name)


def check_batching(model: PackedModel, _: PackedRepository) -> Iterator[Finding]:
    config, maximum = model.config, model.config.max_batch_size
    preferred = config.dynamic_batching.preferred_batch_size
    if not (model.has_file and model.readable):
        return
    if "max_batch_size" not in model.lines:
        yield finding("max-batch-size-unset", model.place("max_batch_size"))
    elif maximum < 0:
        yield finding("batch-size/maximum", model.place("max_batch_size"), size=maximum)
    if config.HasField("dynamic_batching") and maximum == 0:
        case = "rejected" if preferred else "ignored"
        yield finding(f"batching-without-batch/{case}", model.place("dynamic_batching"))
    elif wrong := [str(size) for size in preferred if not 1 <= size <= maximum]:
        place = model.place("dynamic_batching.preferred_batch_size")
        yield finding("batch-size/preferred", place, sizes=", ".join(wrong), maximum=maximum)


def check_tensors(model: PackedModel, _: PackedRepository) -> Iterator[Finding]:
    for direction, tensors in (("input", model.config.input), ("output", model.config.output)):
        for index, tensor in enumerate(tensors):
            place, values = model.place(f"{direction}[{index}]"), {"direction": direction, "name": tensor.name}
            lacks = {"name": not tensor.name, "data_type": tensor.data_type == 0, "dims": not tensor.dims}
            if any(lacks.values()):
                missing = ", ".join(key for key, absent in lacks.items() if absent)
                yield finding("incomplete-tensor/missing", place, missing=missing, **values)
            elif wrong := [size for size in tensor.dims if size < 1 and size != -1]:
                yield finding("incomplete-tensor/dimension", place, size=wrong[0], **values)


def check_warmup(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    maximum = model.config.max_batch_size
    for index, sample in enumerate(model.config.model_warmup):
        place = model.place(f"model_warmup[{index}]")
        for name, source in sample.inputs.items():
            path = join(model.name, "warmup", source.input_data_file)
            if source.input_data_file and not repository.contents.exists(path):
                yield finding("warmup-file", FindingPlace(path), name=name)
        if missing := sorted(required_inputs(model.config) - set(sample.inputs)):
            yield finding("warmup-request/input", place, name=missing[0])
        elif sample.batch_size > max(maximum, 1):
            yield finding("warmup-request/batch", place, size=sample.batch_size, maximum=maximum)


def check_environment(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    paths = {name: value.string_value for name, value in model.config.parameters.items()}
    path = paths.get("EXECUTION_ENV_PATH", "")
    if (
        backend_of(model, repository.contents) == "python"
        and path
        and _is_missing(path, model.name, repository.contents)
    ):
        place = FindingPlace(model.file, model.place("parameters").line, "parameters EXECUTION_ENV_PATH")
        yield finding("execution-environment", place, path=path)


def _is_missing(path: str, model: str, contents: Contents) -> bool:
    """Returns False for an absolute path outside the repository: the image may have it."""
    if path.startswith("/") and not path.startswith(REPOSITORY):
        return False
    inside = path.removeprefix(REPOSITORY).replace(MODEL_DIRECTORY, model, 1)
    place = normalised(inside) if inside != path else None
    return place is None or not contents.exists(place)


def check_torchscript(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    backend = backend_of(model, repository.contents)
    expected = model_file(model, backend)
    if backend != "pytorch" or expected is None or expected.endswith(".pt2"):
        return
    for version in model.versions:
        path = join(model.name, version, expected)
        member = repository.contents.file(path)
        if member is None or is_torchscript(member) or (member.zip_names is None and member.head.startswith(b"PK")):
            continue
        yield finding("not-torchscript", FindingPlace(path), name=expected)
