"""Checks an ensemble's steps against the models it calls, and the flow of its tensors. Pure.

The rules are those of ValidateEnsembleSchedulingConfig and ValidateEnsembleConfig in Triton's core. A composing model
whose config.pbtxt leaves its tensors to the backend is not compared.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from model_build.lint.finding import Finding
from model_build.lint.layout import Model
from model_build.lint.model_config import ModelConfig, Step, Tensor


def check_ensemble(model: Model, models: Mapping[str, Model]) -> list[Finding]:
    config = model.config
    if config is None or not config.ensemble:
        return []
    return [
        *_settings(model, config),
        *_steps(model, config, models),
        *_made_twice(model, config),
        *_types(model, config, models),
        *_flow(model, config),
        *_calls_itself(model, models),
    ]


def called(config: ModelConfig | None) -> list[str]:
    return [step.model for step in (config.steps or ())] if config else []


def _finding(
    model: Model, code: str, key: str, what: str, *, fix: str, why: str = "Triton refuses the ensemble."
) -> Finding:
    return Finding(
        code=code,
        severity="error",
        what=what,
        file=model.config_file,
        line=model.line(key),
        key=key,
        why=why,
        fix=fix,
    )


def _key(index: int) -> str:
    return f"ensemble_scheduling.step[{index}]"


def _settings(model: Model, config: ModelConfig) -> Iterator[Finding]:
    if config.platform != "ensemble" or config.backend:
        yield _finding(
            model,
            "ensemble-setting",
            "backend" if config.backend else "platform",
            f"An ensemble has platform 'ensemble' and no backend; got platform '{config.platform}' and backend "
            f"'{config.backend}'.",
            fix='Write `platform: "ensemble"` and no backend.',
        )
    if not config.steps:
        yield _finding(
            model, "ensemble-setting", "ensemble_scheduling", "The ensemble has no steps.", fix="Write its steps."
        )
    forbidden = {
        "instance_group": bool(config.instance_groups),
        "optimization": config.optimization,
        "model_warmup": bool(config.warmups),
    }
    for key, present in forbidden.items():
        if present:
            yield _finding(
                model,
                "ensemble-setting",
                key,
                f"An ensemble cannot have {key}.",
                fix=f"Move {key} into the models that it calls.",
            )


def _steps(model: Model, config: ModelConfig, models: Mapping[str, Model]) -> Iterator[Finding]:
    for index, step in enumerate(config.steps or ()):
        if step.model not in models:
            yield _finding(
                model,
                "ensemble-model",
                _key(index),
                f"Step {index} calls the model '{step.model}', which is not in the archive.",
                why="Triton loads the ensemble only when every model that it calls is loaded.",
                fix=f"Pack it, or call one of: {', '.join(sorted(set(models) - {model.name})) or 'none'}.",
            )
        elif (composing := models[step.model].config) is not None:
            yield from _mapping(model, index, step, composing)
            if 0 < composing.max_batch_size < config.max_batch_size:
                yield _finding(
                    model,
                    "ensemble-batch-size",
                    "max_batch_size",
                    f"max_batch_size is {config.max_batch_size}, but '{step.model}' takes {composing.max_batch_size}.",
                    fix="Lower the ensemble's or raise the model's.",
                )


def _made_twice(model: Model, config: ModelConfig) -> Iterator[Finding]:
    maker: dict[str, int] = {}
    for index, step in enumerate(config.steps or ()):
        for name in step.outputs.values():
            if maker.setdefault(name, index) != index:
                yield _finding(
                    model,
                    "ensemble-tensor",
                    f"{_key(index)}.output_map",
                    f"Steps {maker[name]} and {index} both make the tensor '{name}'.",
                    fix="Give each its own name.",
                )


def _mapping(model: Model, index: int, step: Step, composing: ModelConfig) -> Iterator[Finding]:
    for direction, mapped, tensors in (
        ("input", step.inputs, composing.inputs),
        ("output", step.outputs, composing.outputs),
    ):
        names = {tensor.name for tensor in tensors}
        required = {tensor.name for tensor in tensors if not tensor.optional} if direction == "input" else set[str]()
        unknown = sorted(set(mapped) - names) if names else []
        for name in unknown:
            yield _finding(
                model,
                "ensemble-tensor",
                f"{_key(index)}.{direction}_map",
                f"Step {index} maps the {direction} '{name}' of '{step.model}', which has no such {direction}.",
                fix=f"Its {direction}s are {', '.join(sorted(names))}.",
            )
        for name in sorted(required - set(mapped)) if not unknown else ():
            yield _finding(
                model,
                "ensemble-tensor",
                f"{_key(index)}.input_map",
                f"Step {index} leaves the input '{name}' of '{step.model}' unmapped.",
                fix="Map it to a tensor of the ensemble.",
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Use:
    """One place where an ensemble tensor has a type and a shape."""

    by: str
    key: str
    tensor: Tensor
    batched: bool

    @property
    def full_dims(self) -> tuple[int, ...]:
        return (-1, *self.tensor.inner_dims) if self.batched else self.tensor.inner_dims


def _uses(config: ModelConfig, models: Mapping[str, Model]) -> Iterator[tuple[str, _Use]]:
    """Yields every ensemble tensor's uses: the ensemble's own signature first, then the steps in their order."""
    for direction, own in (("input", config.inputs), ("output", config.outputs)):
        for index, tensor in enumerate(own):
            batched = config.max_batch_size > 0
            yield tensor.name, _Use(by="the ensemble", key=f"{direction}[{index}]", tensor=tensor, batched=batched)
    for index, step in enumerate(config.steps or ()):
        composing = models[step.model].config if step.model in models else None
        if composing is None:
            continue
        for mapped, tensors in ((step.inputs, composing.inputs), (step.outputs, composing.outputs)):
            by_name = {tensor.name: tensor for tensor in tensors}
            for name, ensemble_tensor in mapped.items():
                if name in by_name:
                    yield (
                        ensemble_tensor,
                        _Use(
                            by=f"'{step.model}'",
                            key=_key(index),
                            # A composing model's tensor has the shape that its requests have, before any reshape.
                            tensor=_outer(by_name[name]),
                            batched=composing.max_batch_size > 0,
                        ),
                    )


def _outer(tensor: Tensor) -> Tensor:
    return Tensor(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims, inner_dims=tensor.dims)


def _types(model: Model, config: ModelConfig, models: Mapping[str, Model]) -> Iterator[Finding]:
    first: dict[str, _Use] = {}
    for name, use in _uses(config, models):
        before = first.setdefault(name, use)
        if not _consistent(before, use):
            yield _finding(
                model,
                "ensemble-type",
                use.key,
                f"The tensor '{name}' is {_described(before)} for {before.by}, but {_described(use)} for {use.by}.",
                fix="Give both the same data_type and dims; -1 fits any size.",
            )


def _described(use: _Use) -> str:
    return f"{use.tensor.data_type} {list(use.full_dims)}"


def _consistent(first: _Use, second: _Use) -> bool:
    if first.tensor.data_type != second.tensor.data_type:
        return False
    return _fits(first.tensor.inner_dims, second.tensor.inner_dims) or _fits(first.full_dims, second.full_dims)


def _fits(first: tuple[int, ...], second: tuple[int, ...]) -> bool:
    return len(first) == len(second) and all(a == b or -1 in (a, b) for a, b in zip(first, second, strict=True))


def _flow(model: Model, config: ModelConfig) -> list[Finding]:
    """Every tensor comes from the request or from one step, nothing waits for itself, and every tensor is used.

    Only the first of these that is broken is told: the others follow from it.
    """
    steps = config.steps or ()
    given = {tensor.name for tensor in config.inputs}
    produced = {tensor for step in steps for tensor in step.outputs.values()}
    return (
        [*_unproduced(model, config, given, produced)]
        or [*_cycle(model, steps, given)]
        or [*_unused(model, config, {tensor for step in steps for tensor in step.inputs.values()})]
    )


def _unproduced(model: Model, config: ModelConfig, given: set[str], produced: set[str]) -> Iterator[Finding]:
    for index, step in enumerate(config.steps or ()):
        for name in sorted(set(step.inputs.values()) - given - produced):
            yield _finding(
                model,
                "ensemble-unproduced",
                f"{_key(index)}.input_map",
                f"Step {index} reads the tensor '{name}', which is no input of the ensemble and no step's output.",
                fix="Add it to the ensemble's inputs, or map a step's output to it.",
            )
    for index, tensor in enumerate(config.outputs):
        if tensor.name not in produced:
            yield _finding(
                model,
                "ensemble-unproduced",
                f"output[{index}]",
                f"The output '{tensor.name}' is no step's output.",
                fix="Map a step's output to it.",
            )


def _cycle(model: Model, steps: tuple[Step, ...], given: set[str]) -> Iterator[Finding]:
    ready, left = set(given), list(range(len(steps)))
    while runnable := [index for index in left if set(steps[index].inputs.values()) <= ready]:
        ready |= {tensor for index in runnable for tensor in steps[index].outputs.values()}
        left = [index for index in left if index not in runnable]
    if left:
        yield _finding(
            model,
            "ensemble-cycle",
            _key(left[0]),
            f"Steps that wait for each other's tensors and never run: {', '.join(map(str, left))}.",
            fix="Map each tensor to the step that makes it.",
        )


def _unused(model: Model, config: ModelConfig, read: set[str]) -> Iterator[Finding]:
    for index, tensor in enumerate(config.inputs):
        if tensor.name not in read:
            yield _finding(
                model,
                "ensemble-unused",
                f"input[{index}]",
                f"The input '{tensor.name}' is read by no step.",
                fix="Map it to a step's input, or drop it.",
            )
    outputs = {tensor.name for tensor in config.outputs}
    for index, step in enumerate(config.steps or ()):
        for name in sorted(set(step.outputs.values()) - outputs - read):
            yield _finding(
                model,
                "ensemble-unused",
                f"{_key(index)}.output_map",
                f"The tensor '{name}' of step {index} is read by no step and is no output.",
                fix="Drop the mapping, or make it an output.",
            )


def _calls_itself(model: Model, models: Mapping[str, Model]) -> Iterator[Finding]:
    seen, level = set[str](), called(model.config)
    while level:
        seen |= set(level)
        level = [name for step in level if step in models for name in called(models[step].config) if name not in seen]
    if model.name in seen:
        yield _finding(
            model,
            "ensemble-cycle",
            "ensemble_scheduling",
            "The ensemble calls itself, directly or through another.",
            fix="Remove one of the calls.",
        )
