"""Model archives leave the assembly of a release before CloudFormation's actions take it."""

import json
import os
from pathlib import Path

import pytest

from scripts.release.publish_archives import MAX_ARTIFACT_BYTES, TooLarge, check_size, main

PUBLISH = """#!/bin/sh
printf '%s\\n' "$*" >> "$PUBLISHED"
"""


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The calls of cdk-assets, which a stand-in notes."""
    program, calls = tmp_path / "bin" / "cdk-assets", tmp_path / "calls"
    program.parent.mkdir()
    program.write_text(PUBLISH)
    program.chmod(0o755)
    calls.touch()
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setenv("PUBLISHED", str(calls))
    return calls


def test_archives_are_published_and_leave_the_assembly(
    tmp_path: Path, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = tmp_path / "cdk.out" / "assembly-Beta"
    stage.mkdir(parents=True)
    files = {
        "1.tar": {"source": {"path": "../asset.1.tar.gz"}, "destinations": {"here": {}}},
        "2": {"source": {"path": "Stack.template.json"}, "destinations": {"here": {}}},
    }
    manifest = stage / "Stack.assets.json"
    manifest.write_text(json.dumps({"files": files}))
    template, archive = stage / "Stack.template.json", stage.parent / "asset.1.tar.gz"
    template.write_text("{}")
    archive.write_bytes(b"archive")
    monkeypatch.setattr("sys.argv", ["publish_archives", str(stage.parent)])
    assert main() == 0
    assert published.read_text() == f"--path {manifest} --verbose publish 1.tar\n"
    assert (archive.exists(), template.exists()) == (False, True)


def test_an_assembly_over_codepipelines_limit_is_refused_before_anything_is_deployed(tmp_path: Path) -> None:
    large = tmp_path / "asset.weights.bin"
    with large.open("wb") as file:
        file.truncate(MAX_ARTIFACT_BYTES)
    check_size(tmp_path)
    (tmp_path / "Stack.template.json").write_text("{}")
    with pytest.raises(TooLarge) as caught:
        check_size(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path}: has 256.0 MB. CodePipeline passes at most 256.0 MB to CloudFormation. Nothing was deployed. Make "
        "the largest files smaller: asset.weights.bin (256.0 MB), Stack.template.json (0.0 MB)."
    )
