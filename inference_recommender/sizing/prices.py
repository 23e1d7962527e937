"""The price of an instance per hour: the job's own report, else that of the committed catalogue, else unknown.

`prices.json` is the catalogue: on-demand USD per hour by region and instance type, each with its source and date. A
source in brackets names two public lists that agree. If lists disagree, `unlisted` has the reason instead.
`size --refresh-prices` writes the file with prices of the AWS Price List API. GetProducts returns products as JSON
texts. An on-demand price per hour is at terms.OnDemand.*.priceDimensions.*.pricePerUnit.USD, where the unit is Hrs.
Types that begin with "ml." are products of AmazonSageMaker; all others are of AmazonEC2, for Linux on shared hardware.
"""

import functools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Literal

from pydantic import Field

from workloads import SageMakerEndpointHosting, Workload
from workloads.document import Document

API_REGION = "us-east-1"
"""The region of the Price List API; it lists the prices of every region."""
PriceList = Literal["sagemaker", "ec2"]
"""SageMaker's prices of endpoints, or EC2's of the same instance: published costs of Inf1 are often EC2's."""
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


def job_price(
    instance_type: str,
    reported_usd: float | None,
    job_region: str | None,
    region: str | None,
    price_list: PriceList = "sagemaker",
) -> Price:
    """Returns a price for `region`, default: the job's. `reported_usd` is one instance's price as a job in `job_region`
    reported it; 0 counts as no report. EC2's prices are the catalogue's.
    """
    if price_list == "ec2":
        return listed_price(instance_type.removeprefix("ml."), region or job_region or API_REGION, "EC2:")
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


def fresh_prices(
    regions: Sequence[str], instance_types: Sequence[str], today: date
) -> tuple[Catalogue, tuple[str, ...]]:
    """Returns prices by region and type, and a warning for each without a single one. Raises `AwsUnavailable`."""
    from aws_api.session import AwsSession  # boto3, which sizing does without

    session = AwsSession(region=API_REGION)
    listed: dict[str, dict[str, Listing]] = {}
    unclear = []
    for region in regions:
        for name in instance_types:
            query = product_query(region, name)
            prices = hourly_usd(session.pages("pricing", "get_products", "PriceList", **query))
            if len(prices) == 1:
                of_sagemaker = query["ServiceCode"] == "AmazonSageMaker"
                product = "AmazonSageMaker Hosting" if of_sagemaker else "AmazonEC2 Linux, shared tenancy"
                source = f"AWS Price List API, {product}, on demand"
                listed.setdefault(region, {})[name] = Listing(usd_per_hour=prices[0], source=source, collected=today)
            else:
                shown = ", ".join(f"{price:g}" for price in prices)
                what = f"{len(prices)} prices ({shown})" if prices else "no price"
                unclear.append(
                    f"{name} in {region}: the Price List API has {what} per hour; nothing was written for it."
                )
    return Catalogue(regions=listed), tuple(unclear)


def product_query(region: str, instance_type: str) -> dict[str, Any]:
    """Returns the request of GetProducts for one instance type."""
    if instance_type.startswith("ml."):
        fields = {"productFamily": "ML Instance", "instanceName": instance_type, "platoinstancetype": "Hosting"}
        service = "AmazonSageMaker"
    else:
        machine = {"operatingSystem": "Linux", "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used"}
        fields = {"instanceType": instance_type, **machine}
        service = "AmazonEC2"
    filters = [
        {"Type": "TERM_MATCH", "Field": field, "Value": value}
        for field, value in {**fields, "regionCode": region}.items()
    ]
    return {"ServiceCode": service, "Filters": filters, "FormatVersion": "aws_v1"}


def hourly_usd(products: Iterable[str]) -> tuple[float, ...]:
    """Returns the different on-demand prices per hour among the products, lowest first, without prices of 0."""
    return tuple(sorted({price for product in products for price in _hourly(json.loads(product)) if price > 0}))


def _hourly(product: dict[str, Any]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            if dimension.get("unit", "").lower() in ("hrs", "hours", "hour") and "USD" in dimension["pricePerUnit"]:
                yield float(dimension["pricePerUnit"]["USD"])


def named_types(workloads: Iterable[Workload]) -> set[str]:
    """Returns the instance types in targets, published experiments and hosting."""
    names: set[str] = set()
    for workload in workloads:
        for table in (*workload.targets.values(), *workload.published.values()):
            names.update(table.instance_types)
        if isinstance(workload.hosting, SageMakerEndpointHosting):
            names.update(workload.hosting.fallback_instance_types)
    return names
