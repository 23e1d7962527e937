"""Plans of every workload for every target and variant: eight verbatim, all by their serving settings."""

import json
import shutil
from pathlib import Path

import pytest

from model_build import render
from model_build.lint.model_config import Misread, parse
from model_build.plan import plan
from workloads import ROOT, NeuronTarget, load_workload, workload_names

GOLDENS = Path(__file__).parent / "goldens" / "plan"
VERBATIM = (
    ("spellcheck", "cpu"),
    ("spellcheck", "tensorrt"),
    ("duplicates", "cpu"),
    ("duplicates", "inf1"),
    ("question_answering", "inf2"),
    ("text_classification", "cuda"),
    ("text_classification", "pytorch"),
    ("text_classification", "trt-db-ig"),
)
"""One for each runtime and way of serving."""
BUILDS = [
    (name, deployable)
    for name in workload_names(ROOT / "workloads")
    for deployable in load_workload(name).workload.deployables
]


@pytest.mark.parametrize(("workload", "name"), VERBATIM)
def test_the_plan_is_the_golden_file(workload: str, name: str) -> None:
    text = render.text("plan", plan(load_workload(workload), name, ROOT).document()) + "\n"
    text = text.replace(str(ROOT), ".")
    golden = GOLDENS / f"{workload}.{name}.txt"
    if not golden.exists() or golden.read_text("utf-8") != text:
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, "utf-8")
        pytest.fail(f"{golden} was rewritten: look at the difference and run again")


@pytest.mark.parametrize(("workload", "name"), BUILDS)
def test_a_build_is_configured_by_its_serving_settings(workload: str, name: str) -> None:
    planned = plan(load_workload(workload), name, ROOT)
    document, serving = planned.document(), planned.variant.serving
    assert (document["runtime"], document["precision"]) == (planned.target.runtime, planned.target.precision)
    assert any("quanti" in step for step in document["compiler"]) == (planned.target.precision == "int8")
    configuration = document["configuration"]
    if "server.json" in configuration:
        server = json.loads(configuration["server.json"])
        assert server["max_batch_size"] == serving.max_batch_size
        assert server["preferred_batch_sizes"] == list(serving.preferred_batch_sizes)
        assert server["max_queue_delay_ms"] == serving.max_queue_delay_ms
        return
    for file, text in configuration.items():
        config = parse(text.encode())
        assert not isinstance(config, Misread), file
        assert config.max_batch_size == serving.max_batch_size
        if not config.HasField("ensemble_scheduling"):
            assert config.HasField("dynamic_batching") == serving.dynamic_batching
            preferred = serving.preferred_batch_sizes if serving.dynamic_batching else ()
            assert tuple(config.dynamic_batching.preferred_batch_size) == preferred
            assert sum(group.count * max(1, len(group.gpus)) for group in config.instance_group) == serving.copies


def test_targets_for_inf1_exist_for_inf2_with_the_same_limits() -> None:
    """Golden rows are compared with the target's parity: without a limit on numbers only places would count."""
    for workload in map(load_workload, workload_names(ROOT / "workloads")):
        targets = [each for each in workload.workload.targets.values() if isinstance(each, NeuronTarget)]
        assert {each.runtime for each in targets} in (set(), {"neuron", "neuronx"}), workload.file
        assert len({each.parity for each in targets}) <= 1, workload.file
        assert all(each.parity.max_logit_difference for each in targets), workload.file


def test_a_pipeline_over_more_cores_than_the_weights_need_is_a_warning(workloads_copy: Path) -> None:
    shutil.copytree(ROOT / "workloads" / "question_answering", workloads_copy / "question_answering")
    planned = plan(load_workload("question_answering", workloads_copy), "inf1-pipeline", workloads_copy)
    assert planned.warnings == ()
    file = planned.source.file
    file.write_text(file.read_text("utf-8").replace('pipeline_cores = "auto"', "pipeline_cores = 16"), "utf-8")
    planned = plan(load_workload("question_answering", workloads_copy), "inf1-pipeline", workloads_copy)
    assert "--neuroncore-pipeline-cores" in planned.document()["compiler"][0]
    assert planned.warnings == (
        f"{file}: targets.inf1-pipeline.pipeline_cores: asks for 16 NeuronCores, but AWS's formula, "
        '4·round(weights / 2e7), says 1 for 1.1 million weights. Say pipeline_cores = "auto", or measure both.',
    )


def test_copies_that_leave_cores_idle_are_a_warning(workloads_copy: Path) -> None:
    shutil.copytree(ROOT / "workloads" / "question_answering", workloads_copy / "question_answering")
    file = load_workload("question_answering", workloads_copy).file

    def warnings(target: str) -> tuple[str, ...]:
        return plan(load_workload("question_answering", workloads_copy), target, workloads_copy).warnings

    assert warnings("cpu") == ()
    file.write_text(file.read_text("utf-8").replace("[serving]", "[serving]\nmodel_instances = 1"), "utf-8")
    assert warnings("inf2") == ()
    assert warnings("cpu") == (
        f"{file}: serving.model_instances: 1 × 1 thread for 'cpu' leave 1 of the 2 cores of its smallest instance type "
        "idle. Leave model_instances out, or set model_instances and threads to 2 together.",
    )
