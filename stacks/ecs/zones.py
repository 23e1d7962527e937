"""The zones of workloads on EC2 and of their shared network. Pure.

Without named zones, a workload takes those of the region that have its type, shared ones first: each zone has VPC
endpoints to pay for. In an unknown region it takes the first zones.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from workloads import EcsServiceHosting, ScheduledBatchHosting, UsageError, Workload, instances
from workloads.instances import family

ORDINALS = ("first", "second", "third")
"""Zones by their place in the region's list, which is their order as texts, too."""
IN_PRODUCTION = 2


def on_shared_network(workload: Workload) -> bool:
    """Returns whether the workload runs on EC2 instances, in no VPC of its own."""
    match workload.hosting:
        case EcsServiceHosting(vpc=None) | ScheduledBatchHosting(vpc=None):
            return True
        case _:
            return False


def is_zone_id(zone: str) -> bool:
    return "-az" in zone


class SharedZones:
    """`of(workload)` are a workload's zones, `all` those of the network, in a stable order.

    `workloads` are all that share the network, built or not: the network must keep the zones of those not built here.
    """

    def __init__(self, workloads: Mapping[Path, Workload], region: str | None, *, in_production: bool) -> None:
        self._shared = {file: workload for file, workload in workloads.items() if on_shared_network(workload)}
        self._region = region
        self._in_production = in_production
        self._named = self._all_named()
        offered = [self._offered(workload) for workload in self._shared.values()]
        zones = {zone for ids in offered for zone in ids}
        self._common = sorted(zones, key=lambda zone: (-sum(zone in ids for ids in offered), zone))
        self.all = sorted({zone for workload in self._shared.values() for zone in self.of(workload)})

    def of(self, workload: Workload) -> list[str]:
        hosting = workload.hosting
        assert isinstance(hosting, EcsServiceHosting | ScheduledBatchHosting)
        if self._named:
            return list(hosting.availability_zones or self._named)
        count = hosting.zone_count or (IN_PRODUCTION if self._in_production else 1)
        offered = self._offered(workload)
        having = [zone for zone in self._common if zone in offered] if offered else self._common
        return (having or list(ORDINALS))[:count]

    def caution(self) -> str | None:
        """Returns a caution if the zones may lack an accelerator. Nearly every zone has CPU types."""
        types = sorted({workload.instance_types[0] for workload in self._shared.values()})
        rare = [name for name in types if instances.has_accelerator(name)]
        if not rare or not set(self.all) & set(ORDINALS):
            return None
        return (
            f"The shared network has the {' and '.join(self.all)} zone of whichever region is deployed to, and "
            f"that they have {', '.join(rare)} is not known. Synthesise with a region (AWS_REGION), or name "
            "hosting.availability_zones."
        )

    def _offered(self, workload: Workload) -> Sequence[str]:
        by_region = instances.zones(family(workload.instance_types[0])) or {}
        return by_region.get(self._region or "", ())

    def _all_named(self) -> list[str]:
        named = {zone: file for file, workload in self._shared.items() for zone in _named(workload)}
        ids = [zone for zone in named if is_zone_id(zone)]
        names = [zone for zone in named if not is_zone_id(zone)]
        if ids and names:
            # A name and an id may be one zone, and a load balancer takes no two subnets of one.
            raise UsageError(
                f"{named[names[0]]}: hosting.availability_zones: got the name '{names[0]}', and {named[ids[0]]} the id "
                f"'{ids[0]}'. Workloads on EC2 share a network: write all of their zones as names, or all as ids."
            )
        return sorted(named)


def _named(workload: Workload) -> Sequence[str]:
    hosting = workload.hosting
    return hosting.availability_zones if isinstance(hosting, EcsServiceHosting | ScheduledBatchHosting) else ()
