"""Lint finds each planted fault and nothing else, and has no findings on good repositories."""

import dataclasses
import subprocess
import sys
import tracemalloc
from gzip import compress, decompress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_build.lint import Finding, RuntimeContext, lint, render, unmade_checks
from model_build.lint.model_config import key_lines
from model_build.plan import BuildPlan, plan
from model_build.triton import repository
from tests.containers.hostile_archives import leaves_the_folder
from tests.model_build.lint.broken_archives import FAULTS, Fault
from tests.model_build.lint.good_archives import (
    ENGINES,
    ENVIRONMENT,
    ON_CPU,
    ON_GPU,
    SCORING,
    TORCHSCRIPT,
    Link,
    Tree,
    lay_out,
    pack,
    write,
)
from tests.model_build.lint.good_archives import plan as plan_header
from tests.model_build.miniatures.tiny_bert import make_workload
from workloads import ROOT, UsageError

NOTHING_KNOWN = RuntimeContext()


def seen(findings: list[Finding]) -> list[tuple[str, str, str]]:
    return [(finding.severity, finding.code, finding.where) for finding in findings]


@pytest.mark.parametrize(("tree", "known"), [(SCORING, ON_CPU), (ENGINES, ON_GPU)], ids=["scoring", "engines"])
def test_a_good_repository_has_no_findings(tree: Tree, known: RuntimeContext, tmp_path: Path) -> None:
    assert lint(write(tree, tmp_path), known) == []
    assert lint(write(tree, tmp_path), NOTHING_KNOWN) == []
    assert lint(lay_out(tree, tmp_path / "repository"), known) == []


def test_an_archive_that_this_project_builds_has_no_findings(tiny_plan: BuildPlan) -> None:
    known = dataclasses.replace(
        ON_CPU,
        environment=ENVIRONMENT | {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "tiny"},
        payloads=(tiny_plan.root / "workloads" / "tiny" / "payloads.jsonl",),
    )
    assert lint(tiny_plan.archive, known) == []
    assert lint(tiny_plan.repository, known) == []


@pytest.mark.parametrize("target", ["cpu", "pytorch", "tensorrt"])
def test_a_repository_that_this_project_lays_out_has_no_findings(target: str, tmp_path: Path) -> None:
    workload = make_workload(tmp_path / "workloads", "text-pair-scoring")
    planned = plan(workload, target, tmp_path)
    graphs = tmp_path / "graphs"
    graphs.mkdir()
    for file in planned.contents(graphs).values():
        if isinstance(file, Path) and file.parent == graphs:
            file.write_bytes(plan_header(10, 13, 3, 9) if file.suffix == ".plan" else TORCHSCRIPT)
    repository.lay_out(tmp_path / "repository", planned.contents(graphs))
    known = dataclasses.replace(
        ON_GPU,
        instance_types=planned.target.instance_types,
        environment=ENVIRONMENT | planned.environment | {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "tiny"},
        payloads=(workload.path / "payloads.jsonl",),
    )
    assert lint(tmp_path / "repository", known) == []


@pytest.mark.parametrize("prefix", ["./", ".//"])
def test_an_archive_packed_with_a_dot_is_the_same_archive(prefix: str, tmp_path: Path) -> None:
    assert lint(write({prefix + name: entry for name, entry in SCORING.items()}, tmp_path), ON_CPU) == []


def test_a_link_that_stays_inside_is_the_file_it_points_to(tmp_path: Path) -> None:
    tree = dict(SCORING)
    tree["shared/model.py"] = tree.pop("score/1/model.py")
    tree["score/1/model.py"] = Link("../../shared/model.py")
    assert [finding.code for finding in lint(write(tree, tmp_path), ON_CPU)] == ["stray-folder", "link-member"]


def test_files_that_are_reached_through_links_leave_the_archive(tmp_path: Path) -> None:
    """The archive that gets out of tarfile's filter on Python 3.11.7 (CVE-2025-4517): none of its names has a .., and
    the text of every link stays inside.
    """
    archive = tmp_path / "model.tar.gz"
    archive.write_bytes(leaves_the_folder())
    found = [finding for finding in lint(archive, ON_CPU) if finding.code == "escaping-member"]
    assert [finding.severity for finding in found] == ["error"]
    assert found[0].what.startswith("Files are reached through links and may lie outside the archive: ")
    assert found[0].file.startswith("a/b/c/")


