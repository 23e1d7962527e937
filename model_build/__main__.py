"""python -m model_build families|init|build|verify|plan|lint|record …"""

import signal

if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of the imports; `exit_code` sets it back

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from model_build import matrix, render
from model_build.init import command_line as initialising
from model_build.lint import command_line as linting
from model_build.plan import BuildPlan, plan
from model_build.progress import Progress, seldom
from model_build.remote import command_line as remote
from workloads import (
    ROOT,
    ParityReport,
    ProjectError,
    Unavailable,
    UsageError,
    WorkloadFolder,
    load_workload,
    workload_names,
)
from workloads.program import (
    CommandParser,
    Unforeseen,
    exit_code,
    foreseen,
    logged,
    printable,
    write_traceback,
)

EVERY_S = 30.0
"""Seconds between the lines of a log, where standard error is no terminal: a shorter build says nothing there."""
EXIT_CODES = (
    "0 done; 1 a gate failed; 2 usage, or an error in a file; 3 toolchain missing or busy, or disk full; "
    "70 unforeseen; 130 interrupted."
)
DESCRIPTION = "Compile a workload's checkpoint for a target, prove it against the original, pack it."
EXAMPLES = {
    "": (
        "python -m model_build plan spellcheck --target cpu",
        "python -m model_build build spellcheck --target cpu",
        "python -m model_build lint build/spellcheck/cpu/model.tar.gz --workload spellcheck",
    ),
    "families": (
        "python -m model_build families",
        "python -m model_build families --json",
    ),
    "init": (
        "python -m model_build init reviews --from ./my-checkpoint --examples reviews.csv",
        "python -m model_build init search --from sentence-transformers/all-MiniLM-L6-v2 --examples queries.txt",
    ),
    "build": ("python -m model_build build spellcheck --target cpu",),
    "verify": (
        "python -m model_build verify spellcheck --target cpu",
        "python -m model_build verify spellcheck --target tensorrt --builder rtx",
    ),
    "record": (
        "python -m model_build record question_answering --target inf1-data-parallel --role-arn ARN --image-uri URI",
    ),
    "plan": ("python -m model_build plan spellcheck --target cpu --json",),
    "lint": ("python -m model_build lint build/spellcheck/cpu/model.tar.gz --workload spellcheck",),
}
PURPOSES = {
    "build": "export, compile, verify and pack into build/WORKLOAD/TARGET/",
    "verify": "compare the built archive with the checkpoint again",
    "plan": "print what a build would do, and do nothing",
}


