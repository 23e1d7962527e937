"""`model_build.build` and the errors of a build, for the command line and for Python. Prints nothing."""

import contextlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

from model_build.plan import BuildPlan, plan
from model_build.progress import Progress, silent
from workloads import ROOT, ModelArtifact, ProjectError, Unavailable, UsageError, WorkloadFolder, load_workload
from workloads.program import Unforeseen, foreseen, logged, write_traceback


def build(
    workload: str | WorkloadFolder,
    target: str,
    *,
    root: Path = ROOT,
    compare_runtimes: bool = False,
    progress: Progress = silent,
    warn: Callable[[str], None] = warnings.warn,
) -> ModelArtifact:
    """Compiles, verifies and packs a workload's model into build/WORKLOAD/TARGET/, as the command `build` does.

    `workload` is a folder of workloads/, or its name. `target` is a target or a variant of its workload.toml.
    `compare_runtimes` also times a CPU encoder against the other CPU runtime. `progress` receives each step. Raises
    `workloads.UsageError`, `workloads.Unavailable`, or a `ProjectError` with exit code 1 if the model fails a gate.
    """
    folder = load_workload(workload, root / "workloads") if isinstance(workload, str) else workload
    planned = plan(folder, target, root)
    for warning in planned.warnings:
        warn(warning)
    check_rows(planned)
    from model_build import execute  # a plan is quick without the packages that a build imports

    with failures_with_log(planned), tools_installed():
        return execute.build(planned, progress, compare_runtimes=compare_runtimes)


def check_rows(planned: BuildPlan) -> None:
    """Raises `InvalidDocument` for rows that the model would not answer."""
    with tools_installed():
        from model_build import rows  # it imports the tokenizers

        rows.check(planned)


@contextlib.contextmanager
def tools_installed() -> Iterator[None]:
    """Raises `Unavailable` for a package of the build's tools that cannot be imported."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise Unavailable(
            f"The Python package '{error.name or error}' is not installed, and model_build needs it. "
            "Install the build's tools with `pip install -e '.[build]'`."
        ) from error


@contextlib.contextmanager
def failures_with_log(planned: BuildPlan) -> Iterator[None]:
    """Names the log of the libraries' output in a failure; the traceback of an internal error goes there too."""
    try:
        yield
    except UsageError:
        raise
    except ProjectError as error:
        if planned.log.exists() and planned.log.stat().st_size:
            error.args = (f"{error}\nThe output of libraries is in {planned.log}.",)
        raise
    except Exception as error:
        if (problem := foreseen(error)) is not None:
            raise problem from error
        if not planned.log.exists():  # it failed before any library wrote output
            raise logged(error) from error
        write_traceback(error, planned.log)
        raise Unforeseen(error, planned.log) from error
