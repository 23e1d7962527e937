"""workload.toml through the real loader: every file in the repository reads, and every fault is one clear sentence."""

import os
from copy import copy
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.conftest import EditToml
from workloads import (
    ROOT,
    LatencyObjective,
    PhasedTraffic,
    ProjectError,
    RandomWeights,
    TextClassification,
    TorchScriptTarget,
    Workload,
    load_workload,
    workload_names,
)
from workloads.serving import inherited

NAMES = workload_names(ROOT / "workloads")
OTHER_TOML = {"pyproject.toml", "local_aws/permissions/actions.toml", "model_build/lint/rules.toml"}


def test_every_toml_outside_the_tests_is_a_workloads_or_known_here() -> None:
    skipped = {".venv", ".venv-triton", ".venv-inf1", "node_modules", "build", "cdk.out", "runs", "tests"}
    found = set()
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [each for each in folders if each not in skipped]  # environments have tens of thousands of files
        found |= {Path(folder, name).relative_to(ROOT).as_posix() for name in files if name.endswith(".toml")}
    assert found - {f"workloads/{name}/workload.toml" for name in NAMES} == OTHER_TOML


@pytest.mark.parametrize("name", NAMES)
def test_a_workload_loads_with_its_examples_and_gives_its_stack_a_name(name: str) -> None:
    folder = load_workload(name)
    assert folder.payloads()
    assert folder.evaluation()
    assert folder.workload.stack_name == name.title().replace("_", "") + "Stack"


def test_the_production_profile_is_within_the_documented_limits() -> None:
    traffic = load_workload("spellcheck").traffic("production")
    assert isinstance(traffic, PhasedTraffic)
    assert all(120 <= phase.duration_s <= 3600 for phase in traffic.phases)
    assert traffic.duration_s <= 18_000


def _refusal(folder: Path) -> str:
    with pytest.raises(ProjectError) as caught:
        load_workload("spellcheck", folder)
    assert caught.value.exit_code == 2
    return str(caught.value).replace(str(folder), "workloads")


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "[sizing]\n",
            "[sizing]\nheadrom = 0.1\n",
            "sizing.headrom: unknown key. Allowed here: availability_zones, burst_factor, headroom, min_instances, "
            "safety_factor, spare_instances.",
        ),
        (
            "[sizing]\n",
            "[sizing]\nburst_factor = 0.5\n",
            "sizing.burst_factor: got 0.5. Input should be greater than or equal to 1.",
        ),
        (
            "[sizing]\n",
            "[sizing]\navailability_zones = 1\n",
            "sizing.availability_zones: got 1. Input should be greater than or equal to 2.",
        ),
        (
            "{ initial_users = 1,",
            "{ inital_users = 1, initial_users = 1,",
            "traffic.production.phases.0.inital_users: unknown key. "
            "Allowed here: duration_s, initial_users, spawn_rate_per_minute.",
        ),
        (
            "max_batch_size = 16",
            'max_batch_size = "16"',
            'serving.max_batch_size: got "16". Input should be a valid integer.',
        ),
        (
            "model_latency_ms = 50.0",
            "model_latency_ms = -1.0",
            "objective.model_latency_ms: got -1.0. Input should be greater than 0.",
        ),
        (
            'percentile = "P99"',
            'percentile = "99 %"',
            "objective.percentile: got \"99 %\". String should match pattern '^P\\d{1,2}(\\.\\d{1,2})?$'.",
        ),
        ("max_input_tokens = 64\n", "", "model.max_input_tokens: is required but missing."),
        (
            'runtime = "onnxruntime"',
            'runtime = "onnx"',
            'targets.cpu.runtime: got "onnx". '
            "Allowed: 'onnxruntime', 'torchscript', 'cuda', 'tensorrt', 'neuron', 'neuronx'.",
        ),
        (
            'target = "cpu"',
            'target = "gpu"',
            "(document): hosting.target 'gpu' is not a target; known targets: cpu, cpu-int8, cuda, tensorrt.",
        ),
        (
            'target = "cpu"',
            'target = "cpu"\nshadow = { target = "gpu", instance_type = "ml.c5.xlarge" }',
            "(document): hosting.shadow.target 'gpu' is not a target; known targets: cpu, cpu-int8, cuda, tensorrt.",
        ),
        (
            "trough_invocations_per_minute = 24_000",
            "trough_invocations_per_minute = 241_000",
            "objective: trough_invocations_per_minute 241000 exceeds peak_invocations_per_minute 240000.",
        ),
        (
            "preferred_batch_sizes = [4, 8]",
            "preferred_batch_sizes = [4, 32]",
            "serving: preferred_batch_sizes [32] exceed max_batch_size 16.",
        ),
        (
            "percentile =",
            "rows_per_invocation = 17\npercentile =",
            "(document): objective.rows_per_invocation: got 17, and a request to 'cpu' has at most 16 rows, its "
            "serving.max_batch_size.",
        ),
        ('name = "spellcheck"', 'name = "speling"', "name: got 'speling', but the folder is called 'spellcheck'."),
    ],
)
def test_a_fault_names_file_key_value_and_what_is_allowed(
    edit_toml: EditToml, old: str, new: str, problem: str
) -> None:
    assert _refusal(edit_toml(old, new)) == f"workloads/spellcheck/workload.toml: {problem}"


