"""The stand-in for Docker: what it refuses in a Dockerfile, and an image that it builds and pushes to the account."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from local_aws.process.container_credentials import ContainerCredentials
from local_aws.process.local_account import LocalAccount
from scripts.rehearsal.stand_ins import docker_images
from scripts.rehearsal.stand_ins.docker_images import Failed, build, compile_all, manifest
from tests.scripts.rehearsal.conftest import client
from tests.scripts.rehearsal.roles import make_role
from workloads import ROOT

DIGEST = "sha256:" + "a" * 64
DOCKERFILE = """# a comment
ARG BASE
FROM ${BASE}
ARG REQUIREMENTS=requirements.txt
COPY own/${REQUIREMENTS} \\
     own/serve /tmp/
COPY own /opt/own
RUN pip install -r /tmp/${REQUIREMENTS}
"""
Context = Callable[..., Path]


@pytest.fixture
def context(tmp_path: Path) -> Context:
    def make(**files: str) -> Path:
        kept = {"Dockerfile": DOCKERFILE, "own/requirements.txt": "a==1", "own/serve": "#!/bin/sh", "own/a.py": "a = 1"}
        for name, text in (kept | {name.replace("__", "/"): text for name, text in files.items()}).items():
            file = tmp_path / "context" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return tmp_path / "context"

    return make


def packed(folder: Path, base: str = f"nvcr.io/nvidia/base@{DIGEST}") -> bytes:
    return build(folder / "Dockerfile", folder, {"BASE": base})


def test_an_image_has_what_copy_names_and_its_digest_changes_with_it(context: Context) -> None:
    one = packed(context())
    assert packed(context()) == one
    assert b"opt/own/a.py" in one
    assert b"tmp/requirements.txt" in one
    assert manifest(packed(context(own__serve="#!/bin/sh -e")), {}) != manifest(one, {})


def test_a_base_without_a_digest_is_refused(context: Context) -> None:
    folder = context()
    with pytest.raises(Failed) as refused:
        packed(folder, "nvcr.io/nvidia/base:1")
    assert str(refused.value) == (
        f"{folder}/Dockerfile: FROM names 'nvcr.io/nvidia/base:1', and not an image by its digest."
    )


def test_a_file_that_is_missing_or_ignored_is_refused(context: Context) -> None:
    folder = context(**{".dockerignore": "**/serve\n"})
    with pytest.raises(Failed) as refused:
        packed(folder)
    assert str(refused.value) == (f'failed to compute cache key: "/own/serve": not found in {folder}, or ignored')
    (folder / ".dockerignore").unlink()
    (folder / "own/requirements.txt").unlink()
    with pytest.raises(Failed, match=r"own/requirements\.txt"):
        packed(folder)


def test_python_that_does_not_compile_fails_the_smoke_test(context: Context) -> None:
    with pytest.raises(Failed, match=r"^/opt/own/a.py: "):
        compile_all(packed(context(own__a="unused", **{"own/a.py": "def a(:"})))


def test_a_command_of_dockers_that_is_not_known_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert docker_images.main(["system", "prune"]) == 1
    assert capsys.readouterr().err == (
        "docker: 'docker system prune' is not among the commands that the rehearsal knows.\n"
    )


AWS = ROOT / ".venv-aws-cli/bin/aws"
PUSH = [
    "ecr:GetAuthorizationToken",
    "ecr:BatchCheckLayerAvailability",
    "ecr:InitiateLayerUpload",
    "ecr:UploadLayerPart",
    "ecr:CompleteLayerUpload",
    "ecr:PutImage",
    "ecr:DescribeImages",
    "ecr:BatchGetImage",
]


@pytest.mark.slow
@pytest.mark.integration
@pytest.mark.skipif(not AWS.exists(), reason="there is no AWS CLI: `make aws-cli` installs one")
class TestPushed:
    """Runs the program itself, as a step does, with a role's credentials."""

    def docker(self, account: LocalAccount, role: str, folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
        stand_ins = ROOT / "scripts/rehearsal/stand_ins"
        with ContainerCredentials.serve(account.environment, role) as credentials:
            path = f"{stand_ins}:{AWS.parent}:{Path(sys.executable).parent}:/usr/bin:/bin"
            log = {"STAND_INS_LOG": str(folder / "stand_ins.log"), "REHEARSAL_PRIVILEGED": "yes"}
            return subprocess.run(
                ["docker", *words],
                cwd=folder,
                env={"PATH": path, "HOME": str(folder), **log, **credentials},
                capture_output=True,
                text=True,
                input="secret",
                check=False,
            )

    def pushed(self, account: LocalAccount, role: str, folder: Path, image: str) -> "subprocess.CompletedProcess[str]":
        base = f"BASE=nvcr.io/nvidia/base@{DIGEST}"
        words = ("--platform", "linux/amd64", "--build-arg", base, "--tag", image, "--file", "Dockerfile", ".")
        assert self.docker(account, role, folder, "build", *words).returncode == 0
        run = ("run", "--rm", "--interactive", "--entrypoint", "python3", image, "-", "inf1")
        assert self.docker(account, role, folder, *run).returncode == 0
        return self.docker(account, role, folder, "push", "--quiet", image)

    def test_it_is_in_the_accounts_registry_by_its_digest(self, rehearsing: LocalAccount, context: Context) -> None:
        folder, ecr = context(), client(rehearsing, "ecr")
        ecr.create_repository(repositoryName="ours")
        registry = f"123456789012.dkr.ecr.{rehearsing.environment['AWS_REGION']}.amazonaws.com"
        role = make_role(rehearsing, "pushes", "codebuild.amazonaws.com", *PUSH)
        done = self.pushed(rehearsing, role, folder, f"{registry}/ours:inf1-1")
        assert done.returncode == 0, done.stderr
        (image,) = ecr.describe_images(repositoryName="ours", imageIds=[{"imageTag": "inf1-1"}])["imageDetails"]
        _, document = manifest(packed(folder), {"image": "inf1-1"})
        assert image["imageDigest"] == docker_images.digest_of(document.encode())
        assert (folder / "stand_ins.log").read_text().splitlines()[-1] == (
            f"docker push ours:inf1-1: the layer was uploaded and the image put as {image['imageDigest']}"
        )
        again = f"{registry}/ours@{image['imageDigest']}"
        words = ("--platform", "linux/amd64", "--build-arg", f"BASE={again}", "--tag", f"{registry}/ours:cpu-1")
        assert self.docker(rehearsing, role, folder, "build", *words, "--file", "Dockerfile", ".").returncode == 0
        words = (*words[:3], f"BASE={registry}/ours@{DIGEST}", *words[4:])
        missing = self.docker(rehearsing, role, folder, "build", *words, "--file", "Dockerfile", ".")
        assert missing.stderr.endswith(f"{registry}/ours@{DIGEST}: not found\n")

    def test_a_role_without_the_grant_does_not_push(self, rehearsing: LocalAccount, context: Context) -> None:
        client(rehearsing, "ecr").create_repository(repositoryName="theirs")
        registry = f"123456789012.dkr.ecr.{rehearsing.environment['AWS_REGION']}.amazonaws.com"
        role = make_role(rehearsing, "reads", "codebuild.amazonaws.com", *PUSH[:5])
        done = self.pushed(rehearsing, role, context(), f"{registry}/theirs:inf1-1")
        assert done.returncode == 1
        assert "AccessDenied" in done.stderr
