"""What an instance costs per hour: as the job reported it, else as the committed catalogue lists it, else unknown."""

import functools
import json
from dataclasses import dataclass
from importlib import resources
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """`usd_per_hour` of one instance; None is unknown, and `reason` says why or where the price is from."""

    usd_per_hour: float | None
    reason: str


def price(instance_type: str, region: str, reported_usd_per_hour: float | None) -> Price:
    if reported_usd_per_hour is not None:
        return Price(usd_per_hour=reported_usd_per_hour, reason="Reported by the job.")
    catalogue = _catalogue()
    listed = catalogue["regions"].get(region, {}).get(instance_type)
    if listed is None:
        return Price(
            usd_per_hour=None,
            reason=f"The job reported no price, and prices.json has none for {instance_type} in {region}.",
        )
    return Price(usd_per_hour=listed, reason=f"{catalogue['source']}, {region}, {catalogue['collected']}.")


@functools.cache
def _catalogue() -> dict[str, Any]:
    text = resources.files("inference_recommender").joinpath("prices.json").read_text("utf-8")
    return dict(json.loads(text))
