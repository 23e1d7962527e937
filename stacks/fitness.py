"""Whether an instance type can run an artifact, and whether there is such a type where it is to be deployed. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from stacks.errors import NotInRegion, NotInZone, WrongHardware
from workloads import ModelArtifact, NewVpc, ProjectError, Target, instances
from workloads.instances import COMPUTE_CAPABILITIES, Hardware, family, hardware


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """An instance type, and the file and key that ask for it."""

    instance_type: str
    file: Path
    key: str


def unfit(wanted: Wanted, artifact: ModelArtifact, target: Target) -> Iterator[ProjectError]:
    """`target` is what the artifact was built for."""
    if artifact.runtime == "tensorrt":
        engines = artifact.toolchain.get("compute_capability", "").split(", ")
        families = [name for name, capability in COMPUTE_CAPABILITIES.items() if capability in engines]
        fits, needed = family(wanted.instance_type) in families, " or ".join(families)
    else:
        needed = _needs(artifact, target)
        fits = hardware(wanted.instance_type) == needed
    if not fits:
        yield WrongHardware(wanted.file, wanted.key, wanted.instance_type, artifact, needed)


def _needs(artifact: ModelArtifact, target: Target) -> Hardware:
    match artifact.runtime:
        case "neuron":
            return "Inferentia 1"
        case "neuronx":
            return "Inferentia 2"
        case "torchscript" if target.instance_types:
            # Its archive is either for the Python backend on CPU or for the PyTorch backend on a GPU.
            return hardware(target.instance_types[0])
        case _:
            return "x86 CPU"


def not_offered(wanted: Wanted, region: str) -> Iterator[ProjectError]:
    offered = instances.zones(family(wanted.instance_type))
    if offered is not None and region in instances.regions() and region not in offered:
        yield NotInRegion(wanted.file, wanted.key, wanted.instance_type, region, sorted(offered))


def outside_zones(file: Path, instance_type: str, network: NewVpc) -> Iterator[ProjectError]:
    offered = instances.zones(family(instance_type))
    known = {zone for ids in (offered or {}).values() for zone in ids}
    for zone in network.zone_ids:
        # A zone of a region that the table does not have is not judged.
        siblings = sorted(each for each in known if each.split("-")[0] == zone.split("-")[0])
        if siblings and zone not in known:
            yield NotInZone(file, zone, instance_type, siblings)