def test_a_single_model_needs_no_default(tmp_path: Path) -> None:
    tree = {name: entry for name, entry in SCORING.items() if name.startswith("score/")}
    known = dataclasses.replace(ON_CPU, environment={"SAGEMAKER_TRITON_LOG_VERBOSE": "false"})
    assert lint(write(tree, tmp_path), known) == []


def test_a_backend_in_the_archive_is_accepted(tmp_path: Path) -> None:
    tree: Tree = {
        "mine/config.pbtxt": b'backend: "mine"\nmax_batch_size: 0\n',
        "mine/1/model.bin": b"weights",
        "mine/libtriton_mine.so": b"\x7fELF",
    }
    assert lint(write(tree, tmp_path), NOTHING_KNOWN) == []


def test_torchscript_is_distinguished_from_the_pickles_of_torch_save(tmp_path: Path) -> None:
    """The archive has more weights than are read."""
    model = torch.nn.Linear(1500, 1500)
    trace: Any = torch.jit.trace
    trace(model, torch.zeros(1, 1500)).save(str(tmp_path / "model.pt"))
    torch.save(model.state_dict(), tmp_path / "zipped.pt")
    torch.save(model.state_dict(), tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    written = {name: (tmp_path / name).read_bytes() for name in ("model.pt", "zipped.pt", "old.bin")}
    assert lint(write({**ENGINES, "head/1/model.pt": written["model.pt"]}, tmp_path), ON_GPU) == []
    findings = lint(write({**ENGINES, **{f"head/1/{name}": written[name] for name in written}}, tmp_path), ON_GPU)
    assert [finding.what for finding in findings] == ["Pickles: 'head/1/zipped.pt', 'head/1/old.bin'."]
    findings = lint(write({**ENGINES, "head/1/model.pt": written["old.bin"]}, tmp_path), ON_GPU)
    assert [finding.code for finding in findings] == ["not-torchscript"]


def test_the_protobuf_schema_is_imported_only_to_read_a_config() -> None:
    code = "import sys, model_build.lint; sys.exit('tritonclient' in sys.modules or 'google.protobuf' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=False).returncode == 0


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_and_nothing_else(fault: Fault, tmp_path: Path) -> None:
    assert seen(lint(write(fault.tree, tmp_path), fault.context)) == [fault.finding]
    if not fault.archive_only:
        assert seen(lint(lay_out(fault.tree, tmp_path / "repository"), fault.context)) == [fault.finding]


def test_checks_that_need_a_missing_fact_are_listed_as_not_made() -> None:
    assert unmade_checks(dataclasses.replace(ON_GPU, payloads=(Path("payloads.jsonl"),))) == []
    assert render([], unmade_checks(dataclasses.replace(ON_GPU, host_ami=None))) == (
        "0 errors, 0 warnings.\n"
        "\n"
        "Not checked:\n"
        "  the driver that the image meets (needs the host AMI)\n"
        "  payloads against the model's signature (needs payload files)"
    )
    assert len(unmade_checks(NOTHING_KNOWN)) == 5


OF_THE_SITUATION = [fault for fault in FAULTS if fault.base in (SCORING, ENGINES) and fault.tree == fault.base]


@pytest.mark.parametrize("fault", OF_THE_SITUATION, ids=lambda fault: fault.name)
def test_a_fault_of_the_context_is_not_found_without_a_context(fault: Fault, tmp_path: Path) -> None:
    assert lint(write(fault.tree, tmp_path), NOTHING_KNOWN) == []


def test_litter_beside_a_single_model_keeps_the_container_from_starting(tmp_path: Path) -> None:
    tree = {name: entry for name, entry in SCORING.items() if name.startswith("score/")}
    tree["__MACOSX/score/._model.py"] = b""
    known = dataclasses.replace(ON_CPU, environment={"SAGEMAKER_TRITON_LOG_VERBOSE": "false"})
    assert [(finding.code, finding.what) for finding in lint(write(tree, tmp_path), known)] == [
        ("litter", "Files of macOS or Jupyter: '__MACOSX/score/._model.py'."),
        (
            "default-model",
            "There are 2 top-level folders ('__MACOSX', 'score') and SAGEMAKER_TRITON_DEFAULT_MODEL_NAME is not set.",
        ),
    ]


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("25.09", "25.09"),
        ("25.09-py3", "25.09"),
        ("1.dkr.ecr.eu-west-1.amazonaws.com/sagemaker-tritonserver:26.05-py3-cpu", "26.05"),
        ("1.dkr.ecr.eu-west-1.amazonaws.com/ours:latest", None),
        ("1.dkr.ecr.eu-west-1.amazonaws.com/ours@sha256:" + "25" * 32, None),
        (None, None),
    ],
)
def test_the_triton_version_is_read_from_any_way_to_write_the_image(image: str | None, version: str | None) -> None:
    assert RuntimeContext(image=image).triton_version == version


