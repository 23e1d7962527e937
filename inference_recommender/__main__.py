"""Measure a workload's model under load, and size the endpoint that serves it within its latency objective.

examples:
  python -m inference_recommender run spellcheck --job advanced --traffic quick
      runs an Inference Recommender job of about a minute, sizes the endpoint from it and writes a report
  python -m inference_recommender size --from runs/NAME --peak-invocations-per-minute 60000
      sizes a fleet from results you have, without AWS; --from also takes a job's description as JSON
  python -m inference_recommender invoke spellcheck "runing sheos"
      asks the deployed endpoint

Each command tells more with --help. Read on in docs/measuring.md.

stdout is the result, stderr is progress and warnings. Exit codes: 0 the objective is met; 1 no candidate meets it;
2 usage or a workload file; 3 AWS is not there or refuses; 4 the run is invalid; 70 unforeseen, a log is named;
130 interrupted, what was measured is kept.
"""

import argparse
import sys
from collections.abc import Callable

from rich.console import Console

from inference_recommender.output import Commands, tell
from workloads import ProjectError
from workloads.program import CommandParser, exit_code


def _run(commands: Commands) -> None:
    from inference_recommender.cli import run

    run.add(commands)


def _experiment(commands: Commands) -> None:
    from inference_recommender.cli import experiment

    experiment.add(commands)


def _capacity(commands: Commands) -> None:
    from inference_recommender.cli import capacity

    capacity.add(commands)


def _prove(commands: Commands) -> None:
    from inference_recommender.cli import prove

    prove.add(commands)


def _tune(commands: Commands) -> None:
    from inference_recommender.cli import tune

    tune.add(commands)


def _simulate(commands: Commands) -> None:
    from inference_recommender.cli import simulate

    simulate.add(commands)


def _cold_start(commands: Commands) -> None:
    from inference_recommender.cli import cold_start

    cold_start.add(commands)


def _compare(commands: Commands) -> None:
    from inference_recommender.cli import compare

    compare.add(commands)


def _size(commands: Commands) -> None:
    from inference_recommender.cli import size

    size.add(commands)


def _report(commands: Commands) -> None:
    from inference_recommender.cli import report

    report.add(commands)


def _invoke(commands: Commands) -> None:
    from inference_recommender.cli import deployed

    deployed.add_invoke(commands)


def _register(commands: Commands) -> None:
    from inference_recommender.cli import deployed

    deployed.add_register(commands)


def _list(commands: Commands) -> None:
    from inference_recommender.cli import jobs

    jobs.add_list(commands)


def _describe(commands: Commands) -> None:
    from inference_recommender.cli import jobs

    jobs.add_describe(commands)


def _stop(commands: Commands) -> None:
    from inference_recommender.cli import jobs

    jobs.add_stop(commands)


def _sweep(commands: Commands) -> None:
    from inference_recommender.cli import sweep

    sweep.add(commands)


COMMANDS: dict[str, Callable[[Commands], None]] = {
    "run": _run,
    "experiment": _experiment,
    "capacity": _capacity,
    "prove": _prove,
    "tune": _tune,
    "simulate": _simulate,
    "cold-start": _cold_start,
    "compare": _compare,
    "size": _size,
    "report": _report,
    "invoke": _invoke,
    "register": _register,
    "list": _list,
    "describe": _describe,
    "stop": _stop,
    "sweep": _sweep,
}
"""Adds each command's parser, which carries a `command(options, stderr) -> exit code`. The imports are local so that a
command starts without what only others need: boto3, matplotlib, SciPy."""


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
    """Returns a parser of the named command alone, or of all commands where none is named."""
    parser = argparse.ArgumentParser(
        prog="python -m inference_recommender",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND", title="commands", parser_class=CommandParser)
    named = [name for name in arguments[:1] if name in COMMANDS]
    for name in named or COMMANDS:
        COMMANDS[name](commands)
    return parser


if __name__ == "__main__":
    sys.exit(exit_code(main))
