"""Checks the archive against where it will run: default model, devices, host driver, shared memory, logging. Pure.

Sources: the container's `serve` script (docker/sagemaker/serve in triton-inference-server/server) for what it does with
the SAGEMAKER_TRITON_* variables, among them 16 MiB of shared memory for each Python model instance; the Python
backend's README for what takes shared memory; AWS's "Custom Inference Code with Hosting Services", which runs a
container as `docker run IMAGE serve`; Docker's own default of 64 MiB for /dev/shm. No document of AWS states the size
on an endpoint: exceeding Docker's default is a warning, exceeding a size measured there is an error.
"""

import re
from collections.abc import Iterator, Mapping

from model_build.lint.backends import backend_of
from model_build.lint.contents import Contents
from model_build.lint.ensemble import called
from model_build.lint.finding import Finding, listing
from model_build.lint.layout import Model
from model_build.lint.model_config import ModelConfig
from model_build.lint.runtime_context import NO_HOST_AMI, RuntimeContext
from workloads.instances import HOST_AMIS, OLD_DRIVER_FAMILIES, family, hardware

DEFAULT_MODEL = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
SHARED_MEMORY = "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE"
VERBOSE = "SAGEMAKER_TRITON_LOG_VERBOSE"
ADDITIONAL = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"
STUB_BYTES = 16_777_216
MIN_STUB_BYTES = 1 << 20
DOCKER_SHARED_MEMORY_BYTES = 64 << 20


def default_model(models: Mapping[str, Model], context: RuntimeContext) -> str | None:
    """Returns the model that /invocations answers with; None where it is not known or not there."""
    named = (context.environment or {}).get(DEFAULT_MODEL)
    if named:
        return named if named in models else None
    return next(iter(models)) if len(models) == 1 else None


def answering(models: Mapping[str, Model], default: str) -> set[str]:
    """Returns the default model and all that its ensemble calls."""
    seen, level = set[str](), [default]
    while level:
        seen |= set(level)
        level = [
            name for model in level for name in called(models[model].config) if name in models and name not in seen
        ]
    return seen


def check_hosting(models: Mapping[str, Model], contents: Contents, context: RuntimeContext) -> list[Finding]:
    return [
        *_default(models, contents.folders(""), context),
        *_unloaded(models, context),
        *_decoupled(models, context),
        *_devices(models, contents, context),
        *_driver(context),
        *_shared_memory(models, contents, context),
        *_verbose(context),
    ]


def _default(models: Mapping[str, Model], folders: list[str], context: RuntimeContext) -> Iterator[Finding]:
    """Checks the default model. The container counts folders: it does not know yet which of them are models."""
    if context.environment is None:
        return
    named = context.environment.get(DEFAULT_MODEL)
    if named and named not in models:
        yield Finding(
            code="default-model",
            severity="error",
            what=f"{DEFAULT_MODEL} is '{named}', which is no model of the archive.",
            file="environment",
            key=DEFAULT_MODEL,
            why="The container stops: 'Directory with provided SAGEMAKER_TRITON_DEFAULT_MODEL_NAME does not exist'.",
            fix=f"Allowed: {', '.join(models)}.",
        )
    elif not named and len(folders) > 1:
        yield Finding(
            code="default-model",
            severity="error",
            what=f"There are {len(folders)} top-level folders ({listing(folders)}) and {DEFAULT_MODEL} is not set.",
            file="environment",
            key=DEFAULT_MODEL,
            why="The container stops: 'More than 1 model directory found in model repository'.",
            fix="Set it to the model that /invocations answers with; of an ensemble and its parts, the ensemble.",
        )


