"""The options and the output of `lint`. With --workload most options can be left out."""

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from textwrap import indent
from typing import Any

from model_build.lint.check import lint
from model_build.lint.finding import Finding, RuntimeContext, unmade_checks
from workloads import SageMakerEndpointHosting, WorkloadFolder, artifact_file, load_artifact, load_workload

GATE_FAILED = 1


def add_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("path", type=Path, metavar="PATH", help="a model.tar.gz, or the folder it is packed from")
    command.add_argument("--workload", metavar="NAME", help="take the facts from its workload.toml and payloads")
    command.add_argument("--target", metavar="NAME", help="with --workload: the target or variant; default: the hosted")
    command.add_argument("--image", metavar="TAG", help="the Triton image: yy.mm, a tag or a URI")
    command.add_argument("--tensorrt-version", metavar="X.Y.Z.BUILD", help="of the TensorRT inside the image")
    command.add_argument("--instance-type", action="append", metavar="TYPE", help="may be given several times")
    command.add_argument("--host-ami", metavar="NAME", help="the variant's InferenceAmiVersion, or 'none'")
    command.add_argument("--env", action="append", metavar="KEY=VALUE", help="all of the container's environment")
    command.add_argument("--payloads", action="append", type=Path, metavar="FILE", help="requests, JSON or JSON lines")


def check(options: argparse.Namespace, root: Path) -> tuple[list[Finding], RuntimeContext]:
    """Returns the findings and their context. Raises what `lint` and a workload's files raise."""
    context = _context(options, root)
    return lint(options.path, context), context


def document(findings: list[Finding], context: RuntimeContext) -> dict[str, Any]:
    """Returns the document that --json prints."""
    return {
        "findings": [{**asdict(finding), "where": finding.where} for finding in findings],
        "not_checked": [{"check": check, "needs": needs} for check, needs in unmade_checks(context).items()],
    }


def render(findings: Sequence[Finding], context: RuntimeContext) -> str:
    """Returns errors, then warnings, a line of totals, and the checks that were not made."""
    ordered = sorted(findings, key=lambda each: each.severity != "error")
    errors = sum(each.severity == "error" for each in findings)
    totals = f"{_count(errors, 'error')}, {_count(len(findings) - errors, 'warning')}."
    lacking = [f"  {check} (needs {needs})" for check, needs in unmade_checks(context).items()]
    return "\n\n".join([*map(_block, ordered), totals, *(["\n".join(["Not checked:", *lacking])] if lacking else [])])


def exit_code(findings: list[Finding]) -> int:
    return GATE_FAILED if any(finding.severity == "error" for finding in findings) else 0


def _context(options: argparse.Namespace, root: Path) -> RuntimeContext:
    folder = load_workload(options.workload, root / "workloads") if options.workload else None
    given = {
        "image": options.image,
        "tensorrt_version": options.tensorrt_version,
        "instance_types": tuple(options.instance_type) if options.instance_type else None,
        "host_ami": options.host_ami,
        "environment": dict(pair.partition("=")[::2] for pair in options.env) if options.env else None,
        "payloads": tuple(options.payloads) if options.payloads else None,
    }
    known = _of_workload(folder, options.target, root) if folder else {}
    return RuntimeContext(**{**known, **{key: value for key, value in given.items() if value is not None}})


def _of_workload(folder: WorkloadFolder, name: str | None, root: Path) -> dict[str, Any]:
    """Returns instance types, image and payloads, and the environment and toolchain of the artifact if it is built."""
    hosting = folder.workload.hosting
    name = name or hosting.target
    known: dict[str, Any] = {
        "instance_types": folder.target(folder.variant(name).target).instance_types or None,
        "payloads": (folder.path / "payloads.jsonl",),
    }
    if isinstance(hosting, SageMakerEndpointHosting):
        known["image"] = hosting.image_uri or hosting.triton_on((known["instance_types"] or ["ml.c5.xlarge"])[0])
    if artifact_file(root, folder.workload.name, name).exists():
        artifact = load_artifact(root, folder.workload.name, name)
        default = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": artifact.default_model}
        quiet = {"SAGEMAKER_TRITON_LOG_VERBOSE": "false"}
        known |= {"environment": {**default, **quiet, **artifact.environment}, "toolchain": artifact.toolchain}
    return known


def _block(found: Finding) -> str:
    details = [f"where  {found.where}", f"why    {found.why}", f"fix    {found.fix}"]
    return f"{found.severity} {found.code}: {found.what}\n" + indent("\n".join(details), "  ")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
