"""A build leaves a whole artifact, the same one each time, or none. The gate reads what a machine recorded."""

import json
import re
import shutil
from pathlib import Path

import onnx
import pytest
from onnx import numpy_helper

from model_build import archive
from model_build.execute import build, verify_built, verify_recorded
from model_build.parity import GateFailed
from model_build.plan import BuildPlan
from tests.builders import known, message_of
from tests.model_build import miniatures
from tests.model_build.miniatures import plan_of
from tests.model_build.miniatures.tiny_t5 import make_checkpoint
from workloads import ModelArtifact, UsageError, WorkloadFolder, file_sha256, load_artifact
from workloads.errors import InvalidDocument


@pytest.fixture
def copy_plan(tiny_workload: WorkloadFolder) -> BuildPlan:
    return plan_of(tiny_workload, "cpu")


def edited(planned: BuildPlan, old: str, new: str) -> BuildPlan:
    """The plan after one change of workload.toml."""
    return plan_of(miniatures.edited(planned.source, old, new), planned.variant_name)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def test_the_artifact_has_the_archive_and_its_parity(tiny_plan: BuildPlan) -> None:
    artifact = load_artifact(tiny_plan.root, "tiny", "cpu")
    assert (artifact.workload, artifact.target, artifact.default_model) == ("tiny", "cpu", "tiny")
    assert artifact.archive_bytes == tiny_plan.archive.stat().st_size
    assert artifact.checkpoint_sha256 == tiny_plan.checkpoint.sha256
    assert {"torch", "onnxruntime", "onnx_opset", "python"} <= artifact.toolchain.keys()
    parity = known(artifact.parity)
    assert (parity.examples, parity.identical_answers) == (40, 40)
    assert parity.max_logit_difference < 1e-4
    assert parity.original == parity.compiled


def test_the_archive_has_the_planned_files_and_equals_the_unpacked_repository(
    tiny_plan: BuildPlan, tmp_path: Path
) -> None:
    archive.unpack(tiny_plan.archive, tmp_path)
    unpacked = contents(tmp_path)
    assert sorted(unpacked) == tiny_plan.document()["archive_files"]
    assert unpacked == contents(tiny_plan.repository)
    names = sorted(path.name for path in tiny_plan.folder.iterdir())
    assert names == ["artifact.json", "model.tar.gz", "repository"]


def test_the_archive_has_no_trace_of_its_machine(tiny_plan: BuildPlan) -> None:
    here = {str(tiny_plan.root), str(Path(__file__).parents[2]), "site-packages", "/root", "/home", "/tmp/"}
    for name, data in contents(tiny_plan.repository).items():
        for path in here:
            assert path.encode() not in data, f"{name} contains {path}"


def test_two_builds_have_one_hash(copy_plan: BuildPlan) -> None:
    before = load_artifact(copy_plan.root, "tiny", "cpu")
    after = build(copy_plan)
    assert after == before
    assert file_sha256(copy_plan.archive) == before.archive_sha256


def test_verify_measures_the_archive_again(tiny_plan: BuildPlan) -> None:
    assert verify_built(tiny_plan) == load_artifact(tiny_plan.root, "tiny", "cpu").parity


def test_verify_runs_the_model_in_the_archive_and_a_failure_takes_its_artifact(copy_plan: BuildPlan) -> None:
    graph = copy_plan.repository / "tiny" / "1" / "decoder.onnx"
    model = onnx.load(graph)
    head = next(weights for weights in model.graph.initializer if weights.name == "head.weight")
    head.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(head)[:, ::-1].copy(), head.name))
    onnx.save(model, graph)
    archive.pack(copy_plan.repository, copy_plan.archive)
    artifact = ModelArtifact.from_json(copy_plan.artifact)
    artifact.model_copy(update={"archive_sha256": file_sha256(copy_plan.archive)}).write_json(copy_plan.artifact)
    with pytest.raises(GateFailed, match="40 of 40 answers differ"):
        verify_built(copy_plan)
    assert not copy_plan.artifact.exists()


def test_a_build_that_fails_its_gate_leaves_no_artifact_not_even_the_old_one(copy_plan: BuildPlan) -> None:
    stricter = edited(copy_plan, "max_logit_difference = 1e-3", "max_logit_difference = 1e-30")
    with pytest.raises(GateFailed, match=r"the largest logit difference is .*, at most 1e-30 is allowed"):
        build(stricter)
    assert not stricter.artifact.exists()
    assert not (stricter.folder / ".scratch").exists()


def test_an_original_below_the_workloads_quality_is_not_built(copy_plan: BuildPlan) -> None:
    demanding = edited(copy_plan, "min_exact_match = 0.0", "min_exact_match = 0.9")
    with pytest.raises(GateFailed, match=r"exact_match is 0.0000, at least 0.9 is required"):
        verify_built(demanding)
    assert not demanding.artifact.exists()


@pytest.mark.parametrize("moment", ["Exporting", "Packing"])
def test_an_interrupted_build_leaves_the_old_one_as_it_was(copy_plan: BuildPlan, moment: str) -> None:
    shutil.rmtree(copy_plan.compiled)
    before = contents(copy_plan.folder)

    def interrupt(step: str) -> None:
        if step.startswith(moment):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        build(copy_plan, interrupt)
    assert contents(copy_plan.folder) == before


