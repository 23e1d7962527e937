"""The price of an instance per hour: the job's own report, else that of the committed catalogue, else unknown.

`prices.json` is the catalogue: on-demand USD per hour by region and instance type, each with its source and date. A
source in brackets names two public lists that agree. If lists disagree, `unlisted` has the reason instead.
`size --refresh-prices` writes the file.
"""

import functools
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from pydantic import Field

from workloads.document import Document

CATALOGUE_FILE = Path(__file__).with_name("prices.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """The price of an instance, or None; `reason` is its source, or why it is unknown."""

    usd_per_hour: float | None
    reason: str


class Listing(Document):
    usd_per_hour: float = Field(gt=0, allow_inf_nan=False)
    source: str = Field(min_length=1)
    collected: date = Field(description="The day it was looked up, YYYY-MM-DD.")


class Catalogue(Document):
    regions: dict[str, dict[str, Listing]]
    unlisted: dict[str, str] = {}
    """Why the catalogue has no price for an instance type, in any region."""

    @property
    def instance_types(self) -> set[str]:
        """The instance types of all regions."""
        return {name for listed in self.regions.values() for name in listed}

    def joined_by(self, fresh: "Catalogue") -> "Catalogue":
        """Returns this catalogue with the listings of `fresh` added or replaced, in alphabetical order.

        Reasons for types that `fresh` lists are removed.
        """
        names = sorted({*self.regions, *fresh.regions})
        joined = {name: {**self.regions.get(name, {}), **fresh.regions.get(name, {})} for name in names}
        return Catalogue(
            regions={name: dict(sorted(listed.items())) for name, listed in joined.items()},
            unlisted={name: why for name, why in self.unlisted.items() if name not in fresh.instance_types},
        )


def job_price(instance_type: str, reported_usd: float | None, job_region: str | None, region: str | None) -> Price:
    """Returns a price for `region`, default: the job's. `reported_usd` is one instance's price as a job in `job_region`
    reported it; 0 counts as no report.
    """
    if region and job_region and region != job_region:
        return listed_price(instance_type, region, f"The job's price is of {job_region}, and")
    if reported_usd:
        return Price(usd_per_hour=reported_usd, reason="Reported by the job.")
    if (region or job_region) is None:
        return Price(usd_per_hour=None, reason="The job reported no price, and its region is unknown.")
    return listed_price(instance_type, region or job_region or "", "The job reported no price, and")


def listed_price(instance_type: str, region: str, unlisted: str = "No price:") -> Price:
    """Returns the committed catalogue's price. `unlisted` begins the reason why there is none."""
    catalogue = committed_catalogue()
    if listed := catalogue.regions.get(region, {}).get(instance_type):
        return Price(usd_per_hour=listed.usd_per_hour, reason=f"{listed.source}, {region}, {listed.collected}.")
    why = catalogue.unlisted.get(instance_type)
    reason = f"{unlisted} prices.json has none for {instance_type} in {region}{f': {why}' if why else ''}."
    return Price(usd_per_hour=None, reason=reason)


@functools.cache
def committed_catalogue() -> Catalogue:
    return Catalogue.from_json(CATALOGUE_FILE)
