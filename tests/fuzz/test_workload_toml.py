"""A damaged workload folder is refused in sentences that name the file, or is a workload that can be planned with."""

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fuzz import examples
from tests.fuzz.mutations import damaged_bytes
from workloads import ROOT, WorkloadFolder, workload_names
from workloads.document import TOO_DEEP
from workloads.errors import InvalidDocument

NAMES = workload_names(ROOT / "workloads")
VALUES = st.sampled_from(
    [
        *("0", "-1", "1", "1.5", "9223372036854775807", "-9223372036854775808", "10" * 200, "1e308", "1e999", "-0.0"),
        *("nan", "inf", "-inf", "true", '""', '"x"', '"\\u0000"', '"ünï"', f'"{"a" * 3000}"', "[]", "{}", "[[]]"),
        *("1979-05-27", "1979-05-27T07:32:00Z", "07:32:00", "{ a = 1 }", "[1, 2]", '["a", "b"]', "[" * 3000, "0x_"),
        *("[" * 90 + "]" * 90, "{a=" * 90 + "1" + "}" * 90, '"cpu"', '"advanced"', '["ml.c5.xlarge"]', "'''x"),
    ]
)
KEYS = st.sampled_from(["x", "name", "a.b", '""', "kind", "target", '"ü"'])


@st.composite
def damaged_lines(draw: st.DrawFn, text: str) -> str:
    """Draws a TOML text of which up to three lines have another value or key, are gone, doubled or moved."""
    lines = text.splitlines()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        key, is_pair, value = lines[at].partition("=")
        match draw(st.sampled_from(["value", "value", "value", "key", "drop", "double", "table"])):
            case "value" if is_pair:
                lines[at] = f"{key}= {draw(VALUES)}"
            case "key" if is_pair:
                lines[at] = f"{draw(KEYS)} ={value}"
            case "double":
                lines.insert(at, lines[at])
            case "table":
                lines.insert(
                    at, draw(st.sampled_from(["[x]", "[[x]]", "[targets.x]", "[traffic.x]", "[model.a.b]", "["]))
                )
            case _ if len(lines) > 1:
                del lines[at]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("workloads")
    for name in NAMES:
        (folder / name).mkdir()
        for file in ("workload.toml", "payloads.jsonl", "evaluation.jsonl"):
            lines = (ROOT / "workloads" / name / file).read_bytes().splitlines(keepends=True)
            (folder / name / file).write_bytes(b"".join(lines if file.endswith("toml") else lines[:3]))
    yield folder
    shutil.rmtree(folder)


def _read(folder: Path) -> None:
    """Reads all of a folder: a problem names a file of it."""
    try:
        found = WorkloadFolder(folder)
        for name in found.workload.deployables:
            found.variant(name)
        for target in found.workload.targets:
            found.hosted_on(target)
        found.payloads()
        found.evaluation()
        found.workload.model_dump_json()
    except InvalidDocument as refused:
        problems = refused.problems
        named = refused.file
    else:
        return
    assert problems
    assert all(problem and len(problem) < 10_000 for problem in problems)
    assert str(named).startswith(str(folder))


@pytest.mark.parametrize("name", ["workload.toml", "payloads.jsonl", "evaluation.jsonl"])
@examples(40)
@given(data=st.data())
def test_a_damaged_file_is_refused_by_its_name_or_read(name: str, data: st.DataObject, scratch: Path) -> None:
    file = scratch / data.draw(st.sampled_from(NAMES)) / name
    whole = file.read_bytes()
    damaged = damaged_bytes(whole)
    if name == "workload.toml":
        damaged |= damaged_lines(whole.decode()).map(str.encode)
    file.write_bytes(data.draw(damaged))
    try:
        _read(file.parent)
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize("limit", [1_000, 100_000])
@pytest.mark.parametrize("value", ["[" * 3_000, "[" * 300 + "]" * 300, "{a=" * 3_000 + "1" + "}" * 3_000])
def test_deep_nesting_is_rejected_at_any_recursion_limit(value: str, limit: int, tmp_path: Path) -> None:
    file = tmp_path / "workload.toml"
    file.write_text(f"name = {value}", "utf-8")
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(limit)
    try:
        with pytest.raises(InvalidDocument) as rejected:
            WorkloadFolder(tmp_path)
    finally:
        sys.setrecursionlimit(before)
    problems = rf"{TOO_DEEP}|cannot be read: Invalid value \(at end of document\)"
    assert re.fullmatch(f"{re.escape(str(file))}: ({problems})", str(rejected.value))
