"""The container images of an experiment: one for each kind of hardware that its cells run on.

A batch has one variant, so its instance types are of one kind, and its model names the image of that kind: the one that
the command line gives, or the stack's, or the one of ours that was built and pushed last. Nothing is sent here.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, cast, get_args

from inference_recommender.experiment.cells import Cell
from workloads import ROOT, SageMakerEndpointHosting, UsageError, Workload, own_images
from workloads.instances import HOST_AMIS, NEURON_FAMILIES, family, has_accelerator

Platform = Literal["cpu", "gpu", "inf1", "inf2"]
"""Kinds of hardware that need an image of their own."""

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
    named: Iterable[tuple[Platform | None, str]],
    stacks: Callable[[], str],
    region: Callable[[], str],
    root: Path = ROOT,
) -> dict[Platform, str]:
    """Returns the image for each platform of `cells`; `named` has None for every platform that it does not name.

    `stacks` returns that of the stack's model, `region` the account's; each is called where it is needed. Raises
    `UsageError` for a platform without an image, or what the two raise.
    """
    given = dict(named)
    found: dict[Platform, str] = {}
    for each, instance_type in _platforms(cells).items():
        uri = given.get(each, given.get(None))
        if uri is None and _serves(workload, each):
            uri = stacks()
        found[each] = uri or _ours(workload, each, instance_type, region(), root)
    return found


def stand_ins(
    cells: Iterable[Cell], workload: Workload, named: Iterable[tuple[Platform | None, str]]
) -> dict[Platform, str]:
    """Returns images for a plan that is only looked at, with ACCOUNT and REGION where none is `named`."""
    given = dict(named)
    registry = f"ACCOUNT.dkr.ecr.REGION.amazonaws.com/{own_images.REPOSITORY}"
    return {
        each: given.get(each, given.get(None, f"{registry}:{_kind(workload, each, instance_type)}"))
        for each, instance_type in _platforms(cells).items()
    }


def host_ami(workload: Workload, images: Mapping[Platform, str]) -> str | None:
    """Returns the InferenceAmiVersion whose driver starts the image for GPUs: by the version in its tag, or by the
    hosting's. None where no cell is on a GPU, or none is known.
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
    """Tells whether the stack's image does, as Triton's for GPUs does on CPUs, too."""
    hosted = platform(workload.instance_types[0])
    return hosted == wanted or (hosted, wanted) == ("gpu", "cpu")


def _ours(workload: Workload, wanted: Platform, instance_type: str, region: str, root: Path) -> str:
    kind = _kind(workload, wanted, instance_type)
    built = own_images.load_image(root, kind)
    if built is None:
        why = "none of ours is built"
    elif built.content != own_images.content_of(kind):
        why = "ours was built from other files than containers/ has now"
    elif built.region != region:
        why = f"ours is in {built.region}"
    else:
        return built.uri
    raise UsageError(
        f"--image-uri: {instance_type} needs another image than the stack's model has, and {why}. Build and push one "
        f"for {region} with `bash scripts/release/build_image.sh {kind}`, or name one: --image-uri {wanted}=URI."
    )


def _kind(workload: Workload, wanted: Platform, instance_type: str) -> str:
    version = _triton_version(workload) or SageMakerEndpointHosting.model_fields["triton_version"].default
    return own_images.endpoint_kind(RUNTIMES.get(wanted, "triton"), version, instance_type)


def _triton_version(workload: Workload) -> str | None:
    hosting = workload.hosting
    return hosting.triton_version if isinstance(hosting, SageMakerEndpointHosting) else None
