"""python -m model_build build|verify|plan|lint …"""

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console

from model_build import render
from model_build.errors import DryRunHere, MissingToolchain, NothingToBuild
from model_build.lint import command_line as linting
from model_build.plan import BuildPlan, plan
from model_build.progress import Progress
from model_build.recorded import verify_recorded
from model_build.remote import command_line as remote
from workloads import ROOT, ProjectError, WorkloadFolder, load_workload, workload_names

EPILOG = "Exit codes: 0 done; 1 a gate failed; 2 usage or workload error; 3 toolchain missing or busy; 130 interrupted."
PURPOSES = {
    "build": "export, compile, verify and pack into build/WORKLOAD/TARGET/",
    "verify": "compare the built archive with the checkpoint again",
    "plan": "print what a build would do, and do nothing",
}


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    # torch's OpenMP threads spin while they wait: with another process on the cores, `generate` crawls.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return int(options.run(options))
    except ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Interrupted: nothing half-made was left.", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    described = argparse.ArgumentParser(
        prog="python -m model_build",
        description="Compile a workload's checkpoint for a target, prove it against the original, pack it.",
        epilog=EPILOG,
    )
    commands = described.add_subparsers(dest="command", required=True)
    for name, purpose in PURPOSES.items():
        command = commands.add_parser(name, help=purpose, description=purpose.capitalize() + ".", epilog=EPILOG)
        which = command.add_mutually_exclusive_group(required=True)
        which.add_argument("workload", nargs="?", help="a folder of workloads/")
        which.add_argument("--all", action="store_true", help="every workload that has the target")
        command.add_argument("--target", required=True, help="a target of its workload.toml, or a variant")
        command.add_argument("--variants", action="store_true", help="every variant of the target, compiled once")
        command.set_defaults(run=_build)
        if name == "build":
            remote.add_options(command)
        if name == "verify":
            recorded = "judge the figures that the build recorded on its own hardware; run nothing"
            command.add_argument("--recorded", action="store_true", help=recorded)
    purpose = "what would fail on SageMaker after half an hour, found in an archive that anybody built"
    command = commands.add_parser("lint", help=purpose, description=purpose.capitalize() + ".", epilog=EPILOG)
    linting.add_options(command)
    command.set_defaults(run=_lint)
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", help="print exactly one JSON document on stdout")
    return described


def _build(options: argparse.Namespace) -> int:
    """Several are one after another; one that fails does not stop the others."""
    if options.command == "build" and options.dry_run and options.on == "local":
        raise DryRunHere
    results, failures = [], []
    with Console(stderr=True).status("") as status:
        for folder, name in _chosen(options):
            progress = _named(status.update, f"{folder.workload.name} for {name}")
            try:
                results.append(_run(options, folder, name, progress))
            except ProjectError as error:
                if not (options.all or options.variants):
                    raise
                failures.append((f"{folder.workload.name} for {name}", error))
    _print(options, results)
    for subject, failure in failures:
        print(f"{subject}: {failure}", file=sys.stderr)
    return max((failure.exit_code for _, failure in failures), default=0)


def _chosen(options: argparse.Namespace) -> Iterable[tuple[WorkloadFolder, str]]:
    """The workloads and what to build of each. Raises `NothingToBuild`."""
    names = workload_names(ROOT / "workloads") if options.all else [options.workload]
    folders = [load_workload(name, ROOT / "workloads") for name in names]
    if options.all:
        folders = [folder for folder in folders if options.target in folder.workload.deployables]
    if not options.variants:
        chosen = [(folder, options.target) for folder in folders]
    else:
        chosen = [
            (folder, name)
            for folder in folders
            for name, variant in folder.workload.variants.items()
            if variant.target == options.target
        ]
    if not chosen:
        raise NothingToBuild(options.target, names, variants=options.variants)
    return chosen


def _run(options: argparse.Namespace, folder: WorkloadFolder, name: str, progress: Progress) -> dict[str, Any]:
    if options.command == "build" and options.on == "sagemaker":
        return _run_remotely(options, folder, name, progress)
    if options.command == "verify" and options.recorded:
        return verify_recorded(plan(folder, name, ROOT)).model_dump(mode="json")
    return _run_here(options.command, plan(folder, name, ROOT), progress)


def _run_remotely(options: argparse.Namespace, folder: WorkloadFolder, name: str, progress: Progress) -> dict[str, Any]:
    if options.dry_run:
        return remote.show(folder, name, options)
    builds = remote.plan(folder, name, options)
    for warning in dict.fromkeys(warning for build in builds for warning in build.warnings):
        print(f"Warning: {warning}", file=sys.stderr)
    return remote.run(folder, name, builds, ROOT, progress).model_dump(mode="json")


def _lint(options: argparse.Namespace) -> int:
    findings, situation = linting.check(options, ROOT)
    if options.json:
        print(json.dumps(linting.document(findings, situation), indent=2))
    else:
        print(linting.text(findings, situation))
    return linting.exit_code(findings)


def _run_here(command: str, planned: BuildPlan, progress: Progress) -> dict[str, Any]:
    if command == "plan":
        return planned.document()
    # Only here: planning works without torch, and --help is quick.
    from model_build.build import build, verify_built

    try:
        if command == "build":
            return build(planned, progress).model_dump(mode="json")
        figures = verify_built(planned, progress)
    except ModuleNotFoundError as error:
        raise MissingToolchain(error.name or str(error)) from error
    return {} if figures is None else figures.model_dump(mode="json")


def _named(update: Progress, subject: str) -> Progress:
    return lambda step: update(f"{subject}: {step}")


def _print(options: argparse.Namespace, results: Sequence[dict[str, Any]]) -> None:
    several = options.all or options.variants
    if options.json or (options.command == "build" and options.dry_run):
        print(json.dumps(list(results) if several else results[0], indent=2))
    elif several and options.command == "build":
        print(render.table(results))
    else:
        print("\n\n".join(render.text(options.command, result) for result in results))


if __name__ == "__main__":
    sys.exit(main())
