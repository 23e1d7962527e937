"""workload.toml through the real loader: every file in the repository reads, and every fault is one clear sentence."""

import os
from collections.abc import Callable
from itertools import product
from pathlib import Path

import pytest
import tomllib

from tests.builders import message_of
from tests.conftest import EditToml
from workloads import (
    ROOT,
    CudaTarget,
    LatencyObjective,
    ProjectError,
    RandomWeights,
    TextClassification,
    Workload,
    WorkloadFolder,
    load_workload,
    workload_names,
)
from workloads.folder import with_settings
from workloads.serving import inherited

NAMES = workload_names(ROOT / "workloads")
CASES = tomllib.loads(Path(__file__).with_name("refusals.toml").read_text("utf-8"))["case"]
OTHER_TOML = {
    "pyproject.toml",
    "aws_api/failures.toml",
    "local_aws/permissions/actions.toml",
    "model_build/lint/rules.toml",
}


def test_every_toml_outside_the_tests_is_a_workloads_or_known_here() -> None:
    skipped = {"node_modules", "build", "cdk.out", "runs", "tests"}
    found = set()
    for folder, folders, files in os.walk(ROOT):
        # Environments have tens of thousands of files.
        folders[:] = [each for each in folders if each not in skipped and not each.startswith(".venv")]
        found |= {Path(folder, name).relative_to(ROOT).as_posix() for name in files if name.endswith(".toml")}
    assert found - {f"workloads/{name}/workload.toml" for name in NAMES} == OTHER_TOML


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_loads_with_its_examples_and_gives_its_stack_a_name(name: str) -> None:
    folder = load_workload(name)
    assert folder.payloads()
    assert folder.evaluation()
    assert folder.workload.stack_name == name.title().replace("_", "") + "Stack"


def _refusal(folder: Path) -> str:
    with pytest.raises(ProjectError) as caught:
        load_workload("spellcheck", folder)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(folder), "workloads")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["problem"][:50])
def test_a_fault_names_file_key_value_and_what_is_allowed(edit_toml: EditToml, case: dict[str, str]) -> None:
    problem = _refusal(edit_toml(case["old"], case["new"]))
    assert problem == f"workloads/spellcheck/workload.toml: {case['problem']}"


def _objective_of_cpu(keys: str) -> tuple[str, str]:
    return "[targets.cpu-int8]", f"[targets.cpu.objective]\n{keys}\n[targets.cpu-int8]"


def test_a_target_replaces_keys_of_the_objective_where_the_workload_is_hosted_on_it(edit_toml: EditToml) -> None:
    keys = """
percentile = "P95"
model_latency_ms = 80.0
peak_invocations_per_minute = 70_000
trough_invocations_per_minute = 6_000
"""
    folder = load_workload("spellcheck", edit_toml(*_objective_of_cpu(keys)))
    assert folder.workload.hosting.target == "cpu"
    assert folder.workload.latency_objective == folder.hosted_on("cpu").workload.latency_objective
    replaced = LatencyObjective(
        percentile="P95",
        model_latency_ms=80.0,
        overhead_latency_ms=20.0,
        peak_invocations_per_minute=70_000,
        trough_invocations_per_minute=6_000,
    )
    assert folder.hosted_on("cpu").workload.latency_objective == replaced
    assert folder.hosted_on("cpu").hosted_on("tensorrt").workload.latency_objective == folder.workload.objective
    assert folder.measured_on("cpu").workload.latency_objective == replaced
    assert folder.measured_on("a target of last year") is folder


def test_a_batch_has_no_objective_of_a_target(tmp_path: Path) -> None:
    table = load_workload("duplicates").workload.model_dump(mode="json")
    table["targets"][table["hosting"]["target"]]["objective"] = {"model_latency_ms": 10.0}
    assert message_of(ProjectError, Workload.from_table, tmp_path / "workload.toml", table).endswith(
        f"targets.{table['hosting']['target']}.objective: replaces keys of a latency objective, and this workload is a "
        "batch. Remove the table."
    )