def _unloaded(models: Mapping[str, Model], context: RuntimeContext) -> Iterator[Finding]:
    default = default_model(models, context)
    if default is None:
        return
    asked = set(re.findall(r"--load-model[= ](\S+)", (context.environment or {}).get(ADDITIONAL, "")))
    loaded = {name for start in {default, *asked} & set(models) for name in answering(models, start)}
    left = [name for name in models if name not in loaded]
    if left and "*" not in asked:
        yield Finding(
            code="model-not-loaded",
            severity="warning",
            what=f"Models that are never loaded: {listing(left)}.",
            file=left[0],
            why=f"The container loads '{default}' and what it calls as an ensemble, nothing else: a call to another "
            "model from Python code fails.",
            fix=f"Leave them out, or add `--load-model=MODEL` to {ADDITIONAL}.",
        )


def _decoupled(models: Mapping[str, Model], context: RuntimeContext) -> Iterator[Finding]:
    default = default_model(models, context)
    for name in sorted(answering(models, default) if default else models):
        config = models[name].config
        if config and config.decoupled:
            key = "model_transaction_policy.decoupled"
            yield Finding(
                code="decoupled",
                severity="error",
                what=f"The model '{name}' is decoupled.",
                file=models[name].config_file,
                line=models[name].line(key),
                key=key,
                why="SageMaker's front end gives one response to one request and refuses decoupled models, also "
                "inside an ensemble.",
                fix="Return one response, or hide the model behind a Python model that collects its responses.",
            )


def _devices(models: Mapping[str, Model], contents: Contents, context: RuntimeContext) -> Iterator[Finding]:
    types = context.instance_types
    if not types:
        return
    without = list(types) if context.cpu_image else [name for name in types if hardware(name) != "GPU"]
    if without:
        place = f"the image {context.image} has no CUDA" if context.cpu_image else f"{listing(without)} has none"
        for model in models.values():
            yield from _needs_gpu(model, contents, place)
    if context.gpu_types and (on_cpu := _all_on_cpu(models)):
        yield Finding(
            code="cpu-on-gpu",
            severity="warning",
            what=f"Every model is KIND_CPU, but the instance types have GPUs: {listing(context.gpu_types)}.",
            file=on_cpu[0].config_file,
            line=on_cpu[0].line("instance_group"),
            key="instance_group",
            why="The GPU is paid for and never used.",
            fix="Use KIND_GPU, or an instance type without a GPU.",
        )


def _needs_gpu(model: Model, contents: Contents, place: str) -> Iterator[Finding]:
    groups = model.config.instance_groups if model.config else ()
    on_gpu = next((index for index, group in enumerate(groups) if group.kind == "KIND_GPU"), None)
    tensorrt = backend_of(model, contents) == "tensorrt"
    if on_gpu is None and not tensorrt:
        return
    key = "backend" if on_gpu is None else f"instance_group[{on_gpu}]"
    yield Finding(
        code="gpu-on-cpu",
        severity="error",
        what=f"'{model.name}' needs a GPU ({'TensorRT' if tensorrt else 'KIND_GPU'}), and {place}.",
        file=model.config_file,
        line=model.line(key),
        key=key,
        why="Triton refuses the model and does not start.",
        fix="Use KIND_CPU and a model for the CPU, or an instance type with a GPU and the image for it.",
    )


def _all_on_cpu(models: Mapping[str, Model]) -> list[Model]:
    """Returns the models that run themselves, if each of them runs on the CPU."""
    running = [model for model in models.values() if not (model.config and model.config.ensemble)]
    return running if all(_on_cpu(model.config) for model in running) else []


def _on_cpu(config: ModelConfig | None) -> bool:
    """False without an instance group: Triton then takes the GPU where there is one."""
    groups = config.instance_groups if config else ()
    return bool(groups) and all(group.kind == "KIND_CPU" for group in groups)


