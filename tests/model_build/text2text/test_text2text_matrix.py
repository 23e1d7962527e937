"""Every family is built whole: exported, held to `generate` by the gate, quantised; two are asked through Triton."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from transformers.utils import sentencepiece_model_pb2_new

from local_aws.process.triton import TritonServer
from model_build.execute import build
from model_build.parity import ParityFailed
from model_build.plan import BuildPlan, plan
from model_build.text2text import export
from model_build.text2text.verify import Original
from tests.builders import known, message_of
from tests.model_build.miniatures import tiny_t5
from tests.model_build.miniatures.tiny_bart import FAMILIES, WORKLOAD_TOML, make_workload
from tests.model_build.miniatures.tiny_t5 import LETTERS, make_texts
from tests.model_build.spoiled import spoil
from tests.quick_triton import start_triton
from workloads import UsageError

INT8 = {
    "bart": 0.5,
    "mbart": 0.6,
    "marian": 0.6,
    "pegasus": 0.45,
    "m2m_100": 0.5,
    "t5-v1.1": 0.9,
    "mt5": 0.9,
    "umt5": 0.2,
}
"""The most that a tiny model's logits, of up to 13, may be off in int8 on average: 1.3 times what they are and more."""
BEAMS: dict[str, Any] = {"num_beams": 3, "length_penalty": 1.5, "early_stopping": True, "no_repeat_ngram_size": 3}


def with_gate(kind: str) -> str:
    """Returns the workload.toml with the family's limit of int8: random weights hardly keep an answer."""
    wide = "parity = { max_metric_drop = 1.0 }"
    assert wide in WORKLOAD_TOML
    gate = f"parity = {{ max_metric_drop = 1.0, max_mean_logit_difference = {INT8[kind]} }}"
    return WORKLOAD_TOML.replace(wide, gate)