def test_a_truncated_archive_is_one_finding(tmp_path: Path) -> None:
    archive = write(SCORING, tmp_path)
    archive.write_bytes(archive.read_bytes()[:-4])
    assert render(lint(archive, ON_CPU)) == (
        "error unreadable-archive: The archive cannot be read to its end: its gzip stream ends early after "
        "'tokenise/warmup/query'.\n"
        "  where  model.tar.gz\n"
        "  why    SageMaker unpacks a gzip-compressed tar into /opt/ml/model before the container starts, and fails.\n"
        "  fix    Pack or upload it again, and compare the sha256 of both copies.\n"
        "\n"
        "1 error, 0 warnings."
    )


def test_an_archive_without_its_end_marker_is_read(tmp_path: Path) -> None:
    """tar itself does the same: the end is between two members."""
    plain = decompress(pack(SCORING)).rstrip(b"\0")
    archive = tmp_path / "model.tar.gz"
    archive.write_bytes(compress(plain + bytes(-len(plain) % 512)))
    assert lint(archive, ON_CPU) == []


def linted(data: bytes) -> list[Finding]:
    with TemporaryDirectory() as folder:
        archive = Path(folder, "model.tar.gz")
        archive.write_bytes(data)
        return lint(archive, ON_CPU)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=8), st.integers(1, 500))
@settings(max_examples=300)
def test_a_damaged_tar_is_no_traceback_and_a_cut_one_is_a_finding(changes: list[tuple[int, int]], cut: int) -> None:
    plain = bytearray(decompress(pack(SCORING)))
    for position, value in changes:
        plain[position] = value
    archive = compress(bytes(plain))
    linted(archive)
    assert linted(archive[:-cut])


@given(st.binary(max_size=300))
def test_no_config_is_a_traceback(config: bytes) -> None:
    linted(pack({**SCORING, "score/config.pbtxt": config}))


FRAGMENTS = [b"{", b"}", b"[", b"]", b":", b",", b'"x"', b"'", b"#", b"\n", b" 1 ", b"input", b"name", b"dims", b"step"]


@given(st.lists(st.sampled_from([*FRAGMENTS, b"dynamic_batching", b"ensemble_scheduling", b"-1"]), max_size=20))
def test_no_text_made_of_a_configs_words_is_a_traceback(fragments: list[bytes]) -> None:
    linted(pack({**SCORING, "score/config.pbtxt": b"".join(fragments)}))


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refusal:
        lint(tmp_path / "model.tar.gz", NOTHING_KNOWN)
    assert str(refusal.value) == (
        f"{tmp_path}/model.tar.gz: there is no such file or folder. Allowed: a model.tar.gz, or an unpacked Triton "
        "model repository (the folder that holds the model folders)."
    )


def test_little_is_read_of_a_large_file(tmp_path: Path) -> None:
    """A member of 300 MB passes through; only its first bytes are kept."""
    tree = {**ENGINES, "encoder/1/a10g.plan": ENGINES["encoder/1/t4.plan"]}
    folder = lay_out(tree, tmp_path / "repository")
    with (folder / "encoder/1/a10g.plan").open("r+b") as plan:
        plan.truncate(300 << 20)
    tracemalloc.start()
    assert lint(folder, ON_GPU) == []
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()


def test_a_key_has_the_line_it_is_written_on() -> None:
    text = (
        '# a comment { "x\nname: "a" # input {\ninput [\n  { name: "x" },\n'
        '  {\n    name: "y" "z"\n    dims: [ 1,\n 2 ] }\n]\n'
    )
    lines = key_lines(text)
    assert {key: lines[key] for key in ("name", "input", "input.name", "input[1]", "input[1].name")} == {
        "name": 2,
        "input": 4,
        "input.name": 4,
        "input[1]": 5,
        "input[1].name": 6,
    }
    assert (lines["input[1].dims"], lines["input[1].dims[1]"]) == (7, 8)
