"""An archive with the models of two workloads: which one answers, and builds that cannot share an archive."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from inference_recommender.client import HttpServer, InferenceClient, Refused
from inference_recommender.kserve import content_type, encode
from inference_recommender.payloads import tensors
from local_aws.process.triton import TritonServer
from local_aws.process.triton_toolchain import DEFAULT_TOOLCHAIN
from model_build.execute import build
from model_build.plan import BuildPlan, plan
from tests.builders import message_of
from tests.model_build.miniatures import tiny_bert
from tests.quick_triton import over_tcp, start_triton
from workloads import ProjectError, WorkloadFolder, load_workload


def name_models(folder: Path, *entries: str) -> WorkloadFolder:
    """Gives the workload `tiny` these tables of [[models]]."""
    file = folder / "tiny" / "workload.toml"
    file.write_text(file.read_text("utf-8") + "".join(f"\n[[models]]\n{entry}\n" for entry in entries), "utf-8")
    return load_workload("tiny", folder)


@pytest.fixture
def classifier(tiny_copy: Path) -> WorkloadFolder:
    """The workload `intents` beside the built text2text workload `tiny`: a classifier, not built."""
    made = tiny_bert.make_workload(tiny_copy / "elsewhere", "text-classification")
    folder = Path(shutil.move(made.path, tiny_copy / "workloads" / "intents"))
    file = folder / "workload.toml"
    file.write_text(file.read_text("utf-8").replace('name = "tiny"', 'name = "intents"'), "utf-8")
    return load_workload("intents", tiny_copy / "workloads")


@pytest.fixture
def both(classifier: WorkloadFolder, tiny_copy: Path) -> BuildPlan:
    build(plan(classifier, "cpu", tiny_copy))
    planned = plan(name_models(tiny_copy / "workloads", 'workload = "intents"'), "cpu", tiny_copy)
    build(planned)
    return planned


@pytest.fixture
def server(both: BuildPlan) -> Iterator[TritonServer]:
    with start_triton(both.repository, both.default_model, both.environment) as server:
        yield server


@pytest.mark.integration
@pytest.mark.skipif(not DEFAULT_TOOLCHAIN.exists(), reason="needs the Triton environment: make setup")
def test_one_endpoint_answers_with_the_model_that_a_request_names(both: BuildPlan, server: TritonServer) -> None:
    row = {"text": "abc"}
    with over_tcp(server) as url, HttpServer(url, both.default_model) as default:
        client = InferenceClient(default)
        own, other = (client.infer(tensors(row, row), parameters=each) for each in (None, {"model": "intents"}))
        in_json = InferenceClient(default, binary=False).infer(tensors(row), ["LABEL"], {"model": "intents"})
        with pytest.raises(Refused, match="Allowed: tiny with CORRECTED; intents with LABEL, SCORE") as refused:
            client.infer(tensors(row), parameters={"model": "intent"})
    assert refused.value.status == 400
    for name, answer in {"tiny": own, "intents": other}.items():
        with over_tcp(server) as url, HttpServer(url, name) as alone:
            direct = InferenceClient(alone).infer(tensors(row, row))
        assert {key: value.tolist() for key, value in answer.items()} == {k: v.tolist() for k, v in direct.items()}
    assert own.keys() == {"CORRECTED"}
    assert {key: value.tolist() for key, value in in_json.items()} == {"LABEL": other["LABEL"][:1].tolist()}
    for binary in (True, False):  # as InvokeEndpoint sends it
        request = encode(tensors(row), parameters={"model": "intents"}, binary=binary)
        invoked = server.invoke(request.content, {"Content-Type": content_type(request.header_size)})
        assert (invoked.status, b"LABEL" in invoked.body, b"CORRECTED" in invoked.body) == (200, True, False)


def test_the_second_model_must_be_built_first(classifier: WorkloadFolder, tiny_copy: Path) -> None:
    named = name_models(tiny_copy / "workloads", 'workload = "intents"')
    file = tiny_copy / "build" / "intents" / "cpu" / "artifact.json"
    assert message_of(ProjectError, plan, named, "cpu", tiny_copy) == (
        f"{file} does not exist: build it with `python -m model_build build intents --target cpu`."
    )


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        (
            ('workload = "intents"\ntarget = "inf1"',),
            "models.0: target 'inf1' is for Inferentia, whose server has one model. Allowed: targets that Triton "
            "serves. Build or name another target.",
        ),
        (
            ('workload = "intents"\ntarget = "pytorch"',),
            "models.0: target 'pytorch' needs the gpu image, and 'cpu' the cpu image. Allowed: targets of one image. "
            "Name another target of that workload.",
        ),
        (
            ('workload = "intents"', 'workload = "intents"\ntarget = "inf1"'),
            "(document): models: 'intents' is named twice. Allowed: each workload once, beside this one, 'tiny'. "
            "Remove the second entry.",
        ),
        (
            ('workload = "tiny"',),
            "(document): models: 'tiny' is named twice. Allowed: each workload once, beside this one, 'tiny'. "
            "Remove the second entry.",
        ),
    ],
)
def test_models_that_cannot_share_an_archive_are_refused(
    classifier: WorkloadFolder, tiny_copy: Path, entries: tuple[str, ...], problem: str
) -> None:
    workloads = tiny_copy / "workloads"
    message = message_of(ProjectError, lambda: plan(name_models(workloads, *entries), "cpu", tiny_copy))
    assert message == f"{workloads}/tiny/workload.toml: {problem}"
