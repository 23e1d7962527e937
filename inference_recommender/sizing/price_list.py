"""Fetches prices from the AWS Price List API.

GetProducts returns products as JSON texts. An on-demand price per hour is at
terms.OnDemand.*.priceDimensions.*.pricePerUnit.USD, where the unit is Hrs. Types that begin with "ml." are products of
AmazonSageMaker; all others are of AmazonEC2, for Linux on shared hardware.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from typing import Any

from aws_api.errors import translate_aws_errors
from aws_api.session import AwsSession
from inference_recommender.sizing.prices import Catalogue, Listing
from workloads import SageMakerEndpointHosting, Workload

API_REGION = "us-east-1"
"""The region of the API itself; it lists the prices of every region."""


def fresh_prices(
    regions: Sequence[str], instance_types: Sequence[str], today: date
) -> tuple[Catalogue, tuple[str, ...]]:
    """Returns the prices of every type in every region, and a warning for each that has no single price.

    Raises `AwsUnavailable`.
    """
    paginator = AwsSession(region=API_REGION).client("pricing").get_paginator("get_products")
    listed: dict[str, dict[str, Listing]] = {}
    unclear = []
    for region in regions:
        for name in instance_types:
            query = product_query(region, name)
            with translate_aws_errors("GetProducts"):
                products = [product for page in paginator.paginate(**query) for product in page["PriceList"]]
            prices = hourly_usd(products)
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
