"""Checks the backend that serves a model and the file that it loads, and a TensorRT plan's first bytes. Pure.

Names and default files are those of Triton's core (src/constants.h) and its backends' repositories. An unlisted backend
is accepted if the archive contains its library. The header of a plan is documented by NVIDIA's own reader (`trtexec
--getPlanVersionOnly`): the tag "ftrt", a four-byte serialisation version, and, in version 0, major, minor, patch and
build of TensorRT as bytes 24 to 27. It does not name the GPU: cc_model_filenames and artifact.json may.
"""

import re
from collections.abc import Iterator, Mapping
from posixpath import join

from model_build.lint.contents import Contents, Member
from model_build.lint.finding import Finding, FindingPlace, finding, listing
from model_build.lint.layout import PackedModel, PackedRepository
from workloads.instances import COMPUTE_CAPABILITIES, family

TAG = b"ftrt"
HEADER_BYTES = 28
FILES: Mapping[str, str] = {
    "tensorrt": "model.plan",
    "onnxruntime": "model.onnx",
    "pytorch": "model.pt",
    "python": "model.py",
    "openvino": "model.xml",
}
PLATFORMS: Mapping[str, str] = {
    "tensorrt_plan": "tensorrt",
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
    "libtorch": "pytorch",
    "torch_aoti": "pytorch",
    "tensorflow_graphdef": "tensorflow",
    "tensorflow_savedmodel": "tensorflow",
}
COMPLETED = ("python", "tensorrt", "onnxruntime", "openvino")
"""Backends for which Triton derives a missing config.pbtxt."""
OTHER_BACKENDS = ("tensorflow", "dali", "fil", "identity", "repeat", "square", "tensorrtllm", "vllm")
ALLOWED = f"backend {', '.join([*FILES, *OTHER_BACKENDS])}; platform {', '.join(PLATFORMS)}, ensemble"


def backend_of(model: PackedModel, contents: Contents) -> str | None:
    """Returns the backend as Triton completes it: `identity` for a model folder NAME.identity without a known file.

    None for an ensemble and if no readable file names one.
    """
    config = model.config
    if not model.readable or model.is_ensemble:
        return None
    if config.backend or config.platform:
        return str(config.backend or "") or PLATFORMS.get(config.platform)
    if config.default_model_filename:
        return _by_file([config.default_model_filename])
    by_file = _by_file(contents.children(join(model.name, model.versions[0])) if model.versions else [])
    return by_file or model.name.partition(".")[2] or None


def model_file(model: PackedModel, backend: str | None) -> str | None:
    """Returns the file that every version needs; None if each GPU has its own or no rule is known."""
    config = model.config
    if config.runtime.endswith(".py"):
        return None
    default = "model.pt2" if config.platform == "torch_aoti" else FILES.get(backend or "")
    return default and str(config.default_model_filename or default)


def check_backend(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    config, contents = model.config, repository.contents
    if not model.readable or model.is_ensemble:
        return
    backend = backend_of(model, contents)
    if not model.has_file:
        if model.versions:
            rule = "no-config/completed" if backend in COMPLETED else "no-config/other"
            yield finding(rule, FindingPlace(model.file), name=model.name)
    elif backend is None or (backend not in (*FILES, *OTHER_BACKENDS) and not _has_library(model, backend, contents)):
        key = "platform" if config.platform and not config.backend else "backend"
        yield finding("unknown-backend", model.place(key), key=key, got=backend or config.platform, allowed=ALLOWED)


def check_model_files(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    """Checks the model's file in every version that Triton loads."""
    expected = model_file(model, backend_of(model, repository.contents))
    if expected is None:
        return
    named = sorted(model.config.cc_model_filenames.items()) or [("", expected)]
    for version in model.versions:
        folder = join(model.name, version)
        for capability, name in named:
            if not repository.contents.exists(join(folder, name)):
                yield finding(
                    f"missing-model-file/{'capability' if capability else 'backend'}",
                    FindingPlace(join(folder, name)),
                    name=name,
                    capability=capability,
                    present=f"the folder holds {listing(repository.contents.children(folder)) or 'nothing'}",
                )


def _by_file(names: list[str]) -> str | None:
    return next((backend for backend, file in FILES.items() if file in names), None)


def _has_library(model: PackedModel, backend: str, contents: Contents) -> bool:
    folders = [model.name, *(join(model.name, version) for version in model.versions)]
    return any(contents.file(join(folder, f"libtriton_{backend}.so")) for folder in folders)


def check_plans(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    if backend_of(model, repository.contents) != "tensorrt":
        return
    yield from _gpus(model, repository)
    names = {*model.config.cc_model_filenames.values(), model_file(model, "tensorrt") or ""}
    for path in [join(model.name, version, name) for version in model.versions for name in sorted(names)]:
        if (plan := repository.contents.file(path)) is not None:
            yield from _header(FindingPlace(path), plan, repository)


def _header(place: FindingPlace, plan: Member, repository: PackedRepository) -> Iterator[Finding]:
    if not plan.head.startswith(TAG):
        yield finding("not-a-plan", place)
        return
    context = repository.context
    image = _numbers(context.tensorrt_version)
    built = plan_version(plan) or _numbers((context.toolchain or {}).get("tensorrt"))
    if image and built and _differ(built, image):
        yield finding("plan-version", place, built=".".join(map(str, built)), image=".".join(map(str, image)))


def plan_version(plan: Member) -> tuple[int, ...] | None:
    """(10, 13, 3, 9); None for a header of another layout."""
    if len(plan.head) < HEADER_BYTES or plan.head[4:8] != bytes(4):
        return None
    return tuple(plan.head[24:HEADER_BYTES])


def _numbers(version: str | None) -> tuple[int, ...] | None:
    """Returns None unless the text is one version: a build on several machines joins theirs with commas."""
    match = re.fullmatch(r"(\d+(?:\.\d+){1,3})(?:[+-]\S+)?", version or "")
    return tuple(map(int, match[1].split("."))) if match else None


def _differ(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Compares major, minor and patch (.0 if left out), and the build if both are known.

    TensorRT compares all four ("expecting library version 8.6.1.2 got 8.6.1.6", NVIDIA/TensorRT #3071).
    """
    if one[3:] and other[3:]:
        return one != other
    return (*one, 0, 0)[:3] != (*other, 0, 0)[:3]


def _gpus(model: PackedModel, repository: PackedRepository) -> Iterator[Finding]:
    """Checks the plan that each instance type would load."""
    context, named = repository.context, model.config.cc_model_filenames
    needed = {name: capability for name in context.gpu_types if (capability := COMPUTE_CAPABILITIES.get(family(name)))}
    place, default = model.place("cc_model_filenames"), model_file(model, "tensorrt") or ""
    if named:
        if lacking := {name: capability for name, capability in needed.items() if capability not in named}:
            there = all(repository.contents.exists(join(model.name, version, default)) for version in model.versions)
            rule = "plan-gpu/default" if there else "plan-gpu/absent"
            yield finding(rule, place, types=_types(lacking), default=default)
        return
    built = (context.toolchain or {}).get("compute_capability")
    if wrong := {name: capability for name, capability in needed.items() if built and capability != built}:
        yield finding("plan-gpu/other", place, built=built, types=_types(wrong))
    elif len(set(needed.values())) > 1:
        yield finding("plan-gpu/several", place, types=_types(needed))


def _types(needed: Mapping[str, str]) -> str:
    """Names one instance type for each family, with its compute capability."""
    by_family = {family(name): f"{name} has compute capability {capability}" for name, capability in needed.items()}
    return ", ".join(by_family[name] for name in sorted(by_family))
