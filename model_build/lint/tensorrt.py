"""Checks by their first bytes whether TensorRT plans meet the GPU and the TensorRT they were built for. Pure.

The header is documented by NVIDIA's own reader, `trtexec --getPlanVersionOnly` (printPlanVersion in
samples/common/sampleEngines.cpp of NVIDIA/TensorRT): the tag "ftrt", a four-byte serialisation version, and, in version
0, major, minor, patch and build of TensorRT as bytes 24 to 27. It says nothing of the GPU: that comes from
cc_model_filenames and from artifact.json, or is not known.
"""

import re
from collections.abc import Iterator

from model_build.lint.backends import backend_of, model_file
from model_build.lint.contents import Contents, Member, join
from model_build.lint.finding import Finding
from model_build.lint.layout import Model
from model_build.lint.runtime_context import RuntimeContext
from workloads.instances import COMPUTE_CAPABILITIES, family

TAG = b"ftrt"
HEADER_BYTES = 28
WHY_PLAN = "A plan holds machine code for one GPU family. TensorRT refuses it on another, and Triton does not start."


def check_plans(model: Model, contents: Contents, context: RuntimeContext) -> list[Finding]:
    if backend_of(model, contents) != "tensorrt":
        return []
    findings = [*_gpus(model, contents, context)]
    for path, plan in _plans(model, contents):
        findings += _header(path, plan, context)
    return findings


def plan_version(plan: Member) -> tuple[int, ...] | None:
    """(10, 13, 3, 9); None for a header of another layout."""
    if len(plan.head) < HEADER_BYTES or plan.head[4:8] != bytes(4):
        return None
    return tuple(plan.head[24:HEADER_BYTES])


def _plans(model: Model, contents: Contents) -> Iterator[tuple[str, Member]]:
    named = model.config.cc_model_filenames.values() if model.config else ()
    names = {*named, model_file(model, "tensorrt") or ""}
    for version in model.versions:
        for name in sorted(names):
            path = join(model.name, version, name)
            if (plan := contents.file(path)) is not None:
                yield path, plan


def _header(path: str, plan: Member, context: RuntimeContext) -> Iterator[Finding]:
    if not plan.head.startswith(TAG):
        yield Finding(
            code="not-a-plan",
            severity="error",
            what="The file is no serialised TensorRT engine.",
            file=path,
            why="Every plan begins with 'ftrt'; TensorRT does not load another file under its name.",
            fix="Pack what `trtexec --saveEngine` wrote, not the ONNX file it was built from.",
        )
        return
    wanted = _numbers(context.tensorrt_version)
    got = plan_version(plan) or _numbers((context.toolchain or {}).get("tensorrt"))
    if wanted and got and _differ(got, wanted):
        yield Finding(
            code="plan-version",
            severity="error",
            what=f"The plan was built with TensorRT {_text(got)}; the image has {_text(wanted)}.",
            file=path,
            why="A plan loads only in the TensorRT that built it: Triton does not start.",
            fix="Build it inside the image that will serve it.",
        )


def _numbers(version: str | None) -> tuple[int, ...] | None:
    """Returns None for what is no single version: a build on several machines joins theirs with commas."""
    match = re.fullmatch(r"(\d+(?:\.\d+){1,3})(?:[+-]\S+)?", version or "")
    return tuple(map(int, match[1].split("."))) if match else None


def _differ(one: tuple[int, ...], other: tuple[int, ...]) -> bool:
    """Compares major, minor and patch, of which those left out count as .0, and the build where both are known.

    TensorRT compares all four ("expecting library version 8.6.1.2 got 8.6.1.6", NVIDIA/TensorRT #3071).
    """
    if one[3:] and other[3:]:
        return one != other
    return (*one, 0, 0)[:3] != (*other, 0, 0)[:3]


def _text(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _gpus(model: Model, contents: Contents, context: RuntimeContext) -> Iterator[Finding]:
    """Checks the plan that each instance type would load."""
    wanted = {name: capability for name in context.gpu_types if (capability := COMPUTE_CAPABILITIES.get(family(name)))}
    named = model.config.cc_model_filenames if model.config else {}
    if named:
        lacking = {name: capability for name, capability in wanted.items() if capability not in named}
        if lacking:
            yield _lacking(model, contents, lacking)
        return
    built_for = (context.toolchain or {}).get("compute_capability")
    wrong = {name: capability for name, capability in wanted.items() if built_for and capability != built_for}
    if wrong:
        yield _finding(
            model,
            f"The plan was built for compute capability {built_for}; {_asked(wrong)}.",
            fix="Build it on that GPU, and name both plans in cc_model_filenames.",
        )
    elif len(set(wanted.values())) > 1:
        yield _finding(
            model,
            f"There is one plan for several GPUs: {_asked(wanted)}.",
            fix="Build one on each GPU, and name them in cc_model_filenames.",
        )


def _lacking(model: Model, contents: Contents, lacking: dict[str, str]) -> Finding:
    default = model_file(model, "tensorrt") or ""
    there = all(contents.exists(join(model.name, version, default)) for version in model.versions)
    return _finding(
        model,
        f"cc_model_filenames names no plan for a GPU that is asked for: {_asked(lacking)}.",
        fix="Build one on that GPU, and name it in cc_model_filenames.",
        why=f"Triton then takes {default}, and for which GPU that was built is not known. {WHY_PLAN}"
        if there
        else f"Triton then takes {default}, which is not there, and does not start.",
        warning=there,
    )


def _asked(wanted: dict[str, str]) -> str:
    """Names one instance type for each family, with its compute capability."""
    by_family = {family(name): f"{name} has compute capability {capability}" for name, capability in wanted.items()}
    return ", ".join(by_family[name] for name in sorted(by_family))


def _finding(model: Model, what: str, *, fix: str, why: str = WHY_PLAN, warning: bool = False) -> Finding:
    key = "cc_model_filenames"
    return Finding(
        code="plan-gpu",
        severity="warning" if warning else "error",
        what=what,
        file=model.config_file,
        line=model.line(key),
        key=key,
        why=why,
        fix=fix,
    )