@pytest.mark.slow
@pytest.mark.parametrize("asked", [{}, BEAMS], ids=["greedy", "beams"])
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_family_is_built_with_identical_answers_and_near_ones_in_int8(
    kind: str, asked: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gate refuses a spoiled quantisation."""
    workload = make_workload(tmp_path / "workloads", kind, with_gate(kind), **asked)
    parity = known(build(plan(workload, "cpu", tmp_path)).parity)
    assert parity.identical_answers == parity.examples == 24
    assert parity.max_logit_difference < 0.05
    planned = plan(workload, "cpu-int8", tmp_path)
    int8 = known(build(planned).parity)
    assert 0.01 < int8.mean_logit_difference < INT8[kind]
    shutil.rmtree(planned.compiled)
    spoil(monkeypatch)
    with pytest.raises(ParityFailed, match=rf"the mean logit difference is \S+, at most {INT8[kind]:g} is allowed"):
        build(planned)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["bart", "marian"])
def test_a_real_triton_answers_with_beams_and_takes_parameters(kind: str, tmp_path: Path) -> None:
    asked = {**BEAMS, "temperature": 0.9}
    planned = plan(make_workload(tmp_path / "workloads", kind, **asked), "cpu", tmp_path)
    build(planned)
    texts = make_texts(6)
    with start_triton(planned.repository, "tiny") as server:
        assert answers(server, texts) == expected(planned, texts)
        drawn = {"do_sample": True, "temperature": 2.0, "seed": 7}
        assert answers(server, texts, drawn) == answers(server, texts, drawn)
        assert answers(server, texts, drawn) != answers(server, texts, {**drawn, "seed": 8})
        assert answers(server, texts, {"num_beams": 3}) == expected(planned, texts)
        status, refusal = post(server, texts, {"num_beams": 4})
        assert (status, refusal["error"]) == (
            400,
            "The parameter num_beams is 4, but has to be a whole number from 1 to 3.",
        )


def expected(planned: BuildPlan, texts: list[str]) -> list[str]:
    """The answers of transformers' `generate` with the checkpoint's own configuration."""
    folder = planned.checkpoint.folder
    original = Original.load(folder, export.load(folder))
    inputs = original.tokenizer(texts, padding=True, return_tensors="pt")
    said = original.model.generate(
        input_ids=inputs["input_ids"], attention_mask=inputs["attention_mask"], max_new_tokens=12
    )
    return [original.decode(row) for row in said]


def answers(server: TritonServer, texts: list[str], parameters: dict[str, Any] | None = None) -> list[str]:
    status, answer = post(server, texts, parameters)
    assert (status, [output["name"] for output in answer["outputs"]]) == (200, ["GENERATED"])
    said: list[str] = answer["outputs"][0]["data"]
    return said


def post(server: TritonServer, texts: list[str], parameters: dict[str, Any] | None = None) -> tuple[int, Any]:
    tensor = {"name": "TEXT", "shape": [len(texts), 1], "datatype": "BYTES", "data": texts}
    body = {"inputs": [tensor], **({"parameters": parameters} if parameters else {})}
    answer = server.invoke(json.dumps(body).encode(), {"Content-Type": "application/json"})
    return answer.status, json.loads(answer.body)


@pytest.mark.slow
def test_a_marian_is_built_from_its_sentencepiece_files(tmp_path: Path) -> None:
    workload = make_workload(tmp_path / "workloads", "marian", **BEAMS)
    write_marian(workload.path / "checkpoint")
    planned = plan(workload, "cpu", tmp_path)
    assert planned.checkpoint.folder.parent == tmp_path / "build" / "checkpoints"
    parity = known(build(planned).parity)
    assert parity.identical_answers == parity.examples == 24


def write_marian(folder: Path) -> None:
    """Puts Marian's files in the place of tokenizer.json: one piece for each letter."""
    proto: Any = sentencepiece_model_pb2_new
    model = proto.ModelProto()
    for piece, kind in [("<unk>", 2), ("<s>", 3), ("</s>", 3), *((letter, 1) for letter in ["▁", *LETTERS])]:
        model.pieces.add(piece=piece, score=-1.0, type=kind)
    (folder / "source.spm").write_bytes(model.SerializeToString())
    pieces = ["<pad>", "</s>", "<unk>", "▁", *LETTERS]
    (folder / "vocab.json").write_text(json.dumps({piece: index for index, piece in enumerate(pieces)}))
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()


CACHED = WORKLOAD_TOML.replace("max_queue_delay_ms", "response_cache_mb = 8\nmax_queue_delay_ms")
GUIDED = WORKLOAD_TOML.replace("[quality]", '[model.generation]\nguided = "input"\n\n[quality]')
GENERATION = "{folder}/checkpoint/generation_config.json: "
REFUSALS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "beams of a runtime without them": (
        WORKLOAD_TOML,
        "cuda",
        {"num_beams": 4},
        "num_beams: the checkpoint or model.generation asks for 4 beams, which 'cuda' does not search. Only "
        "onnxruntime supports beam search. Use it, or set model.generation.num_beams = 1 in workload.toml.",
    ),
    "drafts with beams": (
        GUIDED,
        "cpu",
        {"num_beams": 4},
        f"{GENERATION}model.generation.guided is 'input', which needs greedy decoding, but the checkpoint or "
        'model.generation sets beams, sampling or constraints. Set guided = "off" in workload.toml.',
    ),
    "a response cache with settings in requests": (
        CACHED,
        "cpu",
        {"num_beams": 4},
        "serving.response_cache_mb: Triton's cache knows a request only by its inputs, but requests to this model may "
        "set num_beams. Set response_cache_mb = 0 in workload.toml, or leave these out of the checkpoint's "
        "generation_config.json.",
    ),
    "a key that changes answers": (
        WORKLOAD_TOML,
        "cpu",
        {"penalty_alpha": 0.6},
        f"{GENERATION}penalty_alpha: got 0.6, which is not supported. Remove it. Supported: greedy search, beam search "
        "and sampling, with lengths, forced, suppressed and repeated tokens.",
    ),
    "an answer longer than it may be": (
        WORKLOAD_TOML,
        "cpu",
        {"min_length": 56},
        f"{GENERATION}min_length: an answer has at least 56 tokens, but model.max_output_tokens in workload.toml is "
        "12. Raise it, or set model.generation.min_length there.",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_unsupported_decoding_is_refused(name: str, tmp_path: Path) -> None:
    toml, target, asked, message = REFUSALS[name]
    workload = make_workload(tmp_path / "workloads", "bart", toml, **asked)
    assert message_of(UsageError, plan, workload, target, tmp_path) == message.format(folder=workload.path)


def test_the_workloads_own_beams_replace_the_checkpoints(tmp_path: Path) -> None:
    toml = WORKLOAD_TOML.replace("[quality]", "[model.generation]\nnum_beams = 1\n\n[quality]")
    greedy = make_workload(tmp_path / "workloads", "bart", toml, num_beams=4)
    assert '"generation"' not in plan(greedy, "cuda", tmp_path).document()["configuration"]["tiny/config.pbtxt"]


def test_a_runtime_that_reads_one_token_in_a_pass_is_served_without_drafts(tmp_path: Path) -> None:
    toml = GUIDED.replace("max_queue_delay_ms", "response_cache_mb = 8\nmax_queue_delay_ms")
    toml += '\n[targets.tensorrt]\nruntime = "tensorrt"\ninstance_types = ["ml.g5.xlarge"]\n'
    workload = tiny_t5.make_workload(tmp_path / "workloads", toml)
    guided = {
        runtime: "guided" in plan(workload, runtime, tmp_path).document()["configuration"]["tiny/config.pbtxt"]
        for runtime in ("cpu", "cuda", "tensorrt")
    }
    assert guided == {"cpu": True, "cuda": True, "tensorrt": False}
