"""scripts/rehearse.sh, run in a copy of the repository."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from workloads import ROOT


@pytest.mark.slow
@pytest.mark.integration
def test_a_rehearsal_succeeds_and_leaves_the_users_files_unchanged(tmp_path: Path) -> None:
    files = {file: file.stat().st_mtime_ns for file in (ROOT / "workloads").rglob("recommendation.json")}
    tools = f"{Path(sys.executable).parent}:{ROOT / 'node_modules' / '.bin'}"
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
    done = subprocess.run(
        ["bash", str(ROOT / "scripts" / "rehearse.sh"), str(tmp_path / "rehearsal")],
        env={**environment, "PATH": f"{tools}:{os.environ['PATH']}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-5000:]
    printed = done.stdout
    assert printed.count("AllTraffic: 2 instances") == 3, "before, after the new recommendation, and after the rollback"
    assert printed.index("tracks 3,000") < printed.index("tracks 4,800")
    assert "SpellcheckStack failed" in printed
    assert "the last update failed: Triton could not load the model 'spellcheck'" in printed
    assert printed.count("-> ergonomic webcam for travellers") == 2
    assert {file: file.stat().st_mtime_ns for file in (ROOT / "workloads").rglob("recommendation.json")} == files
