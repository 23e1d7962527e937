"""The Price List API, asked through boto3."""

from collections.abc import Iterator
from typing import Any

import boto3

from aws_api.errors import translate_aws_errors
from inference_recommender.sizing.price_list import Ask

REGION = "us-east-1"
"""Where the API itself is; it lists the prices of every region."""


def connected() -> Ask:
    """Asks GetProducts for all pages; the products as JSON. Both raise `AwsUnavailable`."""
    with translate_aws_errors("a client of pricing"):
        paginator = boto3.Session().client("pricing", region_name=REGION).get_paginator("get_products")

    def products(query: dict[str, Any]) -> Iterator[str]:
        with translate_aws_errors("GetProducts"):
            for page in paginator.paginate(**query):
                yield from page["PriceList"]

    return products
