"""The project's container images: their sources, and the digest of the last push. Reads files only.

`scripts/release/build_image.sh KIND` builds and pushes an image, and leaves build/images/KIND/image.json; a template
names the image by the digest in it. An image is of the files that `containers/` has now if its `content` is theirs.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from workloads.document import Document
from workloads.errors import UsageError
from workloads.folder import CODE
from workloads.hosting import SageMakerEndpointHosting
from workloads.images import NEURON_IMAGES, TRITON, TRITON_IMAGES, default_version, image_uri
from workloads.instances import NEURON_FAMILIES, has_accelerator
from workloads.target import CudaTarget, NeuronTarget
from workloads.workload import Workload

REPOSITORY = "transformers-in-production"
"""The repository of an account whose images a person builds. A release pipeline has one of its own."""

BASE_OF_CPU = "triton-25.09-cpu"
"""The image that the one for ECS and SageMaker Processing on CPUs is made of."""
TRITON_LOCKS: Mapping[str, str] = {
    "triton-24.09-gpu": "gpu-2409-requirements.txt",
    "triton-25.04-cpu": "requirements.txt",
    "triton-25.04-gpu": "gpu-cuda12-requirements.txt",
    "triton-25.09-cpu": "requirements.txt",
    "triton-25.09-gpu": "gpu-requirements.txt",
    "triton-26.05-cpu": "requirements.txt",
    **dict.fromkeys(
        (f"triton-{version}-gpu-torch" for version in ("24.09", "25.04", "25.09", "26.05")),
        "gpu-torch-requirements.txt",
    ),
}
"""The packages of each image of Triton. They are locked for the image's Python, and a GPU's for its TensorRT. Those of
`gpu-torch` serve `cuda` targets: PyTorch brings its own CUDA 12.6, which these images' drivers run."""

PINS = "base-digests.json"
"""In containers/: the digest of each base image that was pinned, by its name and tag."""

Digest = Annotated[str, Field(pattern=r"^sha256:[0-9a-f]{64}$")]


AS_ROOT = {"SERVE_USER": "root"}
"""SageMaker expects containers to run as root; the Dockerfiles' own default is uid 1000."""


class OwnImage(Document):
    """An image that is in a registry."""

    kind: str
    registry: Annotated[str, Field(pattern=r"^\d{12}\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?$")]
    repository: str
    digest: Digest
    content: str = Field(description="What `ImageBuild.content` was when it was built.")

    @property
    def account(self) -> str:
        return self.registry.split(".")[0]

    @property
    def region(self) -> str:
        return self.registry.split(".")[3]

    @property
    def uri(self) -> str:
        return f"{self.registry}/{self.repository}@{self.digest}"


class BaseDigests(Document):
    """containers/base-digests.json."""

    digests: dict[str, Digest]


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageBuild:
    """The source of an image. `dockerfile` and what it copies are below `containers`, the build's context."""

    kind: str
    containers: Path
    dockerfile: str
    base: str
    """NAME:TAG in AWS's registries, or the kind of one of the project's images."""
    base_registries: tuple[str, ...] = ()
    """Where sagemaker-core lists the registries that have the base: file, then keys. Empty for the project's images."""
    arguments: Mapping[str, str]
    """The arguments of the Dockerfile beside BASE."""

    def base_uri(self, region: str) -> str:
        """Returns the base without a digest. Raises what `image_uri` raises."""
        return image_uri(self.base, region, self.base_registries, "hosting.image_uri")

    def base_digest(self) -> str | None:
        """Returns the digest that is pinned in containers/base-digests.json."""
        return BaseDigests.from_json(self.containers / PINS).digests.get(self.base)

    def files(self) -> Iterator[Path]:
        """Yields the Dockerfile and each file that it copies. Raises `UsageError` for one that is not there."""
        yield self.containers / self.dockerfile
        text = (self.containers / self.dockerfile).read_text("utf-8")
        for sources in re.findall(r"^COPY (.+) \S+$", text, re.MULTILINE):
            for source in sources.split():
                yield from self._copied(source)

    def _copied(self, source: str) -> Iterator[Path]:
        for name, value in self.arguments.items():
            source = source.replace(f"${{{name}}}", value)
        path = self.containers / source
        if not path.exists():
            raise UsageError(f"{self.containers / self.dockerfile}: COPY: {source} is not in {self.containers}.")
        every = path.rglob("*") if path.is_dir() else [path]
        yield from (file for file in every if file.is_file() and "__pycache__" not in file.parts)

    def content(self) -> str:
        """Returns a hash of everything that determines the image: files, arguments, the base and its digest."""
        digest = hashlib.sha256(f"{self.kind} {self.base} {sorted(self.arguments.items())}".encode())
        if not self.base_registries:
            digest.update(image_build(self.base, self.containers).content().encode())
        digest.update((self.base_digest() or "").encode())
        for file in sorted(self.files()):
            name = file.relative_to(self.containers).as_posix()
            digest.update(f"\n{name} {hashlib.sha256(file.read_bytes()).hexdigest()}".encode())
        return digest.hexdigest()


