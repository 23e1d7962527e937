"""Prices from the AWS Price List API: the questions, the answers read, and the client that asks.

GetProducts answers with products as JSON texts; an on-demand price per hour is at
terms.OnDemand.*.priceDimensions.*.pricePerUnit.USD, where the unit is Hrs. SageMaker's hosting instances are products
of AmazonSageMaker and their names begin with "ml."; all others are AmazonEC2's, for Linux on shared hardware.
"""

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from aws_api.errors import translate_aws_errors
from aws_api.session import AwsSession
from inference_recommender.sizing.prices import Catalogue, Listing

API_REGION = "us-east-1"
"""The region of the API itself; it lists the prices of every region."""

Ask = Callable[[dict[str, Any]], Iterable[str]]
"""Sends a request of GetProducts and returns the products of all its pages, as JSON."""


def connected() -> Ask:
    """Returns an `Ask` of AWS. Both raise `AwsUnavailable`."""
    paginator = AwsSession(region=API_REGION).client("pricing").get_paginator("get_products")

    def products(query: dict[str, Any]) -> Iterator[str]:
        with translate_aws_errors("GetProducts"):
            for page in paginator.paginate(**query):
                yield from page["PriceList"]

    return products


def fresh_prices(
    regions: Sequence[str], instance_types: Sequence[str], ask: Ask, day: str
) -> tuple[Catalogue, tuple[str, ...]]:
    """Returns the prices of every type in every region, and a sentence about each that the API does not list clearly.

    `day` is written into each listing, YYYY-MM-DD.
    """
    listed: dict[str, dict[str, Listing]] = {}
    unclear = []
    for region in regions:
        for name in instance_types:
            query = product_query(region, name)
            prices = hourly_usd(ask(query))
            if len(prices) == 1:
                source = f"AWS Price List API, {_product(query)}, on demand"
                listed.setdefault(region, {})[name] = Listing(usd_per_hour=prices[0], source=source, collected=day)
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


def _product(query: dict[str, Any]) -> str:
    return "AmazonSageMaker Hosting" if query["ServiceCode"] == "AmazonSageMaker" else "AmazonEC2 Linux, shared tenancy"
