"""Checks an ensemble's steps against the models it calls, and the flow of its tensors. Pure.

The rules are those of ValidateEnsembleSchedulingConfig and ValidateEnsembleConfig in Triton's core. A model whose
config.pbtxt leaves its tensors to the backend is not compared.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from model_build.lint.finding import Finding, finding
from model_build.lint.layout import PackedModel, PackedRepository
from model_build.lint.model_config import enum_name, required_inputs

Dims = tuple[int, ...]


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
    """One place where an ensemble's tensor has a type and a shape."""

    user: str
    key: str
    data_type: str
    dims: Dims
    batched: bool

    @property
    def full_dims(self) -> Dims:
        return (-1, *self.dims) if self.batched else self.dims

    def __str__(self) -> str:
        return f"{self.data_type} {list(self.full_dims)}"


def _uses(model: PackedModel, models: Mapping[str, PackedModel]) -> Iterator[tuple[str, _Use]]:
    """Yields the uses of every tensor: first the ensemble's own signature, then the steps in order."""
    batched = model.config.max_batch_size > 0
    for direction, tensors in (("input", model.config.input), ("output", model.config.output)):
        for index, tensor in enumerate(tensors):
            # Requests have the shape before a reshape, the ensemble's steps the one after it.
            dims = tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims
            key = f"{direction}[{index}]"
            yield tensor.name, _Use("the ensemble", key, enum_name(tensor, "data_type"), tuple(dims), batched)
    for index, step in _enumerated(model):
        if (called := models.get(step.model_name)) is None:
            continue
        batched = called.config.max_batch_size > 0
        for mapped, tensors in ((step.input_map, called.config.input), (step.output_map, called.config.output)):
            by_name = {tensor.name: tensor for tensor in tensors}
            for name in sorted(set(mapped) & set(by_name)):
                tensor = by_name[name]
                use = _Use(f"'{called.name}'", _key(index), enum_name(tensor, "data_type"), tuple(tensor.dims), batched)
                yield mapped[name], use


def _types(model: PackedModel, models: Mapping[str, PackedModel]) -> Iterator[Finding]:
    known: dict[str, _Use] = {}
    for name, use in _uses(model, models):
        first = known.setdefault(name, use)
        if first.data_type != use.data_type or not (
            _fits(first.dims, use.dims) or _fits(first.full_dims, use.full_dims)
        ):
            values = {"first": first, "first_user": first.user, "second": use, "second_user": use.user}
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