def main(arguments: Sequence[str] | None = None) -> int:
    described = parser()
    options = described.parse_args(arguments)
    if options.command is None:
        described.print_help()
        return 0
    # torch's OpenMP threads spin while they wait: with another process on the cores, `generate` crawls.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    try:
        return int(options.run(options))
    except ProjectError as error:
        print(printable(str(error)), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Interrupted: nothing half-made was left.", file=sys.stderr)
        return 130


def parser() -> argparse.ArgumentParser:
    described = argparse.ArgumentParser(
        prog="python -m model_build",
        description=DESCRIPTION,
        epilog=f"{_examples('')}\n\nRead on in docs/building.md. Each command has a --help of its own.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = described.add_subparsers(dest="command", parser_class=CommandParser)
    command = _command(commands, "families", "which models can be built, and which target takes which")
    command.add_argument("--markdown", action="store_true", help="print the table of docs/families.md")
    command.set_defaults(run=_families)
    command = _command(commands, "init", initialising.PURPOSE)
    initialising.add_options(command)
    command.set_defaults(run=_init)
    for name, purpose in PURPOSES.items():
        command = _command(commands, name, purpose)
        which = command.add_mutually_exclusive_group(required=True)
        which.add_argument("workload", nargs="?", help="a folder of workloads/")
        which.add_argument("--all", action="store_true", help="every workload that has the target")
        command.add_argument("--target", required=True, help="a target of its workload.toml, or a variant")
        command.add_argument("--variants", action="store_true", help="every variant of the target, compiled once")
        command.add_argument(
            "--published",
            metavar="NAME",
            help="with the model of [published.NAME], a published experiment, into build/published/NAME/",
        )
        command.set_defaults(run=_build)
        if name == "build":
            remote.add_options(command)
        if name == "verify":
            source = command.add_mutually_exclusive_group()
            recorded = "judge the figures that the build recorded on its own hardware; run nothing"
            source.add_argument("--recorded", action="store_true", help=recorded)
            outputs = "compare what containers.batch.record wrote on an inf1 or inf2 instance, and record the figures"
            source.add_argument("--outputs", type=Path, metavar="FILE", help=outputs)
            builder = "have TensorRT for RTX build a TensorRT target's engines, without a GPU and without an archive"
            source.add_argument("--builder", choices=["rtx"], help=builder)
    command = _command(
        commands, "lint", "what would fail on SageMaker after half an hour, found in an archive that anybody built"
    )
    linting.add_options(command)
    command.set_defaults(run=_lint)
    command = _command(
        commands, "record", "run evaluation.jsonl through a build for Inferentia, on an endpoint made for it"
    )
    remote.add_record_options(command)
    command.set_defaults(run=_record)
    for command in commands.choices.values():
        command.add_argument("--json", action="store_true", help="print exactly one JSON document on stdout")
    return described


def _command(commands: Any, name: str, purpose: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = commands.add_parser(
        name,
        help=purpose,
        description=purpose.capitalize() + ".",
        epilog=_examples(name),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return made


def _examples(command: str) -> str:
    heading = "examples" if len(EXAMPLES[command]) > 1 else "example"
    return "\n".join([f"{heading}:", *(f"  {line}" for line in EXAMPLES[command]), "", f"exit codes: {EXIT_CODES}"])


def _families(options: argparse.Namespace) -> int:
    if options.json and options.markdown:
        raise UsageError("--json and --markdown are two forms of one answer. Leave one out.")
    if options.json:
        print(json.dumps(matrix.document(), indent=2, ensure_ascii=False))
    else:
        print(matrix.markdown() if options.markdown else matrix.text())
    return 0


def _init(options: argparse.Namespace) -> int:
    with _status() as show, _tools_installed():
        written = initialising.run(options, ROOT, _named(show, options.name))
    for warning in written.warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    print(initialising.document(written) if options.json else initialising.text(written))
    return 0


def _build(options: argparse.Namespace) -> int:
    """Several are one after another; one that fails does not stop the others."""
    if options.command == "build" and options.dry_run and options.on == "local":
        raise UsageError("--dry-run goes with --on sagemaker. What a build here would do is printed by `plan`.")
    results, failures = [], []
    with _status() as show:
        for folder, name in _chosen(options):
            progress = _named(show, f"{folder.workload.name} for {name}")
            try:
                results.append(_run(options, folder, name, progress))
            except ProjectError as error:
                if not (options.all or options.variants):
                    raise
                failures.append((f"{folder.workload.name} for {name}", error))
    _print(options, results)
    for subject, failure in failures:
        print(printable(f"{subject}: {failure}"), file=sys.stderr)
    return max((failure.exit_code for _, failure in failures), default=0)


@contextlib.contextmanager
def _status() -> Iterator[Progress]:
    """A spinner on the terminal, or a line in a log now and then. It writes to a copy of standard error, which a build
    redirects for libraries.
    """
    if not sys.stderr.isatty():
        with os.fdopen(os.dup(2), "w", encoding="utf-8", buffering=1) as log:
            yield seldom(partial(print, file=log), EVERY_S)
        return
    with os.fdopen(os.dup(sys.stderr.fileno()), "w", encoding="utf-8") as terminal:
        status = Console(file=terminal).status("")

        def show(step: str) -> None:
            status.update(step)
            status.start()  # at the first step: `init` may ask a question before it

        try:
            yield show
        finally:
            status.stop()


def _chosen(options: argparse.Namespace) -> Iterable[tuple[WorkloadFolder, str]]:
    """The workloads and what to build of each. Raises `UsageError` where there is nothing to build."""
    names = workload_names(ROOT / "workloads") if options.all else [options.workload]
    folders = [load_workload(name, ROOT / "workloads") for name in names]
    if options.published:
        folders = [folder.as_published(options.published) for folder in folders]
    if options.all:
        folders = [folder for folder in folders if options.target in folder.workload.deployables]
    if not options.variants:
        chosen = [(folder, options.target) for folder in folders]
    else:
        chosen = [
            (folder, name)
            for folder in folders
            for name, variant in folder.workload.variants.items()
            if variant.target == options.target and _is_published(folder, name)
        ]
    if not chosen:
        what = f"variant of a target '{options.target}'" if options.variants else f"target '{options.target}'"
        raise UsageError(f"There is no {what} in any workload.toml of {', '.join(names)}.")
    return chosen


def _is_published(folder: WorkloadFolder, variant: str) -> bool:
    """Tells whether a variant is one of the published experiment's, where the folder is one's."""
    name = folder.published_name
    return name is None or variant in folder.workload.published[name].variants


def _run(options: argparse.Namespace, folder: WorkloadFolder, name: str, progress: Progress) -> dict[str, Any]:
    if options.command == "build" and options.on == "sagemaker":
        return _run_remotely(options, folder, name, progress)
    return _run_here(options, plan(folder, name, ROOT), progress)


def _run_remotely(options: argparse.Namespace, folder: WorkloadFolder, name: str, progress: Progress) -> dict[str, Any]:
    if options.dry_run:
        return remote.show(folder, name, options)
    builds = remote.plan(folder, name, options)
    for warning in dict.fromkeys(warning for build in builds for warning in build.warnings):
        print(f"Warning: {warning}", file=sys.stderr)
    return remote.run(folder, name, builds, ROOT, progress).model_dump(mode="json")


def _lint(options: argparse.Namespace) -> int:
    with _tools_installed():
        findings, context = linting.check(options, ROOT)
    if options.json:
        print(json.dumps(linting.document(findings, context), indent=2))
    else:
        print(linting.text(findings, context))
    return linting.exit_code(findings)


def _record(options: argparse.Namespace) -> int:
    with _status() as show:
        output = remote.record(options, ROOT, _named(show, f"{options.workload} for {options.target}"))
    print(json.dumps({"outputs": str(output)}) if options.json else output)
    return 0


def _run_here(options: argparse.Namespace, planned: BuildPlan, progress: Progress) -> dict[str, Any]:
    for warning in planned.warnings:
        print(f"Warning: {warning}", file=sys.stderr)
    if options.command == "plan":
        return planned.document()
    if not (options.command == "verify" and (options.recorded or options.builder)):
        with _tools_installed():
            from model_build import rows  # --help is quick without the tokenizers

            rows.check(planned)
    # Only here: --help and plan are quick without the packages that a build imports.
    from model_build.build import build, check_engines, verify_built, verify_outputs, verify_recorded

    if options.command == "verify" and options.recorded:
        return verify_recorded(planned).model_dump(mode="json")
    with _failures_with_log(planned), _tools_installed():
        if options.command == "build":
            return build(planned, progress).model_dump(mode="json")
        if options.builder:
            return check_engines(planned, progress)
        if options.outputs is not None:
            figures: ParityReport | None = verify_outputs(planned, options.outputs, progress)
        else:
            figures = verify_built(planned, progress)
    return {} if figures is None else figures.model_dump(mode="json")


@contextlib.contextmanager
def _tools_installed() -> Iterator[None]:
    """Raises `Unavailable` for a package of the build's tools that cannot be imported."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"The Python package '{error.name or error}' is not installed, and model_build needs it. "
            "Install the build's tools with `pip install -e '.[build]'`."
        ) from error


@contextlib.contextmanager
def _failures_with_log(planned: BuildPlan) -> Iterator[None]:
    """Names the log of what libraries said where a build fails; an unforeseen error's traceback goes there too."""
    try:
        yield
    except UsageError:
        raise
    except ProjectError as error:
        if planned.log.exists() and planned.log.stat().st_size:
            error.args = (f"{error}\nWhat libraries said is in {planned.log}.",)
        raise
    except Exception as error:
        if (problem := foreseen(error)) is not None:
            raise problem from error
        if not planned.log.exists():  # it failed before libraries had anything to say
            raise logged(error) from error
        write_traceback(error, planned.log)
        raise Unforeseen(error, planned.log) from error


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
    sys.exit(exit_code(main))
