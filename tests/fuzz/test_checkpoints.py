"""A damaged checkpoint is read, or refused in one sentence that names the file."""

import gc
import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_build.checkpoint import Checkpoint, read
from model_build.encoder.reference import Reference
from model_build.text2text import export
from model_build.text2text.repository import settings
from model_build.text2text.verify import Original
from tests.fuzz import examples
from tests.fuzz.mutations import damaged_bytes, damaged_document
from workloads import ROOT, Model, OnnxRuntimeTarget, ProjectError, TextToText, load_workload


@pytest.fixture(scope="session", autouse=True)
def _libraries(request: pytest.FixtureRequest) -> None:
    """Loads what networks need before the bound on a file's memory begins to count."""
    if any(item.get_closest_marker("slow") for item in request.session.items):
        folder = load_workload("spellcheck")
        checkpoint = folder.path / "checkpoint"
        answer(read(checkpoint, checkpoint, folder.workload.model), folder.workload.model)


@st.composite
def damaged_header(draw: st.DrawFn, content: bytes) -> bytes:
    """A safetensors file with another header, or with another length of it."""
    (length,) = struct.unpack("<Q", content[:8])
    text = json.dumps(draw(damaged_document(json.loads(content[8 : 8 + length])))).encode()
    if draw(st.booleans()):  # as long as it was, so that all else still fits
        text = text[:length].ljust(length)
    size = draw(st.just(len(text)) | st.integers(0, 2 * len(text)) | st.sampled_from([2**63, 2**64 - 1]))
    return struct.pack("<Q", size) + text + content[8 + length :]


@st.composite
def damage(draw: st.DrawFn, content: bytes, name: str) -> bytes | None:
    """The content of a file now; None where it is gone."""
    kinds: list[Callable[[], bytes | None]] = [lambda: draw(damaged_bytes(content)), lambda: None]
    if name.endswith(".json"):
        kinds += [lambda: json.dumps(draw(damaged_document(json.loads(content)))).encode()] * 4
    else:
        kinds += [lambda: draw(damaged_header(content))] * 4
    return draw(st.sampled_from(kinds))()


FOLDERS = pytest.mark.parametrize(
    ("workload", "folder"),
    [("spellcheck", "checkpoint"), ("query_intent", "checkpoint"), ("query_intent", "../product_bert/checkpoint")],
)


@FOLDERS
def test_a_damaged_checkpoint_is_read_or_refused_in_a_sentence(workload: str, folder: str, tmp_path: Path) -> None:
    used_or_refused(lambda checkpoint, model: None, examples(40), workload, folder, tmp_path)


@pytest.mark.slow
@FOLDERS
def test_a_damaged_checkpoint_that_is_read_runs_or_is_refused(
    workload: str, folder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With torch and transformers, as a build runs the original. Always few examples: their memory is bounded."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))  # torch would set it
    used_or_refused(answer, hypothesis.settings(max_examples=20), workload, folder, tmp_path)


def answer(checkpoint: Checkpoint, model: Model) -> None:
    if isinstance(model, TextToText):
        decoding = settings(model, OnnxRuntimeTarget(runtime="onnxruntime"), checkpoint)
        Original.load(checkpoint.folder, export.load(checkpoint.folder)).generate(["ab", "c"], decoding)
    else:
        Reference(checkpoint, model).outputs([dict.fromkeys(model.fields, "ab")])


def used_or_refused(
    use: Callable[[Checkpoint, Any], None], tried: hypothesis.settings, workload: str, folder: str, tmp_path: Path
) -> None:
    source = load_workload(workload)
    model = source.workload.model
    backbone = getattr(model, "backbone", None) or model.checkpoint
    for name in (workload, "product_bert"):
        shutil.copytree(ROOT / "workloads" / name / "checkpoint", tmp_path / name / "checkpoint")
    parts = [(tmp_path / workload / str(part)).resolve() for part in (model.checkpoint, backbone)]
    damaged = (tmp_path / workload / folder).resolve()
    whole = {file: file.read_bytes() for file in sorted(damaged.iterdir())}
    use(read(parts[0], parts[1], model), model)

    @tried
    @given(st.data())
    def run(data: st.DataObject) -> None:
        gc.collect()  # earlier examples are in cycles, and memory is bounded
        file = data.draw(st.sampled_from(list(whole)))
        content = data.draw(damage(whole[file], file.name))
        file.unlink() if content is None else file.write_bytes(content)
        refusal: ProjectError | None = None
        try:
            use(read(parts[0], parts[1], model), model)
        except ProjectError as error:
            refusal = error
        finally:
            file.write_bytes(whole[file])
        if refusal is not None:
            assert refusal.exit_code == 2
            assert str(refusal).startswith(str(tmp_path))

    run()
