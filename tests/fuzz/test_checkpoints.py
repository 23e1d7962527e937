"""A damaged checkpoint is read, or refused in one sentence that names the file."""

import json
import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model_build.checkpoint import read
from tests.fuzz import examples
from tests.fuzz.mutations import damaged_bytes, damaged_document
from workloads import ROOT, ProjectError, load_workload


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


@pytest.mark.parametrize(
    ("workload", "folder"),
    [("spellcheck", "checkpoint"), ("query_intent", "checkpoint"), ("query_intent", "../product_bert/checkpoint")],
)
def test_a_damaged_checkpoint_is_read_or_refused_in_a_sentence(workload: str, folder: str, tmp_path: Path) -> None:
    source = load_workload(workload)
    model = source.workload.model
    backbone = getattr(model, "backbone", None) or model.checkpoint
    for name in (workload, "product_bert"):
        shutil.copytree(ROOT / "workloads" / name / "checkpoint", tmp_path / name / "checkpoint")
    parts = [(tmp_path / workload / str(part)).resolve() for part in (model.checkpoint, backbone)]
    damaged = (tmp_path / workload / folder).resolve()
    whole = {file: file.read_bytes() for file in sorted(damaged.iterdir())}
    read(parts[0], parts[1], model)

    @examples(40)
    @given(st.data())
    def run(data: st.DataObject) -> None:
        file = data.draw(st.sampled_from(list(whole)))
        content = data.draw(damage(whole[file], file.name))
        file.unlink() if content is None else file.write_bytes(content)
        refusal: ProjectError | None = None
        try:
            read(parts[0], parts[1], model)
        except ProjectError as error:
            refusal = error
        finally:
            file.write_bytes(whole[file])
        if refusal is not None:
            assert refusal.exit_code == 2
            assert str(refusal).startswith(str(tmp_path))

    run()
