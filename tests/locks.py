"""Reads the locks that `make lock` writes."""

import re
from pathlib import Path

PIN = re.compile(r"^([a-z0-9-]+)==(\S+)(?: ; (.+?))?((?: \\\n    --hash=sha256:[0-9a-f]{64})+)\n", re.MULTILINE)
"""A package: name, version, marker, hashes."""


def pins(lock: Path) -> dict[str, str]:
    """Returns name → version. One package may have a version for each Python: the last, which is the newest one's."""
    return {pin[1]: pin[2] for pin in PIN.finditer(lock.read_text("utf-8"))}
