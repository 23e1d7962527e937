"""Plans of every workload for every target, names of layers, and the table of families, which agrees with the plans."""

import json
import shutil
from pathlib import Path

import pytest

import model_build.__main__ as command_line
from model_build import layers, matrix, render
from model_build.checkpoint.families import FAMILIES, HEADS, NOT_BUILT
from model_build.checkpoint.text2text import FAMILIES as TEXT2TEXT
from model_build.lint.model_config import Misread, parse
from model_build.plan import plan
from tests.builders import assert_is_golden, message_of
from tests.model_build.miniatures import edited
from tests.model_build.miniatures.tiny_rows import make_workload
from tests.model_build.tensorrt.tensorrt_graphs import graph
from workloads import ROOT, NeuronTarget, UsageError, WorkloadFolder, load_workload, workload_names

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
    assert_is_golden(GOLDENS / f"{workload}.{name}.txt", text)


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
    changed = edited(planned.source, 'pipeline_cores = "auto"', "pipeline_cores = 16")
    planned = plan(changed, "inf1-pipeline", workloads_copy)
    assert "--neuroncore-pipeline-cores" in planned.document()["compiler"][0]
    assert planned.warnings == (
        f"{changed.file}: targets.inf1-pipeline.pipeline_cores: asks for 16 NeuronCores, but AWS's formula, "
        '4·round(weights / 2e7), says 1 for 1.1 million weights. Say pipeline_cores = "auto", or measure both.',
    )


def test_copies_that_leave_cores_idle_are_a_warning(workloads_copy: Path) -> None:
    shutil.copytree(ROOT / "workloads" / "question_answering", workloads_copy / "question_answering")
    source = load_workload("question_answering", workloads_copy)
    assert plan(source, "cpu", workloads_copy).warnings == ()
    one = edited(source, "[serving]", "[serving]\nmodel_instances = 1")
    assert plan(one, "inf2", workloads_copy).warnings == ()
    assert plan(one, "cpu", workloads_copy).warnings == (
        f"{one.file}: serving.model_instances: 1 × 1 thread for 'cpu' leave 1 of the 2 cores of its smallest instance "
        "type idle. Leave model_instances out, or set model_instances and threads to 2 together.",
    )


def test_layers_are_called_after_modules_and_weights() -> None:
    assert layers.names(graph("t5-encoder")) == (
        "own",
        "embedding",
        "layers.0.norm",
        "layers.0.qkv",
        "layers.0.own",
        "layers.0.out",
        "layers.0.feed_forward.norm",
        "layers.0.feed_forward.into",
        "layers.0.feed_forward.activation",
        "layers.0.feed_forward.out",
        "layers.0.feed_forward.own",
        "layers.1.norm",
        "layers.1.qkv",
        "layers.1.own",
        "layers.1.out",
        "layers.1.feed_forward.norm",
        "layers.1.feed_forward.into",
        "layers.1.feed_forward.activation",
        "layers.1.feed_forward.out",
        "layers.1.feed_forward.own",
        "norm",
        "cross_weights",
    )


def test_a_module_means_everything_in_it() -> None:
    names = layers.names(graph("t5-encoder"))
    assert layers.chosen(names, ["layers.1.feed_forward"]) == {
        f"layers.1.feed_forward.{part}" for part in ("norm", "into", "activation", "out", "own")
    }
    assert layers.of_graph(["encoder.layers.1", "decoder.head"], "decoder") == ("head",)


def test_a_layer_that_is_not_there_is_refused() -> None:
    assert message_of(UsageError, layers.chosen, ("norm", "head"), ["head", "layers.7"]) == (
        "fp32_layers: the graph has no layers.7. A name covers all layers that begin with it and a dot. "
        "Layers: norm, head."
    )


PAGE = ROOT / "docs" / "families.md"
BEGIN, END = "<!-- families -->\n", "<!-- /families -->\n"
ROWS = {(row.model_type, row.task): row for row in matrix.rows()}
QUICK = {("roberta", "token-classification"), ("megatron-bert", "text-classification"), ("bart", matrix.BEAMS)}
"""Rows whose cells differ in their reasons; the slow test plans all."""
Capture = pytest.CaptureFixture[str]


def printed(capsys: Capture, *flags: str) -> str:
    assert command_line.main(["plan", "--families", *flags]) == 0
    return capsys.readouterr().out


def test_every_family_and_task_has_a_row_and_every_target_a_cell_with_a_reason_where_it_takes_none(
    capsys: Capture,
) -> None:
    document = json.loads(printed(capsys, "--json"))
    encoders = {(family, task) for family in (*FAMILIES, *NOT_BUILT) for task in HEADS}
    decoders = {(family, task) for family in TEXT2TEXT for task in (matrix.GENERATION, matrix.BEAMS)}
    assert {(row["model_type"], row["task"]) for row in document["families"]} == encoders | decoders
    for row in document["families"]:
        assert sorted([*row["targets"], *row["left_out"]]) == sorted(document["targets"])
        assert all(reason.endswith(".") for reason in row["left_out"].values())


def test_the_page_on_families_has_the_table_that_the_command_prints(capsys: Capture) -> None:
    table = printed(capsys)
    before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
    assert_is_golden(PAGE, f"{before}{BEGIN}{table}{END}{rest.partition(END)[2]}")


@pytest.mark.parametrize(
    "cell", [pytest.param(each, marks=() if each in QUICK else pytest.mark.slow, id=" ".join(each)) for each in ROWS]
)
def test_a_build_is_planned_where_the_table_says_yes_and_refused_with_its_reason_elsewhere(
    cell: tuple[str, str], tmp_path: Path
) -> None:
    row, (model_type, task) = ROWS[cell], cell
    workload = workload_of(model_type, task, tmp_path)
    for name in matrix.TARGETS:
        if name in row.targets:
            assert plan(workload, name, tmp_path).variant.target == name
        else:
            assert row.left_out[name].rstrip(".") in message_of(UsageError, plan, workload, name, tmp_path), name


def workload_of(model_type: str, task: str, folder: Path) -> WorkloadFolder:
    """A workload of the family; of one that is not built for the task, a BERT that says it is of the family."""
    lacks = model_type in NOT_BUILT or (model_type in FAMILIES and FAMILIES[model_type].lacks_head(task))
    workload = make_workload(folder / "workloads", "bert" if lacks else model_type, task)
    if lacks:
        file = workload.path / "checkpoint" / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"model_type": model_type}))
    return workload
