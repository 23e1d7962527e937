"""The price of an instance per hour: the job's own report, else that of the committed catalogue, else unknown.

`prices.json` is the catalogue: on-demand USD per hour by region and instance type, each with its source and date. A
source in brackets names two public lists that agree. If lists disagree, `unlisted` has the reason instead.
`size --refresh-prices` writes the file.
"""

import functools
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from workloads.document import Document

CATALOGUE_FILE = Path(__file__).with_name("prices.json")


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """The price of an instance, or None; `reason` is its source, or why it is unknown."""

    usd_per_hour: float | None
    reason: str


def _day(text: str) -> str:
    try:
        date.fromisoformat(text)
    except ValueError:
        raise ValueError(f"got '{text}'. Allowed: the day of the look-up as YYYY-MM-DD.") from None
    return text


class Listing(Document):
    usd_per_hour: float = Field(gt=0, allow_inf_nan=False)
    source: str = Field(min_length=1)
    collected: Annotated[str, AfterValidator(_day)] = Field(description="The day it was looked up, YYYY-MM-DD.")


class Catalogue(Document):
    regions: dict[str, dict[str, Listing]]
    unlisted: dict[str, str] = {}
    """Why the catalogue has no price for an instance type, in any region."""

    @model_validator(mode="after")
    def _each_type_is_listed_or_has_a_reason(self) -> Self:
        if both := sorted({*self.instance_types} & {*self.unlisted}):
            raise ValueError(f"unlisted.{both[0]}: regions has a price of it; remove one of the two.")
        return self

    @property
    def instance_types(self) -> tuple[str, ...]:
        """The instance types of all regions, sorted."""
        return tuple(sorted({name for listed in self.regions.values() for name in listed}))

    def listing(self, region: str, instance_type: str) -> Listing | None:
        return self.regions.get(region, {}).get(instance_type)

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


def price(instance_type: str, region: str | None, reported_usd_per_hour: float | None) -> Price:
    """`reported_usd_per_hour` is one instance's price as a job in that region reported it; 0 counts as no report."""
    if reported_usd_per_hour:
        return Price(usd_per_hour=reported_usd_per_hour, reason="Reported by the job.")
    if region is None:
        return Price(usd_per_hour=None, reason="The job reported no price, and its region is unknown.")
    listed = listed_price(instance_type, region)
    return listed or Price(
        usd_per_hour=None, reason=f"The job reported no price, and {why_unlisted(instance_type, region)}"
    )


def price_elsewhere(instance_type: str, region: str, job_region: str) -> Price:
    """Returns the catalogue's price for another region than the job's, to which the reported price does not apply."""
    return listed_price(instance_type, region) or Price(
        usd_per_hour=None,
        reason=f"The job's price is of {job_region}, and {why_unlisted(instance_type, region)}",
    )


def listed_price(instance_type: str, region: str) -> Price | None:
    """Returns the committed catalogue's price, or None."""
    listed = committed_catalogue().listing(region, instance_type)
    if listed is None:
        return None
    return Price(usd_per_hour=listed.usd_per_hour, reason=f"{listed.source}, {region}, {listed.collected}.")


def why_unlisted(instance_type: str, region: str) -> str:
    """Returns the end of a sentence: the catalogue has no price, and the reason if it is known."""
    why = committed_catalogue().unlisted.get(instance_type)
    return f"prices.json has none for {instance_type} in {region}{f': {why}' if why else ''}."


@functools.cache
def committed_catalogue() -> Catalogue:
    return Catalogue.from_json(CATALOGUE_FILE)
