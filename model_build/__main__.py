"""python -m model_build init|plan|build|verify|lint …"""

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from model_build import render
from model_build.progress import Progress, seldom
from workloads import ROOT, ProjectError, UsageError, WorkloadFolder, load_workload, workload_names
from workloads.program import CommandParser, exit_code, printable

if TYPE_CHECKING:
    from model_build.plan import BuildPlan

LOG_INTERVAL_S = 30.0
"""Seconds between lines of progress if standard error is not a terminal."""
DESCRIPTION = "Compile a workload's checkpoint for a target, compare it with the original, and pack it."
EXIT_CODES = (
    "exit codes: 0 done; 1 a gate failed; 2 usage, or an error in a file; 3 toolchain missing or busy, or disk full; "
    "70 internal error; 130 interrupted."
)
COMMANDS = {
    "init": (
        "write a workload's folder from a checkpoint and a file of examples",
        "init reviews --from ./my-checkpoint --examples reviews.csv",
    ),
    "plan": ("print what a build does, without building", "plan spellcheck --target cpu"),
    "build": ("export, compile, verify and pack into build/WORKLOAD/TARGET/", "build spellcheck --target cpu"),
    "verify": ("compare the built archive with the checkpoint again", "verify spellcheck --target cpu"),
    "lint": (
        "find in any archive what would fail on SageMaker after half an hour",
        "lint build/spellcheck/cpu/model.tar.gz --workload spellcheck",
    ),
}
"""Purpose and example of each command."""


