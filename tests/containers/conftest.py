"""A tiny served model: its repository, its serving code in this process, and a real Triton."""

from collections.abc import Iterator

import pytest

from containers.text2text.generator import TextGenerator
from local_aws.process.triton import TritonServer
from model_build.execute import build
from model_build.plan import BuildPlan, plan
from model_build.text2text.repository import settings
from model_build.torch_threads import threads_kept
from model_build.triton import repository
from tests.model_build.miniatures.tiny_t5 import make_workload
from tests.model_build.shared_exports import sharing
from tests.quick_triton import start_triton
from workloads import TextToText


@pytest.fixture(scope="session", autouse=True)
def shared_exports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The tiny T5s are those that tests/model_build exports, too."""
    with sharing(tmp_path_factory.getbasetemp()):
        yield


@pytest.fixture(autouse=True)
def torch_threads_kept() -> Iterator[None]:
    """A TorchScript engine sets them for the whole process, and other files' tests run in it, too."""
    with threads_kept():
        yield


@pytest.fixture(scope="session")
def served(shared_exports: None, tmp_path_factory: pytest.TempPathFactory) -> BuildPlan:
    """The plan of a tiny workload that has been built."""
    root = tmp_path_factory.mktemp("served")
    planned = plan(make_workload(root / "workloads"), "cpu", root)
    build(planned)
    return planned


@pytest.fixture(scope="session")
def generator(served: BuildPlan) -> TextGenerator:
    model = served.workload.model
    assert isinstance(model, TextToText)
    version = repository.version_folder(served.repository, "tiny")
    return TextGenerator.load(version, settings(model, served.target, served.checkpoint))


@pytest.fixture(scope="session")
def triton(served: BuildPlan) -> Iterator[TritonServer]:
    """A Triton server on free loopback ports; stopped whatever happens."""
    with start_triton(served.repository, "tiny") as server:
        yield server
