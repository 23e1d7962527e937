"""Every family computes what transformers' own class computes; one that is not built is refused in a sentence."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from transformers import AutoModel

from containers.encoder import load_engine
from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from inference_recommender.payloads import request_body
from local_aws.process.triton import TritonServer
from model_build import matrix
from model_build.build import build
from model_build.checkpoint import Checkpoint, read
from model_build.checkpoint.families import FAMILIES
from model_build.encoder import backend, export, graphs
from model_build.parity import ParityFailed
from model_build.plan import BuildPlan, plan
from model_build.triton.repository import version_folder
from tests.model_build.miniatures.tiny_bert import LABELS
from tests.model_build.miniatures.tiny_families import AUTO, TINY, int8_limit, make_checkpoint, make_workload
from tests.model_build.spoiled import spoil
from tests.quick_triton import start_triton
from workloads import EncoderModel, ProjectError, Row, UsageError, WorkloadFolder

CELLS = [(family.model_type, task) for family in FAMILIES.values() for task in AUTO if family.architectures(task)]
DIFFERENT = ("bert", "roberta", "distilbert", "electra", "albert")
"""The families whose code differs: those of our own network, and one of transformers'."""
QUICK = [pytest.param(*cell, marks=[] if cell[0] in DIFFERENT else pytest.mark.slow) for cell in CELLS]


def model_of(task: str, **keys: Any) -> EncoderModel:
    table = {"task": task, "checkpoint": "./checkpoint", "max_input_tokens": 32, **keys}
    if task.endswith("-classification"):
        table |= {"labels": LABELS}
    return TypeAdapter[EncoderModel](EncoderModel).validate_python(table)


def read_tiny(folder: Path, family: str, task: str) -> Checkpoint:
    make_checkpoint(folder, family, task)
    return read(folder, folder, model_of(task))


def test_every_family_has_a_tiny_model() -> None:
    assert TINY.keys() == FAMILIES.keys()


