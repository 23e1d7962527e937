"""One thing that is wrong: what, where, why it fails on SageMaker, and how to mend it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]
"""An error keeps the endpoint from starting or from answering; a warning costs money, time or safety."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    code: str
    """Stable and short, for people who filter: `name-mismatch`."""
    severity: Severity
    what: str
    file: str
    """A path inside the archive, the archive itself, a payload file, or `environment`."""
    line: int | None = None
    key: str | None = None
    why: str
    fix: str

    @property
    def where(self) -> str:
        """spellcheck/config.pbtxt:12: dynamic_batching."""
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return place if self.key is None else f"{place}: {self.key}"


def listing(names: Sequence[str], shown: int = 3) -> str:
    """The first few names and how many there are besides."""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return ", ".join(f"'{name}'" for name in names[:shown]) + more