def test_all_faults_are_told_at_once(edit_toml: EditToml) -> None:
    edit_toml("safety_factor = 0.5", "safety_factor = 5.0")
    told = _refusal(edit_toml("max_batch_size = 16", "max_batch_size = 0")).splitlines()
    assert told == [
        "workloads/spellcheck/workload.toml: serving.max_batch_size: got 0. "
        "Input should be greater than or equal to 1.",
        "workloads/spellcheck/workload.toml: sizing.safety_factor: got 5.0. Input should be less than or equal to 1.",
    ]


def test_an_unknown_workload_lists_the_known(workloads_copy: Path) -> None:
    with pytest.raises(ProjectError, match=r"^There is no workload 'nope'\. Known workloads: spellcheck\.$"):
        load_workload("nope", workloads_copy)


@pytest.mark.parametrize(
    ("look_up", "problem"),
    [
        (
            lambda folder: folder.target("gpu"),
            "target 'gpu'. Known targets: cpu, cpu-int8, cuda, tensorrt, tensorrt-int8.",
        ),
        (
            lambda folder: folder.traffic("peak"),
            "traffic profile 'peak'. Known profiles: longer, production, quick.",
        ),
        (lambda folder: folder.as_published("x"), "published experiment 'x'. Known experiments: none."),
    ],
)
def test_an_unknown_name_lists_the_known(look_up: Callable[[WorkloadFolder], object], problem: str) -> None:
    folder = load_workload("spellcheck")
    assert message_of(ProjectError, look_up, folder) == f"{folder.file}: there is no {problem}"


def test_without_a_traffic_profile_there_is_an_example_of_one(workloads_copy: Path) -> None:
    file = workloads_copy / "spellcheck" / "workload.toml"
    text = file.read_text("utf-8")
    file.write_text(f"{text[: text.index('[traffic.')]}{text[text.index('[hosting]') :]}", "utf-8")
    folder = load_workload("spellcheck", workloads_copy)
    assert message_of(ProjectError, folder.traffic, "quick") == (
        f"{folder.file}: there is no traffic profile 'quick', nor any other. Write one: [traffic.quick] with type = "
        '"phases" and phases = [{ initial_users = 1, spawn_rate_per_minute = 1, duration_s = 600 }].'
    )


def test_a_line_of_payloads_is_repeated_by_its_weight_at_even_distances(workloads_copy: Path) -> None:
    file = workloads_copy / "spellcheck" / "payloads.jsonl"
    file.write_text('{"text": "a", "weight": 4}\n{"text": "b"}\n{"text": "c", "weight": 2}\n', "utf-8")
    rows = load_workload("spellcheck", workloads_copy).payloads()
    assert [row["text"] for row in rows] == ["a", "c", "a", "b", "a", "c", "a"]
    assert all(set(row) == {"text"} for row in rows)
    file.write_text('{"text": "a", "weight": 0}\n', "utf-8")
    with pytest.raises(ProjectError, match=r"jsonl:1: weight: got 0. Input should be greater than or equal to 1."):
        load_workload("spellcheck", workloads_copy).payloads()


