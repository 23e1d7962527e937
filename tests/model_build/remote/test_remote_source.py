"""The source archive that travels to the machine that builds."""

from pathlib import Path

import pytest

from model_build.remote.remote_build import source_files
from tests.model_build.remote.remote_account import miniature
from workloads import UsageError, load_workload


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return miniature(tmp_path / "root")


def _edit(root: Path, checkpoint: str) -> None:
    toml = root / "workloads" / "spellcheck" / "workload.toml"
    toml.write_text(toml.read_text("utf-8").replace('"./checkpoint"', f'"{checkpoint}"'), "utf-8")


def test_the_code_of_a_build_and_one_workload_travel_and_nothing_else(root: Path) -> None:
    assert sorted(source_files(load_workload("spellcheck", root / "workloads"), root)) == [
        "containers/engine.py",
        "model_build/plan.py",
        "pyproject.toml",
        "requirements/build.txt",
        "requirements/modelopt.txt",
        "requirements/torch-cpu.txt",
        "requirements/uv.txt",
        "workloads/folder.py",
        "workloads/spellcheck/checkpoint/config.json",
        "workloads/spellcheck/checkpoint/model.safetensors",
        "workloads/spellcheck/workload.toml",
    ]


def test_a_checkpoint_that_workloads_share_travels_too(root: Path) -> None:
    _edit(root, "../shared/checkpoint")
    (root / "workloads" / "spellcheck" / "checkpoint").rename(root / "workloads" / "kept")
    (root / "workloads" / "shared").mkdir()
    (root / "workloads" / "kept").rename(root / "workloads" / "shared" / "checkpoint")
    found = source_files(load_workload("spellcheck", root / "workloads"), root)
    assert "workloads/shared/checkpoint/model.safetensors" in found


@pytest.mark.parametrize("checkpoint", ["../../elsewhere", "/models/t5"])
def test_a_local_checkpoint_that_would_not_arrive_is_refused(root: Path, checkpoint: str) -> None:
    _edit(root, checkpoint)
    workload = load_workload("spellcheck", root / "workloads")
    with pytest.raises(UsageError) as refused:
        source_files(workload, root)
    assert str(refused.value) == (
        f"{workload.file}: model.checkpoint: got '{checkpoint}', which is outside {root / 'workloads'}. Only that "
        "folder is uploaded. Move the checkpoint there, or name an s3:// URI or a model id of the Hugging Face hub."
    )
