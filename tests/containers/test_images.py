"""The parts of the Dockerfiles and of the containers' code that can be checked without Docker."""

import ast
import importlib.metadata
import re
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.locks import pins
from workloads import ROOT

CONTAINERS = ROOT / "containers"
TRITON = CONTAINERS / "triton"
FILES = {"__init__.py", "archive_reader.py", "container_errors.py", "embedded_metrics.py", "grouping.py"}
FILES |= {"worker_process.py"}
COMMON = FILES | {"encoder", "batch"}
SHIPPED = {"batch": COMMON, "neuron": COMMON | {"neuron"}}
SERVING = {"numpy", "onnxruntime", "tokenizers", "triton_python_backend_utils"}
ALLOWED = {
    "batch": {"boto3", "botocore", "numpy"},
    "encoder": SERVING | {"cuda", "openvino", "tensorrt", "tensorrt_bindings", "torch"},
    "neuron": {"httptools", "numpy", "uvloop"},
    "text2text": SERVING | {"cuda", "tensorrt", "tensorrt_bindings", "torch"},
}
"""Packages that each folder may import. Only the adapter of a runtime imports that runtime."""
NOT_PACKAGED = {"encoder/engines/tensorrt_engine.py"}  # only the build's gate on a GPU loads it
GPU_TORCH = TRITON / "gpu-torch-requirements.txt"
CPU, GPU, GPU_2409, GPU_CUDA_12 = (
    TRITON / "requirements.txt",
    TRITON / "gpu-requirements.txt",
    TRITON / "gpu-2409-requirements.txt",
    TRITON / "gpu-cuda12-requirements.txt",
)


