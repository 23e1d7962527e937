"""How results are shown: width, wrapping, missing marks and figures, for every command and for the report."""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

LOG_WIDTH = 120
"""Columns of a table where stdout is not a terminal."""
MISSING = "-"
"""Shown for a figure that is not known; the lines below a table say why."""


def stdout_console(log_width: int = LOG_WIDTH) -> "Console":
    """Returns a console as wide as the terminal, or `log_width` columns wide in a log."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else log_width)


def tell(console: "Console", text: str, style: str | None = None) -> None:
    """Prints a sentence whole, whatever the width, with no markup read into it."""
    console.print(text, style=style, highlight=False, soft_wrap=True, markup=False)


def warn(stderr: "Console", text: str) -> None:
    tell(stderr, f"Warning: {text}", "yellow")


def number(value: float | None, spec: str) -> str:
    """Formats a figure of a table's cell."""
    return MISSING if value is None else format(value, spec)
