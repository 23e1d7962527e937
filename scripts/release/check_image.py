"""Asks an image whether it is whole. build_image.sh runs it in a container of the image, by way of standard input.

    docker run --rm --interactive --entrypoint python3 IMAGE - KIND < scripts/release/check_image.py

In an image of Triton it starts what SageMaker starts, on a model of a few lines, and waits until /ping says 200. In an
image for Inferentia it loads what the server loads: without a chip there is nothing that could answer. It needs nothing
but Python 3.10, and is no part of the image.
"""

import importlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

NEEDED = {
    "inf1": ("numpy", "torch", "torch_neuron", "tokenizers", "httptools", "uvloop", "containers.neuron.application"),
    "inf2": ("numpy", "torch", "torch_neuronx", "tokenizers", "httptools", "uvloop", "containers.neuron.application"),
    "cpu": (
        "numpy",
        "onnxruntime",
        "openvino",
        "tokenizers",
        "boto3",
        "containers.batch.answering",
        "containers.batch.archive",
    ),
    "triton-cpu": ("numpy", "onnxruntime", "openvino", "tokenizers"),
    "triton-gpu": ("numpy", "tokenizers", "cuda.bindings"),
    "triton-gpu-torch": ("numpy", "tokenizers", "torch"),
}
STARTED_WITH = {
    "SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "whole",
    "SAGEMAKER_SAFE_PORT_RANGE": "23000-23999",
    "METRICS_WORKLOAD": "check_image",
    "METRICS_STACK": "check_image",
}
"""An endpoint's variables, with metrics and a range of ports: Triton refuses to start with a port outside of it."""
LONGEST_START_S = 300
CONFIG = """\
name: "whole"
backend: "python"
max_batch_size: 0
input [{ name: "IN", data_type: TYPE_FP32, dims: [ 1 ] }]
output [{ name: "OUT", data_type: TYPE_FP32, dims: [ 1 ] }]
instance_group [{ kind: KIND_CPU }]
"""
MODEL = """\
import tokenizers
import triton_python_backend_utils as utils

class TritonPythonModel:
    def execute(self, requests):
        tensors = [utils.get_input_tensor_by_name(request, "IN").as_numpy() for request in requests]
        return [utils.InferenceResponse([utils.Tensor("OUT", tensor)]) for tensor in tensors]
"""


def check(kind: str, models: Path, port: int) -> "list[str]":
    """Returns lines of what the image has. Ends the program with a sentence where something is missing."""
    short = kind if kind in NEEDED else "triton-" + kind.split("-", 2)[2]
    lines = [f"Python {sys.version.split()[0]}"]
    for name in NEEDED[short]:
        try:
            importlib.import_module(name)
        except (ImportError, OSError) as error:  # OSError: of a library that it loads
            raise SystemExit(f"{name} cannot be imported: {error}.") from None
        package = name.partition(".")[0].replace("_", "-")
        if package not in ("containers", "cuda"):
            lines.append(f"{package} {importlib.metadata.version(package)}")
    program = "tritonserver" if short == "cpu" else "serve"
    if shutil.which(program) is None:
        raise SystemExit(f"{program} is not on PATH.")
    if short.startswith("triton"):
        lines.append(ping(models, port))
    return lines


def ping(models: Path, port: int) -> str:
    """Starts `serve` on a model of a few lines, and waits for the 200 of /ping."""
    version = models / "whole" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL)
    (models / "whole" / "config.pbtxt").write_text(CONFIG)
    environment = {**os.environ, **STARTED_WITH, "SAGEMAKER_BIND_TO_PORT": str(port)}
    with tempfile.TemporaryFile("w+", errors="replace") as log:
        server = subprocess.Popen(["serve"], env=environment, stdout=log, stderr=subprocess.STDOUT)
        began = time.monotonic()
        try:
            while time.monotonic() - began < LONGEST_START_S and server.poll() is None:
                try:
                    with urllib.request.urlopen(f"http://localhost:{port}/ping", timeout=5) as answer:
                        if answer.status == 200:
                            return f"/ping said 200 after {time.monotonic() - began:.0f} s"
                except OSError:
                    time.sleep(0.5)
        finally:
            server.terminate()
            server.wait()
        log.seek(0)
        raise SystemExit("serve did not answer /ping. The end of its log:\n" + log.read()[-4000:])


if __name__ == "__main__":
    print(f"{sys.argv[1]}:", ", ".join(check(sys.argv[1], Path("/opt/ml/model"), 8080)))
