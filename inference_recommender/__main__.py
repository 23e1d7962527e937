"""Size a workload's endpoint: measure it with an Inference Recommender job, decide, report.

  python -m inference_recommender run --job advanced              measure spellcheck, about half an hour
  python -m inference_recommender run --job advanced --traffic quick   about a minute, to try the walk
  python -m inference_recommender run --job advanced --dry-run    print the request, send nothing
  python -m inference_recommender size --from FILE --peak-invocations-per-minute N   a fleet from results you have
  python -m inference_recommender run --job default               the service's own traffic; feeds --from-default
  python -m inference_recommender run --resume runs/NAME          go on with a run that was killed or cut off
  python -m inference_recommender capacity spellcheck --url URL   the highest rate a server bears within the objective
  python -m inference_recommender compare runs/OLD runs/NEW       is the new one slower, beyond the noise
  python -m inference_recommender report runs/NAME                draw a run's report again, without AWS
  python -m inference_recommender invoke spellcheck "runing sheos"   ask the deployed endpoint

stdout is the result, stderr is for people. Exit codes: 0 the objective is met; 1 no candidate meets it; 2 usage or a
workload file; 3 AWS is not there or refuses; 4 the run is invalid; 130 interrupted, what was measured is kept.
"""

import argparse
import os
import select
import sys
from importlib import import_module

from rich.console import Console

from workloads import ProjectError

COMMANDS = (
    "run",
    "experiment",
    "capacity",
    "compare",
    "size",
    "prices",
    "report",
    "invoke",
    "register",
    "list",
    "describe",
    "stop",
)
"""Modules of `commands`. Each has `add(commands)`, which gives its parser a `command(options, people) -> exit code`."""

INTERRUPTED = 130
READER_GONE = 141
"""As of a program that SIGPIPE ended: `| head` has read what it wanted."""


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    options = _parser(arguments).parse_args(arguments)
    people = Console(stderr=True)
    try:
        code = int(options.command(options, people))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        if _reader_gone():
            return READER_GONE
        raise
    except ProjectError as error:
        people.print(str(error), style="red", highlight=False, soft_wrap=True, markup=False)
        return error.exit_code
    except KeyboardInterrupt:
        people.print("Interrupted.", style="red")
        return INTERRUPTED


def _reader_gone() -> bool:
    """Whether nobody reads stdout any more. Then what is left to write goes nowhere, and quietly."""
    stdout = sys.stdout.fileno()
    errors = select.poll()
    errors.register(stdout, 0)
    gone = any(event & select.POLLERR for _, event in errors.poll(0))
    if gone:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stdout)
    return gone


def _parser(arguments: list[str]) -> argparse.ArgumentParser:
    """Knows the command that is named, else all: boto3 and matplotlib are imported by the commands that need them."""
    parser = argparse.ArgumentParser(
        prog="python -m inference_recommender",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    named = [name for name in arguments[:1] if name in COMMANDS]
    for name in named or COMMANDS:
        import_module(f"inference_recommender.cli.{name}").add(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