def imports(file: Path) -> Iterator[tuple[int, str]]:
    """Yields the level and the first name of each import. The file must parse as Inf1's Python 3.10."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"), feature_version=(3, 10))):
        if isinstance(node, ast.Import):
            yield from ((0, alias.name.split(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            names = [node.module] if node.module else [alias.name for alias in node.names]
            yield from ((node.level, name.split(".")[0]) for name in names)


@pytest.mark.parametrize("image", SHIPPED)
def test_an_image_copies_the_code_that_it_imports(image: str) -> None:
    dockerfile = (CONTAINERS / image / "Dockerfile").read_text("utf-8")
    copied = re.findall(r"^COPY (.+) /opt/program/containers/(\S*)$", dockerfile, re.MULTILINE)
    names = {source: name or source for sources, name in copied for source in sources.split()}
    assert names == {name: name for name in SHIPPED[image]}
    packages = {name.removesuffix(".py") for name in names} | {"neuron"}  # a batch imports it only for Neuron's models
    for file in (file for name in names for file in (CONTAINERS / name).rglob("*.py")):
        if file.relative_to(CONTAINERS).as_posix() not in NOT_PACKAGED:
            depth = len(file.relative_to(CONTAINERS).parts)
            assert {name for level, name in imports(file) if level == depth} <= packages, file


@pytest.mark.parametrize("folder", ALLOWED)
def test_code_imports_only_packages_of_its_container(folder: str) -> None:
    for file in (CONTAINERS / folder).rglob("*.py"):
        absolute = {name for level, name in imports(file) if not level}
        assert absolute <= ALLOWED[folder] | sys.stdlib_module_names, file


def test_no_code_uses_pickle() -> None:
    for file in CONTAINERS.rglob("*.py"):
        assert not {name for _, name in imports(file)} & {"pickle", "cloudpickle", "dill", "joblib", "shelve"}, file


@pytest.mark.parametrize(
    ("lock", "names"),
    [
        ("batch/requirements.txt", ("boto3", "botocore", "s3transfer")),
        ("neuron/requirements.txt", ("httptools", "tokenizers", "uvloop")),
        ("triton/requirements.txt", ("onnxruntime", "openvino", "tokenizers")),
    ],
)
def test_the_pins_are_the_versions_of_the_tests(lock: str, names: tuple[str, ...]) -> None:
    pinned = pins(CONTAINERS / lock)
    assert {name: pinned[name] for name in names} == {name: importlib.metadata.version(name) for name in names}


@pytest.mark.parametrize(
    "lock", [CONTAINERS / "neuron/requirements.txt", TRITON / "requirements.txt", GPU, GPU_2409, GPU_CUDA_12]
)
def test_numpy_torch_and_libnvinfer_stay_the_images_own(lock: Path) -> None:
    names = pins(lock).keys()
    assert not {"numpy", "torch"} & names
    bindings = {"tensorrt-cu12-bindings", "tensorrt-cu13-bindings"}  # other packages of TensorRT bring libnvinfer
    assert {name for name in names if name.startswith("tensorrt")} <= bindings


def test_the_gpu_images_have_the_same_tokenizers() -> None:
    assert len({pins(lock)["tokenizers"] for lock in (CPU, GPU, GPU_2409, GPU_CUDA_12, GPU_TORCH)}) == 1


def test_the_torch_of_a_gpu_image_brings_a_cuda_that_the_driver_of_24_09_starts() -> None:
    pinned = pins(GPU_TORCH)
    assert pinned["nvidia-cuda-runtime-cu12"].startswith("12.6.")
    assert "numpy" not in pinned
    assert "tensorrt" not in "".join(pinned), "check-tensorrt is not run"


OTHER_CUDA = "cuda-bindings==13.0.3 \\\ntensorrt-cu12-bindings==10.9.0.34 \\\n"
MOVE = "and run `make lock`.\n"
TENSORRT = [
    ("[TensorRT v101303] [b9]", "13.0.1", GPU, ""),
    ("[TensorRT v100900] [b34]", "12.9.0.043", GPU_CUDA_12, ""),
    ("[TensorRT v100400] [b26]", "12.6.1.006", GPU_2409, ""),
    (  # TensorRT compares all four parts of a plan's version
        "[TensorRT v101303] [b12]",
        "13.0.1",
        GPU,
        "This image needs tensorrt-cu13-bindings==10.13.3.12, and gpu-requirements.txt has "
        f"tensorrt-cu13-bindings==10.13.3.9: move it in pyproject.toml's triton-gpu-image {MOVE}",
    ),
    (
        "[TensorRT v100900] [b34]",
        "12.9.0.043",
        OTHER_CUDA,
        "This image needs cuda-bindings==12.*, and gpu-cuda12-requirements.txt has cuda-bindings==13.0.3: move it in "
        f"pyproject.toml's triton-gpu-cuda12-image {MOVE}",
    ),
    (
        "no version",
        "13.0.1",
        GPU,
        "{folder}/trtexec does not say which TensorRT it is. Without it no engine can be checked in this image.\n",
    ),
]


@pytest.mark.parametrize(("version", "cuda", "lock", "error"), TENSORRT)
def test_the_bindings_must_be_of_the_images_tensorrt_and_cuda(
    version: str, cuda: str, lock: Path | str, error: str, tmp_path: Path
) -> None:
    """check-tensorrt runs with a trtexec that prints this version, in an image with this CUDA."""
    trtexec = tmp_path / "trtexec"
    line = f"&&&& RUNNING TensorRT.trtexec {version} # trtexec --help"
    trtexec.write_text(f"#!{sys.executable}\nimport sys\nassert sys.argv[1:] == ['--help']\nprint({line!r})\n")
    trtexec.chmod(trtexec.stat().st_mode | stat.S_IXUSR)
    if isinstance(lock, str):
        (tmp_path / GPU_CUDA_12.name).write_text(lock)
        lock = tmp_path / GPU_CUDA_12.name
    environment = {"TRTEXEC": str(trtexec), "CUDA_VERSION": cuda, "PATH": "/usr/bin:/bin"}
    command = ["sh", str(TRITON / "check-tensorrt"), str(lock)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (int(bool(error)), "", error.format(folder=tmp_path))
