"""Lint recognises archives for Neuron, and finds the requests that an endpoint would answer with an error."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.encoder.goldens import GOLDENS, Golden, to_json
from model_build.lint.check import lint
from model_build.lint.finding import Finding, RuntimeContext
from model_build.lint.model_config import parse
from model_build.lint.payloads import check_body
from model_build.plan import plan
from model_build.triton import repository
from tests.model_build.lint.good_archives import ON_CPU, SCORING, TORCHSCRIPT, Tree, write
from tests.model_build.lint.requests_to_scoring import BAD_REQUESTS, GOOD_REQUESTS, TENSOR, body
from tests.model_build.miniatures.tiny_bert import make_workload
from workloads import UsageError

LENGTHS = (16, 32)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository in miniature with what a build for Inf1 packs in laid-out/; the graphs alone are not real."""
    root = tmp_path_factory.mktemp("neuron")
    planned = plan(make_workload(root / "workloads", "text-pair-scoring"), "inf1", root)
    graphs = root / "graphs"
    graphs.mkdir()
    goldens = [Golden(1, length, (2, 7, 3), (0, 0, 0), {"logits": [1.0, 0.0], "score": [0.5]}) for length in LENGTHS]
    (graphs / GOLDENS).write_text(to_json(goldens))
    for length in LENGTHS:
        (graphs / f"model.{length}.neuron.pt").write_bytes(TORCHSCRIPT)
    repository.lay_out(root / "laid-out", planned.contents(graphs))
    return root


@pytest.fixture
def tree(root: Path) -> Tree:
    return {file.name: file.read_bytes() for file in (root / "laid-out").iterdir()}


@pytest.fixture
def on_inf1(root: Path) -> RuntimeContext:
    payloads = (root / "workloads" / "tiny" / "payloads.jsonl",)
    return RuntimeContext(instance_types=("inf1.6xlarge",), payloads=payloads, image="25.09")


def test_what_this_project_lays_out_for_neuron_has_no_findings(root: Path, tree: Tree, on_inf1: RuntimeContext) -> None:
    assert lint(root / "laid-out", on_inf1) == []
    assert lint(root / "laid-out", RuntimeContext()) == []


def put(name: str, content: bytes) -> Callable[[Tree], None]:
    return lambda tree: tree.update({name: content})


@pytest.mark.parametrize(
    ("plant", "code", "what"),
    [
        (
            lambda tree: tree.pop("tokenizer.json"),
            "missing-neuron-file",
            "tokenizer.json is not at the root of the archive.",
        ),
        (
            lambda tree: tree.pop("model.16.neuron.pt"),
            "missing-neuron-file",
            "model.16.neuron.pt is not at the root of the archive.",
        ),
        (
            put("settings.json", b"{}"),
            "unreadable-neuron-file",
            "settings.json cannot be read ('pad_to').",
        ),
        (put("weights.pkl", b"\x80\x02."), "pickle", "Pickles: 'weights.pkl'."),
    ],
)
def test_a_fault_is_found(
    plant: Callable[[Tree], Any], code: str, what: str, tmp_path: Path, tree: Tree, on_inf1: RuntimeContext
) -> None:
    plant(tree)
    assert [(each.code, each.what) for each in lint(write(tree, tmp_path), on_inf1)] == [(code, what)]


def test_a_type_without_neuron_cores_is_refused(tmp_path: Path, tree: Tree) -> None:
    [finding] = lint(write(tree, tmp_path), RuntimeContext(instance_types=("ml.inf2.xlarge", "ml.g5.xlarge")))
    assert (finding.code, finding.what) == (
        "wrong-hardware",
        "The model is compiled for NeuronCores, which 'ml.g5.xlarge' lacks.",
    )


Check = Callable[[str, bytes], list[Finding]]


@pytest.fixture
def scoring(tmp_path: Path) -> Check:
    """Lints the good miniature with one payload file."""
    archive = write(SCORING, tmp_path)

    def check(name: str, content: bytes) -> list[Finding]:
        file = tmp_path / name
        file.write_bytes(content)
        return lint(archive, dataclasses.replace(ON_CPU, payloads=(file,)))

    return check


@pytest.mark.parametrize("request_body", GOOD_REQUESTS.values(), ids=GOOD_REQUESTS)
def test_a_request_that_fits_has_no_findings(scoring: Check, request_body: bytes) -> None:
    assert scoring("payload.json", request_body) == []


@pytest.mark.parametrize(("code", "request_body"), BAD_REQUESTS.values(), ids=BAD_REQUESTS)
def test_a_request_that_does_not_fit_is_found(scoring: Check, code: str, request_body: bytes) -> None:
    findings = scoring("payload.json", request_body)
    assert [(finding.severity, finding.code, finding.where) for finding in findings] == [
        ("error", code, "payload.json")
    ]


def test_rows_are_checked_as_the_requests_they_become(scoring: Check) -> None:
    assert scoring("payloads.jsonl", b'{"text": "hello"}\n\n{"text": "you"}\n') == []
    wrong = scoring("payloads.jsonl", b'{"text": "hello"}\n{"query": "a"}\n{"text": "b"}\n{"query": "c"}\n')
    assert [(finding.where, finding.what) for finding in wrong] == [
        (
            "payloads.jsonl:2",
            "The request has the input 'QUERY', which 'pipeline' does not have. 2 lines have this problem.",
        ),
        ("payloads.jsonl:2", "The request lacks the input 'TEXT' of 'pipeline'. 2 lines have this problem."),
    ]


def test_a_body_above_the_services_limit_is_found(scoring: Check) -> None:
    room = 6_291_456 - len(body({**TENSOR, "data": [""]}))
    assert scoring("payload.json", body({**TENSOR, "data": ["a" * room]})) == []
    too_large = scoring("payload.json", body({**TENSOR, "data": ["a" * (room + 1)]}))
    assert [(finding.code, finding.what) for finding in too_large] == [
        ("payload-too-large", "The request has 6,291,457 bytes.")
    ]


def test_a_payload_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as refusal:
        lint(write(SCORING, tmp_path), dataclasses.replace(ON_CPU, payloads=(tmp_path / "gone.jsonl",)))
    assert str(refusal.value) == (
        f"{tmp_path}/gone.jsonl: cannot be read: No such file or directory. Allowed: a .jsonl file with one request "
        "per line, or a file that is one request body in KServe v2 JSON."
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["inputs", "name", "shape", "datatype", "data", "TEXT"]), inner)
        ),
    )
)
def test_no_json_is_a_traceback(document: object) -> None:
    config = parse(SCORING["tokenise/config.pbtxt"])  # type: ignore[arg-type]
    for request in (
        document,
        {"inputs": document},
        {"inputs": [document]},
        {"inputs": [{**TENSOR, "shape": document}]},
    ):
        check_body(json.dumps(request).encode(), "tokenise", config)
