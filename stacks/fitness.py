"""Whether an instance type can run an artifact, and whether AWS offers the type where it is to be deployed. Pure."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stacks.workload_stack import SynthWarning
from workloads import ModelArtifact, Target, UsageError, instances
from workloads.instances import COMPUTE_CAPABILITIES, Hardware, family, hardware, has_bf16
from workloads.target import HARDWARE


@dataclass(frozen=True, kw_only=True, slots=True)
class InstanceChoice:
    """An instance type, and the file and key that ask for it."""

    instance_type: str
    file: Path
    key: str


def unfit(choice: InstanceChoice, artifact: ModelArtifact, target: Target) -> Iterator[UsageError]:
    """Yields why the type cannot run the artifact, which was built for `target`."""
    if artifact.runtime == "tensorrt":
        engines = artifact.toolchain.get("compute_capability", "").split(", ")
        families = [name for name, capability in COMPUTE_CAPABILITIES.items() if capability in engines]
        fits, needed = family(choice.instance_type) in families, " or ".join(families)
    elif artifact.instruction_sets:
        fits, needed = has_bf16(choice.instance_type), f"a CPU with {' or '.join(artifact.instruction_sets)}"
    else:
        needed = _needs(artifact, target)
        fits = hardware(choice.instance_type) == needed
    if not fits:
        yield UsageError(
            f"{choice.file}: {choice.key}: got '{choice.instance_type}', but {artifact.variant} of "
            f"{artifact.workload} was built with {artifact.runtime} for "
            f"{needed or 'no GPU that its artifact.json names'} and runs on nothing else. "
            "Choose such an instance type, or a hosting.target that was built for this one."
        )


def _needs(artifact: ModelArtifact, target: Target) -> Hardware:
    if artifact.runtime == "torchscript" and target.instance_types:
        # The archive is either for the Python backend on CPU or for the PyTorch backend on a GPU.
        return hardware(target.instance_types[0])
    return HARDWARE.get(artifact.runtime, ("x86 CPU",))[0]


def not_offered(choice: InstanceChoice, region: str) -> Iterator[UsageError]:
    """Yields that the region lacks the type. Types and regions that are not in the table pass."""
    offered = instances.zones(family(choice.instance_type))
    if offered is not None and region in instances.regions() and region not in offered:
        yield UsageError(
            f"{choice.file}: {choice.key}: got '{choice.instance_type}', which AWS does not have in {region}, only in "
            f"{', '.join(sorted(offered))}. Deploy to one of these, or choose another instance type."
        )


def outside_zones(file: Path, key: str, instance_type: str, zones: Iterable[str]) -> Iterator[UsageError]:
    """Yields each zone that lacks the type. Names of zones pass, and ids of a region that is not in the table."""
    offered = instances.zones(family(instance_type))
    known = {zone for ids in (offered or {}).values() for zone in ids}
    for zone in zones:
        siblings = sorted(sibling for sibling in known if sibling.split("-")[0] == zone.split("-")[0])
        if siblings and zone not in known:
            yield UsageError(
                f"{file}: {key}: got '{zone}', which has no {instance_type}. "
                f"Zones of this region that have it: {', '.join(siblings)}."
            )


def zone_warnings(choice: InstanceChoice, region: str) -> Iterator[SynthWarning]:
    """Yields that a single zone of the region has the type, so that two instances cannot be spread over zones."""
    offered = (instances.zones(family(choice.instance_type)) or {}).get(region)
    if offered is not None and len(offered) < 2:
        text = (
            f"{choice.file}: {choice.key}: only zone {offered[0]} of {region} has {choice.instance_type}, so the fleet "
            "cannot outlive it. Deploy to another region, or accept it."
        )
        yield SynthWarning("zones:one", text)
