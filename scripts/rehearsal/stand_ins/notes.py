"""Notes what was replaced, and by what, in the file that $STAND_INS_LOG names: a line each, for the transcript."""

import os
from pathlib import Path

LOG = "STAND_INS_LOG"


def note(what: str, by: str) -> None:
    """Does nothing where the variable is not set."""
    if file := os.environ.get(LOG):
        with Path(file).open("a", encoding="utf-8") as log:
            log.write(f"{what}: {by}\n")
