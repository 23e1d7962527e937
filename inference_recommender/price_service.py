"""The Price List API, asked through boto3."""

from collections.abc import Iterator
from typing import Any

import boto3

from inference_recommender.aws_errors import speaking_plainly

REGION = "us-east-1"
"""Where the API itself is; it lists the prices of every region."""


def products(query: dict[str, Any]) -> Iterator[str]:
    """The products of all pages of GetProducts, as JSON. Raises `AwsUnavailable`."""
    with speaking_plainly("GetProducts"):
        pages = boto3.Session().client("pricing", region_name=REGION).get_paginator("get_products").paginate(**query)
        for page in pages:
            yield from page["PriceList"]