@pytest.mark.parametrize(
    ("keys", "problem"),
    [
        (
            "latency_ms = 100.0",
            "targets.cpu.objective.latency_ms: unknown key. Allowed here: max_error_rate, model_latency_ms, "
            "overhead_latency_ms, peak_invocations_per_minute, percentile, trough_invocations_per_minute.",
        ),
        (
            'model_latency_ms = "200"',
            'targets.cpu.objective.model_latency_ms: got "200". Input should be a valid number.',
        ),
        (
            "peak_invocations_per_minute = 20_000",
            "(document): targets.cpu.objective: trough_invocations_per_minute 24000 exceeds "
            "peak_invocations_per_minute 20000.",
        ),
    ],
)
def test_the_objective_of_a_target_is_validated_as_the_objective_is(
    edit_toml: EditToml, keys: str, problem: str
) -> None:
    folder = edit_toml(*_objective_of_cpu(keys))
    assert _refusal(folder) == f"workloads/spellcheck/workload.toml: {problem}"


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


def test_variants_of_a_target_have_the_targets_objective(edit_toml: EditToml) -> None:
    edit_toml("[serving]", '[variants.twice]\ntarget = "cpu"\n[serving]')
    folder = load_workload("spellcheck", edit_toml(*_objective_of_cpu("model_latency_ms = 80.0")))
    assert folder.hosted_on("twice").workload.latency_objective.model_latency_ms == 80


def test_the_objective_of_production_is_not_the_demonstrations() -> None:
    folder = load_workload("spellcheck")
    assert folder.workload.latency_objective == folder.workload.objective
    assert folder.workload.latency_objective.model_latency_ms == 50
    assert folder.workload.latency_objective.peak_invocations_per_minute == 240_000
    assert folder.hosted_on("cpu").workload.latency_objective.model_latency_ms == 200