@pytest.mark.parametrize(("family", "task"), QUICK)
def test_our_network_gives_the_results_of_transformers(family: str, task: str, tmp_path: Path) -> None:
    checkpoint = read_tiny(tmp_path, family, task)
    model = model_of(task, inputs=("input_ids", "attention_mask"))
    network = export.load(checkpoint, model)
    original = AUTO[task].from_pretrained(tmp_path, attn_implementation="eager").eval()
    input_ids, mask = padded_batch(checkpoint.encoder_config["pad_token_id"])
    with torch.inference_mode():
        given = network(input_ids, mask)
        wanted = original(input_ids=input_ids, attention_mask=mask)
    if task == "feature-extraction":
        mean = torch.stack([row[: len(real.nonzero())].mean(0) for row, real in zip(wanted[0], mask, strict=True)])
        wanted = {"embedding": torch.nn.functional.normalize(mean)}
    for output, name in zip(given, network.outputs, strict=True):
        ours, theirs = output, wanted[name]
        if task in ("question-answering", "token-classification"):
            ours, theirs = ours[mask == 1], theirs[mask == 1]
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def padded_batch(pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns token ids and mask of three rows, the second with padding."""
    input_ids = torch.randint(4, 50, (3, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(input_ids)
    input_ids[1, 7:], mask[1, 7:] = pad, 0
    return input_ids, mask


@pytest.mark.parametrize("family", ["roberta", pytest.param("mpnet", marks=pytest.mark.slow)])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("pooling", ["mean", "cls", "max", "last"])
def test_an_embedding_is_pooled_over_the_tokens_then_cut_and_normalised(
    family: str, pooling: str, normalize: bool, tmp_path: Path
) -> None:
    checkpoint = read_tiny(tmp_path, family, "feature-extraction")
    keys = {"pooling": pooling, "normalize": normalize, "dimensions": 20}
    model = model_of("feature-extraction", inputs=("input_ids", "attention_mask"), **keys)
    input_ids, mask = padded_batch(1)
    with torch.inference_mode():
        (given,) = export.load(checkpoint, model)(input_ids, mask)
        hidden = AutoModel.from_pretrained(tmp_path, attn_implementation="eager").eval()(input_ids, mask)[0]
    for vector, states, real in zip(given, hidden, mask, strict=True):
        tokens = states[: int(real.sum())]
        pooled = {"mean": tokens.mean(0), "cls": tokens[0], "max": tokens.max(0).values, "last": tokens[-1]}[pooling]
        cut = pooled[:20]
        wanted = cut / cut.norm() if normalize else cut
        np.testing.assert_allclose(vector, wanted, rtol=1e-4, atol=1e-5)


def refusal(folder: Path, family: str = "bert", **changes: Any) -> str:
    """Returns the error for a text classifier of the family with a changed config.json."""
    make_checkpoint(folder, family, "text-classification")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    with pytest.raises(ProjectError) as caught:
        read(folder, folder, model_of("text-classification"))
    return str(caught.value).removeprefix(f"{folder}/")


def test_an_unknown_family_names_the_known_ones_and_the_nearest(tmp_path: Path) -> None:
    names = ", ".join(family.name for family in FAMILIES.values())
    assert refusal(tmp_path, model_type="xlm-roberta-wide") == (
        'config.json: model_type: got "xlm-roberta-wide", which is no family of encoders that is built. '
        f"Allowed: {names}. By its name XLM-RoBERTa is the nearest. docs/families.md says how to add one."
    )


def test_a_family_that_was_tried_and_is_refused_says_why(tmp_path: Path) -> None:
    assert refusal(tmp_path, model_type="fnet") == (
        'config.json: model_type: got "fnet", but FNet is not built: it mixes the padding into a text\'s answer, which '
        "then depends on what else is in its batch. docs/families.md has the list."
    )


def test_a_task_that_is_not_built_of_the_family(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "roberta", "text-classification")
    model = model_of("text-pair-scoring", labels=LABELS, segments=(("left",), ("right",)))
    with pytest.raises(UsageError) as caught:
        read(tmp_path, tmp_path, model)
    assert str(caught.value) == (
        f'{tmp_path / "config.json"}: model_type: got "roberta", but text-pair-scoring is built only for BERT.'
    )


def test_a_head_for_another_task_names_the_task(tmp_path: Path) -> None:
    assert refusal(tmp_path, "roberta", architectures=["RobertaForTokenClassification"]) == (
        'config.json: architectures: got ["RobertaForTokenClassification"], allowed is '
        "RobertaForSequenceClassification. It can do token-classification: say so as model.task in workload.toml."
    )


def test_a_model_without_a_head(tmp_path: Path) -> None:
    assert refusal(tmp_path, "distilbert", architectures=["DistilBertForMultipleChoice"]) == (
        'config.json: architectures: got ["DistilBertForMultipleChoice"], allowed is '
        "DistilBertForSequenceClassification."
    )


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (
            {"problem_type": "multi_label_classification"},
            'problem_type: got "multi_label_classification", but model.problem_type in workload.toml is '
            '"single_label_classification".',
        ),
        (
            {"position_embedding_type": "relative_key"},
            'position_embedding_type: got "relative_key", which is not built.',
        ),
        ({"is_decoder": True}, "is_decoder: got true, which is not built."),
        ({"pruned_heads": {"0": [1]}}, 'pruned_heads: got {"0": [1]}, which is not built.'),
        (
            {"hidden_act": "mish"},
            "hidden_act: got \"mish\". Input should be 'gelu', 'gelu_python', 'gelu_new', 'gelu_fast', "
            "'gelu_pytorch_tanh', 'relu', 'silu' or 'swish'.",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_an_unsupported_config_is_refused(changes: dict[str, Any], told: str, tmp_path: Path) -> None:
    assert refusal(tmp_path, **changes) == f"config.json: {told}"


def test_positions_behind_the_paddings_are_fewer(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "roberta", "text-classification")
    with pytest.raises(UsageError) as caught:
        read(tmp_path, tmp_path, model_of("text-classification").model_copy(update={"max_input_tokens": 65}))
    assert str(caught.value) == (
        f"{tmp_path / 'config.json'}: max_position_embeddings: got 66, room for 64 tokens, but model.max_input_tokens "
        "in workload.toml is 65. Lower it, or take a model of longer inputs."
    )


def test_unnamed_labels_get_the_names_of_the_workload(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "roberta", "text-classification", labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    assert read(tmp_path, tmp_path, model_of("text-classification")).family == FAMILIES["roberta"]


def test_inputs_that_are_left_open_have_no_token_types_where_the_model_has_none(tmp_path: Path) -> None:
    workload = make_workload(tmp_path / "workloads", "distilbert", "text-classification")
    assert plan_of(workload, "cpu").compile_inputs.encoder.inputs == ("input_ids", "attention_mask")
    text = workload.file.read_text()
    workload.file.write_text(text.replace("[model]", '[model]\ninputs = ["input_ids", "token_type_ids"]'))
    with pytest.raises(UsageError) as caught:
        plan_of(WorkloadFolder(workload.path), "cpu")
    assert str(caught.value) == (
        f'{workload.file}: model.inputs: got ["input_ids", "token_type_ids"], but the model knows no token types. '
        "Leave token_type_ids out."
    )


@pytest.mark.parametrize(
    ("target", "runtime"), [("inf1", "neuron"), ("pytorch", "torchscript")], ids=lambda value: str(value)
)
def test_a_target_for_only_our_own_networks(target: str, runtime: str, tmp_path: Path) -> None:
    own = make_workload(tmp_path / "own", "roberta", "text-classification")
    assert plan_of(own, target).target.runtime == runtime
    workload = make_workload(tmp_path / "other", "albert", "text-classification")
    with pytest.raises(UsageError) as caught:
        plan_of(workload, target)
    place, reason = {
        "neuron": ("Inferentia", "AWS's Neuron images have no transformers"),
        "torchscript": ("PyTorch on a GPU", "a trace of transformers' module keeps its mask on the CPU"),
    }[runtime]
    assert str(caught.value) == (
        f"{workload.file}: targets.{target}.runtime: '{runtime}' is not built for ALBERT on this hardware. {place} "
        "takes only this project's own networks, of BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, ELECTRA, ERNIE, "
        "Data2Vec: "
        f"{reason}. Allowed: onnxruntime, tensorrt, and torchscript on CPU."
    )


def test_int8_that_would_change_nothing_is_refused(tmp_path: Path) -> None:
    workload = make_workload(tmp_path / "workloads", "squeezebert", "text-classification")
    with pytest.raises(UsageError) as caught:
        plan_of(workload, "cpu-int8")
    assert str(caught.value) == (
        f"{workload.file}: targets.cpu-int8.precision: 'int8' is not built for SqueezeBERT. int8 would not "
        "change it: its layers are convolutions, and the quantiser takes products of matrices. Allowed: fp32."
    )


def plan_of(workload: WorkloadFolder, target: str) -> BuildPlan:
    return plan(workload, target, workload.path.parent.parent)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "task"), CELLS)
def test_a_build_answers_as_the_original(family: str, task: str, tmp_path: Path) -> None:
    workload = make_workload(tmp_path / "workloads", family, task)
    for target in ("cpu", "cpu-torchscript"):
        exact = build(plan_of(workload, target)).parity
        assert exact is not None
        assert exact.identical_answers == exact.examples == 24


QUANTISED = [(row.model_type, row.task) for row in matrix.rows() if "cpu-int8" in row.targets]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "task"), [cell for cell in CELLS if cell in QUANTISED])
def test_int8_is_near_the_original_and_not_fp32(family: str, task: str, tmp_path: Path) -> None:
    parity = build(plan_of(make_workload(tmp_path / "workloads", family, task), "cpu-int8")).parity
    assert parity is not None
    assert 1e-4 < parity.mean_logit_difference < int8_limit(family, task)


@pytest.mark.slow
@pytest.mark.parametrize(("family", "task"), [cell for cell in CELLS if cell in QUANTISED])
def test_the_gate_refuses_a_spoiled_quantisation(
    family: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch)
    planned = plan_of(make_workload(tmp_path / "workloads", family, task), "cpu-int8")
    with pytest.raises(
        ParityFailed, match=rf"the mean logit difference is \S+, at most {int8_limit(family, task):g} is allowed"
    ):
        build(planned)


SERVED = [cell for cell in CELLS if cell[0] in DIFFERENT or cell[1] == "text-classification"]
"""Every family, and every task of those whose code differs."""


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(("family", "task"), SERVED)
def test_a_real_triton_answers_as_the_predictor_that_the_gate_held_to_the_original(
    family: str, task: str, tmp_path: Path
) -> None:
    planned = plan_of(make_workload(tmp_path / "workloads", family, task), "cpu")
    build(planned)
    rows = [example.row for example in planned.examples[:6]]
    settings = graphs.settings(planned.compile_inputs.encoder, planned.target, planned.checkpoint)
    engine = load_engine.load(backend.served_folder(planned, planned.repository), settings)
    own = Predictor(Preprocessor.load(version_folder(planned.repository, "tiny_tokenise")), engine)
    log = tmp_path / "triton.log"
    with start_triton(planned.repository, default_model="tiny", environment={}, log_file=log) as server:
        for row, wanted in zip(rows, own.predict(rows), strict=True):
            assert isinstance(wanted, dict)
            given = ask(server, row)
            assert given.keys() == wanted.keys()
            for name, value in wanted.items():
                if isinstance(value, str):
                    assert given[name] == [value]
                else:
                    np.testing.assert_allclose(np.ravel(given[name]), np.ravel(value), atol=1e-5)


def ask(server: TritonServer, row: Row) -> dict[str, Any]:
    answer = server.invoke(request_body(row), {"Content-Type": "application/json"})
    assert answer.status == 200, answer
    return {output["name"]: output["data"] for output in json.loads(answer.body)["outputs"]}
