"""`python -m scripts.rehearsal.release`: rehearses releases, and writes docs/release-rehearsal.md.

stdout: the transcript. stderr: progress. All that was printed is in build/release-rehearsal/rehearsal.log. Exit code:
1 where a release did otherwise than it should or a role was denied a call, 3 where this machine lacks something, 130
after Ctrl-C, which leaves no process.
"""

import shutil
import signal
import sys
import time
from pathlib import Path

from scripts.rehearsal.release import scenarios
from scripts.rehearsal.release.page import page
from scripts.rehearsal.release.rehearsal import LOG, Rehearsal
from workloads import ROOT
from workloads.program import exit_code

FOLDER = ROOT / "build" / "release-rehearsal"
PAGE = ROOT / "docs" / "release-rehearsal.md"


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    transcript: list[str] = []

    def say(line: str) -> None:
        transcript.append(line)
        print(line, flush=True)

    began = time.monotonic()
    print(f"All that is printed is in {(FOLDER / LOG).relative_to(ROOT)}.", file=sys.stderr)
    rehearse(FOLDER, say)
    PAGE.write_text("\n".join(page(transcript)) + "\n", "utf-8")
    print(f"{PAGE.relative_to(ROOT)} is written, after {(time.monotonic() - began) / 60:.0f} min.", file=sys.stderr)
    return 0


def rehearse(folder: Path, say: scenarios.Say) -> None:
    """Runs every scenario. Raises `ProjectError` with what a release did otherwise than it should."""
    with Rehearsal.begin(folder, say) as rehearsal:
        commit = scenarios.first_deployment(rehearsal)
        first = scenarios.new_artifacts(rehearsal, commit)
        second = scenarios.to_production(rehearsal, first)
        scenarios.stopped_by_lint(rehearsal)
        scenarios.stopped_by_parity(rehearsal, second)
        scenarios.stopped_by_smoke_test(rehearsal, second)
        scenarios.stopped_by_performance(rehearsal, second)
        scenarios.push_fails(rehearsal, first)
        scenarios.canary_rolled_back(rehearsal, second)
        say("## What was replaced")
        for line in rehearsal.replaced():
            say(line)
        say("## Calls that roles made, each allowed by the role's own policies")
        for role, used in sorted(rehearsal.calls.roles.items()):
            say(f"{role}: {', '.join(sorted(used))}")


if __name__ == "__main__":
    sys.exit(exit_code(main))
