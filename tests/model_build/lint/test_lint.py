"""Lint finds each planted fault and nothing else, and has no findings on good repositories."""

import tracemalloc
from dataclasses import replace
from gzip import compress, decompress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from model_build.lint.check import lint
from model_build.lint.finding import Finding, RuntimeContext
from model_build.lint.lint_command import render
from model_build.plan import BuildPlan, plan
from model_build.triton import repository
from tests.builders import message_of
from tests.containers.hostile_archives import leaves_the_folder
from tests.model_build.lint.broken_archives import BASES, FAULTS, Fault
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
from workloads import UsageError

NOTHING_KNOWN = RuntimeContext()
WITHOUT_DEFAULT = replace(ON_CPU, environment={"SAGEMAKER_TRITON_LOG_VERBOSE": "false"})
OWN_BACKEND: Tree = {
    "mine/config.pbtxt": b'backend: "mine"\nmax_batch_size: 0\n',
    "mine/1/model.bin": b"weights",
    "mine/libtriton_mine.so": b"\x7fELF",
}


@pytest.mark.parametrize(
    ("tree", "known"),
    [
        (SCORING, ON_CPU),
        (SCORING, NOTHING_KNOWN),
        ({f"./{name}": entry for name, entry in SCORING.items()}, ON_CPU),
        (ENGINES, ON_GPU),
        (BASES["score"], WITHOUT_DEFAULT),
        (OWN_BACKEND, NOTHING_KNOWN),
    ],
    ids=["ensemble", "nothing known", "packed with a dot", "engines", "one model without a default", "own backend"],
)
def test_a_good_repository_has_no_findings(tree: Tree, known: RuntimeContext, tmp_path: Path) -> None:
    assert lint(write(tree, tmp_path), known) == []
    assert lint(lay_out(tree, tmp_path / "repository"), known) == []


def test_an_archive_that_this_project_builds_has_no_findings(tiny_plan: BuildPlan) -> None:
    payloads = (tiny_plan.root / "workloads" / "tiny" / "payloads.jsonl",)
    environment = ENVIRONMENT | {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "tiny"}
    assert lint(tiny_plan.archive, replace(ON_CPU, environment=environment, payloads=payloads)) == []


@pytest.mark.parametrize("target", ["cpu", "openvino", "pytorch", "tensorrt"])
def test_a_repository_that_this_project_lays_out_has_no_findings(target: str, tmp_path: Path) -> None:
    workload = make_workload(tmp_path / "workloads", "text-pair-scoring")
    planned = plan(workload, target, tmp_path)
    graphs = tmp_path / "graphs"
    graphs.mkdir()
    for file in planned.contents(graphs).values():
        if isinstance(file, Path) and file.parent == graphs:
            file.write_bytes(plan_header(10, 13, 3, 9) if file.suffix == ".plan" else TORCHSCRIPT)
    repository.lay_out(tmp_path / "repository", planned.contents(graphs))
    environment = ENVIRONMENT | planned.environment | {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "tiny"}
    payloads = (workload.path / "payloads.jsonl",)
    types = planned.target.instance_types
    known = replace(ON_GPU, instance_types=types, environment=environment, payloads=payloads)
    assert lint(tmp_path / "repository", known) == []


def test_a_link_that_stays_inside_is_the_file_it_points_to(tmp_path: Path) -> None:
    tree = dict(SCORING)
    tree["shared/model.py"] = tree.pop("score/1/model.py")
    tree["score/1/model.py"] = Link("../../shared/model.py")
    assert [finding.code for finding in lint(write(tree, tmp_path), ON_CPU)] == ["stray-folder", "link-member"]


def test_files_that_are_reached_through_links_leave_the_archive(tmp_path: Path) -> None:
    """CVE-2025-4517: no name has a .., and the text of every link stays inside."""
    archive = tmp_path / "model.tar.gz"
    archive.write_bytes(leaves_the_folder())
    (found,) = [finding for finding in lint(archive, ON_CPU) if finding.code == "escaping-member"]
    assert found.what.startswith("Files are reached through links and may lie outside the archive: ")
    assert found.file.startswith("a/b/c/")


