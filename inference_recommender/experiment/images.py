"""The container image of each kind of hardware in an experiment.

It is the one of the command line, the stack's, or the project's own image that was pushed last.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, cast, get_args

from inference_recommender.experiment.cells import Cell
from workloads import ROOT, SageMakerEndpointHosting, UsageError, Workload, own_images
from workloads.instances import HOST_AMIS, NEURON_FAMILIES, family, has_accelerator

Platform = Literal["cpu", "gpu", "inf1", "inf2"]
"""Kinds of hardware, each with its own image."""

ImageKey = Literal["cpu", "gpu", "inf1", "inf2", "all"]
"""A kind of hardware, or "all"."""
PLATFORMS: tuple[Platform, ...] = get_args(Platform)
RUNTIMES = {name: runtime for runtime, name in NEURON_FAMILIES.items()}


def platform(instance_type: str) -> Platform:
    name = family(instance_type)
    if name in RUNTIMES:
        return cast(Platform, name)
    return "gpu" if has_accelerator(instance_type) else "cpu"


def resolved(
    cells: Iterable[Cell],
    workload: Workload,
    named: Mapping[ImageKey, str],
    stacks: Callable[[], str],
    region: Callable[[], str],
    root: Path = ROOT,
) -> dict[Platform, str]:
    """Returns the image of each platform of `cells`. An image `named` "all" serves all other platforms.

    `stacks` returns the image of the stack's model, `region` that of the account; both are called only if needed.
    Raises `UsageError` for a platform without an image, or the errors of the two.
    """
    found: dict[Platform, str] = {}
    for each, instance_type in _platforms(cells).items():
        uri = named.get(each, named.get("all"))
        if uri is None and _serves(workload, each):
            uri = stacks()
        found[each] = uri or _own_image(workload, each, instance_type, region(), root)
    return found


def stand_ins(cells: Iterable[Cell], workload: Workload, named: Mapping[ImageKey, str]) -> dict[Platform, str]:
    """Returns images for a dry run, with ACCOUNT and REGION in those that are not `named`."""
    registry = f"ACCOUNT.dkr.ecr.REGION.amazonaws.com/{own_images.REPOSITORY}"
    return {
        each: named.get(each, named.get("all", f"{registry}:{_kind(workload, each, instance_type)}"))
        for each, instance_type in _platforms(cells).items()
    }


def host_ami(workload: Workload, images: Mapping[Platform, str]) -> str | None:
    """Returns the InferenceAmiVersion for the GPU image, by the version in its tag or by the hosting's.

    Returns None without a cell on a GPU, or for an unknown version.
    """
    if "gpu" not in images:
        return None
    tagged = re.search(r":(\d\d\.\d\d)-py3", images["gpu"])
    return HOST_AMIS.get(tagged[1] if tagged else _triton_version(workload) or "")


def _platforms(cells: Iterable[Cell]) -> dict[Platform, str]:
    """Returns the platforms in the order of the cells, each with one of its instance types."""
    found: dict[Platform, str] = {}
    for cell in cells:
        found.setdefault(platform(cell.instance_type), cell.instance_type)
    return found


def _serves(workload: Workload, wanted: Platform) -> bool:
    """Returns whether the stack's image runs there. Triton's image for GPUs also runs on CPUs."""
    hosted = platform(workload.instance_types[0])
    return hosted == wanted or (hosted, wanted) == ("gpu", "cpu")


def _own_image(workload: Workload, wanted: Platform, instance_type: str, region: str, root: Path) -> str:
    kind = _kind(workload, wanted, instance_type)
    built = own_images.load_image(root, kind)
    if built is None:
        why = "the project's own image is not built"
    elif built.content != own_images.content_of(kind):
        why = "the project's own image was built from other files than containers/ has now"
    elif built.region != region:
        why = f"the project's own image is in {built.region}"
    else:
        return built.uri
    raise UsageError(
        f"recommender.images: {instance_type} needs another image than the stack's model, and {why}. Build and push "
        f"one for {region} with `bash scripts/release/build_image.sh {kind}`, or set recommender.images.{wanted}."
    )


def _kind(workload: Workload, wanted: Platform, instance_type: str) -> str:
    version = _triton_version(workload) or SageMakerEndpointHosting.model_fields["triton_version"].default
    return own_images.endpoint_kind(RUNTIMES.get(wanted, "triton"), version, instance_type)


def _triton_version(workload: Workload) -> str | None:
    hosting = workload.hosting
    return hosting.triton_version if isinstance(hosting, SageMakerEndpointHosting) else None
