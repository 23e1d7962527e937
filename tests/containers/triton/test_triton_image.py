"""The image cannot be built here. What can be checked of it without Docker is."""

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.locks import pins
from workloads import ROOT

TRITON = ROOT / "containers" / "triton"
DOCKERFILE = (TRITON / "Dockerfile").read_text("utf-8")
SCRIPT = TRITON / "check-tensorrt"
GPU = TRITON / "gpu-requirements.txt"


def check(tmp_path: Path, first_line: str) -> subprocess.CompletedProcess[str]:
    """Runs the script with a trtexec that prints this first line, in an image with CUDA 13."""
    trtexec = tmp_path / "trtexec"
    trtexec.write_text(f"#!{sys.executable}\nimport sys\nassert sys.argv[1:] == ['--help']\nprint({first_line!r})\n")
    trtexec.chmod(trtexec.stat().st_mode | stat.S_IXUSR)
    environment = {"TRTEXEC": str(trtexec), "CUDA_VERSION": "13.0.1", "PATH": "/usr/bin:/bin"}
    return subprocess.run(["sh", SCRIPT, GPU], env=environment, capture_output=True, text=True, check=False)


def test_no_tag_floats() -> None:
    defaults = dict(re.findall(r"^ARG (\w+)=(\S*)$", DOCKERFILE, re.MULTILINE))
    [image] = re.findall(r"^FROM (\S+)$", DOCKERFILE, re.MULTILINE)
    for name, value in defaults.items():
        image = image.replace(f"${{{name}}}", value)
    registry = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
    assert image == f"{registry}/sagemaker-tritonserver:25.09-py3-cpu@${{DIGEST}}"
    assert "\nARG DIGEST\n" in DOCKERFILE, "without a default: whoever builds has looked it up"
    assert "TAG=25.09-py3 " in DOCKERFILE


def test_both_kinds_have_the_same_tokenizers() -> None:
    assert pins(GPU)["tokenizers"] == pins(TRITON / "requirements.txt")["tokenizers"]


@pytest.mark.parametrize("lock", ["requirements.txt", "gpu-requirements.txt"])
def test_numpy_and_torch_stay_the_images_own(lock: str) -> None:
    assert not {"numpy", "torch", "tensorrt"} & pins(TRITON / lock).keys()


def test_every_file_that_is_copied_is_there() -> None:
    [copied] = re.findall(r"^COPY (.+) /tmp/$", DOCKERFILE, re.MULTILINE)
    assert copied.split() == ["${REQUIREMENTS}", SCRIPT.name]
    assert all((TRITON / name).exists() for name in re.findall(r"\b(?:gpu-)?requirements\.txt", DOCKERFILE))


def test_pythons_tensorrt_is_the_images_own(tmp_path: Path) -> None:
    done = check(tmp_path, "&&&& RUNNING TensorRT.trtexec [TensorRT v101303] [b9] # trtexec --help")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_image_with_another_tensorrt_is_refused(tmp_path: Path) -> None:
    done = check(tmp_path, "&&&& RUNNING TensorRT.trtexec [TensorRT v110201] [b9] # trtexec --help")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "This image needs tensorrt-cu13-bindings==11.2.1.*, and gpu-requirements.txt has "
        "tensorrt-cu13-bindings==10.13.3.9: move it in pyproject.toml's triton-gpu-image and run `make lock`.\n"
    )


def test_a_trtexec_that_does_not_say_its_version_stops_the_build(tmp_path: Path) -> None:
    done = check(tmp_path, "CUDA driver version is insufficient")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{tmp_path}/trtexec does not say which TensorRT it is. Without it no engine can be checked in this image.\n"
    )
