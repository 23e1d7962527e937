"""python -m model_build build|verify|plan WORKLOAD --target TARGET [--json]"""

import argparse
import json
import os
import sys
from collections.abc import Sequence

from rich.console import Console

from model_build import render
from model_build.errors import MissingToolchain
from model_build.plan import BuildPlan, plan
from model_build.progress import Progress
from workloads import ROOT, ProjectError, load_workload

EPILOG = "Exit codes: 0 done; 1 a gate failed; 2 usage or workload error; 3 toolchain missing or busy; 130 interrupted."


def main(arguments: Sequence[str] | None = None) -> int:
    options = parser().parse_args(arguments)
    # torch's OpenMP threads spin while they wait: with another process on the cores, `generate` crawls.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    stderr = Console(stderr=True)
    try:
        planned = plan(load_workload(options.workload, ROOT / "workloads"), options.target, ROOT)
        with stderr.status("") as status:
            result = _run(options.command, planned, status.update)
    except ProjectError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("Interrupted: nothing half-made was left.", file=sys.stderr)
        return 130
    print(json.dumps(result, indent=2) if options.json else render.text(options.command, result))
    return 0


def parser() -> argparse.ArgumentParser:
    described = argparse.ArgumentParser(
        prog="python -m model_build",
        description="Compile a workload's checkpoint for a target, prove it against the original, pack it.",
        epilog=EPILOG,
    )
    commands = described.add_subparsers(dest="command", required=True)
    for name, purpose in (
        ("build", "export, compile, verify and pack into build/WORKLOAD/TARGET/"),
        ("verify", "compare the built archive with the checkpoint again"),
        ("plan", "print what a build would do, and do nothing"),
    ):
        command = commands.add_parser(name, help=purpose, description=purpose.capitalize() + ".", epilog=EPILOG)
        command.add_argument("workload", help="a folder of workloads/")
        command.add_argument("--target", required=True, help="a target of its workload.toml")
        command.add_argument("--json", action="store_true", help="print exactly one JSON document on stdout")
    return described


def _run(command: str, planned: BuildPlan, progress: Progress) -> dict[str, object]:
    if command == "plan":
        return planned.document()
    try:
        # Only here: planning works without torch, and --help is quick.
        from model_build.build import build, verify_built
    except ModuleNotFoundError as error:
        raise MissingToolchain(error.name or str(error)) from error
    run = build if command == "build" else verify_built
    return run(planned, progress).model_dump(mode="json")


if __name__ == "__main__":
    sys.exit(main())
