"""Two good miniature repositories, and how they become an archive or a folder.

SCORING is an ensemble of Python models that a real Triton loads here; ENGINES is one with a TensorRT plan for each GPU
and a TorchScript model, of which only the bytes that lint reads are real.
"""

import io
import os
import tarfile
import zipfile
from dataclasses import dataclass
from gzip import compress
from pathlib import Path

from model_build.lint import NO_HOST_AMI, RuntimeContext


@dataclass(frozen=True)
class Link:
    target: str
    type: bytes = tarfile.SYMTYPE


@dataclass(frozen=True)
class Device:
    type: bytes = tarfile.FIFOTYPE


Entry = bytes | Link | Device | None
"""None is a folder."""
Tree = dict[str, Entry]


def plan(*version: int) -> bytes:
    """The first bytes of a plan: tag, serialisation version 0, and at 24 the TensorRT version."""
    return b"ftrt" + bytes(20) + bytes(version) + b"engine" * 10


def zipped(*names: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in names:
            archive.writestr(name, name)
    return buffer.getvalue()


TORCHSCRIPT = zipped("head/data.pkl", "head/code/__torch__.py", "head/constants.pkl", "head/version")
TORCH_SAVE = zipped("weights/data.pkl", "weights/byteorder", "weights/data/0", "weights/version")

TOKENISE = b"""\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(request, "TEXT").as_numpy() for request in requests]
        ids = [np.array([[len(text)] * 3 for text in row.ravel()], np.int64) for row in rows]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("IDS", row)]) for row in ids]
"""
SCORE = b"""\
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        rows = [pb_utils.get_input_tensor_by_name(request, "IDS").as_numpy() for request in requests]
        scores = [row.sum(axis=1, keepdims=True).astype(np.float32) for row in rows]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("SCORE", row)]) for row in scores]
"""

SCORING: Tree = {
    "pipeline/config.pbtxt": b"""\
name: "pipeline"
platform: "ensemble"
max_batch_size: 8
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "RESULT" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "tokenise"
      model_version: -1
      input_map { key: "TEXT" value: "TEXT" }
      output_map { key: "IDS" value: "ids" }
    },
    {
      model_name: "score"
      model_version: -1
      input_map { key: "IDS" value: "ids" }
      output_map { key: "SCORE" value: "RESULT" }
    }
  ]
}
""",
    "pipeline/1/": None,
    "tokenise/config.pbtxt": b"""\
name: "tokenise"
backend: "python"
max_batch_size: 8
input [ { name: "TEXT" data_type: TYPE_STRING dims: [ 1 ] } ]
output [ { name: "IDS" data_type: TYPE_INT64 dims: [ -1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
model_warmup {
  name: "one"
  batch_size: 1
  inputs { key: "TEXT" value { data_type: TYPE_STRING dims: [ 1 ] input_data_file: "query" } }
}
""",
    "tokenise/1/model.py": TOKENISE,
    "tokenise/warmup/query": b"\x05\x00\x00\x00hello",
    "score/config.pbtxt": b"""\
# Adds up the ids.
name: "score"
backend: "python"
max_batch_size: 8
input [ { name: "IDS" data_type: TYPE_INT64 dims: [ -1 ] } ]
output [ { name: "SCORE" data_type: TYPE_FP32 dims: [ 1 ] } ]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
}
instance_group [ { kind: KIND_CPU count: 2 } ]
""",
    "score/1/model.py": SCORE,
}

ENGINES: Tree = {
    "pipeline/config.pbtxt": b"""\
name: "pipeline"
platform: "ensemble"
max_batch_size: 8
input [ { name: "IDS" data_type: TYPE_INT64 dims: [ 128 ] } ]
output [ { name: "LOGITS" data_type: TYPE_FP32 dims: [ 2 ] } ]
ensemble_scheduling {
  step [
    {
      model_name: "encoder"
      model_version: -1
      input_map { key: "input_ids" value: "IDS" }
      output_map { key: "hidden" value: "hidden" }
    },
    {
      model_name: "head"
      model_version: -1
      input_map { key: "INPUT__0" value: "hidden" }
      output_map { key: "OUTPUT__0" value: "LOGITS" }
    }
  ]
}
""",
    "pipeline/1/": None,
    "encoder/config.pbtxt": b"""\
name: "encoder"
platform: "tensorrt_plan"
max_batch_size: 8
input [ { name: "input_ids" data_type: TYPE_INT64 dims: [ 128 ] } ]
output [ { name: "hidden" data_type: TYPE_FP32 dims: [ 768 ] } ]
cc_model_filenames { key: "7.5" value: "t4.plan" }
cc_model_filenames { key: "8.6" value: "a10g.plan" }
instance_group [ { kind: KIND_GPU count: 1 } ]
""",
    "encoder/1/t4.plan": plan(10, 13, 3, 9),
    "encoder/1/a10g.plan": plan(10, 13, 3, 9),
    "head/config.pbtxt": b"""\
name: "head"
platform: "pytorch_libtorch"
max_batch_size: 8
input [ { name: "INPUT__0" data_type: TYPE_FP32 dims: [ 768 ] } ]
output [ { name: "OUTPUT__0" data_type: TYPE_FP32 dims: [ 2 ] } ]
instance_group [ { kind: KIND_GPU count: 1 } ]
""",
    "head/1/model.pt": TORCHSCRIPT,
}

ENVIRONMENT = {"SAGEMAKER_TRITON_DEFAULT_MODEL_NAME": "pipeline", "SAGEMAKER_TRITON_LOG_VERBOSE": "false"}
ON_CPU = RuntimeContext(
    image="763104351884.dkr.ecr.us-east-1.amazonaws.com/sagemaker-tritonserver:25.09-py3-cpu",
    tensorrt_version="10.13.3",
    instance_types=("ml.c5.xlarge",),
    host_ami=NO_HOST_AMI,
    environment=ENVIRONMENT,
)
ON_GPU = RuntimeContext(
    image="25.09",
    tensorrt_version="10.13.3.9",
    instance_types=("ml.g4dn.xlarge", "ml.g5.xlarge"),
    host_ami="al2023-ami-sagemaker-inference-gpu-4-1",
    environment=ENVIRONMENT,
    toolchain={"tensorrt": "10.13.3.9"},
)


def pack(tree: Tree) -> bytes:
    """A model.tar.gz with the members in the tree's order."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as archive:
        for name, entry in tree.items():
            member = tarfile.TarInfo(name.rstrip("/") if entry is None else name)
            if entry is None:
                member.type = tarfile.DIRTYPE
            elif isinstance(entry, Link):
                member.type, member.linkname = entry.type, entry.target
            elif isinstance(entry, Device):
                member.type = entry.type
            content = entry if isinstance(entry, bytes) else b""
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return compress(plain.getvalue(), mtime=0)


def write(tree: Tree, folder: Path) -> Path:
    archive = folder / "model.tar.gz"
    archive.write_bytes(pack(tree))
    return archive


def lay_out(tree: Tree, folder: Path) -> Path:
    """The same on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, entry in tree.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if entry is None:
            path.mkdir(exist_ok=True)
        elif isinstance(entry, Link):
            path.symlink_to(entry.target)
        elif isinstance(entry, bytes):
            path.write_bytes(entry)
        else:
            os.mkfifo(path)
    return folder
