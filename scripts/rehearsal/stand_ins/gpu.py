"""Replaces NVIDIA GPUs: nvidia-smi, trtexec, the packages of TensorRT and CUDA, and Triton's TensorRT backend.

A plan holds its ONNX graph, which runs on the CPU. It loads only for the compute capability that it was built for.
"""

import shutil
import sysconfig
from pathlib import Path

from tests.model_build.tensorrt.gpu_machine import A10G, L4, T4, install_all
from workloads import ROOT
from workloads.instances import COMPUTE_CAPABILITIES, family

DEVICES = {device.split(", ")[1]: device for device in (T4, A10G, L4)}
DESCRIPTION = "a stand-in for TensorRT, which runs a plan's graph on the CPU"
NATIVE, PYTHON = 'platform: "tensorrt_plan"', 'backend: "python"'
PACKAGE = """import sys

sys.path.append({packages!r})  # has onnx, which Triton's Python lacks
import fake_tensorrt

sys.modules.update(fake_tensorrt.modules(fake_tensorrt.Gpu({capability!r})))
"""
BACKEND = """import json
from pathlib import Path

import tensorrt
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        plan = json.loads(args["model_config"])["cc_model_filenames"][{capability!r}]
        file = Path(args["model_repository"], args["model_version"], plan)
        runtime = tensorrt.Runtime(tensorrt.Logger(tensorrt.Logger.WARNING))
        self.engine = runtime.deserialize_cuda_engine(file.read_bytes())
        self.outputs = [name for name in self.engine.names if name not in self.engine.inputs]

    def execute(self, requests):
        return [self.response(request) for request in requests]

    def response(self, request):
        tensors = {{name: pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in self.engine.inputs}}
        outputs = self.engine.run(self.outputs, tensors)
        return pb_utils.InferenceResponse([pb_utils.Tensor(*each) for each in zip(self.outputs, outputs)])
"""


def capability_of(instance_type: str) -> str | None:
    """Returns the compute capability of a type that has a stand-in, or None."""
    return COMPUTE_CAPABILITIES.get(family(instance_type))


def write_tools(folder: Path, device: str) -> Path:
    """Writes nvidia-smi and trtexec of a machine with `device`."""
    folder.mkdir(parents=True, exist_ok=True)
    install_all(folder, gpu=device)
    return folder


def write_packages(folder: Path, capability: str) -> Path:
    """Writes the packages tensorrt and cuda for a GPU of that capability."""
    folder.mkdir(parents=True, exist_ok=True)
    shutil.copy(ROOT / "tests" / "containers" / "fake_tensorrt.py", folder)
    text = PACKAGE.format(packages=sysconfig.get_path("purelib"), capability=capability)
    for name in ("tensorrt", "cuda"):
        (folder / f"{name}.py").write_text(text, "utf-8")
    return folder


def prepare(repository: Path, instance_type: str) -> bool:
    """Lets a Triton without a GPU serve the plans of a repository. Returns False if there are none."""
    capability, versions = capability_of(instance_type), {plan.parent for plan in repository.rglob("*.plan")}
    for version in versions if capability else ():
        write_packages(version, str(capability))
        config = version.parent / "config.pbtxt"
        text = config.read_text("utf-8")
        if NATIVE in text:
            (version / "model.py").write_text(BACKEND.format(capability=capability), "utf-8")
        config.write_text(text.replace(NATIVE, PYTHON).replace("KIND_GPU", "KIND_CPU"), "utf-8")
    return bool(capability and versions)