def pytorch_version(workload: Workload) -> str | None:
    """Returns the PyTorch release in the image that serves the hosted target; None if no source gives it."""
    target, hosting = workload.hosted, workload.hosting
    if not isinstance(hosting, SageMakerEndpointHosting) or not hosting.image_uri:
        if isinstance(target, NeuronTarget):
            return NEURON_IMAGES[target.runtime][0].partition(":")[2].partition("-")[0]
        if isinstance(target, CudaTarget):
            lock = (CODE / "containers/triton/gpu-torch-requirements.txt").read_text("utf-8")
            return next(line.split()[0].removeprefix("torch==") for line in lock.splitlines() if "torch==" in line)
    image = TRITON_IMAGES.get(workload.triton_on(workload.instance_types[0]) or "")
    return image.pytorch if image and not isinstance(target, NeuronTarget) else None


def image_build(kind: str, containers: Path = CODE / "containers") -> ImageBuild:
    """Returns what the image of this kind is built from. Raises `UsageError` for a kind that there is not."""
    runtimes = {family: runtime for runtime, family in NEURON_FAMILIES.items()}
    build = partial(ImageBuild, kind=kind, containers=containers)
    if kind in runtimes:
        base, registries = NEURON_IMAGES[runtimes[kind]]
        return build(dockerfile="neuron/Dockerfile", base=base, base_registries=registries, arguments=AS_ROOT)
    if kind == "cpu":
        return build(dockerfile="batch/Dockerfile", base=BASE_OF_CPU, arguments=AS_ROOT)
    if kind in TRITON_LOCKS:
        _, version, processor, *_ = kind.split("-")
        return build(
            dockerfile="triton/Dockerfile",
            base=f"{TRITON}:{version}-py3{'-cpu' if processor == 'cpu' else ''}",
            base_registries=(TRITON, "versions", version),
            arguments={"REQUIREMENTS": TRITON_LOCKS[kind], **AS_ROOT},
        )
    raise UsageError(f"There is no image '{kind}'. Known: {', '.join([*runtimes, 'cpu', *TRITON_LOCKS])}.")


@cache
def content_of(kind: str) -> str:
    """Returns the content of this project's own image of the kind, as its files were when it was first asked for."""
    return image_build(kind).content()


def image_file(root: Path, kind: str) -> Path:
    return root / "build" / "images" / kind / "image.json"


def load_image(root: Path, kind: str) -> OwnImage | None:
    """Returns the image that was built last, or None. Raises `InvalidDocument`."""
    file = image_file(root, kind)
    return OwnImage.from_json(file) if file.exists() else None


def endpoint_kind(runtime: str, triton_version: str | None, instance_type: str) -> str:
    """Returns the kind of the image that serves a model of this runtime on a SageMaker endpoint."""
    if runtime in NEURON_FAMILIES:
        return NEURON_FAMILIES[runtime]
    processor = "gpu-torch" if runtime == "cuda" else "gpu" if has_accelerator(instance_type) else "cpu"
    return f"triton-{triton_version or default_version(instance_type)}-{processor}"


def kinds_of(workload: Workload) -> set[str]:
    """Returns the kinds that the stack of a workload names. One with an image of its own needs none."""
    hosting = workload.hosting
    if not isinstance(hosting, SageMakerEndpointHosting):
        return {NEURON_FAMILIES.get(workload.hosted.runtime, "cpu")} if hosting.image_uri is None else set()
    kinds = set()
    if hosting.image_uri is None:
        instance_type = workload.instance_types[0]
        kinds.add(endpoint_kind(workload.hosted.runtime, hosting.triton_on(instance_type), instance_type))
    if (shadow := hosting.shadow) is not None and shadow.image_uri is None:
        runtime = workload.targets[workload.variant(shadow.target).target].runtime
        kinds.add(endpoint_kind(runtime, hosting.triton_on(shadow.instance_type), shadow.instance_type))
    return kinds
