"""The questions to the Price List API, and prices read from its answers. Pure.

GetProducts answers with products as JSON texts; an on-demand price per hour is at
terms.OnDemand.*.priceDimensions.*.pricePerUnit.USD, where the unit is Hrs. SageMaker's hosting instances are products
of AmazonSageMaker and their names begin with "ml."; all others are AmazonEC2's, for Linux on shared hardware.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from inference_recommender.sizing.prices import Catalogue, Listing

Ask = Callable[[dict[str, Any]], Iterable[str]]
"""Sends a request of GetProducts; the products of all its pages."""


def product_query(region: str, instance_type: str) -> dict[str, Any]:
    """The request of GetProducts for one instance type."""
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
    """The different on-demand prices per hour among the products, lowest first; a free one is none."""
    return tuple(sorted({price for product in products for price in _hourly(json.loads(product)) if price > 0}))


def _hourly(product: dict[str, Any]) -> Iterator[float]:
    for term in product.get("terms", {}).get("OnDemand", {}).values():
        for dimension in term.get("priceDimensions", {}).values():
            if dimension.get("unit", "").lower() in ("hrs", "hours", "hour") and "USD" in dimension["pricePerUnit"]:
                yield float(dimension["pricePerUnit"]["USD"])


def fresh_prices(
    regions: Sequence[str], instance_types: Sequence[str], ask: Ask, day: str
) -> tuple[Catalogue, tuple[str, ...]]:
    """What the API lists of every type in every region, and a sentence about each that it does not list clearly."""
    listed: dict[str, dict[str, Listing]] = {}
    unclear = []
    for region in regions:
        for name in instance_types:
            query = product_query(region, name)
            found = hourly_usd(ask(query))
            if len(found) == 1:
                source = f"AWS Price List API, {_what(query)}, on demand"
                listed.setdefault(region, {})[name] = Listing(usd_per_hour=found[0], source=source, collected=day)
            else:
                what = f"{len(found)} prices ({', '.join(f'{one:g}' for one in found)})" if found else "no price"
                unclear.append(
                    f"{name} in {region}: the Price List API has {what} per hour; nothing was written for it."
                )
    return Catalogue(regions=listed), tuple(unclear)


def _what(query: dict[str, Any]) -> str:
    return "AmazonSageMaker Hosting" if query["ServiceCode"] == "AmazonSageMaker" else "AmazonEC2 Linux, shared tenancy"
