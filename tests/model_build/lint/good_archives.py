"""Two good miniature repositories, and how they become an archive or a folder.

SCORING is an ensemble of Python models, which a real Triton loads. ENGINES has a TensorRT plan for each GPU and a
TorchScript model; only the bytes that lint reads are real.
"""

import io
import os
import tarfile
import zipfile
from dataclasses import dataclass
from gzip import compress
from pathlib import Path

from model_build.lint.finding import NO_HOST_AMI, RuntimeContext


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

REPOSITORIES = Path(__file__).parent / "repositories"


def read(folder: Path) -> Tree:
    """Reads a repository's files. Those ending in .txt stand for the name without it."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    return {
        "pipeline/1/": None,
        **{file.relative_to(folder).as_posix().removesuffix(".txt"): file.read_bytes() for file in files},
    }


SCORING = read(REPOSITORIES / "scoring")
SCORE = SCORING["score/1/model.py"]
ENGINES: Tree = {
    **read(REPOSITORIES / "engines"),
    "encoder/1/t4.plan": plan(10, 13, 3, 9),
    "encoder/1/a10g.plan": plan(10, 13, 3, 9),
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