def test_an_artifact_of_another_checkpoint_is_stale(copy_plan: BuildPlan) -> None:
    make_checkpoint(copy_plan.checkpoint.folder, seed=1)
    retrained = plan_of(copy_plan.source, "cpu")
    assert message_of(UsageError, verify_built, retrained) == (
        f"{retrained.artifact} was built from another checkpoint than the one workload.toml names now. "
        "Build it again with `python -m model_build build tiny --target cpu`."
    )


def test_int8_is_built_within_the_drop_that_its_target_allows(tiny_workload: WorkloadFolder) -> None:
    artifact = build(plan_of(tiny_workload, "cpu-int8"))
    assert artifact.precision == "int8"
    assert 0 < known(artifact.parity).mean_logit_difference < 0.5


@pytest.mark.slow
def test_int8_that_fails_parity_names_the_layers_of_both_graphs_to_keep_in_fp32(
    tiny_workload: WorkloadFolder,
) -> None:
    limits = "parity = { max_metric_drop = 1.0, max_logit_difference = 0.002 }"
    strict = edited(plan_of(tiny_workload, "cpu-int8"), "parity = { max_metric_drop = 1.0 }", limits)
    message = message_of(GateFailed, build, strict)
    told = re.search(r"Or keep these layers in fp32, with which it passes: (fp32_layers = \[.+\])", message)
    assert told is not None, message
    assert {name.split(".")[0] for name in re.findall(r'"([^"]+)"', told[1])} <= {"encoder", "decoder"}
    artifact = build(edited(strict, limits, f"{limits}\n{told[1]}"))
    assert known(artifact.parity).max_logit_difference <= 0.002


def test_a_layer_that_no_graph_has_is_refused(tiny_workload: WorkloadFolder) -> None:
    planned = plan_of(tiny_workload, "cpu-int8")
    astray = edited(planned, 'precision = "int8"', 'precision = "int8"\nfp32_layers = ["wo"]')
    with pytest.raises(UsageError, match=r"fp32_layers: the graph has no wo\."):
        build(astray)


def test_an_evaluation_text_that_cannot_be_asked_is_an_error_of_the_workload(copy_plan: BuildPlan) -> None:
    shorter = edited(copy_plan, "max_input_tokens = 24", "max_input_tokens = 21")
    long = next(text for example in shorter.examples if len(text := example.row["text"]) == 20)
    message = message_of(InvalidDocument, verify_built, shorter)
    assert (
        f"{shorter.source.path / 'evaluation.jsonl'}: text '{long}' has 22 tokens, at most 21 are allowed." in message
    )


def test_labelled_rows_are_no_part_of_the_archive(copy_plan: BuildPlan) -> None:
    file = copy_plan.source.path / "evaluation.jsonl"
    file.write_text('{"text": "a", "label": "a"}\n{"text": "ab", "label": "b"}\n')
    after = plan_of(copy_plan.source, "cpu")
    assert after.contents(after.compiled) == copy_plan.contents(copy_plan.compiled)


def test_an_evaluation_without_correct_texts_cannot_measure_unchanged_rate(tiny_workload: WorkloadFolder) -> None:
    file = tiny_workload.path / "evaluation.jsonl"
    file.write_text('{"text": "a", "label": "b"}\n')
    assert message_of(InvalidDocument, plan_of, tiny_workload, "cpu") == (
        f"{file}: none of its 1 pairs has a text equal to its label, so unchanged_rate cannot be "
        "measured. Leave out quality.min_unchanged_rate in workload.toml, or add such pairs."
    )


def rewritten(planned: BuildPlan, **changes: object) -> None:
    """Change the artifact's document."""
    document = json.loads(planned.artifact.read_text())
    planned.artifact.write_text(json.dumps({**document, **changes}))


def test_the_record_of_a_build_passes_again(copy_plan: BuildPlan) -> None:
    assert verify_recorded(copy_plan).examples > 0


def test_a_record_beyond_the_limits_fails_the_gate(copy_plan: BuildPlan) -> None:
    parity = json.loads(copy_plan.artifact.read_text())["parity"]
    rewritten(copy_plan, parity={**parity, "max_logit_difference": 0.5})
    assert message_of(GateFailed, verify_recorded, copy_plan) == (
        "The compiled model differs from the original on evaluation.jsonl:\n"
        "- the largest logit difference is 0.5, at most 0.001 is allowed (parity.max_logit_difference).\n"
        "Build again, or for a coarser precision allow more in the target's parity in workload.toml."
    )


def test_a_build_that_compared_nothing_is_not_released(copy_plan: BuildPlan) -> None:
    rewritten(copy_plan, parity=None)
    assert message_of(GateFailed, verify_recorded, copy_plan) == (
        f"{copy_plan.artifact}: parity: the build compared nothing, because its machine could not run the model. Run "
        "`python -m containers.batch.record` on the target's hardware, and then `python -m model_build verify tiny "
        "--target cpu --outputs FILE`."
    )
