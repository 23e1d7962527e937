"""One module per command of `python -m inference_recommender`: parse, load, choose, call, render, return."""

import argparse
from typing import TypeAlias

from workloads import UsageError

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

DEFAULT_TRAFFIC = "production"
GENERATOR_TYPE = "ml.c5.2xlarge"
"""A generator uses one core; the second is for the network."""


def load_source(word: str) -> str:
    """Returns the argument of `--with`. Raises `UsageError` for the word that load-test replaced."""
    if word == "harness":
        raise UsageError("--with harness: is called --with load-test now.")
    return word


def add_command(
    commands: Commands, name: str, summary: str, example: str, description: str | None = None
) -> argparse.ArgumentParser:
    """Adds a command whose help ends with an example, a command line without `python -m inference_recommender`."""
    return commands.add_parser(
        name,
        help=summary,
        description=description or f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  python -m inference_recommender {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
