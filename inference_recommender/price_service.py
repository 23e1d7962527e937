"""The Price List API, asked through boto3."""

from collections.abc import Iterator
from typing import Any

import boto3

from inference_recommender.aws_errors import speaking_plainly
from inference_recommender.price_list import Ask

REGION = "us-east-1"
"""Where the API itself is; it lists the prices of every region."""


def connected() -> Ask:
    """Asks GetProducts for all pages; the products as JSON. Both raise `AwsUnavailable`."""
    with speaking_plainly("a client of pricing"):
        paginator = boto3.Session().client("pricing", region_name=REGION).get_paginator("get_products")

    def products(query: dict[str, Any]) -> Iterator[str]:
        with speaking_plainly("GetProducts"):
            for page in paginator.paginate(**query):
                yield from page["PriceList"]

    return products