def test_torchscript_is_distinguished_from_the_pickles_of_torch_save(tmp_path: Path) -> None:
    """The archive has more weights than are read."""
    model = torch.nn.Linear(1500, 1500)
    trace: Any = torch.jit.trace
    trace(model, torch.zeros(1, 1500)).save(str(tmp_path / "model.pt"))
    torch.save(model.state_dict(), tmp_path / "zipped.pt")
    torch.save(model.state_dict(), tmp_path / "old.bin", _use_new_zipfile_serialization=False)
    written = {f"head/1/{name}": (tmp_path / name).read_bytes() for name in ("model.pt", "zipped.pt", "old.bin")}
    (finding,) = lint(write({**ENGINES, **written}, tmp_path), ON_GPU)
    assert finding.what == "Pickles: 'head/1/zipped.pt', 'head/1/old.bin'."
    (finding,) = lint(write({**ENGINES, "head/1/model.pt": written["head/1/old.bin"]}, tmp_path), ON_GPU)
    assert finding.code == "not-torchscript"


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_a_planted_fault_is_found_and_nothing_else(fault: Fault, tmp_path: Path) -> None:
    paths = [write(fault.tree, tmp_path)]
    paths += [] if fault.archive_only else [lay_out(fault.tree, tmp_path / "repository")]
    for path in paths:
        assert [(each.severity, each.code, each.where) for each in lint(path, fault.context)] == [fault.finding]
    if fault.tree == fault.base and fault.base in (SCORING, ENGINES):
        assert lint(paths[0], NOTHING_KNOWN) == [], "it follows from the context"


def test_checks_that_need_a_missing_fact_are_listed() -> None:
    assert render([], replace(ON_GPU, host_ami=None)) == (
        "0 errors, 0 warnings.\n"
        "\n"
        "Not checked:\n"
        "  the driver that the image meets (needs the host AMI)\n"
        "  payloads against the model's signature (needs payload files)"
    )


def test_litter_beside_a_single_model_keeps_the_container_from_starting(tmp_path: Path) -> None:
    tree = {**BASES["score"], "__MACOSX/score/._model.py": b""}
    assert [(finding.code, finding.what) for finding in lint(write(tree, tmp_path), WITHOUT_DEFAULT)] == [
        ("litter", "Files of macOS or Jupyter: '__MACOSX/score/._model.py'."),
        (
            "default-model",
            "There are 2 top-level folders ('__MACOSX', 'score') and SAGEMAKER_TRITON_DEFAULT_MODEL_NAME is not set.",
        ),
    ]


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("1.dkr.ecr.eu-west-1.amazonaws.com/sagemaker-tritonserver:26.05-py3-cpu", "26.05"),
        ("1.dkr.ecr.eu-west-1.amazonaws.com/ours:latest", None),
        ("1.dkr.ecr.eu-west-1.amazonaws.com/ours@sha256:" + "25" * 32, None),
    ],
)
def test_the_triton_version_is_read_from_any_way_to_write_the_image(image: str | None, version: str | None) -> None:
    assert RuntimeContext(image=image).triton_version == version


def test_a_truncated_archive_is_one_finding(tmp_path: Path) -> None:
    archive = write(SCORING, tmp_path)
    archive.write_bytes(archive.read_bytes()[:-4])
    assert render(lint(archive, ON_CPU), replace(ON_GPU, payloads=())) == (
        "error unreadable-archive: The archive cannot be read to its end: its gzip stream ends early after "
        "'tokenise/warmup/query'.\n"
        "  where  model.tar.gz\n"
        "  why    SageMaker unpacks a gzip-compressed tar into /opt/ml/model before the container starts, and fails.\n"
        "  fix    Pack or upload it again, and compare the sha256 of both copies.\n"
        "\n"
        "1 error, 0 warnings."
    )


def linted(data: bytes) -> list[Finding]:
    with TemporaryDirectory() as folder:
        archive = Path(folder, "model.tar.gz")
        archive.write_bytes(data)
        return lint(archive, ON_CPU)


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 255)), max_size=8), st.integers(1, 500))
@settings(max_examples=100)
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


def test_a_path_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert message_of(UsageError, lint, tmp_path / "model.tar.gz", NOTHING_KNOWN) == (
        f"{tmp_path}/model.tar.gz: there is no such file or folder. Allowed: a model.tar.gz, or an unpacked Triton "
        "model repository (the folder that holds the model folders)."
    )


def test_little_is_read_of_a_large_file(tmp_path: Path) -> None:
    """A member of 300 MB passes through; only its first bytes are kept."""
    folder = lay_out(ENGINES, tmp_path / "repository")
    with (folder / "encoder/1/a10g.plan").open("r+b") as plan:
        plan.truncate(300 << 20)
    tracemalloc.start()
    assert lint(folder, ON_GPU) == []
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
