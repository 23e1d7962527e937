"""Compares TensorRT plans with the GPU and the TensorRT that will load them, by their first bytes. Pure.

The header is documented by NVIDIA's own reader, `trtexec --getPlanVersionOnly` (printPlanVersion in
samples/common/sampleEngines.cpp of NVIDIA/TensorRT): the tag "ftrt", a four-byte serialisation version, and, in version
0, major, minor, patch and build of TensorRT as bytes 24 to 27. It does not name the GPU: cc_model_filenames and
artifact.json may.
"""

import re
from collections.abc import Iterator, Mapping
from posixpath import join

from model_build.lint.backends import backend_of, model_file
from model_build.lint.contents import Member
from model_build.lint.finding import Finding, FindingPlace, finding
from model_build.lint.layout import PackedModel, PackedRepository
from workloads.instances import COMPUTE_CAPABILITIES, family

TAG = b"ftrt"
HEADER_BYTES = 28


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