def test_a_bad_line_of_payloads_is_named_by_its_number(workloads_copy: Path) -> None:
    file = workloads_copy / "spellcheck" / "payloads.jsonl"
    file.write_text('{"text": "a"}\n\n{"txt": "b"}\n', "utf-8")
    message = message_of(ProjectError, load_workload("spellcheck", workloads_copy).payloads)
    assert message.splitlines()[0] == f"{file}:3: text: is required but missing."


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        (
            "rows.gpu-autocast-64=65",
            "gpu-autocast-64: got 65, and a request to 'gpu-autocast-64' has at most 64 rows, its "
            "serving.max_batch_size.",
        ),
        (
            "rows.inf2=6",
            "rows: got 'inf2'. Allowed: inf1-data-parallel, inf1-data-parallel-6, inf1-pipeline, inf1-pipeline-6, "
            "inf1-chip-pipeline, inf1-chip-pipeline-6, gpu-autocast, gpu-autocast-64.",
        ),
        ('variants=["inf1-pipeline"]', "baseline: got 'gpu-autocast'. Allowed: inf1-pipeline."),
        ("traffic=none", "traffic: got 'none'. Allowed: production, quick."),
        (
            'variants=["inf3"]',
            "variants: got 'inf3'. Allowed: cpu, cpu-int8, cpu-torchscript, gpu-autocast, inf1-chip-pipeline, "
            "inf1-chip-pipeline-6, inf1-data-parallel, inf1-data-parallel-6, inf1-pipeline, inf1-pipeline-6, inf2, "
            "gpu-autocast-64.",
        ),
    ],
)
def test_a_published_experiment_names_what_there_is_and_its_rows_fit_a_batch(setting: str, problem: str) -> None:
    folder, settings = load_workload("question_answering"), [f"published.bert-base.{setting}"]
    assert message_of(ProjectError, with_settings, folder, settings).endswith(problem)


def test_a_published_model_may_be_traced_with_fewer_inputs() -> None:
    folder = load_workload("question_answering")
    assert folder.workload.model.inputs == ("input_ids", "attention_mask", "token_type_ids")  # type: ignore[union-attr]
    published = folder.as_published("bert-base").workload
    assert published.model.inputs == ("input_ids", "attention_mask")  # type: ignore[union-attr]


def test_the_published_experiment_has_the_published_model() -> None:
    folder = load_workload("text_classification")
    published = folder.as_published("bert-large")
    model = published.workload.model
    assert isinstance(model, TextClassification)
    assert (model.max_input_tokens, model.padding, model.truncation) == (512, "max_length", True)
    assert model.checkpoint == RandomWeights(architecture="bert-large-uncased", weights="random")
    assert published.workload.sizing.headroom == 0
    assert folder.workload.model.checkpoint == "./checkpoint", "the deployed model does not change"
    assert published.builds(Path("r")) == Path("r/build/published/bert-large")
    assert {len(row["text"].split()) > 400 for row in published.payloads()} == {True}


def test_the_gpu_twin_crosses_execution_batching_and_instance_groups() -> None:
    folder = load_workload("text_classification")
    twin = folder.workload.published["gpu-twin"]
    served = [(folder.workload.targets[each.target], each.serving) for each in map(folder.variant, twin.variants)]
    crossed = {
        (target.execution, serving.dynamic_batching, sum(group.count for group in serving.groups))
        for target, serving in served
        if isinstance(target, CudaTarget)
    }
    assert crossed == set(product(("eager", "traced", "cuda-graphs"), (False, True), (1, 2)))
    assert len(twin.variants) == 12


def test_a_variant_that_names_its_copies_one_way_does_not_inherit_the_other() -> None:
    common = {"max_batch_size": 4, "model_instances": 3}
    own = {"target": "t", "serving": {"instance_groups": [{"count": 2}]}}
    assert inherited(own, common) == {"target": "t", "serving": {"max_batch_size": 4, **own["serving"]}}  # type: ignore[dict-item]


COPIES = [("cpu", "", 2), ("cpu", "threads = 2", 1), ("cpu", "threads = 8", 1), ("tensorrt", "", 1)]


@pytest.mark.parametrize(("target", "threads", "copies"), COPIES)
def test_a_cpu_has_a_copy_of_the_model_for_each_core_that_threads_leave(
    edit_toml: EditToml, target: str, threads: str, copies: int
) -> None:
    """ml.c5.xlarge has two cores. All types serve the same archive."""
    types = 'instance_types = ["ml.c5.4xlarge", "ml.c5.xlarge"]'
    folder = edit_toml('threads = 1\ninstance_types = ["ml.c5.xlarge"]', f"{threads}\n{types}")
    assert load_workload("spellcheck", folder).workload.variant(target).serving.copies == copies
