"""The image cannot be built here. What can be checked of it without Docker is."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.locks import pins
from workloads import ROOT

TRITON = ROOT / "containers" / "triton"
SCRIPT = TRITON / "check-tensorrt"
GPU = TRITON / "gpu-requirements.txt"
GPU_CUDA_12 = TRITON / "gpu-cuda12-requirements.txt"


def check(
    tmp_path: Path, first_line: str, *, cuda: str = "13.0.1", lock: Path = GPU
) -> subprocess.CompletedProcess[str]:
    """Runs the script with a trtexec that prints this first line, in an image with this CUDA."""
    trtexec = tmp_path / "trtexec"
    trtexec.write_text(f"#!{sys.executable}\nimport sys\nassert sys.argv[1:] == ['--help']\nprint({first_line!r})\n")
    trtexec.chmod(trtexec.stat().st_mode | stat.S_IXUSR)
    environment = {"TRTEXEC": str(trtexec), "CUDA_VERSION": cuda, "PATH": "/usr/bin:/bin"}
    return subprocess.run(["sh", SCRIPT, lock], env=environment, capture_output=True, text=True, check=False)


def test_both_kinds_have_the_same_tokenizers() -> None:
    wanted = pins(TRITON / "requirements.txt")["tokenizers"]
    assert {pins(lock)["tokenizers"] for lock in (GPU, GPU_CUDA_12)} == {wanted}


@pytest.mark.parametrize("lock", ["requirements.txt", GPU.name, GPU_CUDA_12.name])
def test_numpy_torch_and_libnvinfer_stay_the_images_own(lock: str) -> None:
    names = pins(TRITON / lock).keys()
    assert not {"numpy", "torch"} & names
    assert {name for name in names if name.startswith("tensorrt")} <= {
        "tensorrt-cu12-bindings",
        "tensorrt-cu13-bindings",
    }, "other packages of TensorRT fetch libnvinfer from NVIDIA's index"


@pytest.mark.parametrize(
    ("version", "cuda", "lock"),
    [
        ("[TensorRT v101303] [b9]", "13.0.1", GPU),
        ("[TensorRT v101303]", "13.0.1", GPU),  # some do not print the build
        ("[TensorRT v100900] [b34]", "12.9.0.043", GPU_CUDA_12),
    ],
)
def test_pythons_tensorrt_is_the_images_own(tmp_path: Path, version: str, cuda: str, lock: Path) -> None:
    done = check(tmp_path, f"&&&& RUNNING TensorRT.trtexec {version} # trtexec --help", cuda=cuda, lock=lock)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_image_with_another_tensorrt_is_refused(tmp_path: Path) -> None:
    done = check(tmp_path, "&&&& RUNNING TensorRT.trtexec [TensorRT v110201] [b9] # trtexec --help")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "This image needs tensorrt-cu13-bindings==11.2.1.9, and gpu-requirements.txt has "
        "tensorrt-cu13-bindings==10.13.3.9: move it in pyproject.toml's triton-gpu-image and run `make lock`.\n"
    )


def test_an_image_with_another_build_of_the_same_tensorrt_is_refused(tmp_path: Path) -> None:
    """TensorRT compares all four parts of a plan's version."""
    done = check(tmp_path, "&&&& RUNNING TensorRT.trtexec [TensorRT v101303] [b12] # trtexec --help")
    assert done.returncode == 1
    assert done.stderr.startswith("This image needs tensorrt-cu13-bindings==10.13.3.12, and gpu-requirements.txt has ")


def test_bindings_of_another_cuda_than_the_images_are_refused(tmp_path: Path) -> None:
    lock = tmp_path / "gpu-cuda12-requirements.txt"
    lock.write_text("cuda-bindings==13.0.3 \\\ntensorrt-cu12-bindings==10.9.0.34 \\\n")
    done = check(tmp_path, "&&&& RUNNING TensorRT.trtexec [TensorRT v100900] [b34] #", cuda="12.9.0.043", lock=lock)
    assert done.returncode == 1
    assert done.stderr == (
        "This image needs cuda-bindings==12.*, and gpu-cuda12-requirements.txt has cuda-bindings==13.0.3: move it in "
        "pyproject.toml's triton-gpu-cuda12-image and run `make lock`.\n"
    )


def test_a_trtexec_that_does_not_say_its_version_stops_the_build(tmp_path: Path) -> None:
    done = check(tmp_path, "CUDA driver version is insufficient")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"{tmp_path}/trtexec does not say which TensorRT it is. Without it no engine can be checked in this image.\n"
    )