def _driver(context: RuntimeContext) -> Iterator[Finding]:
    version, host_ami = context.triton_version, context.host_ami
    wanted = HOST_AMIS.get(version or "")
    types = [name for name in context.gpu_types if family(name) in OLD_DRIVER_FAMILIES]
    if context.cpu_image or not types or wanted is None or host_ami in (None, wanted):
        return
    got = "sets no InferenceAmiVersion" if host_ami == NO_HOST_AMI else f"has InferenceAmiVersion '{host_ami}'"
    yield Finding(
        code="host-ami",
        severity="error",
        what=f"The variant {got}; Triton {version} on {listing(types)} needs '{wanted}'.",
        file="endpoint configuration",
        key="InferenceAmiVersion",
        why="The CUDA in the image does not start on another host driver: the container hangs without a log until "
        "SageMaker gives up.",
        fix=f"Set InferenceAmiVersion to '{wanted}' on the production variant.",
    )


def _shared_memory(models: Mapping[str, Model], contents: Contents, context: RuntimeContext) -> Iterator[Finding]:
    if context.environment is None:
        return
    written = context.environment.get(SHARED_MEMORY)
    size = _bytes(written)
    if size is None or size < MIN_STUB_BYTES:
        yield _stub_size(written)
        return
    default = default_model(models, context)
    stubs = {
        name: sum(_instances(models[name]))
        for name in sorted(answering(models, default) if default else models)
        if backend_of(models[name], contents) == "python"
    }
    demand, available = size * sum(stubs.values()), context.shared_memory_bytes
    if demand > (available or DOCKER_SHARED_MEMORY_BYTES):
        yield _too_little(stubs, size, available)


def _bytes(written: str | None) -> int | None:
    if not written:
        return STUB_BYTES
    return int(written) if re.fullmatch(r"[0-9]{1,18}", written) else None


def _instances(model: Model) -> list[int]:
    """Returns the model instances of each group; a group that names no GPUs has at least one."""
    groups = model.config.instance_groups if model.config else ()
    return [group.count * max(len(group.gpus), 1) for group in groups] or [1]


def _stub_size(written: str | None) -> Finding:
    return Finding(
        code="shared-memory",
        severity="error",
        what=f"{SHARED_MEMORY} is '{written}'.",
        file="environment",
        key=SHARED_MEMORY,
        why=f"The Python backend takes a whole number of bytes, {MIN_STUB_BYTES:,} at least, and loads no model "
        "otherwise.",
        fix=f"Write a number of bytes, or leave it out for {STUB_BYTES:,}.",
    )


def _too_little(stubs: Mapping[str, int], size: int, available: int | None) -> Finding:
    parts = ", ".join(f"{count} of '{name}'" for name, count in stubs.items())
    room = (
        f"/dev/shm has {available:,}"
        if available
        else f"a container that is run without --shm-size has {DOCKER_SHARED_MEMORY_BYTES:,}"
    )
    doubt = (
        "" if available else " AWS documents no size of its own; measure it with `df -B1 /dev/shm` in the container."
    )
    total = sum(stubs.values())
    return Finding(
        code="shared-memory",
        severity="error" if available else "warning",
        what=f"{total} Python model instances ({parts}) of {size:,} bytes want {total * size:,} bytes of shared "
        f"memory; {room}.",
        file="environment",
        key=SHARED_MEMORY,
        why="Each instance of a Python model takes that much of /dev/shm when it starts; one that finds none left "
        f"fails with 'Unable to initialize shared memory key', and SageMaker has no setting for the size.{doubt}",
        fix=f"Lower {SHARED_MEMORY} (1,048,576 is the backend's own default) or the number of model instances.",
    )


def _verbose(context: RuntimeContext) -> Iterator[Finding]:
    if context.environment is None or context.environment.get(VERBOSE, "").lower() in ("false", "0"):
        return
    yield Finding(
        code="verbose-logging",
        severity="warning",
        what=f"{VERBOSE} is not false.",
        file="environment",
        key=VERBOSE,
        why="The container's default is true: Triton writes several lines to CloudWatch for every request, which costs "
        "latency and money.",
        fix=f"Set {VERBOSE} to false.",
    )
