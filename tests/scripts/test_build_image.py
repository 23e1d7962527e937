"""scripts/release/build_image.sh, with stand-ins for docker and for the AWS CLI that keep a registry in a folder."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.builders import known
from workloads import ROOT
from workloads.own_images import PINS, image_build, image_file, load_image

REGISTRY = "123456789012.dkr.ecr.eu-west-1.amazonaws.com"
BASE_DIGEST = "sha256:" + "b" * 64
PUSHED = "sha256:" + "a" * 64


@dataclass(frozen=True)
class Checkout:
    folder: Path

    def build(self, *arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}
        environment = {
            **inherited,
            "PATH": f"{self.folder}/bin:{Path(sys.executable).parent}:/usr/bin:/bin",
            "PYTHONPATH": "",
            "NOTES": str(self.folder / "notes"),
            "PUSHED": str(self.folder / "pushed"),
            "AWS_REGION": "eu-west-1",
            "BASE": BASE_DIGEST,
            "DIGEST": PUSHED,
            **variables,
        }
        command = ["bash", "scripts/release/build_image.sh", *arguments]
        return subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)

    def asked(self, program: str) -> list[str]:
        """Returns the calls of a stand-in since the last time, without the program's name."""
        notes = self.folder / "notes"
        lines = notes.read_text().splitlines() if notes.exists() else []
        notes.unlink(missing_ok=True)
        return [line.removeprefix(f"{program} ") for line in lines if line.startswith(f"{program} ")]

    def tag(self, kind: str) -> str:
        return f"{kind}-{image_build(kind, self.folder / 'containers').content()}"


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    ignored = shutil.ignore_patterns("__pycache__", "rehearsal", "checkpoint", "*.jsonl")
    for name in ("scripts", "workloads", "containers"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    shutil.copytree(Path(__file__).with_name("stand_ins"), tmp_path / "bin")
    return Checkout(tmp_path)


def test_an_image_is_built_checked_and_pushed_and_its_digest_recorded(checkout: Checkout) -> None:
    done = checkout.build("inf1")
    assert done.returncode == 0, done.stderr
    image = f"{REGISTRY}/transformers-in-production:{checkout.tag('inf1')}"
    base = "763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-inference-neuron"
    assert checkout.asked("docker") == [
        f"login --username AWS --password-stdin {base.partition('/')[0]}",
        f"login --username AWS --password-stdin {REGISTRY}",
        f"build --platform linux/amd64 --build-arg BASE={base}@{BASE_DIGEST} --build-arg SERVE_USER=root "
        f"--tag {image} "
        "--file containers/neuron/Dockerfile containers",
        f"run --rm --interactive --entrypoint python3 {image} - inf1",
        f"push --quiet {image}",
    ]
    left = known(load_image(checkout.folder, "inf1"))
    assert left.uri == f"{REGISTRY}/transformers-in-production@{PUSHED}"
    assert left.content == image_build("inf1", checkout.folder / "containers").content()
    image_file(checkout.folder, "inf1").unlink()
    again = checkout.build("inf1")
    assert again.stdout == f"inf1: nothing has changed, the image that was pushed is used: {PUSHED}\n"
    assert checkout.asked("docker") == []
    assert load_image(checkout.folder, "inf1") == left


def test_an_incomplete_image_is_not_pushed(checkout: Checkout) -> None:
    done = checkout.build("triton-25.09-gpu", "theirs", WHOLE="1")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "The image triton-25.09-gpu was built and is not whole, for the reason above: it was not pushed."
    )
    asked = checkout.asked("docker")
    assert any("--build-arg REQUIREMENTS=gpu-requirements.txt" in call for call in asked)
    assert not any(call.startswith("push") for call in asked)
    assert not image_file(checkout.folder, "triton-25.09-gpu").exists()


@pytest.mark.slow
def test_the_image_for_cpus_is_built_on_our_image_of_triton(checkout: Checkout) -> None:
    (checkout.folder / "pushed").mkdir()
    done = checkout.build("cpu", "theirs")
    assert done.returncode == 0, done.stderr
    builds = [call for call in checkout.asked("docker") if call.startswith("build ")]
    assert [call.partition("--tag ")[2].split()[0] for call in builds] == [
        f"{REGISTRY}/theirs:{checkout.tag(kind)}" for kind in ("triton-25.09-cpu", "cpu")
    ]
    assert f"--build-arg BASE={REGISTRY}/theirs@{PUSHED} " in builds[1]


@pytest.mark.slow
def test_a_base_that_was_mirrored_is_pinned_and_comes_from_ones_own_registry(checkout: Checkout) -> None:
    done = checkout.build("--mirror", "inf2")
    assert done.returncode == 0, done.stderr
    name = "pytorch-inference-neuronx:2.9.0-neuronx-py312-sdk2.30.0-ubuntu24.04"
    assert json.loads((checkout.folder / "containers" / PINS).read_text())["digests"] == {name: BASE_DIGEST}
    base = f"763104351884.dkr.ecr.eu-west-1.amazonaws.com/pytorch-inference-neuronx@{BASE_DIGEST}"
    copy = f"{REGISTRY}/transformers-in-production:base-{'b' * 64}"
    assert checkout.asked("docker")[-1] == f"buildx imagetools create --prefer-index=false --tag {copy} {base}"
    assert checkout.build("inf2").returncode == 0
    (build,) = [call for call in checkout.asked("docker") if call.startswith("build ")]
    assert f"--build-arg BASE={REGISTRY}/transformers-in-production@{BASE_DIGEST} " in build


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "code", "sentence"),
    [
        ({"REFUSED": "AccessDenied"}, 3, f"theirs in {REGISTRY} could not be read, for the reason above."),
        (
            {"AWS_REGION": "", "HOME": "/nowhere"},
            2,
            "No region is set: set AWS_REGION to the one that the image is for.",
        ),
        (
            {"BASE": "None"},
            3,
            "763104351884.dkr.ecr.eu-west-1.amazonaws.com has no "
            "pytorch-inference-neuron:1.13.1-neuron-py310-sdk2.20.2-ubuntu20.04: the image was not built.",
        ),
    ],
)
def test_missing_tools_and_files_are_errors(
    checkout: Checkout, variables: dict[str, str], code: int, sentence: str
) -> None:
    done = checkout.build("inf1", "theirs", **variables)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (code, sentence)
