"""`python -m scripts.rehearsal.release [WORKLOAD…]`: rehearses releases on this machine.

With names, only the scenarios of these workloads run.

stdout: the transcript. stderr: progress. All output is in build/release-rehearsal/rehearsal.log. Exit code: 1 if a
release went another way or a role was denied a call, 3 if this machine lacks a tool, 130 after Ctrl-C.
"""

import shutil
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from scripts.rehearsal.release import scenarios, workload_changes
from scripts.rehearsal.release.rehearsal import LOG, Rehearsal
from workloads import ROOT
from workloads.program import exit_code

FOLDER = ROOT / "build" / "release-rehearsal"


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    began = time.monotonic()
    print(f"Log: {(FOLDER / LOG).relative_to(ROOT)}", file=sys.stderr)
    workloads = sys.argv[1:] or workload_changes.WORKLOADS
    rehearse(FOLDER, lambda line: print(line, flush=True), workloads)
    print(f"All releases went as expected, in {(time.monotonic() - began) / 60:.0f} min.", file=sys.stderr)
    return 0


def rehearse(folder: Path, say: scenarios.Say, workloads: Sequence[str] = workload_changes.WORKLOADS) -> None:
    """Runs every scenario, or those of some workloads. Raises `ProjectError` with the first difference."""
    with Rehearsal.begin(folder, say) as rehearsal:
        first = scenarios.new_artifacts(rehearsal, workloads)
        second = scenarios.to_production(rehearsal, first)
        if "spellcheck" in workloads:
            scenarios.canary_rolled_back(rehearsal, second["spellcheck"])
            scenarios.fix_under_alarm(rehearsal, second["spellcheck"])
            scenarios.another_instance_type(rehearsal, second["spellcheck"])
            scenarios.stopped_by_size(rehearsal, second["spellcheck"])
        if "question_answering" in workloads:
            scenarios.stopped_by_parity(rehearsal, second["question_answering"])
        say("## Replacements")
        for line in rehearsal.replacements():
            say(line)
        say("## Calls by role, each allowed by the role's own policies")
        for role, calls in sorted(rehearsal.calls.roles.items()):
            say(f"{role}: {', '.join(sorted(calls))}")


if __name__ == "__main__":
    sys.exit(exit_code(main))
