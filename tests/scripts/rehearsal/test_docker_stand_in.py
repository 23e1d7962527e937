"""The stand-in for Docker: errors, and an image that it builds and pushes to the local account."""

import subprocess
import sys
from pathlib import Path

import pytest

from local_aws.process.container_credentials import ContainerCredentials
from local_aws.process.local_account import LocalAccount
from scripts.rehearsal.stand_ins import docker_images
from scripts.rehearsal.stand_ins.docker_images import DockerError, check_base, layer
from tests.scripts.rehearsal.conftest import client
from tests.scripts.rehearsal.roles import make_role
from workloads import ROOT

DIGEST = "sha256:" + "a" * 64
BASE = f"nvcr.io/nvidia/base@{DIGEST}"


@pytest.fixture
def context(tmp_path: Path) -> Path:
    folder = tmp_path / "context"
    folder.mkdir()
    (folder / "Dockerfile").write_text("ARG BASE\nFROM ${BASE}\n")
    return folder


def test_a_layer_changes_with_its_files(context: Path) -> None:
    first = layer(context)
    assert layer(context) == first
    (context / "Dockerfile").write_text("another")
    assert layer(context) != first


def test_a_base_without_a_digest_is_rejected() -> None:
    with pytest.raises(DockerError) as refused:
        check_base("nvcr.io/nvidia/base:1")
    assert str(refused.value) == "FROM names 'nvcr.io/nvidia/base:1', and not an image by its digest."


def test_an_unknown_command_is_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert docker_images.main(["system", "prune"]) == 1
    assert capsys.readouterr().err == ("docker: 'docker system prune' is not part of the rehearsal.\n")


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
    """Runs the program with a role's credentials, as a step of the pipeline does."""

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
        words = (
            "--platform",
            "linux/amd64",
            "--build-arg",
            f"BASE={BASE}",
            "--tag",
            image,
            "--file",
            "Dockerfile",
            ".",
        )
        assert self.docker(account, role, folder, "build", *words).returncode == 0
        run = ("run", "--rm", "--interactive", "--entrypoint", "python3", image, "-", "inf1")
        assert self.docker(account, role, folder, *run).returncode == 0
        return self.docker(account, role, folder, "push", "--quiet", image)

    def test_a_pushed_image_is_in_the_registry(self, rehearsing: LocalAccount, context: Path) -> None:
        folder, ecr = context, client(rehearsing, "ecr")
        ecr.create_repository(repositoryName="ours")
        registry = f"123456789012.dkr.ecr.{rehearsing.environment['AWS_REGION']}.amazonaws.com"
        role = make_role(rehearsing, "pushes", "codebuild.amazonaws.com", *PUSH)
        done = self.pushed(rehearsing, role, folder, f"{registry}/ours:inf1-1")
        assert done.returncode == 0, done.stderr
        (image,) = ecr.describe_images(repositoryName="ours", imageIds=[{"imageTag": "inf1-1"}])["imageDetails"]
        assert (folder / "stand_ins.log").read_text().splitlines()[-1] == (
            f"docker push ours:inf1-1: an uploaded layer and the image {image['imageDigest']}"
        )
        again = f"{registry}/ours@{image['imageDigest']}"
        words = ("--platform", "linux/amd64", "--build-arg", f"BASE={again}", "--tag", f"{registry}/ours:cpu-1")
        assert self.docker(rehearsing, role, folder, "build", *words, "--file", "Dockerfile", ".").returncode == 0
        words = (*words[:3], f"BASE={registry}/ours@{DIGEST}", *words[4:])
        missing = self.docker(rehearsing, role, folder, "build", *words, "--file", "Dockerfile", ".")
        assert missing.stderr.endswith(f"{registry}/ours@{DIGEST}: not found\n")

    def test_a_role_without_the_permission_cannot_push(self, rehearsing: LocalAccount, context: Path) -> None:
        client(rehearsing, "ecr").create_repository(repositoryName="theirs")
        registry = f"123456789012.dkr.ecr.{rehearsing.environment['AWS_REGION']}.amazonaws.com"
        role = make_role(rehearsing, "reads", "codebuild.amazonaws.com", *PUSH[:5])
        done = self.pushed(rehearsing, role, context, f"{registry}/theirs:inf1-1")
        assert done.returncode == 1
        assert "AccessDenied" in done.stderr
