"""Makes docs/release-rehearsal.md of a rehearsal's transcript. Pure: the same releases make the same page.

Figures that a machine or a moment makes are masked, and lines that only tell progress are left out.
"""

import re
from collections.abc import Iterable, Iterator

from scripts.rehearsal.transcript import TITLE, masked, replaced

PREFACE = """# A release, rehearsed

Written by `make rehearse-release`. It synthesises `ReleasePipelineStack`, deploys it to `local_aws`, an AWS account on
one machine, and runs what was deployed: each action in order, each build with its own specification, inputs, variables
and role, in a clean folder, with credentials as CodeBuild hands them out. The account holds every call to the policies
of the role that makes it; a call that is not allowed ends the rehearsal. Builds that AWS runs side by side do so here,
three at a time and but for those that measure; stacks are deployed one after another. Once the pipeline has changed
itself AWS starts its execution anew; here it goes on, if what it has run until then is unchanged. pip is answered by
uv, with the same locks and hashes.

Figures, hashes, times and the generated endings of names are masked; progress is left out.
"""

_MASKED = (
    (re.compile(r"\b\d+(?:,\d{3})*\.\d+(?:e[-+]?\d+)?\b"), "…"),
    (re.compile(r"\b\d+(?:e[-+]?\d+)\b"), "…"),
    (re.compile(r"\b\d{1,3}(?:,\d{3})+\b"), "…"),
    (re.compile(r"\b\d+(?= ?(?:ms|s|%|USD|MB|KB|bytes|invocations|requests)\b)"), "…"),
    (re.compile(r"(?<= )\d+(?= +[+-]…%)"), "…"),
    (re.compile(r"\b[0-9a-f]{12}…"), "…"),
    (re.compile(r"(recommendations/\w+)-[0-9a-f]{12}\b"), r"\1-…"),
    (re.compile(r"artifact[ -][0-9a-f]{1,12}\b"), "artifact …"),
    (re.compile(r"release-\d{8}-\d{6}"), "release-…"),
    (re.compile(r"/\S*/release-rehearsal/(?:work/build-\d+/inputs/\w+/|repository/clone/)?"), ""),
    (re.compile(r"[─━═╭╮╰╯│┃┏┓┗┛┡┩└┘├┤┬┴┼╇]+"), " "),
    (re.compile(r" {2,}(?=\S)"), " "),
)
MOST_INDENTED = 4
"""A table's header is indented by the width of its longest label and figure."""
_LEFT_OUT = re.compile(r"^\s*(?:warning|npm (?:warn|notice)|\[Container\]|'.*': expected '|[─━ ]*$)", re.IGNORECASE)
"""Progress, rules of tables, and examples, of which another machine may find others worst."""


def page(lines: Iterable[str]) -> Iterator[str]:
    """Yields the page's lines."""
    yield PREFACE
    inside = False
    for line in lines:
        if line.startswith(TITLE):
            yield from ["```", ""] if inside else []
            yield from [line, "", "```"]
            inside = True
        elif not _LEFT_OUT.search(line):
            yield without_figures(line)
    yield from ["```"] if inside else []


def without_figures(line: str) -> str:
    """Returns a line without what differs from one rehearsal to the next."""
    indentation = " " * min(len(line) - len(line.lstrip()), MOST_INDENTED)
    return f"{indentation}{replaced(masked(line).lstrip(), _MASKED)}".rstrip()
