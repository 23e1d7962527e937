"""Checks the archive against where it will run: default model, devices, host driver, shared memory, logging. Pure.

Sources: the container's `serve` script (docker/sagemaker/serve in triton-inference-server/server) for the
SAGEMAKER_TRITON_* variables, among them 16 MiB of shared memory per Python model instance; the Python backend's README
for the use of shared memory; AWS's "Custom Inference Code with Hosting Services", which runs a container as
`docker run IMAGE serve`; Docker's own default of 64 MiB for /dev/shm. No document of AWS states the size on an
endpoint, so exceeding Docker's default is a warning.
"""

import re
from collections.abc import Iterator, Mapping

from model_build.lint.backends import backend_of
from model_build.lint.finding import NO_HOST_AMI, Finding, FindingPlace, finding, listing
from model_build.lint.layout import PackedModel, PackedRepository
from model_build.lint.model_config import enum_name
from model_build.lint.model_settings import reachable
from workloads.images import TRITON_IMAGES, starts
from workloads.instances import hardware

DEFAULT_MODEL = "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME"
SHARED_MEMORY = "SAGEMAKER_TRITON_SHM_DEFAULT_BYTE_SIZE"
VERBOSE = "SAGEMAKER_TRITON_LOG_VERBOSE"
ADDITIONAL = "SAGEMAKER_TRITON_ADDITIONAL_ARGS"
STUB_BYTES = 16_777_216
MIN_STUB_BYTES = 1 << 20
DOCKER_SHARED_MEMORY_BYTES = 64 << 20


def default_model(repository: PackedRepository) -> str | None:
    """Returns the model that answers /invocations; None if it is not known or does not exist."""
    models = repository.models
    named = (repository.context.environment or {}).get(DEFAULT_MODEL)
    if named:
        return named if named in models else None
    return next(iter(models)) if len(models) == 1 else None


def _answering(repository: PackedRepository) -> list[PackedModel]:
    """Returns the default model and all that it calls; every model if the default is not known."""
    default, models = default_model(repository), repository.models
    names = reachable(models, [default]) & set(models) if default else set(models)
    return [models[name] for name in sorted(names)]


def check_default(repository: PackedRepository) -> Iterator[Finding]:
    """Checks the default model. The container counts folders, whether they are models or not."""
    environment, models = repository.context.environment, repository.models
    if environment is None:
        return
    named, folders = environment.get(DEFAULT_MODEL), repository.contents.folders("")
    values, place = {"key": DEFAULT_MODEL, "got": named}, FindingPlace("environment", key=DEFAULT_MODEL)
    if named and named not in models:
        yield finding("default-model/unknown", place, allowed=", ".join(models), **values)
    elif not named and len(folders) > 1:
        yield finding("default-model/unset", place, count=len(folders), names=listing(folders), **values)


def check_loaded(repository: PackedRepository) -> Iterator[Finding]:
    default, models = default_model(repository), repository.models
    if default is None:
        return
    arguments = (repository.context.environment or {}).get(ADDITIONAL, "")
    chosen = re.findall(r"--load-model[= ](\S+)", arguments)
    unloaded = [name for name in models if name not in reachable(models, [default, *chosen])]
    if unloaded and "*" not in chosen:
        yield finding("model-not-loaded", FindingPlace(unloaded[0]), names=listing(unloaded), default=default)


def check_decoupled(repository: PackedRepository) -> Iterator[Finding]:
    for model in _answering(repository):
        if model.config.model_transaction_policy.decoupled:
            yield finding("decoupled", model.place("model_transaction_policy.decoupled"), name=model.name)


def check_devices(repository: PackedRepository) -> Iterator[Finding]:
    context, models = repository.context, repository.models.values()
    types = context.instance_types or ()
    without = types if context.cpu_image else [name for name in types if hardware(name) != "GPU"]
    if without:
        reason = f"the image {context.image} has no CUDA" if context.cpu_image else f"{listing(without)} has none"
        for model in models:
            yield from _needs_gpu(model, repository, reason)
    running = [model for model in models if not model.is_ensemble]
    kinds = [{enum_name(group, "kind") for group in model.config.instance_group} for model in running]
    # Without an instance group Triton uses a GPU if there is one.
    if context.gpu_types and running and all(each == {"KIND_CPU"} for each in kinds):
        yield finding("cpu-on-gpu", running[0].place("instance_group"), names=listing(context.gpu_types))


def _needs_gpu(model: PackedModel, repository: PackedRepository, reason: str) -> Iterator[Finding]:
    kinds = [enum_name(group, "kind") for group in model.config.instance_group]
    tensorrt = backend_of(model, repository.contents) == "tensorrt"
    if "KIND_GPU" in kinds or tensorrt:
        key = f"instance_group[{kinds.index('KIND_GPU')}]" if "KIND_GPU" in kinds else "backend"
        need = "TensorRT" if tensorrt else "KIND_GPU"
        yield finding("gpu-on-cpu", model.place(key), name=model.name, need=need, reason=reason)


def check_driver(repository: PackedRepository) -> Iterator[Finding]:
    context = repository.context
    version, ami = context.triton_version, context.host_ami
    if context.cpu_image or version is None or version not in TRITON_IMAGES or ami is None:
        return
    own = None if ami == NO_HOST_AMI else ami
    types = [name for name in context.gpu_types if not starts(version, name, own)]
    if not types:
        return
    got = f"has InferenceAmiVersion '{ami}'" if own else "sets no InferenceAmiVersion"
    place, needed = FindingPlace("endpoint configuration", key="InferenceAmiVersion"), TRITON_IMAGES[version].host_ami
    yield finding("host-ami", place, got=got, version=version, names=listing(types), needed=needed)


def check_shared_memory(repository: PackedRepository) -> Iterator[Finding]:
    context = repository.context
    if context.environment is None:
        return
    place, got = FindingPlace("environment", key=SHARED_MEMORY), context.environment.get(SHARED_MEMORY)
    size = (int(got) if re.fullmatch(r"[0-9]{1,18}", got) else None) if got else STUB_BYTES
    if size is None or size < MIN_STUB_BYTES:
        values = {"key": SHARED_MEMORY, "got": got, "minimum": MIN_STUB_BYTES, "default": STUB_BYTES}
        yield finding("shared-memory/size", place, **values)
        return
    counts = _python_instances(repository)
    total = size * sum(counts.values())
    if total > DOCKER_SHARED_MEMORY_BYTES:
        yield finding(
            "shared-memory/docker",
            place,
            key=SHARED_MEMORY,
            count=sum(counts.values()),
            parts=", ".join(f"{count} of '{name}'" for name, count in counts.items()),
            size=size,
            total=total,
            available=DOCKER_SHARED_MEMORY_BYTES,
        )


def _python_instances(repository: PackedRepository) -> Mapping[str, int]:
    """Returns the number of model instances of each Python model that answers requests."""
    return {
        model.name: sum(max(group.count, 1) * max(len(group.gpus), 1) for group in model.config.instance_group) or 1
        for model in _answering(repository)
        if backend_of(model, repository.contents) == "python"
    }


def check_verbose(repository: PackedRepository) -> Iterator[Finding]:
    environment = repository.context.environment
    if environment is not None and environment.get(VERBOSE, "").lower() not in ("false", "0"):
        yield finding("verbose-logging", FindingPlace("environment", key=VERBOSE), key=VERBOSE)
