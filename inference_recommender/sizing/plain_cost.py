"""What a million invocations cost on an instance of known throughput and price, and the saving against another. Pure.

cost per million = price per hour / (throughput · 3600) · 10⁶
saving           = 1 - cost per million / the baseline's
"""

from inference_recommender.sizing.candidates import cost_per_million_usd
from workloads.document import Document


class PlainCost(Document):
    cost_per_million_invocations_usd: float
    baseline_cost_per_million_invocations_usd: float | None = None
    saving_percent: float | None = None
    """Negative where the baseline is cheaper."""
    throughput_ratio: float | None = None


def plain_cost(
    throughput_per_second: float, price_per_hour_usd: float, baseline: tuple[float, float] | None = None
) -> PlainCost:
    """`baseline` is the throughput per second and the price per hour of what to compare with."""
    cost = cost_per_million_usd(price_per_hour_usd, throughput_per_second * 60)
    if baseline is None:
        return PlainCost(cost_per_million_invocations_usd=cost)
    other_throughput, other_price = baseline
    other = cost_per_million_usd(other_price, other_throughput * 60)
    return PlainCost(
        cost_per_million_invocations_usd=cost,
        baseline_cost_per_million_invocations_usd=other,
        saving_percent=(1 - cost / other) * 100,
        throughput_ratio=throughput_per_second / other_throughput,
    )
