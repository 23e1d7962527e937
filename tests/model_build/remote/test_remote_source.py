"""The source archive that travels to the machine that builds."""

import tarfile
from pathlib import Path

import pytest

from model_build.remote.remote_build import pack_source, source_files
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


@pytest.mark.parametrize("checkpoint", ["s3://bucket/checkpoint", "org/model"])
def test_a_checkpoint_elsewhere_is_left_to_the_machine_that_builds(root: Path, checkpoint: str) -> None:
    _edit(root, checkpoint)
    assert source_files(load_workload("spellcheck", root / "workloads"), root)


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


def test_timing_caches_of_earlier_builds_travel(root: Path) -> None:
    (root / "build" / "timing_caches").mkdir(parents=True)
    (root / "build" / "timing_caches" / "8.6.cache").write_bytes(b"timings")
    assert "build/timing_caches/8.6.cache" in source_files(load_workload("spellcheck", root / "workloads"), root)


def test_the_same_files_give_the_same_archive_anywhere(tmp_path: Path) -> None:
    packed = []
    for name in ("one", "two"):
        root = miniature(tmp_path / name)
        file = tmp_path / f"{name}.tar.gz"
        pack_source(load_workload("spellcheck", root / "workloads"), root, file)
        packed.append(file.read_bytes())
    assert packed[0] == packed[1]
    with tarfile.open(tmp_path / "one.tar.gz") as tar:
        weights = tar.extractfile("workloads/spellcheck/checkpoint/model.safetensors")
        assert weights is not None
        assert weights.read() == b"weights"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "one.tar.gz", "two", "two.tar.gz"]
