"""How results are shown: width, wrapping, missing marks and figures, for every command and for the report."""

import re
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


def cpu_percent(percent: float | None, vcpus: int | None) -> str:
    """Formats CPUUtilization, which SageMaker reports in percent of one vCPU: above 100 it also tells the most that the
    instance can reach, such as "150 of 200 % (2 vCPUs)". `vcpus` is None where it is not known.
    """
    if percent is None or percent <= 100 or not vcpus:
        return number(percent, ",.0f")
    return f"{percent:,.0f} of {vcpus * 100:,} % ({vcpus} vCPUs)"


def cores_of(machine: str) -> int | None:
    """Returns the cores of a local account's machine, described as "MODEL with 2 cores"; None where it does not say."""
    cores = re.search(r" with (\d+) cores?$", machine)
    return int(cores[1]) if cores else None
