"""Checks the settings that Triton validates before it reads the model's file. Pure.

The rules are those of model_config_utils.cc in triton-inference-server/core (ValidateModelConfig, ValidateIOShape,
ValidateBatchIO, ValidateInstanceGroup, ValidateModelMetrics, ValidateEnsembleSchedulingConfig). Each check yields the
key of a rejected setting and the reason.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from posixpath import join
from typing import Any

from model_build.lint.backends import backend_of
from model_build.lint.finding import Finding, finding
from model_build.lint.layout import PackedModel, PackedRepository
from model_build.lint.model_config import enum_name
from model_build.lint.model_settings import reachable

Problem = tuple[str, str]

ENSEMBLE = "ensemble_scheduling"
ABSENT_FROM_ENSEMBLES = ("instance_group", "optimization", "model_warmup")
CONTROL_VALUES = ("int32_false_true", "fp32_false_true", "bool_false_true")
DELAY = 1
"""ModelQueuePolicy.TimeoutAction of a request that is postponed, not rejected."""


def check_settings(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    config = model.config
    problems = [problem for check in CHECKS for problem in check(config)]
    problems += [*_backend(model, repository), *_ensemble(model, repository.models)]
    for key, problem in problems:
        yield finding("rejected-setting", model.place(key), key=key, problem=problem)


def _shapes(config: Any) -> Iterator[Problem]:
    for direction in ("input", "output"):
        for index, tensor in enumerate(getattr(config, direction)):
            key, dims, shape = f"{direction}[{index}]", list(tensor.dims), list(tensor.reshape.shape)
            if any(size < 1 and size != -1 for size in dims + shape):
                yield key, "each size in dims and reshape is 1 or more, or -1 for any size"
            elif tensor.HasField("reshape") and not shape and config.max_batch_size == 0:
                yield f"{key}.reshape", "an empty shape needs max_batch_size 1 or more"
            elif dims and tensor.HasField("reshape") and _sizes(dims) != _sizes(shape):
                yield f"{key}.reshape", f"{shape} has another size than dims {dims}"
            if direction == "input" and tensor.format and len(dims) != 3:
                yield f"{key}.format", f"{enum_name(tensor, 'format')} needs three dims"


def _sizes(dims: Sequence[int]) -> list[int]:
    """Returns the number of elements before, between and after the variable dimensions: [2, 4, -1, 6] gives [8, 6]."""
    sizes = [1]
    for size in dims:
        if size == -1:
            sizes.append(1)
        else:
            sizes[-1] *= size
    return sizes


def _batching(config: Any) -> Iterator[Problem]:
    batching, key = config.dynamic_batching, "dynamic_batching"
    levels, policies = batching.priority_levels, batching.priority_queue_policy
    if config.max_batch_size < 0:
        yield "max_batch_size", "it is negative"
    if levels and not 1 <= batching.default_priority_level <= levels:
        yield f"{key}.default_priority_level", f"it is not between 1 and priority_levels {levels}"
    if levels and any(not 1 <= level <= levels for level in policies):
        yield f"{key}.priority_queue_policy", f"a key is not between 1 and priority_levels {levels}"
    if batching.preserve_ordering:
        if levels > 1:
            yield f"{key}.preserve_ordering", f"it allows one priority level, and priority_levels is {levels}"
        queues = [batching.default_queue_policy, *policies.values()]
        if any(queue.default_timeout_microseconds and queue.timeout_action == DELAY for queue in queues):
            yield f"{key}.preserve_ordering", "it does not allow a queue policy with timeout_action DELAY"


def _sequences(config: Any) -> Iterator[Problem]:
    inputs, key = config.sequence_batching.control_input, "sequence_batching.control_input"
    if len({each.name for each in inputs if each.name}) < len(inputs):
        yield key, "each control input needs a name of its own"
    controls = [control for each in inputs for control in each.control]
    for kind, count in Counter(enum_name(control, "kind") for control in controls).items():
        if count > 1:
            yield key, f"{kind} is set {count} times and may be set once"
    for control in controls:
        kind = enum_name(control, "kind")
        if kind != "CONTROL_SEQUENCE_CORRID" and sum(bool(len(getattr(control, name))) for name in CONTROL_VALUES) != 1:
            yield key, f"{kind} needs one of {', '.join(CONTROL_VALUES)}"


def _batch_tensors(config: Any) -> Iterator[Problem]:
    inputs, outputs = {tensor.name for tensor in config.input}, {tensor.name for tensor in config.output}
    for direction in ("batch_input", "batch_output"):
        for index, tensor in enumerate(getattr(config, direction)):
            key, targets = f"{direction}[{index}]", list(tensor.target_name)
            if len(tensor.source_input) != 1 or tensor.source_input[0] not in inputs:
                yield f"{key}.source_input", "it names exactly one input of the model"
            if direction == "batch_output" and (set(targets) - outputs or len(set(targets)) < len(targets)):
                yield f"{key}.target_name", "each target is an output of the model and appears once"
            if direction == "batch_input" and enum_name(tensor, "data_type") not in ("TYPE_INT32", "TYPE_FP32"):
                yield f"{key}.data_type", "it is TYPE_INT32 or TYPE_FP32"


def _instances(config: Any) -> Iterator[Problem]:
    for index, group in enumerate(config.instance_group):
        kind = enum_name(group, "kind")
        if group.gpus and kind in ("KIND_CPU", "KIND_MODEL"):
            yield f"instance_group[{index}].gpus", f"a group of {kind} has no GPUs"
        elif min(group.gpus, default=0) < 0:
            yield f"instance_group[{index}].gpus", "the number of a GPU is 0 or more"


def _metrics(config: Any) -> Iterator[Problem]:
    for index, control in enumerate(config.model_metrics.metric_control):
        if not control.metric_identifier.family or not control.histogram_options.buckets:
            yield f"model_metrics.metric_control[{index}]", "it needs metric_identifier.family and buckets"


def _backend(model: PackedModel, repository: PackedRepository) -> Iterator[Problem]:
    config, backend = model.config, backend_of(model, repository.contents)
    runtime, folders = config.runtime, [model.name, *(join(model.name, version) for version in model.versions)]
    packed = any(repository.contents.file(join(folder, runtime)) for folder in folders)
    if runtime and not (packed or runtime == f"libtriton_{backend}.so" or runtime.endswith(".py")):
        yield "runtime", f"'{runtime}' is neither libtriton_{backend}.so nor a file in the model's folder"
    if model.has_file and backend == "pytorch" and config.platform != "torch_aoti":
        for direction in ("input", "output"):
            if not getattr(config, direction):
                yield direction, "a TorchScript model needs at least one"


def _ensemble(model: PackedModel, models: Mapping[str, PackedModel]) -> Iterator[Problem]:
    config, fields = model.config, {field.name for field, _ in model.config.ListFields()}
    if config.platform == "ensemble" and config.backend:
        yield "backend", "an ensemble has none"
    if ENSEMBLE not in fields:
        if config.platform == "ensemble":
            yield ENSEMBLE, "an ensemble needs it"
        return
    if config.platform != "ensemble":
        yield "platform", "a model with ensemble_scheduling needs the platform 'ensemble'"
    yield from ((field, "an ensemble has none") for field in ABSENT_FROM_ENSEMBLES if field in fields)
    if not model.calls:
        yield f"{ENSEMBLE}.step", "an ensemble needs at least one"
    for index, step in enumerate(config.ensemble_scheduling.step):
        missing = [name for name in ("model_name", "input_map", "output_map") if not getattr(step, name)]
        yield from ((f"{ENSEMBLE}.step[{index}].{name}", "a step needs it") for name in missing)
        called = models.get(step.model_name)
        if called and step.model_version != -1 and str(step.model_version) not in called.versions:
            yield f"{ENSEMBLE}.step[{index}].model_version", f"Triton does not load that version of '{called.name}'"
    if model.name in reachable(models, model.calls):
        yield ENSEMBLE, "the ensemble calls itself"
    yield from _flow(config)


def _flow(config: Any) -> Iterator[Problem]:
    """Checks that each tensor has one source and a use, and that each output can be computed."""
    steps, inputs = config.ensemble_scheduling.step, {tensor.name for tensor in config.input}
    outputs = {tensor.name for tensor in config.output}
    produced = Counter(name for step in steps for name in step.output_map.values())
    consumed = {name for step in steps for name in step.input_map.values()}
    for name in sorted(name for name, count in produced.items() if count > 1):
        yield ENSEMBLE, f"the tensor '{name}' has several sources"
    if not consumed <= inputs | set(produced):
        return  # `check_ensemble` reports a tensor without a source.
    for name in sorted((inputs | set(produced)) - consumed - outputs):
        yield ENSEMBLE, f"the tensor '{name}' is not used"
    ready = set(inputs)
    for _ in steps:
        ready |= {name for each in steps if ready >= {*each.input_map.values()} for name in each.output_map.values()}
    for name in sorted((outputs & set(produced)) - ready):
        yield "output", f"'{name}' depends on itself"


CHECKS = (_shapes, _batching, _sequences, _batch_tensors, _instances, _metrics)
