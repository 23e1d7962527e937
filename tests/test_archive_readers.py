"""Every reader of archives rejects one that leaves the folder with `tarfile.extractall(filter="data")`.

On Python 3.11.7 it would overwrite the file beside the folder that it is unpacked to.
"""

import contextlib
import io
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from containers.archive_reader import ArchiveRefused
from inference_recommender.load_generator.requests import read_payloads
from inference_recommender.measure import generator_entry
from local_aws.sagemaker.model_host import unpack_model
from model_build import archive
from model_build.lint.check import lint
from model_build.lint.finding import RuntimeContext
from model_build.remote import entry, fetch
from tests.builders import an_artifact
from tests.containers.hostile_archives import OUTSIDE, leaves_the_folder
from workloads import ROOT, ProjectError, file_sha256

Reader = Callable[[Path, Path], bool]
"""Takes an archive and the folder to unpack it to, and returns whether it accepted the archive."""


def _build(file: Path, folder: Path) -> bool:
    archive.unpack(file, folder)
    return True


def _fetched_build(file: Path, folder: Path) -> bool:
    artifact = an_artifact(archive=file.name, archive_sha256=file_sha256(file))
    fetch._unpack(fetch.FetchedBuild(job_name="job", artifact=artifact, archive=file), folder)
    return True


def _account(file: Path, folder: Path) -> bool:
    unpack_model(file.read_bytes(), "s3://models/model.tar.gz", folder)
    return True


def _task(file: Path, folder: Path) -> bool:
    command = [sys.executable, "-m", "containers.batch.archive", str(file), str(folder)]
    return subprocess.run(command, cwd=ROOT, stderr=subprocess.DEVNULL, check=False).returncode == 0


def _remote_build(file: Path, folder: Path) -> bool:
    _as_source(file, folder)
    entry.main(["spellcheck", "cpu", "onnxruntime"], folder)
    return (folder / "opt/ml/processing/work").exists()


def _generator(file: Path, folder: Path) -> bool:
    _as_source(file, folder)
    resources = folder / "opt/ml/config/resourceconfig.json"
    resources.parent.mkdir(parents=True)
    resources.write_text(json.dumps({"current_host": "algo-1", "hosts": ["algo-1"]}))
    generator_entry.main(folder, python=sys.executable)
    return (folder / "opt/ml/processing/work").exists()


def _payloads(file: Path, folder: Path) -> bool:
    read_payloads(file)
    return True


def _lint(file: Path, folder: Path) -> bool:
    return not any(finding.code == "escaping-member" for finding in lint(file, RuntimeContext()))


READERS: Mapping[str, Reader] = {
    "a build's verification": _build,
    "what a remote build left": _fetched_build,
    "the local account": _account,
    "the batch and the tasks on ECS": _task,
    "a remote build's machine": _remote_build,
    "a generator's machine": _generator,
    "the load generator's payloads": _payloads,
    "lint": _lint,
}


@pytest.mark.parametrize("name", READERS)
def test_a_hostile_archive_is_rejected(name: str, tmp_path: Path) -> None:
    (tmp_path / "model.tar.gz").write_bytes(leaves_the_folder())
    (tmp_path / OUTSIDE).write_text("mine")
    accepted = False
    with contextlib.suppress(ArchiveRefused, ProjectError), contextlib.redirect_stderr(io.StringIO()):
        accepted = READERS[name](tmp_path / "model.tar.gz", tmp_path / "unpacked")
    assert not accepted
    assert [file for file in tmp_path.rglob(OUTSIDE) if file.is_symlink() or file.read_text() != "mine"] == []


def _as_source(file: Path, system: Path) -> None:
    """Puts the archive where a processing job finds its source."""
    source = system / "opt/ml/processing/source"
    source.mkdir(parents=True)
    (source / "source.tar.gz").write_bytes(file.read_bytes())
    (source.parent / OUTSIDE).write_text("mine")
