"""`python scripts/rehearsal/transcript.py < LOG > docs/rehearsal.md`: what a rehearsal printed, as a page. Pure.

Left out is what differs from run to run or says nothing: times, progress, generated endings of names, ids, hashes,
warnings at synth. Titles become sections; what stands between them becomes one block each.
"""

import re
import sys
from collections.abc import Iterable, Iterator

TITLE = "## "
PREFACE = """# A rehearsal

Written by `make rehearse`: every stack deployed by the CDK CLI into `local_aws`, an AWS account on one machine, then
checked, changed, broken and taken down. In it run the endpoints' Tritons and their answers; CloudFormation's order,
updates and rollbacks; and the APIs that tell what was made. No ECS task, no instance, no state machine, no build and no
schedule runs there, and no packet goes through its networks: such a resource is kept and told by its service's API.
"Not told" lists what a template asks for and that API does not say, here or in general.

Times, progress, warnings, hashes and the generated endings of names are left out.
"""

_DROPPED = re.compile(
    r"""^\s*$
    |_IN_PROGRESS|\bCREATE_COMPLETE|\bUPDATE_COMPLETE|\bDELETE_COMPLETE|\bROLLBACK_COMPLETE\s+\|
    |^✨|^WARNING|^\s+Acknowledge\swith|^\s{2,}\w+Stack$|/lib/program\.js|^\s*NOTICES|feature\sflags\sare\snot
    |^\w+Stack:?\s(deploying|creating|start|success|fail|destroying|may\sbe)|^Stack\sARN|^arn:aws:cloudformation
    |^\w+Stack$|^Outputs:$|^Bootstrapping|Trusted\saccounts|Using\sdefault\sexecution|^Successfully\ssynthesized
    |^Failing\sline|^\w+Stack:\s|^\[\d+/\d+\]|^Synthesis|^CDKToolkit|Acknowledged|^Validation|^Performing
    """,
    re.VERBOSE,
)

_MASKED = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"-[0-9A-Z]{12}\b"), "-…"),
    (re.compile(r"-[0-9a-z]{12}\b"), "-…"),
    (re.compile(r"\b(vpc|subnet|sg|rtb|eni|lt|vpce|fl|i)-[0-9a-f]{8,17}\b"), r"\1-…"),
    (re.compile(r"\| \d{1,2}:\d\d:\d\d [AP]M "), ""),
    (re.compile(r"/\S*/build/rehearsal/"), ""),
)


def page(lines: Iterable[str]) -> Iterator[str]:
    """The page's lines. A line that is repeated is written once."""
    yield PREFACE
    inside, last = False, ""
    for line in map(cleaned, lines):
        if line is None or line == last:
            continue
        last = line
        if line.startswith(TITLE):
            yield from ["```", ""] if inside else []
            yield from [line, "", "```"]
            inside = True
        elif inside:
            yield line
    yield from ["```"] if inside else []


def cleaned(line: str) -> str | None:
    """The line without what changes, or None where nothing of it is worth keeping."""
    text = line.rstrip()
    for pattern, replacement in _MASKED:
        text = pattern.sub(replacement, text)
    if text.startswith(("$ ", TITLE, "# ")):
        return text
    return None if _DROPPED.search(text) and "_FAILED" not in text else text


if __name__ == "__main__":
    print("\n".join(page(sys.stdin)))
