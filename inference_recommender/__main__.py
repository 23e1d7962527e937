"""Measure a workload's model under load, and size the endpoint that serves it within its latency objective.

examples:
  python -m inference_recommender run spellcheck --job advanced --traffic quick
      runs an Inference Recommender job of about a minute, sizes the endpoint and writes a report
  python -m inference_recommender size --from runs/NAME --peak-invocations-per-minute 60000
      sizes a fleet from existing results, without AWS
  python -m inference_recommender invoke spellcheck "runing sheos"
      sends a request to the deployed endpoint

Each command has --help. `--root DIR` before the command names the repository. See docs/measuring.md.

stdout is the result, stderr is progress and warnings. Exit codes: 0 the objective is met; 1 no candidate meets it;
2 usage error or error in a workload file; 3 AWS, the endpoint or the toolchain is unavailable; 4 inconclusive or
invalid run; 70 internal error, a log is named; 130 interrupted, measurements are kept.
"""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from rich.console import Console

from inference_recommender.output import COMMANDS, Commands, tell
from workloads import ProjectError
from workloads.program import CommandParser, exit_code


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    stderr = Console(stderr=True)
    try:
        parser = _parser(arguments)
        if not arguments:
            parser.print_help()
            return 0
        options = parser.parse_args(arguments)
        return int(options.command(options, stderr))
    except ProjectError as error:
        tell(stderr, str(error), "red")
        return error.exit_code


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    """Returns a parser of the command that `arguments` name, or one that lists all commands."""
    parser = argparse.ArgumentParser(
        prog="python -m inference_recommender",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands", parser_class=CommandParser)
    if arguments and arguments[0] in COMMANDS:
        _add(arguments[0], commands)
        return parser
    for name, summary in COMMANDS.items():
        commands.add_parser(name, help=summary)
    return parser


def _add(name: str, commands: Commands) -> None:
    """Adds a command's parser, which carries a `command(options, stderr) -> exit code`. The imports are local, so that
    a command starts without the libraries of others: boto3, matplotlib, SciPy.
    """
    added: Any = None
    match name:
        case "run":
            from inference_recommender.cli import run

            run.add(commands, make_search=_make_search, generator=_run_generator, cold_start=_cold_start)
        case "invoke" | "register":
            from inference_recommender.cli import deployed

            (deployed.add_invoke if name == "invoke" else deployed.add_register)(commands)
        case "prove":
            from inference_recommender.cli import prove as added
        case "tune":
            from inference_recommender.cli import tune as added
        case "experiment":
            from inference_recommender.cli import experiment as added
        case "simulate":
            from inference_recommender.cli import simulate as added
        case "size":
            from inference_recommender.cli import size as added
        case "compare":
            from inference_recommender.cli import compare as added
        case "report":
            from inference_recommender.cli import report as added
        case "jobs":
            from inference_recommender.cli import jobs as added
    if added:
        added.add(commands)


def _make_search(account: Any) -> Callable[..., Any]:
    """Returns the search of a job's candidates; the load generator is imported at its first use."""

    def search(*arguments: Any) -> Any:
        from inference_recommender.measure.open_loop import CandidateSearch

        return CandidateSearch(account=account)(*arguments)

    return search


def _run_generator(*arguments: Any) -> int:
    from inference_recommender.cli.run_generator import run_generator

    return run_generator(*arguments)


def _cold_start(*arguments: Any) -> int:
    from inference_recommender.cli.cold_start import run_cold_start

    return run_cold_start(*arguments)


def run() -> int:
    """The console command."""
    return exit_code(main)


if __name__ == "__main__":
    sys.exit(run())
