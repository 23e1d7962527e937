"""The gate over a build's own record: what a release asks of a machine that cannot run the model."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from model_build.build import verify_recorded
from model_build.parity import GateFailed
from model_build.plan import plan
from workloads import ROOT, WorkloadFolder


def rewritten(root: Path, **changes: object) -> None:
    """Change the artifact's document."""
    file = root / "build" / "tiny" / "cpu" / "artifact.json"
    document = json.loads(file.read_text())
    file.write_text(json.dumps({**document, **changes}))


def test_the_record_of_a_build_passes_again(tiny_workload: WorkloadFolder, tiny_copy: Path) -> None:
    assert verify_recorded(plan(tiny_workload, "cpu", tiny_copy)).examples > 0


def test_a_record_beyond_the_limits_fails_the_gate(tiny_workload: WorkloadFolder, tiny_copy: Path) -> None:
    planned = plan(tiny_workload, "cpu", tiny_copy)
    parity = json.loads(planned.artifact.read_text())["parity"]
    rewritten(tiny_copy, parity={**parity, "max_logit_difference": 0.5})
    with pytest.raises(GateFailed) as caught:
        verify_recorded(planned)
    assert str(caught.value) == (
        "The compiled model differs from the original on evaluation.jsonl:\n"
        "- the largest logit difference is 0.5, at most 0.001 is allowed (parity.max_logit_difference).\n"
        "Build again, or for a coarser precision allow more in the target's parity in workload.toml."
    )


def test_a_build_that_compared_nothing_is_not_released(tiny_workload: WorkloadFolder, tiny_copy: Path) -> None:
    planned = plan(tiny_workload, "cpu", tiny_copy)
    rewritten(tiny_copy, parity=None)
    with pytest.raises(GateFailed) as caught:
        verify_recorded(planned)
    assert caught.value.exit_code == 1
    assert str(caught.value) == (
        f"{planned.artifact}: parity: the build compared nothing, because its machine could not run the model. Run "
        "`python -m containers.batch.record` on the target's hardware, and then `python -m model_build verify tiny "
        "--target cpu --outputs FILE`."
    )


def test_it_needs_no_torch() -> None:
    code = "import sys, model_build.build; sys.exit(bool({'torch', 'onnxruntime'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0