def test_a_batch_has_no_objective_of_a_target(tmp_path: Path) -> None:
    table = load_workload("duplicates").workload.model_dump(mode="json")
    table["targets"][table["hosting"]["target"]]["objective"] = {"model_latency_ms": 10.0}
    with pytest.raises(ProjectError) as caught:
        Workload.from_table(tmp_path / "workload.toml", table)
    assert str(caught.value).endswith(
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


def test_toml_that_does_not_parse_says_where(edit_toml: EditToml) -> None:
    assert _refusal(edit_toml("[model]", "[model")) == (
        "workloads/spellcheck/workload.toml: cannot be read: "
        "Expected ']' at the end of a table declaration (at line 5, column 7)"
    )


def test_an_unknown_workload_lists_the_known(workloads_copy: Path) -> None:
    with pytest.raises(ProjectError, match=r"^There is no workload 'nope'\. Known workloads: spellcheck\.$"):
        load_workload("nope", workloads_copy)


def test_an_unknown_target_and_profile_list_the_known() -> None:
    folder = load_workload("spellcheck")
    with pytest.raises(ProjectError) as target:
        folder.target("gpu")
    assert (
        str(target.value) == f"{folder.file}: there is no target 'gpu'. Known targets: cpu, cpu-int8, cuda, tensorrt."
    )
    with pytest.raises(ProjectError) as traffic:
        folder.traffic("peak")
    assert str(traffic.value) == (
        f"{folder.file}: there is no traffic profile 'peak'. Known profiles: longer, production, quick."
    )


def test_without_a_traffic_profile_there_is_an_example_of_one(workloads_copy: Path) -> None:
    file = workloads_copy / "spellcheck" / "workload.toml"
    text = file.read_text("utf-8")
    file.write_text(f"{text[: text.index('[traffic.')]}{text[text.index('[hosting]') :]}", "utf-8")
    folder = load_workload("spellcheck", workloads_copy)
    with pytest.raises(ProjectError) as caught:
        folder.traffic("quick")
    assert str(caught.value) == (
        f"{folder.file}: there is no traffic profile 'quick', nor any other. Write one: [traffic.quick] with type = "
        '"phases" and phases = [{ initial_users = 1, spawn_rate_per_minute = 1, duration_s = 600 }].'
    )


def test_a_bad_line_of_payloads_is_named_by_its_number(workloads_copy: Path) -> None:
    file = workloads_copy / "spellcheck" / "payloads.jsonl"
    file.write_text('{"text": "a"}\n\n{"txt": "b"}\n', "utf-8")
    with pytest.raises(ProjectError) as caught:
        load_workload("spellcheck", workloads_copy).payloads()
    assert str(caught.value).splitlines()[0] == f"{file}:3: text: is required but missing."


def test_a_workload_survives_its_own_json() -> None:
    workload = load_workload("spellcheck").workload
    assert Workload.model_validate_json(workload.model_dump_json()) == workload


def test_the_eight_published_configurations_have_eight_of_their_kind_for_a_cpu() -> None:
    variants = load_workload("text_classification").workload.variants
    assert {
        name: (variant.target, variant.serving.dynamic_batching, variant.serving.copies > 1)
        for name, variant in variants.items()
    } == {
        "pt-base": ("pytorch", False, False),
        "pt-db": ("pytorch", True, False),
        "pt-ig": ("pytorch", False, True),
        "pt-ig-db": ("pytorch", True, True),
        "trt-base": ("tensorrt", False, False),
        "trt-db": ("tensorrt", True, False),
        "trt-ig": ("tensorrt", False, True),
        "trt-db-ig": ("tensorrt", True, True),
        "ts-base": ("cpu-torchscript", False, False),
        "ts-db": ("cpu-torchscript", True, False),
        "ts-ig": ("cpu-torchscript", False, True),
        "ts-ig-db": ("cpu-torchscript", True, True),
        "ort-base": ("cpu", False, False),
        "ort-db": ("cpu", True, False),
        "ort-ig": ("cpu", False, True),
        "ort-ig-db": ("cpu", True, True),
    }
    batches = {(each.serving.max_batch_size, each.serving.preferred_batch_sizes) for each in variants.values()}
    assert batches == {(16, (16,))}  # the workload's own
    assert {each.serving.max_queue_delay_ms for each in variants.values()} == {0.1}


def test_the_published_experiment_has_the_published_model_load_and_machines() -> None:
    folder = load_workload("text_classification")
    asked = folder.workload.published["bert-large"]
    published = folder.as_published("bert-large")
    model = published.workload.model
    assert isinstance(model, TextClassification)
    assert (model.max_input_tokens, model.padding, model.truncation) == (512, "max_length", True)
    assert model.checkpoint == RandomWeights(architecture="bert-large-uncased", weights="random")
    (phase,) = published.workload.traffic[asked.traffic].phases  # type: ignore[union-attr]
    assert (phase.initial_users, phase.spawn_rate_per_minute, phase.duration_s) == (2, 2, 1500)
    assert asked.instance_types == ("ml.g4dn.xlarge", "ml.g4dn.2xlarge", "ml.g4dn.12xlarge")
    assert len(asked.variants) == 8
    assert published.workload.sizing.headroom == 0
    assert folder.workload.model.checkpoint == "./checkpoint", "what is deployed stays as it is"
    assert published.builds(Path("r")) == Path("r/build/published/bert-large")
    assert {len(row["text"].split()) > 400 for row in published.payloads()} == {True}


def test_a_published_experiment_says_how_many_rows_its_requests_have(tmp_path: Path) -> None:
    folder = copy(load_workload("question_answering"))
    table = folder.workload.model_dump(mode="json")
    table["published"]["bert-base"]["rows_per_invocation"] = 6
    folder.workload = Workload.from_table(folder.file, table)
    assert folder.workload.latency_objective.peak == "60,000 invocations/min"
    assert folder.as_published("bert-base").workload.latency_objective.peak == "60,000 invocations/min of 6 rows"


def test_mixed_precision_of_pytorch_is_refused_on_a_cpu() -> None:
    with pytest.raises(ValidationError) as caught:
        TorchScriptTarget(runtime="torchscript", precision="fp16", instance_types=("ml.c5.xlarge",))
    assert (
        "precision: fp16 is mixed precision on an NVIDIA GPU, but instance_types is ['ml.c5.xlarge']. Name only GPU "
        "types, such as ml.g4dn.xlarge, or leave precision out."
    ) in str(caught.value)


def test_an_experiment_that_nobody_published_lists_the_known() -> None:
    with pytest.raises(ProjectError) as caught:
        load_workload("text_classification").as_published("bert-small")
    assert str(caught.value).endswith(
        "there is no published experiment 'bert-small'. Known experiments: bert-large, cpu-twin."
    )


def test_a_variant_that_names_its_copies_one_way_does_not_inherit_the_other() -> None:
    common = {"max_batch_size": 4, "model_instances": 3}
    own = {"target": "t", "serving": {"instance_groups": [{"count": 2}]}}
    assert inherited(own, common) == {"target": "t", "serving": {"max_batch_size": 4, **own["serving"]}}  # type: ignore[dict-item]


def test_two_workloads_share_one_encoder() -> None:
    models = [load_workload(name).workload.model for name in ("query_intent", "duplicates")]
    assert {getattr(model, "backbone", None) for model in models} == {"../product_bert/checkpoint"}


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            'checkpoint = "./checkpoint"',
            'checkpoint = { architecture = "t5-huge", weights = "random" }',
            'model.checkpoint.architecture: got "t5-huge". '
            "Input should be 't5-small', 't5-base', 'bert-base-uncased' or 'bert-large-uncased'.",
        ),
        (
            "min_exact_match = 0.85",
            "min_accuracy = 0.85",
            "quality: text2text-generation has the keys min_exact_match, min_unchanged_rate, or min_agreement alone "
            "where the original labelled the rows; got min_accuracy, min_unchanged_rate.",
        ),
        (
            "min_unchanged_rate = 0.95",
            "min_left_alone = 0.95",
            "quality: min_left_alone is called min_unchanged_rate now; rename the key.",
        ),
        (
            'instance_types = ["ml.g5.xlarge", "ml.g4dn.xlarge"]',
            'instance_types = ["ml.c5.xlarge"]',
            "targets.tensorrt: instance_types: got ['ml.c5.xlarge']; an engine is built for its GPU, so at least one "
            "type of g4dn, g5 is needed and no other.",
        ),
        (
            "[serving]",
            '[variants.cpu]\ntarget = "cpu"\n[serving]',
            "(document): variants.cpu: a target has that name; call the variant something else.",
        ),
        (
            "[serving]",
            '[variants.both]\ntarget = "gpu"\n[serving]',
            "(document): variants.both.target 'gpu' is not a target; known targets: cpu, cpu-int8, cuda, tensorrt.",
        ),
        (
            "model_instances = 1",
            "model_instances = 2\ninstance_groups = [{ count = 2 }]",
            "serving: instance_groups: say how many copies each group has, and leave out model_instances = 2.",
        ),
        (
            "model_instances = 1",
            'instance_groups = [{ kind = "KIND_CPU", gpus = [0] }]',
            "serving.instance_groups.0: gpus: got [0], but kind is KIND_CPU.",
        ),
        (
            "[objective]",
            '[variants]\nv = { target = "tensorrt", serving = { instance_groups = [{ gpus = [1] }] } }\n[objective]',
            "(document): variants.v.serving.instance_groups: got gpus [1], and ml.g5.xlarge has 1, counted from 0.",
        ),
        (
            "[objective]",
            '[variants]\nv = { target = "cpu", serving = { instance_groups = [{ kind = "KIND_GPU" }] } }\n[objective]',
            "(document): variants.v.serving.instance_groups: got KIND_GPU, and no instance type of the target has one.",
        ),
        ('percentile = "P99"\n', "", "objective.percentile: is required but missing."),
        (
            'kind = "sagemaker-endpoint"',
            'kind = "lambda"',
            "hosting.kind: got \"lambda\". Allowed: 'sagemaker-endpoint', 'ecs-service', 'scheduled-batch'.",
        ),
    ],
)
def test_what_does_not_fit_together_is_told(edit_toml: EditToml, old: str, new: str, problem: str) -> None:
    assert _refusal(edit_toml(old, new)) == f"workloads/spellcheck/workload.toml: {problem}"