def main(arguments: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    # torch's OpenMP threads spin while they wait: with another process on the cores, `generate` crawls.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        program = parser(arguments)
        options = program.parse_args(arguments)
        if options.command is None:
            program.print_help()
            return 0
        run = {"init": _init, "lint": _lint}.get(options.command, _build)
        return int(run(options))
    except ProjectError as error:
        print(printable(str(error)), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Interrupted: no incomplete files remain.", file=sys.stderr)
        return 130


def parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    """Returns the parser of all commands, with the options of the one that `arguments` name. The imports are local, so
    that help is quick without the modules of the commands.
    """
    layout = argparse.RawDescriptionHelpFormatter
    examples = "\n".join(["examples:", *(f"  {line}" for line in map(example, COMMANDS))])
    root = "Each command has --help. --root DIR before the command names the repository. See docs/building.md."
    epilog = f"{examples}\n\n{EXIT_CODES}\n\n{root}"
    program = argparse.ArgumentParser(
        prog="python -m model_build", description=DESCRIPTION, epilog=epilog, formatter_class=layout
    )
    commands = program.add_subparsers(dest="command", parser_class=CommandParser)
    for name, (purpose, _) in COMMANDS.items():
        command = commands.add_parser(
            name,
            help=purpose,
            description=f"{purpose.capitalize()}.",
            epilog=f"example:\n  {example(name)}\n\n{EXIT_CODES}",
            formatter_class=layout,
        )
        if name in arguments[:1]:
            _add_options(name, command)
    return program


def _add_options(name: str, command: argparse.ArgumentParser) -> None:
    if name == "init":
        from model_build.init import init_command

        init_command.add_options(command)
    elif name == "lint":
        from model_build.lint import lint_command

        lint_command.add_options(command)
    else:
        _add_build_options(command)
    command.add_argument("--json", action="store_true", help="print exactly one JSON document on stdout")
    if name == "plan":
        command.add_argument("--families", action="store_true", help="print which target takes which model family")
    if name in ("build", "verify"):
        from model_build.remote import remote_options as remote

        if name == "verify":
            _add_verify_options(command)
            remote.add_verify_options(command)
        else:
            compare = "time a CPU encoder against the other CPU runtime on this machine, and record its ratio"
            command.add_argument("--compare-runtimes", action="store_true", help=compare)
            remote.add_build_options(command)


def example(command: str) -> str:
    return f"python -m model_build {COMMANDS[command][1]}"


def _add_build_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("workload", nargs="?", help="a folder of workloads/")
    command.add_argument("--all", action="store_true", help="every workload that has the target")
    command.add_argument("--target", help="a target of its workload.toml, or a variant")
    command.add_argument("--variants", action="store_true", help="every variant of the target, compiled once")
    published = "with the model of [published.NAME], a published experiment, into build/published/NAME/"
    command.add_argument("--published", metavar="NAME", help=published)


def _add_verify_options(command: argparse.ArgumentParser) -> None:
    source = command.add_mutually_exclusive_group()
    recorded = "judge the figures that the build recorded on its own hardware, without running anything"
    source.add_argument("--recorded", action="store_true", help=recorded)
    builder = (
        "of a TensorRT target, without a GPU and without an archive: rtx builds the engines with TensorRT for RTX; "
        "onnxruntime runs their graphs on this CPU through the parity gate"
    )
    source.add_argument("--builder", choices=["rtx", "onnxruntime"], help=builder)
    outputs = "compare the outputs that containers.batch.record wrote; with --on sagemaker, only write them there"
    command.add_argument("--outputs", type=Path, metavar="FILE", help=outputs)


def _init(options: argparse.Namespace) -> int:
    from model_build.init import init_command as initialising
    from model_build.python_build import tools_installed

    with _status() as show, tools_installed():
        written = initialising.run(options, ROOT, _named(show, options.name))
    for warning in written["warnings"]:
        print(f"Warning: {warning}", file=sys.stderr)
    print(json.dumps(written, indent=2, ensure_ascii=False) if options.json else initialising.text(written))
    return 0


def _lint(options: argparse.Namespace) -> int:
    from model_build.lint import lint_command as linting
    from model_build.python_build import tools_installed

    with tools_installed():
        findings, context = linting.check(options, ROOT)
    if options.json:
        print(json.dumps(linting.document(findings, context), indent=2))
    else:
        print(linting.render(findings, context))
    return linting.exit_code(findings)


def _build(options: argparse.Namespace) -> int:
    """Runs `plan`, `build` or `verify` on one build after another; a failure does not stop the others."""
    if options.command == "plan" and options.families:
        from model_build import matrix

        print(json.dumps(matrix.document(), indent=2, ensure_ascii=False) if options.json else matrix.markdown())
        return 0
    _check_usage(options)
    results, failures = [], []
    with _status() as show:
        for folder, name in _chosen(options):
            subject = f"{folder.workload.name} for {name}"
            try:
                results.append(_run(options, folder, name, _named(show, subject)))
            except ProjectError as error:
                if not (options.all or options.variants):
                    raise
                failures.append((subject, error))
    _print(options, results)
    for subject, failure in failures:
        print(printable(f"{subject}: {failure}"), file=sys.stderr)
    return max((failure.exit_code for _, failure in failures), default=0)


def _check_usage(options: argparse.Namespace) -> None:
    if options.target is None or bool(options.workload) == options.all:
        names = "--target" if options.target is None else "WORKLOAD or --all"
        raise UsageError(f"{options.command}: {names} is missing. Example: {example(options.command)}")
    if options.command == "build" and options.compare_runtimes and options.on == "sagemaker":
        raise UsageError("--compare-runtimes times models on this machine. Leave it out, or leave out --on sagemaker.")
    if options.command == "build" and options.dry_run and options.on != "sagemaker":
        raise UsageError("--dry-run requires --on sagemaker. `plan` prints what a build here does.")


@contextlib.contextmanager
def _status() -> Iterator[Progress]:
    """Shows progress: a spinner on a terminal, an occasional line in a log.

    It writes to a copy of standard error, because a build redirects the original for libraries.
    """
    if not sys.stderr.isatty():
        with os.fdopen(os.dup(2), "w", encoding="utf-8", buffering=1) as log:
            yield seldom(partial(print, file=log), LOG_INTERVAL_S)
        return
    from rich.console import Console

    with (
        os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as terminal,
        Console(file=terminal).status("") as status,
    ):
        yield status.update


def _chosen(options: argparse.Namespace) -> Iterable[tuple[WorkloadFolder, str]]:
    """Returns the workloads and the deployables to build. Raises `UsageError` if there is none."""
    names = workload_names(ROOT / "workloads") if options.all else [options.workload]
    folders = [load_workload(name, ROOT / "workloads") for name in names]
    if options.published:
        folders = [folder.as_published(options.published) for folder in folders]
    if options.all:
        folders = [folder for folder in folders if options.target in folder.workload.deployables]
    chosen = [(folder, options.target) for folder in folders]
    if options.variants:
        chosen = [
            (folder, name)
            for folder in folders
            for name, variant in folder.workload.variants.items()
            if variant.target == options.target
            and (folder.published_name is None or name in folder.workload.published[folder.published_name].variants)
        ]
    if not chosen:
        what = f"variant of a target '{options.target}'" if options.variants else f"target '{options.target}'"
        raise UsageError(f"There is no {what} in any workload.toml of {', '.join(names)}.")
    return chosen


def _run(options: argparse.Namespace, folder: WorkloadFolder, name: str, progress: Progress) -> dict[str, Any]:
    """Returns the document of one build, plan or verification."""
    from model_build.plan import plan
    from model_build.python_build import build
    from model_build.remote import remote_options as remote

    if options.command == "build" and options.on == "sagemaker":
        return remote.build(folder, name, options, ROOT, progress)
    if options.command == "verify" and options.on == "sagemaker":
        outputs = remote.record(folder, name, options, ROOT, progress)
        if options.outputs is not None:
            return {"outputs": str(outputs)}
        options.outputs = outputs
    if options.command == "build":
        compare = options.compare_runtimes
        built = build(folder, name, root=ROOT, compare_runtimes=compare, progress=progress, warn=_warn)
        artifact = built.model_dump(mode="json")
        if artifact["runner_up"]:
            print(render.runner_up(artifact), file=sys.stderr)
        return artifact
    planned = plan(folder, name, ROOT)
    for warning in planned.warnings:
        _warn(warning)
    return planned.document() if options.command == "plan" else _verify(options, planned, progress)


def _verify(options: argparse.Namespace, planned: "BuildPlan", progress: Progress) -> dict[str, Any]:
    from model_build.python_build import check_rows, failures_with_log, tools_installed

    if not options.recorded:
        check_rows(planned)
    # Only here: --help and plan are quick without the packages that a build imports.
    from model_build.execute import check_engines, verify_built, verify_graphs, verify_outputs, verify_recorded

    if options.recorded:
        return verify_recorded(planned).model_dump(mode="json")
    with failures_with_log(planned), tools_installed():
        if options.builder == "rtx":
            return check_engines(planned, progress)
        if options.builder == "onnxruntime":
            return verify_graphs(planned, progress).model_dump(mode="json")
        if options.outputs is not None:
            return verify_outputs(planned, options.outputs, progress).model_dump(mode="json")
        figures = verify_built(planned, progress)
    return {} if figures is None else figures.model_dump(mode="json")


def _warn(warning: str) -> None:
    print(f"Warning: {warning}", file=sys.stderr)


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


def run() -> int:
    """The console command."""
    return exit_code(main)


if __name__ == "__main__":
    sys.exit(run())
