"""The sources of each container image. Nothing is built: the tests read the files."""

import json
import re
import shutil
import subprocess
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

from tests.builders import message_of
from tests.locks import pins
from workloads import ROOT, UsageError
from workloads.own_images import PINS, TRITON_LOCKS, image_build

CONTAINERS = ROOT / "containers"
KINDS = ("inf1", "inf2", "cpu", *TRITON_LOCKS)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_dockerfile_copies_is_there_is_not_ignored_and_is_its_own(kind: str) -> None:
    ignored = [line for line in (CONTAINERS / ".dockerignore").read_text("utf-8").splitlines() if line[:1] != "#"]
    files = list(image_build(kind).files())
    assert len(files) > 2
    for file in files:
        name = file.relative_to(CONTAINERS).as_posix()
        assert file.is_file()
        assert not any(fnmatchcase(f"/{name}", f"*/{pattern.removeprefix('**/')}") for pattern in ignored), name
    if shutil.which("git") and (ROOT / ".git").exists():
        command = ["git", "check-ignore", *map(str, files)]
        assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout == ""


@pytest.mark.parametrize("kind", KINDS)
def test_a_dockerfile_has_one_base_without_account_or_tag_and_installs_from_locks_with_hashes(kind: str) -> None:
    build = image_build(kind)
    text = (CONTAINERS / build.dockerfile).read_text("utf-8")
    assert re.findall(r"^FROM (.*)$", text, re.MULTILINE) == ["${BASE}"]
    assert not re.findall(r"\d{12}", text)
    assert set(build.arguments) <= set(re.findall(r"^ARG (\w+)", text, re.MULTILINE))
    assert build.arguments["SERVE_USER"] == "root", "SageMaker expects it"
    assert text.index("ARG SERVE_USER=1000\n") < text.index("USER ${SERVE_USER}\n")
    for line in re.findall(r"pip install .*", text):
        assert "--no-cache-dir --require-hashes --only-binary :all: --no-deps -r" in line
    locks = [file for file in build.files() if file.name.endswith("requirements.txt")]
    assert locks
    assert all(pins(lock) for lock in locks)


def test_a_region_without_the_base_is_refused() -> None:
    assert message_of(UsageError, image_build("inf1").base_uri, "us-gov-west-1").startswith(
        "sagemaker-core does not know pytorch-inference-neuron:1.13.1-neuron-py310-sdk2.20.2-ubuntu20.04 in the region "
        "us-gov-west-1. Known: "
    )


def test_a_kind_that_there_is_not_is_refused() -> None:
    assert message_of(UsageError, image_build, "triton-24.05-gpu") == (
        "There is no image 'triton-24.05-gpu'. Known: inf1, inf2, cpu, triton-24.09-gpu, triton-25.04-cpu, "
        "triton-25.04-gpu, triton-25.09-cpu, triton-25.09-gpu, triton-26.05-cpu, triton-24.09-gpu-torch, "
        "triton-25.04-gpu-torch, triton-25.09-gpu-torch, triton-26.05-gpu-torch."
    )


@pytest.fixture
def containers(tmp_path: Path) -> Path:
    return shutil.copytree(CONTAINERS, tmp_path / "containers", ignore=shutil.ignore_patterns("__pycache__"))


def contents(containers: Path) -> dict[str, str]:
    return {kind: image_build(kind, containers).content() for kind in KINDS}


@pytest.mark.parametrize(
    ("changed", "kinds"),
    [
        ("neuron/placement.py", {"inf1", "inf2"}),
        ("batch/account.py", {"inf1", "inf2", "cpu"}),
        ("batch/Dockerfile", {"inf1", "inf2", "cpu"}),
        ("triton/gpu-requirements.txt", {"triton-25.09-gpu"}),
        ("triton/requirements.txt", {"cpu", "triton-25.04-cpu", "triton-25.09-cpu", "triton-26.05-cpu"}),
        ("triton/server_times.py", set(TRITON_LOCKS) | {"cpu"}),
        ("text2text/engine.py", set()),
        ("neuron/__pycache__/worker.cpython-310.pyc", set()),
    ],
)
def test_a_file_that_is_changed_changes_the_content_of_the_images_that_it_is_in(
    containers: Path, changed: str, kinds: set[str]
) -> None:
    before = contents(containers)
    file = containers / changed
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as stream:
        stream.write("\n# another\n")
    after = contents(containers)
    assert {kind for kind in KINDS if before[kind] != after[kind]} == kinds


def test_another_digest_of_the_base_changes_the_content(containers: Path) -> None:
    before = contents(containers)
    base = image_build("triton-25.09-cpu").base
    (containers / PINS).write_text(json.dumps({"digests": {base: "sha256:" + "c" * 64}}))
    after = contents(containers)
    assert {kind for kind in KINDS if before[kind] != after[kind]} == {"triton-25.09-cpu", "cpu"}
    assert image_build("triton-25.09-cpu", containers).base_digest() == "sha256:" + "c" * 64
    assert image_build("inf1", containers).base_digest() is None


def test_a_path_that_is_copied_and_is_not_there_is_refused(containers: Path) -> None:
    shutil.rmtree(containers / "encoder")
    message = message_of(UsageError, image_build("inf1", containers).content)
    assert message == f"{containers}/neuron/Dockerfile: COPY: encoder is not in {containers}."


def test_hadolint_finds_nothing_in_the_dockerfiles() -> None:
    hadolint = ROOT / ".venv-scanners" / "bin" / "hadolint"
    if not hadolint.exists():
        pytest.skip("hadolint is not installed: `make scanners`")
    files = sorted(map(str, CONTAINERS.glob("*/Dockerfile")))
    done = subprocess.run([hadolint, *files], capture_output=True, text=True, check=False)
    assert done.stdout == ""
    assert done.returncode == 0
