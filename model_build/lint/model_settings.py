"""Checks one model's config.pbtxt: name, batching, tensors, warm-up, the Python environment. Pure.

The rules are those of ValidateModelConfig and the warm-up in Triton's core.
"""

import re
from collections.abc import Iterator
from posixpath import join

from model_build.lint.backends import backend_of, model_file
from model_build.lint.contents import Contents, normalised
from model_build.lint.finding import Finding, FindingPlace, finding
from model_build.lint.layout import PackedModel, PackedRepository
from model_build.lint.paths import is_torchscript

MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
REPOSITORY = "/opt/ml/model/"


def check_name(model: PackedModel, _: PackedRepository) -> Iterator[Finding]:
    if model.config.name not in ("", model.name):
        yield finding("name-mismatch", model.place("name"), got=model.config.name, name=model.name)
    if any(character.isspace() for character in model.name):
        yield finding("odd-path", FindingPlace(model.name), name=model.name)


def check_batching(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    config, maximum = model.config, model.config.max_batch_size
    preferred = config.dynamic_batching.preferred_batch_size
    file = repository.contents.file(model.file)
    if file is None or not model.readable:
        return
    if not re.search(rb"^\s*max_batch_size\b", file.text or b"", re.MULTILINE):
        yield finding("max-batch-size-unset", model.place("max_batch_size"))
    if wrong := [str(size) for size in preferred if not 1 <= size <= maximum]:
        place = model.place("dynamic_batching.preferred_batch_size")
        yield finding("batch-size", place, sizes=", ".join(wrong), maximum=maximum)
    elif config.HasField("dynamic_batching") and maximum == 0:
        yield finding("batching-without-batch", model.place("dynamic_batching"))


def check_tensors(model: PackedModel, _: PackedRepository) -> Iterator[Finding]:
    for direction, tensors in (("input", model.config.input), ("output", model.config.output)):
        for index, tensor in enumerate(tensors):
            lacks = {"name": not tensor.name, "data_type": tensor.data_type == 0, "dims": not tensor.dims}
            if missing := ", ".join(key for key, absent in lacks.items() if absent):
                place = model.place(f"{direction}[{index}]")
                yield finding("incomplete-tensor", place, direction=direction, name=tensor.name, missing=missing)


def check_warmup(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    for sample in model.config.model_warmup:
        for name, source in sample.inputs.items():
            path = join(model.name, "warmup", source.input_data_file)
            if source.input_data_file and not repository.contents.exists(path):
                yield finding("warmup-file", FindingPlace(path), name=name)


def check_environment(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    paths = {name: value.string_value for name, value in model.config.parameters.items()}
    path = paths.get("EXECUTION_ENV_PATH", "")
    if (
        backend_of(model, repository.contents) == "python"
        and path
        and _is_missing(path, model.name, repository.contents)
    ):
        yield finding("execution-environment", model.place("parameters EXECUTION_ENV_PATH"), path=path)


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
