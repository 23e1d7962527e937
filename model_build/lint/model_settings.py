"""Checks one model's config.pbtxt, and an ensemble's steps against the models that it calls. Pure.

The rules are those of ValidateModelConfig, the warm-up and ValidateEnsembleConfig in Triton's core. A model whose
config.pbtxt leaves its tensors to the backend is not compared.
"""

import re
from collections.abc import Iterator, Mapping
from posixpath import join
from typing import Any, NamedTuple

from model_build.lint.backends import backend_of, model_file
from model_build.lint.contents import Contents, normalised
from model_build.lint.finding import Finding, FindingPlace, finding
from model_build.lint.layout import PackedModel, PackedRepository
from model_build.lint.model_config import enum_name, required_inputs
from model_build.lint.paths import is_torchscript

MODEL_DIRECTORY = "$$TRITON_MODEL_DIRECTORY"
REPOSITORY = "/opt/ml/model/"
Dims = tuple[int, ...]


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


def check_tensors(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    """Checks the tensors, unless Triton completes them from a TensorRT plan."""
    if backend_of(model, repository.contents) == "tensorrt":
        return
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
    in_python = backend_of(model, repository.contents) == "python"
    if in_python and path and _is_missing(path, model.name, repository.contents):
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


def check_ensemble(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    if not model.is_ensemble:
        return
    yield from _steps(model, repository.models)
    yield from _types(model, repository.models)
    yield from _unproduced(model)


def reachable(models: Mapping[str, PackedModel], names: list[str]) -> set[str]:
    """Returns the named models and all that they call as ensembles."""
    seen, level = set[str](), names
    while level:
        seen |= set(level)
        level = [name for each in level if each in models for name in models[each].calls if name not in seen]
    return seen


def _key(index: int) -> str:
    return f"ensemble_scheduling.step[{index}]"


def _enumerated(model: PackedModel) -> list[tuple[int, Any]]:
    return list(enumerate(model.config.ensemble_scheduling.step))


def _steps(model: PackedModel, models: Mapping[str, PackedModel]) -> Iterator[Finding]:
    for index, step in _enumerated(model):
        called = models.get(step.model_name)
        if called is None:
            others = ", ".join(sorted(set(models) - {model.name})) or "none"
            values = {"step": index, "model": step.model_name, "others": others}
            yield finding("ensemble-model", model.place(_key(index)), **values)
            continue
        yield from _mapping(model, index, step, called)
        size, maximum = model.config.max_batch_size, called.config.max_batch_size
        if 0 < maximum < size:
            place = model.place("max_batch_size")
            yield finding("ensemble-batch-size", place, size=size, model=called.name, maximum=maximum)


def _mapping(model: PackedModel, index: int, step: Any, called: PackedModel) -> Iterator[Finding]:
    maps = {"input": (step.input_map, called.config.input), "output": (step.output_map, called.config.output)}
    for direction, (mapped, tensors) in maps.items():
        names = {tensor.name for tensor in tensors}
        unknown = sorted(set(mapped) - names) if names else []
        values = {"step": index, "direction": direction, "model": called.name, "names": ", ".join(sorted(names))}
        for name in unknown:
            yield finding("ensemble-tensor/unknown", model.place(f"{_key(index)}.{direction}_map"), name=name, **values)
        if direction == "input" and not unknown:
            for name in sorted(required_inputs(called.config) - set(mapped)):
                yield finding("ensemble-tensor/unmapped", model.place(f"{_key(index)}.input_map"), name=name, **values)


class _Use(NamedTuple):
    """One place where an ensemble's tensor has a type and a shape, without and with the batch."""

    user: str
    key: str
    data_type: str
    dims: Dims
    full_dims: Dims


def _use(user: str, key: str, tensor: Any, dims: Any, model: PackedModel) -> _Use:
    full = (-1, *dims) if model.config.max_batch_size > 0 else tuple(dims)
    return _Use(user, key, enum_name(tensor, "data_type"), tuple(dims), full)


def _uses(model: PackedModel, models: Mapping[str, PackedModel]) -> Iterator[tuple[str, _Use]]:
    """Yields the uses of every tensor: first the ensemble's own signature, then the steps in order."""
    for direction, tensors in (("input", model.config.input), ("output", model.config.output)):
        for index, tensor in enumerate(tensors):
            # Requests have the shape before a reshape, the ensemble's steps the one after it.
            dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
            yield tensor.name, _use("the ensemble", f"{direction}[{index}]", tensor, dims, model)
    for index, step in _enumerated(model):
        if (called := models.get(step.model_name)) is None:
            continue
        for mapped, tensors in ((step.input_map, called.config.input), (step.output_map, called.config.output)):
            for tensor in tensors:
                if tensor.name in mapped:
                    yield mapped[tensor.name], _use(f"'{called.name}'", _key(index), tensor, tensor.dims, called)


def _types(model: PackedModel, models: Mapping[str, PackedModel]) -> Iterator[Finding]:
    known: dict[str, _Use] = {}
    for name, use in _uses(model, models):
        first = known.setdefault(name, use)
        fits = _fits(first.dims, use.dims) or _fits(first.full_dims, use.full_dims)
        if first.data_type != use.data_type or not fits:
            values = {
                "first": f"{first.data_type} {list(first.full_dims)}",
                "first_user": first.user,
                "second": f"{use.data_type} {list(use.full_dims)}",
                "second_user": use.user,
            }
            yield finding("ensemble-type", model.place(use.key), name=name, **values)


def _fits(first: Dims, second: Dims) -> bool:
    return len(first) == len(second) and all(a == b or -1 in (a, b) for a, b in zip(first, second, strict=True))


def _unproduced(model: PackedModel) -> Iterator[Finding]:
    """Yields the tensors that neither the request nor a step provides."""
    given = {tensor.name for tensor in model.config.input}
    produced = {name for _, step in _enumerated(model) for name in step.output_map.values()}
    for index, step in _enumerated(model):
        for name in sorted(set(step.input_map.values()) - given - produced):
            yield finding("ensemble-unproduced/input", model.place(f"{_key(index)}.input_map"), step=index, name=name)
    for index, tensor in enumerate(model.config.output):
        if tensor.name not in produced:
            yield finding("ensemble-unproduced/output", model.place(f"output[{index}]"), name=tensor.name)
