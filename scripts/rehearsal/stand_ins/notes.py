"""Writes each replacement to the file that $STAND_INS_LOG names."""

import os
from pathlib import Path

LOG = "STAND_INS_LOG"


def note(what: str, by: str) -> None:
    if file := os.environ.get(LOG):
        with Path(file).open("a", encoding="utf-8") as log:
            log.write(f"{what}: {by}\n")
