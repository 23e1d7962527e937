"""The image cannot be built here. What can be checked of it without Docker is."""

import re
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from workloads import ROOT

TRITON = ROOT / "containers" / "triton"
DOCKERFILE = (TRITON / "Dockerfile").read_text("utf-8")
SCRIPT = TRITON / "tensorrt-requirement"


def pins(name: str) -> dict[str, str]:
    lines = (TRITON / name).read_text("utf-8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def requirement(tmp_path: Path, first_line: str) -> subprocess.CompletedProcess[str]:
    """Runs the script with a trtexec that prints this first line, in an image with CUDA 13."""
    trtexec = tmp_path / "trtexec"
    trtexec.write_text(f"#!{sys.executable}\nimport sys\nassert sys.argv[1:] == ['--help']\nprint({first_line!r})\n")
    trtexec.chmod(trtexec.stat().st_mode | stat.S_IXUSR)
    environment = {"TRTEXEC": str(trtexec), "CUDA_VERSION": "13.0.1", "PATH": "/usr/bin:/bin"}
    return subprocess.run([SCRIPT], env=environment, capture_output=True, text=True, check=False)


def test_no_tag_floats() -> None:
    defaults = dict(re.findall(r"^ARG (\w+)=(\S*)$", DOCKERFILE, re.MULTILINE))
    [image] = re.findall(r"^FROM (\S+)$", DOCKERFILE, re.MULTILINE)
    for name, value in defaults.items():
        image = image.replace(f"${{{name}}}", value)
    assert image == "763104351884.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3-cpu"
    assert "TAG=25.09-py3 " in DOCKERFILE


def test_both_kinds_have_the_same_tokenizers() -> None:
    assert pins("gpu-requirements.txt").keys() == {"cuda-bindings", "tokenizers"}
    assert pins("gpu-requirements.txt")["tokenizers"] == pins("requirements.txt")["tokenizers"]


def test_every_file_that_is_copied_is_there() -> None:
    [copied] = re.findall(r"^COPY (.+) /tmp/$", DOCKERFILE, re.MULTILINE)
    assert copied.split() == ["${REQUIREMENTS}", SCRIPT.name]
    assert all((TRITON / name).exists() for name in re.findall(r"\b(?:gpu-)?requirements\.txt", DOCKERFILE))


@pytest.mark.parametrize(("number", "version"), [("v101303", "10.13.3"), ("v110201", "11.2.1")])
def test_pythons_tensorrt_is_the_images_own(tmp_path: Path, number: str, version: str) -> None:
    done = requirement(tmp_path, f"&&&& RUNNING TensorRT.trtexec [TensorRT {number}] [b9] # trtexec --help")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"tensorrt-cu13=={version}.*\n", "")


def test_a_trtexec_that_does_not_say_its_version_stops_the_build(tmp_path: Path) -> None:
    done = requirement(tmp_path, "CUDA driver version is insufficient")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{tmp_path}/trtexec does not say which TensorRT it is; pass it, as in "
        "--build-arg TENSORRT=tensorrt-cu13==10.13.3.9\n"
    )
