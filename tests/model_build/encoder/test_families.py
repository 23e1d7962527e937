"""Every family computes what transformers' own class computes; one that is not built is refused in a sentence."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter
from transformers.models.mpnet.modeling_mpnet import MPNetEncoder

from containers.encoder.engines import load_engine
from containers.encoder.predictor import Predictor
from containers.encoder.preprocess import Preprocessor
from inference_recommender.payloads import request_body
from local_aws.process.triton import TritonServer
from model_build import matrix
from model_build.checkpoint import Checkpoint, read
from model_build.checkpoint.families import FAMILIES
from model_build.encoder import bert, export, graphs, verify
from model_build.execute import build
from model_build.parity import ParityFailed
from model_build.triton.repository import version_folder
from tests.builders import known, message_of
from tests.model_build.encoder.test_openvino import needs_bf16
from tests.model_build.miniatures import edited, plan_of
from tests.model_build.miniatures.tiny_bert import LABELS
from tests.model_build.miniatures.tiny_families import AUTO, int8_limit, make_checkpoint, make_workload
from tests.model_build.spoiled import spoil
from tests.quick_triton import start_triton
from workloads import EncoderModel, ProjectError, Row, UsageError

CELLS = [(family.model_type, task) for family in FAMILIES.values() for task in AUTO if family.architectures(task)]
DIFFERENT = ("bert", "roberta", "distilbert", "electra", "albert", "mpnet", "megatron-bert")
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


def test_mpnets_distances_are_those_of_transformers() -> None:
    places, distances = torch.arange(512), torch.arange(32.0)[:, None]
    wanted = MPNetEncoder.relative_position_bucket(places[None] - places[:, None])
    assert torch.equal(bert.position_bias(distances, 512)[0, 0].long(), wanted)


def padded_batch(pad: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns token ids and mask of three rows, the second with padding."""
    input_ids = torch.randint(4, 50, (3, 12), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(input_ids)
    input_ids[1, 7:], mask[1, 7:] = pad, 0
    return input_ids, mask


NAMES = ", ".join(family.name for family in FAMILIES.values())
REFUSALS: dict[str, tuple[str, dict[str, Any], str]] = {
    "unknown family": (
        "bert",
        {"model_type": "xlm-roberta-wide"},
        'model_type: got "xlm-roberta-wide", which is no family of encoders that is built. '
        f"Allowed: {NAMES}. By its name XLM-RoBERTa is the nearest. docs/families.md says how to add one.",
    ),
    "refused family": (
        "bert",
        {"model_type": "fnet"},
        'model_type: got "fnet", but FNet is not built: it mixes the padding into a text\'s answer, which then depends '
        "on what else is in its batch. docs/families.md has the list.",
    ),
    "head of another task": (
        "roberta",
        {"architectures": ["RobertaForTokenClassification"]},
        'architectures: got ["RobertaForTokenClassification"], allowed is RobertaForSequenceClassification. It can do '
        "token-classification: say so as model.task in workload.toml.",
    ),
    "no head": (
        "distilbert",
        {"architectures": ["DistilBertForMultipleChoice"]},
        'architectures: got ["DistilBertForMultipleChoice"], allowed is DistilBertForSequenceClassification.',
    ),
    "problem type": (
        "bert",
        {"problem_type": "multi_label_classification"},
        'problem_type: got "multi_label_classification", but model.problem_type in workload.toml is '
        '"single_label_classification".',
    ),
    "positions": (
        "bert",
        {"position_embedding_type": "relative_key"},
        'position_embedding_type: got "relative_key", which is not built.',
    ),
    "decoder": ("bert", {"is_decoder": True}, "is_decoder: got true, which is not built."),
    "activation": (
        "distilbert",
        {"activation": "mish"},
        "hidden_act: got \"mish\". Input should be 'gelu', 'gelu_python', 'gelu_new', 'gelu_fast', "
        "'gelu_pytorch_tanh', 'relu', 'silu' or 'swish'.",
    ),
    "fewer positions behind the padding": (
        "roberta",
        {"max_position_embeddings": 33},
        "max_position_embeddings: got 33, room for 31 tokens, but model.max_input_tokens in workload.toml is 32. Lower "
        "it, or take a model of longer inputs.",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_text_classifier_that_is_not_built_is_refused(name: str, tmp_path: Path) -> None:
    family, changes, message = REFUSALS[name]
    make_checkpoint(tmp_path, family, "text-classification")
    file = tmp_path / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | changes))
    assert message_of(ProjectError, read, tmp_path, tmp_path, model_of("text-classification")) == f"{file}: {message}"


def test_a_task_that_is_not_built_of_the_family(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "roberta", "text-classification")
    model = model_of("text-pair-scoring", labels=LABELS, segments=(("left",), ("right",)))
    assert message_of(UsageError, read, tmp_path, tmp_path, model) == (
        f'{tmp_path / "config.json"}: model_type: got "roberta", but text-pair-scoring is built only for BERT.'
    )


def test_unnamed_labels_get_the_names_of_the_workload(tmp_path: Path) -> None:
    make_checkpoint(tmp_path, "roberta", "text-classification", labels=("LABEL_0", "LABEL_1", "LABEL_2"))
    assert read(tmp_path, tmp_path, model_of("text-classification")).family == FAMILIES["roberta"]


def test_inputs_that_are_left_open_have_no_token_types_where_the_model_has_none(tmp_path: Path) -> None:
    workload = make_workload(tmp_path / "workloads", "distilbert", "text-classification")
    assert plan_of(workload, "cpu").compile_inputs.encoder.inputs == ("input_ids", "attention_mask")
    typed = edited(workload, "[model]", '[model]\ninputs = ["input_ids", "token_type_ids"]')
    assert message_of(UsageError, plan_of, typed, "cpu") == (
        f'{workload.file}: model.inputs: got ["input_ids", "token_type_ids"], but the model knows no token types. '
        "Leave token_type_ids out."
    )


OWN = (
    "takes only this project's own networks, of BERT, RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT, ELECTRA, ERNIE, "
    "Data2Vec, ALBERT, MPNet"
)
TARGETS = {
    ("megatron-bert", "inf1"): "runtime: 'neuron' is not built for Megatron-BERT on this hardware. Inferentia "
    f"{OWN}: AWS's Neuron images have no transformers. Allowed: onnxruntime, openvino, tensorrt, and torchscript on "
    "CPU.",
    ("megatron-bert", "pytorch"): "runtime: 'torchscript' is not built for Megatron-BERT on this hardware. PyTorch on "
    f"a GPU {OWN}: a trace of transformers' module keeps its mask on the CPU. Allowed: onnxruntime, openvino, "
    "tensorrt, and torchscript on CPU.",
    ("squeezebert", "cpu-int8"): "precision: 'int8' is not built for SqueezeBERT. int8 would not change it: its layers "
    "are convolutions, and the quantiser takes products of matrices. Allowed: fp32.",
}


@pytest.mark.parametrize(("family", "target"), TARGETS)
def test_a_target_that_does_not_support_the_family_is_refused(family: str, target: str, tmp_path: Path) -> None:
    assert plan_of(make_workload(tmp_path / "own", "roberta", "text-classification"), target).variant_name == target
    workload = make_workload(tmp_path / "other", family, "text-classification")
    message = message_of(UsageError, plan_of, workload, target)
    assert message == f"{workload.file}: targets.{target}.{TARGETS[family, target]}"


@pytest.mark.slow
@pytest.mark.parametrize(("family", "task"), CELLS)
def test_a_build_answers_as_the_original(family: str, task: str, tmp_path: Path) -> None:
    workload = make_workload(tmp_path / "workloads", family, task)
    for target in ("cpu", "openvino", "cpu-torchscript"):
        exact = known(build(plan_of(workload, target)).parity)
        assert exact.identical_answers == exact.examples == 24


QUANTISED = [(row.model_type, row.task) for row in matrix.rows() if "cpu-int8" in row.targets]


@pytest.mark.slow
@pytest.mark.parametrize(("family", "task"), [cell for cell in CELLS if cell in QUANTISED])
def test_int8_is_near_the_original_and_a_spoiled_one_is_refused(
    family: str, task: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, limit = plan_of(make_workload(tmp_path / "workloads", family, task), "cpu-int8"), int8_limit(family, task)
    parity = known(build(planned).parity)
    assert 1e-4 < parity.mean_logit_difference < limit
    shutil.rmtree(planned.compiled)
    spoil(monkeypatch)
    with pytest.raises(ParityFailed, match=rf"the mean \w+ difference is \S+, at most {limit:g} is allowed"):
        build(planned)


@pytest.mark.slow
@pytest.mark.parametrize("family", [family.model_type for family in FAMILIES.values()])
def test_openvinos_int8_is_near_the_original(family: str, tmp_path: Path) -> None:
    """Fixed ranges of activations and weights of 7 bits are coarser, so the limit is larger than of `cpu-int8`."""
    task = "text-classification"
    parity = known(build(plan_of(make_workload(tmp_path / "workloads", family, task), "openvino-int8")).parity)
    assert 1e-4 < parity.mean_logit_difference < 1.25 * int8_limit(family, task)


SERVED = [(*cell, "cpu") for cell in CELLS if cell[0] in DIFFERENT or cell[1] == "text-classification"]
"""Every family, and every task of those whose code differs."""
OPENVINO = [
    pytest.param("bert", "text-classification", f"openvino{precision}", marks=marks)
    for precision, marks in {"": [], "-bf16": [needs_bf16], "-int8": []}.items()
]


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.parametrize(("family", "task", "target"), [*SERVED, *OPENVINO])
def test_a_real_triton_answers_as_the_predictor_that_the_gate_held_to_the_original(
    family: str, task: str, target: str, tmp_path: Path
) -> None:
    planned = plan_of(make_workload(tmp_path / "workloads", family, task), target)
    build(planned)
    rows = [example.row for example in planned.examples[:6]]
    settings = graphs.settings(planned.compile_inputs.encoder, planned.target, planned.checkpoint)
    engine = load_engine.load(verify.served_folder(planned, planned.repository), settings)
    own = Predictor(Preprocessor.load(version_folder(planned.repository, "tiny_tokenise")), engine)
    with start_triton(planned.repository, "tiny") as server:
        for row in rows:
            (wanted,) = own.predict([row])
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
