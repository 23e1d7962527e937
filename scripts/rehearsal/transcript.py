"""`python -m scripts.rehearsal.transcript < LOG > docs/rehearsal.md`: makes a page of what a rehearsal printed. Pure.

Leaves out what differs from run to run or says nothing: times, progress, generated endings of names, ids, hashes,
warnings at synth. A title becomes a section, and the lines after it become a block.
"""

import re
import sys
from collections.abc import Iterable, Iterator

from workloads.program import exit_code

TITLE = "## "
PREFACE = """# A rehearsal

Written by `make rehearse`: every stack deployed by the CDK CLI into `local_aws`, an AWS account on one machine, then
checked, changed, broken and taken down. In it run the endpoints' Tritons and their answers; CloudFormation's order,
updates and rollbacks; and the APIs that tell what was made. No ECS task, no instance, no state machine, no build and no
schedule runs there, and no packet goes through its networks: such a resource is kept and told by its service's API.
"Not told" lists what a template asks for and that API does not say, here or in general.

Times, progress, warnings, hashes and the generated endings of names are left out.
"""

# Lines of the CDK CLI that are kept: how it ended, a stack's outputs, and what failed and why.
_KEPT_OF_CDK = re.compile(r"✅|❌|^\w+\.\w+ = |^\w+_FAILED |^error: ")

_MASKED = (
    (re.compile(r"\x1b\[[0-9;]*m"), ""),
    (re.compile(r"\b[0-9a-f]{64}\b"), "<sha256>"),
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"-[0-9A-Z]{12}\b"), "-…"),
    (re.compile(r"-[0-9a-z]{12}\b"), "-…"),
    (re.compile(r"\b(vpc|subnet|sg|rtb|eni|lt|vpce|fl|i)-[0-9a-f]{8,17}\b"), r"\1-…"),
    (re.compile(r"\| \d{1,2}:\d\d:\d\d [AP]M "), ""),
    (re.compile(r"^\w+ \|(?:.*\|)? *(\w+_FAILED) +\| \S+ +\| "), r"\1 "),
    (re.compile(r" Its whole log is .*"), ""),
    (re.compile(r"/\S*/rehearsal/(?=build/|workloads/|\.local_aws/)"), ""),
)


def page(lines: Iterable[str]) -> Iterator[str]:
    """Yields the page's lines. A line that the CDK CLI repeats, whole or cut off, is written once."""
    yield PREFACE
    inside, of_cdk, said = False, False, set[str]()
    for line in map(masked, lines):
        if line.startswith(TITLE):
            yield from ["```", ""] if inside else []
            yield from [line, "", "```"]
            inside = True
        elif line.startswith(("$ ", "# ")):
            of_cdk, said = line.startswith("$ cdk "), set()
            yield line
        elif inside and not of_cdk:
            yield from [line] if line else []
        elif inside and _KEPT_OF_CDK.search(line) and not any(other.startswith(line) for other in said):
            said.add(line)
            yield line.strip()
    yield from ["```"] if inside else []


def masked(line: str) -> str:
    """Returns the line without what changes from run to run."""
    return replaced(line.rstrip(), _MASKED)


def replaced(text: str, masks: Iterable[tuple[re.Pattern[str], str]]) -> str:
    """Returns the text after each pattern has been replaced by what stands beside it, in that order."""
    for pattern, replacement in masks:
        text = pattern.sub(replacement, text)
    return text


def main() -> int:
    print("\n".join(page(sys.stdin)))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
